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
#include <sys/mman.h>
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

/* ---- Both ends of a lane, as threads on one mapping ---- */

/* What front and worker share: the records are plain memory, which rings and bells alone order. */
struct lane {
    struct ring_bell worker_bell, front_bell;
    uint64_t records[CAPACITY];
};
#define LANE_BYTES 1024 /* then the rings */

struct end {
    struct ring submit, complete;
    struct lane *lane;
    int worker_fd, front_fd;
    uint64_t count;
};

static struct ring_shared *ring_of(struct lane *lane, size_t index) {
    return (void *)((unsigned char *)lane + LANE_BYTES + index * ring_bytes(CAPACITY));
}

/* Sleeps until the ring has something, as front and worker do. */
static void sleep_on(struct ring_bell *bell, const struct ring *ring, int fd) {
    uint64_t ignored;
    bell_arm(bell);
    if (ring_waiting(ring) == 0) {
        struct pollfd ready = {fd, POLLIN, 0};
        assert_int_equal(poll(&ready, 1, 60000), 1);
        assert_int_equal(read(fd, &ignored, sizeof ignored), sizeof ignored);
    }
    bell_disarm(bell);
}

static uint64_t worked(uint64_t value) { return value * UINT64_C(0x9e3779b97f4a7c15) + 1; }

static void *work(void *arg) {
    struct end *end = arg;
    uint64_t index;
    for (uint64_t done = 0; done < end->count;) {
        if (ring_pop(&end->submit, &index) != RING_OK) {
            sleep_on(&end->lane->worker_bell, &end->submit, end->worker_fd);
            continue;
        }
        end->lane->records[index] = worked(end->lane->records[index]);
        assert_int_equal(ring_push(&end->complete, index), RING_OK);
        bell_ring(&end->lane->front_bell, end->front_fd);
        done++;
    }
    return NULL;
}

/* Hands over what it has records for, in steps of changing size, and sleeps until some come back.
 */
static void serve(struct end *end) {
    uint64_t expected[CAPACITY], spare[CAPACITY], nspare = CAPACITY, sent = 0, done = 0, index;
    for (uint64_t i = 0; i < CAPACITY; i++)
        spare[i] = i;
    while (done < end->count) {
        for (uint64_t step = sent % 7 + 1; step > 0 && nspare > 0 && sent < end->count; step--) {
            index = spare[--nspare];
            end->lane->records[index] = sent;
            expected[index] = worked(sent++);
            assert_int_equal(ring_push(&end->submit, index), RING_OK);
            bell_ring(&end->lane->worker_bell, end->worker_fd);
        }
        if (ring_waiting(&end->complete) == 0)
            sleep_on(&end->lane->front_bell, &end->complete, end->front_fd);
        while (ring_pop(&end->complete, &index) == RING_OK) {
            assert_true(end->lane->records[index] == expected[index]);
            spare[nspare++] = index;
            done++;
        }
    }
}

static void both_ends_sleep_and_plain_records_are_ordered(void **state) {
    size_t bytes = LANE_BYTES + 2 * ring_bytes(CAPACITY);
    int memory = memfd_create("lane", MFD_CLOEXEC);
    pthread_t thread;
    (void)state;
    assert_true(sizeof(struct lane) <= LANE_BYTES && memory >= 0);
    assert_int_equal(ftruncate(memory, (off_t)bytes), 0);
    struct lane *lane = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    assert_ptr_not_equal(lane, MAP_FAILED);
    struct end front = {.lane = lane,
                        .worker_fd = eventfd(0, EFD_NONBLOCK),
                        .front_fd = eventfd(0, EFD_NONBLOCK),
                        .count = 100000};
    ring_view(&front.submit, ring_of(lane, 0), CAPACITY);
    ring_view(&front.complete, ring_of(lane, 1), CAPACITY);
    struct end worker = front;
    assert_int_equal(pthread_create(&thread, NULL, work, &worker), 0);
    serve(&front);
    pthread_join(thread, NULL);
    close(front.worker_fd);
    close(front.front_fd);
    munmap(lane, bytes);
    close(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_first_in_first_out_and_full_at_capacity, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(impossible_positions_are_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(no_wake_up_is_lost, setup, teardown),
        cmocka_unit_test(both_ends_sleep_and_plain_records_are_ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
