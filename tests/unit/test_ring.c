/* daemon/shared/ring.c: nothing is lost or doubled between two threads, and a faulty peer is seen.
 */
#include "daemon/shared/ring.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

enum { CAPACITY = 64 };

static struct ring_shared *shared;

static int setup(void **state) {
    (void)state;
    shared = aligned_alloc(64, ring_bytes(CAPACITY));
    memset(shared, 0, ring_bytes(CAPACITY));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    free(shared);
    return 0;
}

static void it_is_first_in_first_out_and_full_at_capacity(void **state) {
    struct ring in, out;
    uint64_t entry;
    (void)state;
    ring_view(&in, shared, CAPACITY);
    ring_view(&out, shared, CAPACITY);
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < CAPACITY; i++)
            assert_int_equal(ring_push(&in, i), RING_OK);
        assert_int_equal(ring_push(&in, 0), RING_FULL);
        assert_int_equal(ring_waiting(&out), CAPACITY);
        for (uint64_t i = 0; i < CAPACITY; i++) {
            assert_int_equal(ring_pop(&out, &entry), RING_OK);
            assert_int_equal(entry, i);
        }
        assert_int_equal(ring_pop(&out, &entry), RING_EMPTY);
    }
}

static void impossible_positions_are_seen(void **state) {
    struct ring in, out;
    uint64_t entry;
    (void)state;
    ring_view(&in, shared, CAPACITY);
    ring_view(&out, shared, CAPACITY);
    atomic_store(&shared->head, 5);
    assert_int_equal(ring_push(&in, 1), RING_CORRUPT);
    atomic_store(&shared->head, 0);
    atomic_store(&shared->tail, CAPACITY + 1);
    assert_int_equal(ring_pop(&out, &entry), RING_CORRUPT);
    assert_int_equal(ring_waiting(&out), 0);
}

struct pair {
    struct ring ring;
    struct ring_bell *bell;
    int fd;
    uint64_t count;
};

static void *produce(void *arg) {
    struct pair *pair = arg;
    for (uint64_t i = 0; i < pair->count;) {
        if (ring_push(&pair->ring, i) == RING_OK) {
            i++;
            bell_ring(pair->bell, pair->fd);
        }
    }
    return NULL;
}

/* The consumer sleeps whenever nothing is there: a wake-up that is lost would hang the test. */
static void no_wake_up_is_lost(void **state) {
    static struct ring_bell bell;
    struct pair in = {.bell = &bell, .fd = eventfd(0, EFD_NONBLOCK), .count = 200000};
    struct ring out;
    pthread_t thread;
    uint64_t entry, expected = 0, ignored;
    (void)state;
    ring_view(&in.ring, shared, CAPACITY);
    ring_view(&out, shared, CAPACITY);
    assert_int_equal(pthread_create(&thread, NULL, produce, &in), 0);
    while (expected < in.count) {
        if (ring_pop(&out, &entry) == RING_OK) {
            assert_true(entry == expected);
            expected++;
            continue;
        }
        bell_arm(&bell);
        if (ring_waiting(&out) == 0) {
            struct pollfd ready = {in.fd, POLLIN, 0};
            assert_int_equal(poll(&ready, 1, 60000), 1);
            assert_int_equal(read(in.fd, &ignored, sizeof ignored), sizeof ignored);
        }
        bell_disarm(&bell);
    }
    pthread_join(thread, NULL);
    assert_int_equal(ring_pop(&out, &entry), RING_EMPTY);
    close(in.fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_first_in_first_out_and_full_at_capacity, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(impossible_positions_are_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(no_wake_up_is_lost, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
