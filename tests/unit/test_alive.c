/* daemon/front/alive.c: what counts as alive, and what as stuck. */
#include "daemon/front/alive.h"

#include "daemon/front/workers.h"
#include "daemon/shared/channel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT UINT64_C(1000000000)
#define MINUTE UINT64_C(60000000000)

/* A front whose parent is this test. */
struct fixture {
    struct config config;
    struct io_thread threads[2];
    struct front front;
    int parent;
};

static int open_front(void **state) {
    static struct fixture fixture;
    struct xop_error error;
    int sockets[2];
    memset(&fixture, 0, sizeof fixture);
    config_defaults(&fixture.config);
    fixture.config.outbox_bytes = 16 << 20;
    fixture.config.records = 16;
    fixture.front.config = &fixture.config;
    fixture.front.threads = fixture.threads;
    fixture.front.nthreads = 2;
    fixture.front.base = event_base_new();
    pthread_mutex_init(&fixture.front.lock, NULL);
    for (int i = 0; i < 2; i++) {
        fixture.threads[i].front = &fixture.front;
        atomic_store(&fixture.threads[i].beat_ns, io_now());
    }
    if (inbox_open(&fixture.front.inbox, 16 << 20, 2, &error) != XOP_OK ||
        channel_pair(sockets, true, &error) != XOP_OK ||
        workers_open(&fixture.front, &error) != XOP_OK)
        return -1;
    fixture.front.parent = sockets[0];
    fixture.parent = sockets[1];
    *state = &fixture;
    return 0;
}

static int close_front(void **state) {
    struct fixture *fixture = *state;
    workers_close(&fixture->front);
    inbox_close(&fixture->front.inbox);
    event_base_free(fixture->front.base);
    close(fixture->front.parent);
    close(fixture->parent);
    return 0;
}

/* What the front tells its parent next, as the front's loop runs. Of a start it keeps the worker's
 * control socket and the seam. */
static struct parent_message next_message(struct fixture *fixture, int kept[2]) {
    unsigned char packet[CHANNEL_BYTES];
    struct parent_message message;
    struct xop_error error;
    int fds[CHANNEL_FDS];
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    while (channel_receive(fixture->parent, packet, &bytes, fds, CHANNEL_FDS, &nfds, &would_block,
                           &error) != XOP_OK) {
        assert_true(would_block);
        event_base_loop(fixture->front.base, EVLOOP_ONCE);
    }
    assert_int_equal(bytes, sizeof message);
    memcpy(&message, packet, sizeof message);
    for (uint32_t i = 0; i < nfds; i++)
        if (kept && i < 2)
            kept[i] = fds[i];
        else
            close(fds[i]);
    return message;
}

/* The threads do not run: they cannot be told. */
static void tell(struct fixture *fixture, const struct parent_message *message) {
    fixture->front.nthreads = 0;
    workers_on_parent(&fixture->front, message);
    fixture->front.nthreads = 2;
}

static void is_alive(const struct fixture *fixture, uint64_t now) {
    const char *stuck = alive_stuck(&fixture->front, now, UINT64_MAX);
    if (stuck)
        fail_msg("%s", stuck);
}

static void is_stuck(const struct fixture *fixture, uint64_t now, const char *expected) {
    const char *stuck = alive_stuck(&fixture->front, now, UINT64_MAX);
    assert_non_null(stuck);
    assert_non_null(strstr(stuck, expected));
}

static void a_thread_whose_tick_is_old_stands_still(void **state) {
    struct fixture *fixture = *state;
    uint64_t now = io_now();
    workers_start(&fixture->front);
    atomic_store(&fixture->threads[0].beat_ns, now);
    atomic_store(&fixture->threads[1].beat_ns, now - LIMIT);
    assert_null(alive_stuck(&fixture->front, now, LIMIT));
    const char *stuck = alive_stuck(&fixture->front, now + 1, LIMIT);
    assert_non_null(stuck);
    assert_non_null(strstr(stuck, "I/O thread"));
    /* One that ticked after the clock was read is no reason. */
    atomic_store(&fixture->threads[1].beat_ns, now + 1);
    assert_null(alive_stuck(&fixture->front, now, LIMIT));
}

static void a_worker_that_cannot_be_started_is_tried_again(void **state) {
    struct fixture *fixture = *state;
    struct parent_message refused = {.type = PARENT_STARTED, .value = -1, .text = "no memory"};
    is_stuck(fixture, io_now(), "none is going to be started");
    workers_start(&fixture->front);
    is_alive(fixture, io_now());
    struct parent_message start = next_message(fixture, NULL);
    assert_int_equal(start.type, PARENT_START);
    refused.generation = start.generation;
    tell(fixture, &refused);
    is_alive(fixture, io_now());
    assert_int_equal(next_message(fixture, NULL).type, PARENT_STATUS);
    assert_int_equal(next_message(fixture, NULL).type, PARENT_START);
    is_alive(fixture, io_now());
}

static void a_worker_that_stands_still_is_replaced_or_all_is_stuck(void **state) {
    struct fixture *fixture = *state;
    struct parent_message reaped = {.type = PARENT_REAPED, .value = 9};
    int kept[2] = {-1, -1};
    workers_start(&fixture->front);
    reaped.generation = next_message(fixture, kept).generation;
    struct seam_header *header =
        mmap(NULL, sizeof *header, PROT_READ | PROT_WRITE, MAP_SHARED, kept[1], 0);
    assert_ptr_not_equal(header, MAP_FAILED);
    atomic_store(&header->heartbeat_ns, 1);
    assert_int_equal(next_message(fixture, NULL).type, PARENT_KILL);
    is_alive(fixture, io_now());
    is_stuck(fixture, io_now() + MINUTE + 1, "still there");
    tell(fixture, &reaped);
    is_alive(fixture, io_now() + 2 * MINUTE);
    munmap(header, sizeof *header);
    close(kept[0]);
    close(kept[1]);
}

static void a_server_that_stops_needs_no_worker(void **state) {
    struct fixture *fixture = *state;
    fixture->front.draining = true;
    is_alive(fixture, io_now());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_front, close_front)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_thread_whose_tick_is_old_stands_still),
        TEST(a_worker_that_cannot_be_started_is_tried_again),
        TEST(a_worker_that_stands_still_is_replaced_or_all_is_stuck),
        TEST(a_server_that_stops_needs_no_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
