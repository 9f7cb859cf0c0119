/* daemon/worker: its loop as a thread over one mapping, a front made for the purpose on the other
 * side, and a backend that completes groups when it is told to. */
#include "daemon/worker/loop.h"
#include "daemon/worker/operators.h"
#include "daemon/worker/outbox.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { RECORDS = 64, LANES_OF_BACKEND = 2, INBOX = 1 << 20, OUTBOX = 1 << 20, MAX_GROUP = 8 };

/* ---- An operator: y = x + 1 in f32, and one that writes behind its end ---- */

static enum xop_status infer(const struct xop_call *call, struct xop_plan *plan,
                             struct xop_error *error) {
    if (call->in[0].rank != 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "x has one dimension");
    plan->out[0] = call->in[0];
    plan->out[0].data = NULL;
    plan->bytes = 8 * (uint64_t)call->in[0].shape[0];
    return XOP_OK;
}

static enum xop_status launch(const struct xop_launch *l, struct xop_error *error) {
    (void)error;
    for (uint32_t c = 0; c < l->ncalls; c++)
        for (int64_t i = 0; i < l->calls[c].in[0].shape[0]; i++)
            ((float *)l->calls[c].out[0].data)[i] = ((float *)l->calls[c].in[0].data)[i] + 1;
    return XOP_OK;
}

static enum xop_status launch_too_far(const struct xop_launch *l, struct xop_error *error) {
    launch(l, error);
    ((float *)l->calls[0].out[0].data)[l->calls[0].in[0].shape[0]] = 0;
    return XOP_OK;
}

static const struct xop_operand x = {"x", "anything", 0, 0}, y = {"y", "x + 1", 0, 0};
static const struct xop_attr_spec attrs[] = {
    {"eps", "a number", XOP_ATTR_FLOAT, false, {"eps", XOP_ATTR_FLOAT, 1, {.f = 0.5}}},
    {"mode", "a word", XOP_ATTR_STRING, false, {"mode", XOP_ATTR_STRING, 1, {.string = "a"}}}};
#define OP(op_name, launch_fn)                                                                     \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = op_name, .doc = "", .dtypes = XOP_DTYPE_BIT(XOP_F32),           \
        .attrs = attrs, .nattrs = 2, .pass = {                                                     \
            {&x, &y, 1, 1, infer, launch_fn, MAX_GROUP, -1}                                        \
        }                                                                                          \
    }
static const struct xop_op good = OP("good", launch), far = OP("far", launch_too_far);
static const struct xop_op *const ops[] = {&good, &far};
static const struct xop_library library = {XOP_OP_ABI, "fake", ops, 2};

/* ---- A backend that computes when it is polled, and only while it is let ---- */

