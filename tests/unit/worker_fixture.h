/*
 * A worker's loop as a thread over one mapping, a front made for the purpose on the other side, and
 * a backend that completes groups when it is told to. For tests of what daemon/worker does.
 */
#ifndef TESTS_WORKER_FIXTURE_H
#define TESTS_WORKER_FIXTURE_H

#include "daemon/keeper.h"
#include "daemon/shared/channel.h"
#include "daemon/worker/loop.h"
#include "daemon/worker/operators.h"
#include "daemon/worker/outbox.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef FIXTURE_SCALE
#define FIXTURE_SCALE 1 /* a power of two */
#endif
#ifndef FIXTURE_LANES
#define FIXTURE_LANES 2
#endif
#ifndef FIXTURE_GROUP
#define FIXTURE_GROUP 8
#endif
enum {
    RECORDS = 64 * FIXTURE_SCALE,
    LANES_OF_BACKEND = FIXTURE_LANES,
    INBOX = (2 << 20) * FIXTURE_SCALE,
    OUTBOX = (1 << 20) * FIXTURE_SCALE,
    MAX_GROUP = FIXTURE_GROUP
};

/* ---- An operator: y = x + 1 in f32, and one that writes behind its end ---- */

static inline enum xop_status infer(const struct xop_call *call, struct xop_plan *plan,
                                    struct xop_error *error) {
    if (call->in[0].rank != 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "x has one dimension");
    plan->out[0] = call->in[0];
    plan->out[0].data = NULL;
    plan->bytes = 8 * (uint64_t)call->in[0].shape[0];
    plan->index_limit = 10;
    return XOP_OK;
}

static inline enum xop_status launch(const struct xop_launch *l, struct xop_error *error) {
    (void)error;
    for (uint32_t c = 0; c < l->ncalls; c++)
        for (int64_t i = 0; i < l->calls[c].in[0].shape[0]; i++)
            ((float *)l->calls[c].out[0].data)[i] = ((float *)l->calls[c].in[0].data)[i] + 1;
    return XOP_OK;
}

