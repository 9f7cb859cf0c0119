/* daemon/front/drain.c: a thread is through when it has said so, and not because its counters
 * happen to be 0. */
#include "daemon/front/drain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct io_thread threads[2];
static struct front front = {.threads = threads, .nthreads = 2};

static void a_thread_that_has_not_heard_of_it_is_not_through(void **state) {
    (void)state;
    drain_note(&threads[0]);
    drain_note(&threads[1]);
    assert_false(drain_is_settled(&front));
    threads[0].draining = true;
    drain_note(&threads[0]);
    drain_note(&threads[1]);
    assert_false(drain_is_settled(&front));
    threads[1].draining = true;
    drain_note(&threads[1]);
    assert_true(drain_is_settled(&front));
}

static void what_is_in_flight_or_unsent_is_waited_for(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        threads[i].draining = true;
        drain_note(&threads[i]);
    }
    atomic_store(&threads[1].in_flight, 1);
    drain_note(&threads[1]);
    assert_false(drain_is_settled(&front));
    atomic_store(&threads[1].in_flight, 0);
    atomic_store(&threads[1].unsent, 1);
    drain_note(&threads[1]);
    assert_false(drain_is_settled(&front));
    atomic_store(&threads[1].unsent, 0);
    drain_note(&threads[1]);
    assert_true(drain_is_settled(&front));
}

static void who_has_just_connected_may_say_hello(void **state) {
    struct connection connection = {.thread = &threads[0], .connected_ns = io_now()};
    (void)state;
    threads[0].draining = threads[1].draining = true;
    threads[0].connections = &connection;
    drain_note(&threads[0]);
    drain_note(&threads[1]);
    assert_false(drain_is_settled(&front));
    connection.greeted = true;
    drain_note(&threads[0]);
    assert_true(drain_is_settled(&front));
    connection.greeted = false;
    connection.connected_ns -= UINT64_C(1000000001);
    drain_note(&threads[0]);
    assert_true(drain_is_settled(&front));
    threads[0].connections = NULL;
}

static void a_thread_has_left_when_its_last_connection_is_gone(void **state) {
    struct connection connection = {.thread = &threads[0]};
    (void)state;
    threads[0].connections = &connection;
    drain_note(&threads[0]);
    assert_false(atomic_load(&threads[0].left));
    threads[0].leaving = true;
    drain_note(&threads[0]);
    assert_false(atomic_load(&threads[0].left));
    threads[0].connections = NULL;
    drain_note(&threads[0]);
    assert_true(atomic_load(&threads[0].left));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_has_not_heard_of_it_is_not_through),
        cmocka_unit_test(what_is_in_flight_or_unsent_is_waited_for),
        cmocka_unit_test(who_has_just_connected_may_say_hello),
        cmocka_unit_test(a_thread_has_left_when_its_last_connection_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