static struct fake {
    pthread_mutex_t lock;
    struct xop_group *groups[LANES_OF_BACKEND];
    uint32_t n, submitted, calls, largest;
    bool hold, lose;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t fake_free(struct xop_backend *b) {
    (void)b;
    pthread_mutex_lock(&fake.lock);
    uint32_t n = LANES_OF_BACKEND - fake.n;
    pthread_mutex_unlock(&fake.lock);
    return n;
}

static enum xop_status fake_submit(struct xop_backend *b, struct xop_group *group,
                                   struct xop_error *error) {
    (void)b, (void)error;
    pthread_mutex_lock(&fake.lock);
    fake.groups[fake.n++] = group;
    fake.submitted++;
    fake.calls += group->ncalls;
    fake.largest = group->ncalls > fake.largest ? group->ncalls : fake.largest;
    pthread_mutex_unlock(&fake.lock);
    return XOP_OK;
}

static enum xop_status fake_poll(struct xop_backend *b, struct xop_group **groups, uint32_t max,
                                 uint32_t *count, struct xop_error *error) {
    (void)b, (void)max;
    *count = 0;
    pthread_mutex_lock(&fake.lock);
    bool lose = fake.lose;
    while (!fake.hold && fake.n > 0) {
        struct xop_group *group = fake.groups[--fake.n];
        struct xop_launch l = {.ncalls = group->ncalls, .calls = group->calls};
        group->status = group->op->pass[0].launch(&l, &group->error);
        groups[(*count)++] = group;
    }
    pthread_mutex_unlock(&fake.lock);
    return lose ? xop_fail(error, XOP_DEVICE_FAULT, "the device is lost") : XOP_OK;
}

static int fake_descriptor(struct xop_backend *b) {
    (void)b;
    return -1;
}

static void fake_info(struct xop_backend *b, struct xop_device_info *info) {
    (void)b;
    *info = (struct xop_device_info){.backend = "fake", .lanes = LANES_OF_BACKEND};
}

static const struct xop_backend_api api = {.abi = XOP_BACKEND_ABI,
                                           .name = "fake",
                                           .info = fake_info,
                                           .free_lanes = fake_free,
                                           .submit = fake_submit,
                                           .poll = fake_poll,
                                           .descriptor = fake_descriptor};

static void set_hold(bool hold) {
    pthread_mutex_lock(&fake.lock);
    fake.hold = hold;
    pthread_mutex_unlock(&fake.lock);
}

static uint32_t submitted(void) {
    pthread_mutex_lock(&fake.lock);
    uint32_t n = fake.submitted;
    pthread_mutex_unlock(&fake.lock);
    return n;
}

/* ---- The front's side ---- */

static struct front {
    struct worker worker;
    struct seam_lane lane;
    pthread_t thread;
    int control;
    enum xop_status ended;
    unsigned char *inbox;
    uint64_t tag;
} front;

static void *run_loop(void *arg) {
    struct xop_error error;
    (void)arg;
    front.ended = loop_run(&front.worker, &error);
    return NULL;
}

static int start_with(uint32_t delay_us) {
    struct worker *w = &front.worker;
    struct xop_error error;
    int sockets[2];
    memset(&front, 0, sizeof front);
    memset(&fake.groups, 0, sizeof fake - offsetof(struct fake, groups));
    size_t bytes = (seam_bytes(1, RECORDS) + 63) / 64 * 64;
    w->header = aligned_alloc(64, bytes);
    memset((void *)w->header, 0, bytes);
    w->setup = (struct seam_setup){.lanes = 1,
                                   .records = RECORDS,
                                   .inbox_bytes = INBOX,
                                   .outbox_bytes = OUTBOX,
                                   .poll_us = 20,
                                   .batch_max = 256,
                                   .batch_max_delay_us = delay_us};
    seam_view(w->header, 0, RECORDS, &w->lanes[0]);
    seam_view(w->header, 0, RECORDS, &front.lane);
    front.inbox = aligned_alloc(64, INBOX);
    memset(front.inbox, 0, INBOX);
    w->inbox = front.inbox;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets) < 0)
        return -1;
    front.control = sockets[0];
    w->control = sockets[1];
    w->doorbell = eventfd(0, EFD_NONBLOCK);
    w->lane_fds[0] = eventfd(0, EFD_NONBLOCK);
    w->api = &api;
    fake_info(NULL, &w->info);
    if (outbox_open(&w->outbox, aligned_alloc(64, OUTBOX), OUTBOX, &error) != XOP_OK ||
        operators_add(w, &library, &error) != XOP_OK || loop_open(w, &error) != XOP_OK)
        return -1;
    return pthread_create(&front.thread, NULL, run_loop, NULL);
}

static int start(void **state) {
    (void)state;
    return start_with(0);
}

static int stop(void **state) {
    struct worker *w = &front.worker;
    (void)state;
    set_hold(false);
    close(front.control);
    pthread_join(front.thread, NULL);
    loop_close(w);
    free(w->outbox.base);
    outbox_close(&w->outbox);
    free((void *)w->header);
    free(front.inbox);
    close(w->control);
    close(w->doorbell);
    close(w->lane_fds[0]);
    return 0;
}

