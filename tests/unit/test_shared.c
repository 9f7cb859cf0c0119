/* daemon/front/shared.c: what health says of threads and workers. */
#include "daemon/front/shared.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct io_thread threads[2];
static struct front front = {.threads = threads, .nthreads = 2, .lock = PTHREAD_MUTEX_INITIALIZER};

static void loops_that_stand_still_are_named(void **state) {
    char reason[128];
    uint64_t now = io_now(), long_ago = now - UINT64_C(11000000000);
    (void)state;
    /* None has been round yet. */
    assert_true(shared_alive(&front, reason, sizeof reason));
    atomic_store(&front.beat_ns, now);
    atomic_store(&threads[0].beat_ns, now);
    atomic_store(&threads[1].beat_ns, now);
    assert_true(shared_alive(&front, reason, sizeof reason));
    assert_string_equal(reason, "");
    atomic_store(&threads[1].beat_ns, long_ago);
    assert_false(shared_alive(&front, reason, sizeof reason));
    assert_string_equal(reason, "I/O thread 1 stands still");
    atomic_store(&front.beat_ns, long_ago);
    assert_false(shared_alive(&front, reason, sizeof reason));
    assert_string_equal(reason, "the main loop stands still");
}

static void who_is_not_ready_says_why(void **state) {
    char reason[128];
    (void)state;
    assert_false(shared_ready(&front, reason, sizeof reason));
    assert_string_equal(reason, "the first worker is starting");
    strcpy(front.info.reason, "no GPU");
    assert_false(shared_ready(&front, reason, sizeof reason));
    assert_string_equal(reason, "no GPU");
    front.info.ready = true;
    assert_true(shared_ready(&front, reason, sizeof reason));
    assert_string_equal(reason, "");
    atomic_store(&front.draining, true);
    assert_false(shared_ready(&front, reason, sizeof reason));
    assert_non_null(strstr(reason, "draining"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_that_stand_still_are_named),
        cmocka_unit_test(who_is_not_ready_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