static inline enum xop_status launch_too_far(const struct xop_launch *l, struct xop_error *error) {
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
static const struct xop_op picks = {.abi = XOP_OP_ABI,
                                    .name = "picks",
                                    .doc = "",
                                    .dtypes = XOP_DTYPE_BIT(XOP_F32),
                                    .pass = {{&x, &y, 1, 1, infer, launch, 1, 0}}};
static const struct xop_op *const ops[] = {&good, &far, &picks};
static const struct xop_library fixture_library = {XOP_OP_ABI, "fake", ops, 3};

static inline enum xop_status launch_copy(const struct xop_launch *l, struct xop_error *error) {
    uint64_t bytes = 0;
    (void)error;
    for (uint32_t c = 0; c < l->ncalls; c++)
        if (l->calls[c].in[0].data && xop_tensor_bytes(&l->calls[c].in[0], &bytes))
            memcpy(l->calls[c].out[0].data, l->calls[c].in[0].data, bytes);
    return XOP_OK;
}

static inline enum xop_status infer_copy(const struct xop_call *call, struct xop_plan *plan,
                                         struct xop_error *error) {
    (void)error;
    plan->out[0] = call->in[0];
    plan->out[0].data = NULL;
    return XOP_OK;
}

static const struct xop_op copies = {.abi = XOP_OP_ABI,
                                     .name = "copy",
                                     .doc = "",
                                     .dtypes = XOP_FLOATS | XOP_INTEGERS,
                                     .pass = {{&x, &y, 1, 1, infer_copy, launch_copy, 1, -1}}};

/* ---- A backend that computes when it is polled, and only while it is let ---- */

static struct fake {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* submitted, rounds, stall or stalled */
    struct xop_group *groups[LANES_OF_BACKEND];
    uint32_t n, submitted, calls, largest;
    uint32_t rounds;       /* times that the loop asked or polled */
    uint32_t too_many;     /* groups of more calls are refused; 0: none */
    bool hold, lose, full; /* full: refuses single calls as well */
    bool lose_last;        /* of the groups that are done the last one has lost the device */
    struct xop_bad_index bad_index; /* at 0: none */
    uint32_t beside;                /* the most groups that were there when one came */
    uint32_t registered, mapped;    /* memories of clients and of the device that it knows */
    uint32_t made;                  /* so far */
    bool refuse;                    /* to register or make any */
    bool faults;                    /* making one finds that the device is lost */
    bool stall, stalled;            /* a probe waits while stall is set; it has begun to */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static inline uint32_t fake_free(struct xop_backend *b) {
    (void)b;
    pthread_mutex_lock(&fake.lock);
    uint32_t n = LANES_OF_BACKEND - fake.n;
    fake.rounds++;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
    return n;
}

static inline enum xop_status fake_submit(struct xop_backend *b, struct xop_group *group,
                                          struct xop_error *error) {
    enum xop_status status = XOP_OK;
    (void)b;
    pthread_mutex_lock(&fake.lock);
    if (fake.full || (fake.too_many && group->ncalls > fake.too_many)) {
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no workspace for %u", group->ncalls);
        goto out;
    }
    fake.beside = fake.n > fake.beside ? fake.n : fake.beside;
    fake.groups[fake.n++] = group;
    fake.submitted++;
    pthread_cond_broadcast(&fake.changed);
    fake.calls += group->ncalls;
    fake.largest = group->ncalls > fake.largest ? group->ncalls : fake.largest;
out:
    pthread_mutex_unlock(&fake.lock);
    return status;
}

static inline void fake_keep(const struct xop_call *call, void *const *keeps) {
    uint64_t bytes = 0;
    xop_tensor_bytes(&call->in[0], &bytes); /* in and out are of one size */
    if (keeps && keeps[0] && call->in[0].data)
        memcpy(keeps[0], call->in[0].data, bytes);
    if (keeps && keeps[1] && call->out[0].data && keeps[1] != call->out[0].data)
        memcpy(keeps[1], call->out[0].data, bytes);
}

static inline enum xop_status fake_poll(struct xop_backend *b, struct xop_group **groups,
                                        uint32_t max, uint32_t *count, struct xop_error *error) {
    (void)b, (void)max;
    *count = 0;
    pthread_mutex_lock(&fake.lock);
    fake.rounds++;
    pthread_cond_broadcast(&fake.changed);
    bool lose = fake.lose;
    while (!fake.hold && fake.n > 0) {
        struct xop_group *group = fake.groups[--fake.n];
        struct xop_launch l = {.ncalls = group->ncalls, .calls = group->calls};
        group->status = group->op->pass[0].launch(&l, &group->error);
        for (uint32_t c = 0; group->keeps && c < group->ncalls; c++)
            fake_keep(&group->calls[c], group->keeps[c]);
        if (fake.lose_last && fake.n == 0)
            group->status = xop_fail(&group->error, XOP_DEVICE_FAULT, "lost with this group");
        if (fake.bad_index.at)
            *group->calls[0].bad_index = fake.bad_index;
        groups[(*count)++] = group;
    }
    pthread_mutex_unlock(&fake.lock);
    return lose ? xop_fail(error, XOP_DEVICE_FAULT, "the device is lost") : XOP_OK;
}

static inline int fake_descriptor(struct xop_backend *b) {
    (void)b;
    return -1;
}

static inline void fake_info(struct xop_backend *b, struct xop_device_info *info) {
    (void)b;
    *info = (struct xop_device_info){.backend = "fake", .lanes = LANES_OF_BACKEND};
}

/* Counts, and answers as it is told. */
static inline enum xop_status fake_count(uint32_t *counter, int by, struct xop_error *error) {
    pthread_mutex_lock(&fake.lock);
    bool refuse = fake.refuse && by > 0, faults = fake.faults;
    *counter += refuse || faults ? 0 : (uint32_t)by;
    pthread_mutex_unlock(&fake.lock);
    if (faults)
        return xop_fail(error, XOP_DEVICE_FAULT, "the device is lost");
    return refuse ? xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no more of it") : XOP_OK;
}

static inline enum xop_status fake_register(struct xop_backend *b, void *base, size_t bytes,
                                            bool read_only, struct xop_error *error) {
    (void)b, (void)base, (void)bytes, (void)read_only;
    return fake_count(&fake.registered, 1, error);
}

static inline enum xop_status fake_unregister(struct xop_backend *b, void *base,
                                              struct xop_error *error) {
    (void)b, (void)base;
    return fake_count(&fake.registered, -1, error);
}

enum { FAKE_PAGE = 65536 }; /* what it makes has whole ones of these */

static inline enum xop_status fake_import(struct xop_backend *b, int fd, uint64_t bytes,
                                          void **base, struct xop_error *error) {
    (void)b;
    if (fake_count(&fake.mapped, 1, error) != XOP_OK)
        return error->status;
    *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return *base != MAP_FAILED ? XOP_OK : xop_fail(error, XOP_INTERNAL, "mmap");
}

static inline enum xop_status fake_make(struct xop_backend *b, uint64_t *bytes, bool zeroed,
                                        int *fd, void **base, struct xop_error *error) {
    (void)zeroed;
    *bytes = (*bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    *fd = memfd_create("fake", MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)*bytes) == 0 &&
        fake_import(b, *fd, *bytes, base, error) == XOP_OK)
        return fake_count(&fake.made, 1, error);
    close(*fd);
    *fd = -1;
    return error->status;
}

static inline enum xop_status fake_drop(struct xop_backend *b, void *base,
                                        struct xop_error *error) {
    (void)b, (void)base; /* the mapping stays, for what a test looks at */
    return fake_count(&fake.mapped, -1, error);
}

static inline enum xop_status fake_probe(struct xop_backend *b, uint64_t in, uint64_t out,
                                         struct xop_probe *probe, struct xop_error *error) {
    (void)b, (void)error;
    pthread_mutex_lock(&fake.lock);
    fake.stalled = fake.stall;
    pthread_cond_broadcast(&fake.changed);
    while (fake.stall)
        pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
    *probe = (struct xop_probe){1, in, out, in + out};
    return XOP_OK;
}

static inline const struct xop_op *fake_copy(void) { return &copies; }

static const struct xop_backend_api api = {.abi = XOP_BACKEND_ABI,
                                           .name = "fake",
                                           .info = fake_info,
                                           .free_lanes = fake_free,
                                           .submit = fake_submit,
                                           .poll = fake_poll,
                                           .descriptor = fake_descriptor,
                                           .copy = fake_copy,
                                           .register_host = fake_register,
                                           .unregister_host = fake_unregister,
                                           .memory_make = fake_make,
                                           .memory_import = fake_import,
                                           .memory_drop = fake_drop,
                                           .probe = fake_probe};

static inline void fake_set(uint32_t too_many, bool full, uint64_t bad_at) {
    pthread_mutex_lock(&fake.lock);
    fake.too_many = too_many;
    fake.full = full;
    fake.bad_index = (struct xop_bad_index){bad_at, -3};
    pthread_mutex_unlock(&fake.lock);
}

static inline void set_hold(bool hold) {
    pthread_mutex_lock(&fake.lock);
    fake.hold = hold;
    pthread_mutex_unlock(&fake.lock);
}

static inline uint32_t submitted(void) {
    pthread_mutex_lock(&fake.lock);
    uint32_t n = fake.submitted;
    pthread_mutex_unlock(&fake.lock);
    return n;
}

static inline void wait_submitted(uint32_t n) {
    pthread_mutex_lock(&fake.lock);
    while (fake.submitted < n)
        pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
}

/* ---- The front's side ---- */

static struct front {
    struct worker worker;
    struct seam_lane lane;
    pthread_t thread;
    int control;
    struct keeper keeper; /* the parent's, on a thread of its own */
    int keeper_socket;
    pthread_t keeper_thread;
    enum xop_status ended;
    unsigned char *inbox;
    uint64_t tag;
} front;

static inline void *run_loop(void *arg) {
    struct xop_error error;
    (void)arg;
    front.ended = loop_run(&front.worker, &error);
    return NULL;
}

static inline void *run_keeper(void *arg) {
    struct pollfd ready = {front.keeper_socket, POLLIN, 0};
    (void)arg;
    while (poll(&ready, 1, -1) < 0 || keeper_serve(&front.keeper, front.keeper_socket))
        ;
    return NULL;
}

static inline int start_keeper(void) {
    struct xop_error error;
    int sockets[2];
    if (channel_pair(sockets, false, &error) != XOP_OK)
        return -1;
    front.keeper_socket = sockets[0];
    front.worker.keeper = sockets[1];
    return pthread_create(&front.keeper_thread, NULL, run_keeper, NULL);
}

static inline void stop_keeper(void) {
    close(front.worker.keeper);
    pthread_join(front.keeper_thread, NULL);
    close(front.keeper_socket);
}

/* Everything but the loop's thread. */
static inline int open_with(const struct xop_library *library, uint32_t delay_us) {
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
                                   .tuning = {.poll_us = 20, .batch_max_delay_us = delay_us},
                                   .batch_max = 256};
    seam_view(w->header, 0, RECORDS, &w->lanes[0]);
    seam_view(w->header, 0, RECORDS, &front.lane);
    front.inbox = aligned_alloc(64, INBOX);
    memset(front.inbox, 0, INBOX);
    w->inbox = front.inbox;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets) < 0)
        return -1;
    front.control = sockets[0];
    w->control = sockets[1];
    keeper_open(&front.keeper);
    if (start_keeper() != 0)
        return -1;
    w->doorbell = eventfd(0, EFD_NONBLOCK);
    w->lane_fds[0] = eventfd(0, EFD_NONBLOCK);
    w->api = &api;
    fake_info(NULL, &w->info);
    if (outbox_open(&w->outbox, aligned_alloc(64, OUTBOX), OUTBOX, &error) != XOP_OK ||
        operators_add(w, library, &error) != XOP_OK || loop_open(w, &error) != XOP_OK)
        return -1;
    return 0;
}