/* Fills record `index` with a request for op on n floats. */
static struct seam_request *fill(uint32_t index, uint32_t op, int64_t n) {
    struct seam_request *r = &front.lane.requests[index];
    struct seam_tensor in = {.dtype = XOP_F32, .rank = 1, .place = SEAM_INBOX};
    memset(r, 0, sizeof *r);
    in.shape[0] = n;
    in.offset = (uint64_t)index * 4096;
    for (int64_t i = 0; i < n && i < 1024; i++)
        ((float *)(front.inbox + in.offset))[i] = (float)(index + i);
    r->tag = ++front.tag;
    r->op = op;
    r->nin = 1;
    r->arguments_offset = UINT64_MAX;
    r->accepted_ns = worker_now();
    memcpy(r->arguments, &in, sizeof in);
    return r;
}

static void submit(uint32_t index) {
    assert_int_equal(ring_push(&front.lane.submit, index), RING_OK);
    bell_ring(&front.worker.header->bell, front.worker.doorbell);
}

/* The next completion. */
static struct seam_result *next(uint32_t *index) {
    uint64_t entry, ignored;
    while (ring_pop(&front.lane.complete, &entry) != RING_OK) {
        bell_arm(front.lane.bell);
        if (ring_waiting(&front.lane.complete) == 0) {
            struct pollfd ready = {front.worker.lane_fds[0], POLLIN, 0};
            assert_int_equal(poll(&ready, 1, 60000), 1);
            if (read(front.worker.lane_fds[0], &ignored, sizeof ignored) < 0)
                fail();
        }
        bell_disarm(front.lane.bell);
    }
    *index = (uint32_t)entry;
    return &front.lane.results[entry];
}

static void release(const struct seam_result *result) {
    assert_int_equal(ring_push(&front.lane.release, result->block_offset), RING_OK);
    bell_ring(&front.worker.header->bell, front.worker.doorbell);
}

static void expect_error(uint32_t index, enum xop_status status, const char *fragment) {
    uint32_t got;
    struct seam_result *result = next(&got);
    assert_int_equal(got, index);
    if (result->status != (uint32_t)status || !strstr(result->message, fragment))
        fail_msg("%s: %s", xop_status_name((enum xop_status)result->status), result->message);
    assert_int_equal(result->block_bytes, 0);
}

/* ---- What holds ---- */

static void a_request_comes_back_with_its_output(void **state) {
    uint32_t index;
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct seam_request *r = fill(3, 0, 100);
        uint64_t tag = r->tag;
        submit(3);
        struct seam_result *result = next(&index);
        assert_int_equal(index, 3);
        assert_int_equal(result->status, XOP_OK);
        assert_int_equal(result->tag, tag);
        assert_int_equal(result->nout, 1);
        const float *out = (const float *)(front.worker.outbox.base + result->out[0].offset);
        assert_true(out[0] == 4 && out[99] == 103);
        release(result);
    }
}

static void what_waits_goes_as_one_launch(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    /* Two fill the lanes; the others collect and go in groups of at most MAX_GROUP. */
    fill(0, 0, 10), submit(0);
    while (submitted() < 1)
        ;
    fill(1, 0, 10), submit(1);
    while (submitted() < 2)
        ;
    for (uint32_t i = 2; i < 2 + 2 * MAX_GROUP; i++)
        fill(i, 0, 10), submit(i);
    set_hold(false);
    for (uint32_t i = 0; i < 2 + 2 * MAX_GROUP; i++) {
        struct seam_result *result = next(&index);
        assert_int_equal(result->status, XOP_OK);
        assert_true(result->batch >= 1 && result->batch <= MAX_GROUP);
    }
    pthread_mutex_lock(&fake.lock);
    assert_true(fake.submitted < 2 + 2 * MAX_GROUP); /* some went together */
    assert_int_equal(fake.calls, 2 + 2 * MAX_GROUP);
    pthread_mutex_unlock(&fake.lock);
}