static inline int start_with(const struct xop_library *library, uint32_t delay_us) {
    if (open_with(library, delay_us) != 0)
        return -1;
    return pthread_create(&front.thread, NULL, run_loop, NULL);
}

static inline int start(void **state) {
    (void)state;
    return start_with(&fixture_library, 0);
}

static inline int stop(void **state) {
    struct worker *w = &front.worker;
    (void)state;
    set_hold(false);
    close(front.control);
    pthread_join(front.thread, NULL);
    loop_close(w);
    stop_keeper();
    keeper_close(&front.keeper);
    free(w->outbox.base);
    outbox_close(&w->outbox);
    free((void *)w->header);
    free(front.inbox);
    close(w->control);
    close(w->doorbell);
    close(w->lane_fds[0]);
    return 0;
}

/* Waits until the loop has been through whole rounds that began after this call. A bell that rings
 * while the loop is about to sleep may go unheard: it is rung again. */
static inline void wait_rounds(void) {
    struct timespec again;
    pthread_mutex_lock(&fake.lock);
    for (uint32_t first = fake.rounds, seen = first; fake.rounds - first < 16; seen = fake.rounds) {
        pthread_mutex_unlock(&fake.lock);
        bell_ring(&front.worker.header->bell, front.worker.doorbell);
        clock_gettime(CLOCK_REALTIME, &again);
        again.tv_nsec += 1000000;
        if (again.tv_nsec >= 1000000000)
            again.tv_sec++, again.tv_nsec -= 1000000000;
        pthread_mutex_lock(&fake.lock);
        while (fake.rounds == seen &&
               pthread_cond_timedwait(&fake.changed, &fake.lock, &again) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&fake.lock);
}

/* Fills record `index` with a request for op on n floats. */
static inline struct seam_request *fill(uint32_t index, uint32_t op, int64_t n) {
    struct seam_request *r = &front.lane.requests[index];
    struct seam_tensor in = {.dtype = XOP_F32, .rank = 1, .place = SEAM_INBOX};
    memset(r, 0, sizeof *r);
    in.shape[0] = n;
    /* Large ones share zeros behind the small ones' places, which nobody writes. */
    in.offset = n <= 1024 ? (uint64_t)index * 4096 : (uint64_t)RECORDS * 4096;
    for (int64_t i = 0; i < n && n <= 1024; i++)
        ((float *)(void *)(front.inbox + in.offset))[i] = (float)(index + i);
    r->tag = ++front.tag;
    r->op = op;
    r->nin = 1;
    r->arguments_offset = UINT64_MAX;
    r->accepted_ns = worker_now();
    memcpy(r->arguments, &in, sizeof in);
    return r;
}

static inline void submit(uint32_t index) {
    assert_int_equal(ring_push(&front.lane.submit, index), RING_OK);
    bell_ring(&front.worker.header->bell, front.worker.doorbell);
}

/* The next completion. */
static inline struct seam_result *next(uint32_t *index) {
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

static inline void release(const struct seam_result *result) {
    assert_int_equal(ring_push(&front.lane.release, result->block_offset), RING_OK);
    bell_ring(&front.worker.header->bell, front.worker.doorbell);
}

static inline void expect_error(uint32_t index, enum xop_status status, const char *fragment) {
    uint32_t got;
    struct seam_result *result = next(&got);
    assert_int_equal(got, index);
    if (result->status != (uint32_t)status || !strstr(result->message, fragment))
        fail_msg("%s: %s", xop_status_name((enum xop_status)result->status), result->message);
    assert_int_equal(result->block_bytes, 0);
}

#endif