static void other_attributes_do_not_share_a_launch(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    fill(0, 0, 10), submit(0);
    while (submitted() < 1)
        ;
    fill(1, 0, 10), submit(1);
    while (submitted() < 2)
        ;
    for (uint32_t i = 2; i < 10; i++) {
        struct xop_attr attr = {"eps", XOP_ATTR_INT, 1, {.i = i % 2}};
        struct seam_request *r = fill(i, 0, 10);
        size_t used = sizeof(struct seam_tensor);
        assert_true(seam_put_attr(r->arguments, sizeof r->arguments, &used, &attr));
        r->nattrs = 1;
        r->attr_bytes = (uint32_t)(used - sizeof(struct seam_tensor));
        submit(i);
    }
    set_hold(false);
    for (uint32_t i = 0; i < 10; i++)
        assert_true(next(&index)->batch <= 4);
}

static void mistakes_are_named(void **state) {
    struct seam_request *r;
    struct seam_tensor *t;
    size_t used = sizeof(struct seam_tensor);
    (void)state;
    r = fill(1, 0, 10);
    t = (struct seam_tensor *)(void *)r->arguments;
    t->rank = 2;
    t->shape[1] = 1;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "x has one dimension");
    r = fill(1, 0, 10);
    ((struct seam_tensor *)(void *)r->arguments)->dtype = XOP_F64;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "input x of good is f64: it can be f32");
    r = fill(1, 0, 10);
    r->nin = 0;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "takes 1 inputs (x), 0 came");
    r = fill(1, 0, 10);
    ((struct seam_tensor *)(void *)r->arguments)->place = SEAM_NOWHERE;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "has no data");
    r = fill(1, 0, 10);
    r->pass = XOP_BACKWARD;
    submit(1);
    expect_error(1, XOP_UNIMPLEMENTED, "no backward");
    r = fill(1, 0, 10);
    struct xop_attr unknown = {"colour", XOP_ATTR_INT, 1, {.i = 1}};
    seam_put_attr(r->arguments, sizeof r->arguments, &used, &unknown);
    r->nattrs = 1;
    r->attr_bytes = (uint32_t)(used - sizeof(struct seam_tensor));
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "\"colour\" (those it has: eps, mode)");
    used = sizeof(struct seam_tensor);
    r = fill(1, 0, 10);
    struct xop_attr wrong = {"mode", XOP_ATTR_INT, 1, {.i = 1}};
    seam_put_attr(r->arguments, sizeof r->arguments, &used, &wrong);
    r->nattrs = 1;
    r->attr_bytes = (uint32_t)(used - sizeof(struct seam_tensor));
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "is of type int, but string is expected");
    r = fill(1, 0, 10);
    r->nout = 2;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "has 1 outputs, 2 were asked for");
    fill(1, 0, 250000); /* a megabyte, of which the outbox keeps a part for small ones */
    submit(1);
    expect_error(1, XOP_RESOURCE_EXHAUSTED, "output y needs 976.6 KiB");
}

static void nonsense_is_refused_and_the_loop_goes_on(void **state) {
    struct seam_request *r;
    struct seam_tensor *t;
    uint32_t index;
    (void)state;
    for (int what = 0; what < 9; what++) {
        r = fill(2, 0, 10);
        t = (struct seam_tensor *)(void *)r->arguments;
        switch (what) {
        case 0: r->op = 99; break;
        case 1: r->nin = 200; break;
        case 2: r->attr_bytes = UINT32_MAX; break;
        case 3: r->arguments_offset = INBOX - 8; break;
        case 4: t->offset = INBOX; break;
        case 5: t->offset = UINT64_MAX - 63; break;
        case 6: t->rank = 9; break;
        case 7: t->shape[0] = INT64_MAX; break;
        default: t->place = 77; break;
        }
        submit(2);
        expect_error(2, XOP_INTERNAL, "not well-formed");
    }
    assert_int_equal(ring_push(&front.lane.submit, 1000), RING_OK); /* no such record */
    assert_int_equal(ring_push(&front.lane.release, 12345), RING_OK);
    fill(2, 0, 10);
    submit(2);
    assert_int_equal(next(&index)->status, XOP_OK);
}

static void a_request_waits_for_space_and_small_ones_pass(void **state) {
    uint32_t index;
    (void)state;
    /* Large ones of 384 KiB: two fit into what is not kept for small ones. */
    for (uint32_t i = 0; i < 3; i++)
        fill(i, 0, 98304), submit(i);
    struct seam_result *first = next(&index);
    struct seam_result *second = next(&index);
    assert_int_equal(first->status, XOP_OK);
    assert_int_equal(second->status, XOP_OK);
    fill(10, 1, 10), submit(10); /* another operator, so that it is in another queue */
    next(&index);
    assert_int_equal(index, 10);
    release(first);
    assert_int_equal(next(&index)->status, XOP_OK);
    assert_int_equal(index, 2);
}

static void writing_outside_is_found_when_checked(void **state) {
    uint32_t index;
    (void)state;
    fill(1, 1, 64)->flags = SEAM_CHECK;
    submit(1);
    expect_error(1, XOP_INTERNAL, "operator far wrote outside its output");
    fill(1, 0, 64)->flags = SEAM_CHECK;
    submit(1);
    assert_int_equal(next(&index)->status, XOP_OK);
}

static void what_is_late_is_not_launched(void **state) {
    (void)state;
    fill(1, 0, 10)->deadline_ns = 1;
    submit(1);
    expect_error(1, XOP_DEADLINE_EXCEEDED, "before it was started");
    assert_int_equal(submitted(), 0);
}

static void a_suspect_runs_with_nothing_else(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    fill(0, 0, 10), submit(0);
    while (submitted() < 1)
        ;
    fill(1, 0, 10)->flags = SEAM_ALONE;
    submit(1);
    fill(2, 0, 10), submit(2);
    set_hold(false);
    uint32_t order[3];
    for (int i = 0; i < 3; i++) {
        struct seam_result *result = next(&index);
        assert_int_equal(result->batch, 1);
        order[i] = index;
    }
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
    assert_int_equal(order[2], 2);
}

static void a_lost_device_ends_the_loop(void **state) {
    (void)state;
    set_hold(true);
    fill(0, 0, 10), submit(0);
    pthread_mutex_lock(&fake.lock);
    fake.lose = true;
    pthread_mutex_unlock(&fake.lock);
    pthread_join(front.thread, NULL);
    assert_int_equal(front.ended, XOP_DEVICE_FAULT);
    assert_int_equal(front.lane.results[0].launched, 1);
    assert_int_equal(ring_waiting(&front.lane.complete), 0); /* it was not completed */
    pthread_create(&front.thread, NULL, run_loop, NULL);     /* for the teardown */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_comes_back_with_its_output, start, stop),
        cmocka_unit_test_setup_teardown(what_waits_goes_as_one_launch, start, stop),
        cmocka_unit_test_setup_teardown(other_attributes_do_not_share_a_launch, start, stop),
        cmocka_unit_test_setup_teardown(mistakes_are_named, start, stop),
        cmocka_unit_test_setup_teardown(nonsense_is_refused_and_the_loop_goes_on, start, stop),
        cmocka_unit_test_setup_teardown(a_request_waits_for_space_and_small_ones_pass, start, stop),
        cmocka_unit_test_setup_teardown(writing_outside_is_found_when_checked, start, stop),
        cmocka_unit_test_setup_teardown(what_is_late_is_not_launched, start, stop),
        cmocka_unit_test_setup_teardown(a_suspect_runs_with_nothing_else, start, stop),
        cmocka_unit_test_setup_teardown(a_lost_device_ends_the_loop, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
