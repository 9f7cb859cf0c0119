/*
 * Tests of device memory that outlives its maker, of copies, of what groups keep, of host memory
 * that is registered in pieces, and of probes. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_MEMORY_CUH
#define TESTS_GPU_MEMORY_CUH

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/gpu/seam.cuh"

#define MEMORY_MAKER "--memory-maker" /* the option that makes a process the maker below */
#define MEMORY_MOST 256               /* calls of a group */

/* Device memory, for the length of a test. */
struct memory_made {
    unsigned char *base;
    uint64_t bytes;
    int fd;
};

static struct memory_made memory_make(const struct xop_backend_api *api,
                                      struct xop_backend *backend, uint64_t bytes, bool zeroed) {
    struct memory_made made = {NULL, bytes, -1};
    struct xop_error error;
    void *base = NULL;
    if (api->memory_make(backend, &made.bytes, zeroed, &made.fd, &base, &error) != XOP_OK)
        FIXTURE_DIE("%s: %s", xop_status_name(error.status), error.message);
    made.base = (unsigned char *)base;
    return made;
}

static void memory_drop(const struct fixture *fixture, struct memory_made *made) {
    struct xop_error error;
    if (fixture->api->memory_drop(fixture->backend, made->base, &error) != XOP_OK)
        FIXTURE_DIE("%s: %s", xop_status_name(error.status), error.message);
    close(made->fd);
}

static struct xop_tensor memory_tensor(enum xop_dtype dtype, int64_t n, void *data) {
    struct xop_tensor tensor = {};
    tensor.dtype = dtype;
    tensor.rank = 1;
    tensor.shape[0] = n;
    tensor.data = data;
    return tensor;
}

/* ---- Copies ---- */

struct memory_copy {
    void *to;
    const void *from;
    uint64_t bytes; /* even */
};

/* All in one group. */
static enum xop_status memory_copy_all(const struct xop_backend_api *api,
                                       struct xop_backend *backend, const struct memory_copy *copy,
                                       uint32_t n, struct xop_error *error) {
    static struct xop_tensor in[MEMORY_MOST], out[MEMORY_MOST];
    static struct xop_call calls[MEMORY_MOST];
    static struct xop_plan plan[MEMORY_MOST];
    static const struct xop_plan *plans[MEMORY_MOST];
    const struct xop_op *op = api->copy();
    struct xop_group group = {};

    memset(plan, 0, sizeof plan);
    memset(calls, 0, sizeof calls);
    for (uint32_t i = 0; i < n; i++) {
        in[i] = memory_tensor(XOP_F16, (int64_t)(copy[i].bytes / 2), (void *)copy[i].from);
        out[i] = memory_tensor(XOP_F16, (int64_t)(copy[i].bytes / 2), copy[i].to);
        calls[i].in = &in[i];
        calls[i].out = &out[i];
        plans[i] = &plan[i];
        enum xop_status status = op->pass[0].infer(&calls[i], &plan[i], error);
        if (status != XOP_OK)
            return status;
    }
    group.op = op;
    group.ncalls = n;
    group.calls = calls;
    group.plans = plans;
    return fixture_run(api, backend, &group, error);
}

static bool memory_copy(const struct fixture *fixture, struct tally *tally, void *to,
                        const void *from, uint64_t bytes) {
    const struct memory_copy copy = {to, from, bytes};
    struct xop_error error = {XOP_OK, ""};
    enum xop_status status = memory_copy_all(fixture->api, fixture->backend, &copy, 1, &error);
    return tally_check(tally, status == XOP_OK, "a copy of %llu bytes: %s",
                       (unsigned long long)bytes, error.message);
}

/* Whether device memory holds these bytes; they are brought to the end of the outbox. */
static bool memory_holds(const struct fixture *fixture, struct tally *tally, const void *at,
                         const void *want, uint64_t bytes) {
    unsigned char *got =
        fixture->outbox.seen + (fixture->outbox.bytes - bytes) / FIXTURE_GUARD * FIXTURE_GUARD;
    memset(got, FIXTURE_FILL, bytes);
    return memory_copy(fixture, tally, got, at, bytes) && memcmp(got, want, bytes) == 0;
}

static void memory_copies(struct fixture *fixture) {
    static const uint64_t sizes[] = {2,     100,         4098,          65536,
                                     65538, 1000000 + 2, (5 << 20) + 6, 70 << 20};
    struct tally tally = tally_begin("copies arrive as they were");
    struct memory_made first = memory_make(fixture->api, fixture->backend, 80 << 20, false);
    struct memory_made second = memory_make(fixture->api, fixture->backend, 80 << 20, false);

    fixture_reset(fixture);
    for (uint64_t i = 0; i < (uint64_t)80 << 20; i += 4)
        *(uint32_t *)(fixture->inbox.write + i) = (uint32_t)(i * 2654435761u);
    for (uint64_t size : sizes)
        for (uint64_t skew = 0; skew < 16; skew += 14) {
            const unsigned char *from = fixture->inbox.seen + skew;
            memory_copy(fixture, &tally, first.base + skew, from, size);
            memory_copy(fixture, &tally, second.base + 256, first.base + skew, size);
            tally_check(&tally, memory_holds(fixture, &tally, second.base + 256, from, size),
                        "%llu bytes at %llu changed on the way", (unsigned long long)size,
                        (unsigned long long)skew);
        }
    static struct memory_copy many[MEMORY_MOST];
    struct xop_error error = {XOP_OK, ""};
    for (uint64_t i = 0; i < MEMORY_MOST; i++) /* a few of them large */
        many[i] = {first.base + (i << 18), fixture->inbox.seen + (i << 18) + 2 * i,
                   i % 50 == 7 ? 200000 + 2 * i : 2 * i * i % 65536};
    tally_check(&tally,
                memory_copy_all(fixture->api, fixture->backend, many, MEMORY_MOST, &error) ==
                    XOP_OK,
                "%u copies: %s", MEMORY_MOST, error.message);
    for (uint64_t i = 1; i < MEMORY_MOST; i++)
        tally_check(&tally,
                    many[i].bytes == 0 ||
                        memory_holds(fixture, &tally, many[i].to, many[i].from, many[i].bytes),
                    "copy %llu of a group changed on the way", (unsigned long long)i);
    memory_drop(fixture, &first);
    memory_drop(fixture, &second);
    tally_end(&tally);
}

/* ---- Making and importing ---- */

static void memory_makes(struct fixture *fixture) {
    struct tally tally = tally_begin("device memory is made, shared and dropped");
    const struct xop_backend_api *api = fixture->api;
    struct xop_backend *backend = fixture->backend;
    struct memory_made made = memory_make(api, backend, 1000, true);
    struct xop_device_info info;
    uint64_t bytes;
    char number[32];
    void *again = NULL, *ignored = NULL;
    struct xop_error error = {XOP_OK, ""};
    static unsigned char zeros[4096];
    int fd = -1;

    tally_check(&tally, made.bytes >= 1000 && made.bytes % 4096 == 0, "it has %llu bytes",
                (unsigned long long)made.bytes);
    tally_check(&tally, fcntl(made.fd, F_GETFD) & FD_CLOEXEC, "children would inherit it");
    tally_check(&tally, memory_holds(fixture, &tally, made.base, zeros, sizeof zeros),
                "it is not zeroed");
    memset(fixture->inbox.write, 0x5a, 4096);
    memory_copy(fixture, &tally, made.base, fixture->inbox.seen, 4096);
    tally_check(&tally, api->memory_import(backend, made.fd, made.bytes, &again, &error) == XOP_OK,
                "%s", error.message);
    tally_check(&tally, memory_holds(fixture, &tally, again, fixture->inbox.seen, 4096),
                "the import holds something else");
    tally_check(&tally, api->memory_drop(backend, made.base, &error) == XOP_OK, "%s",
                error.message);
    tally_check(&tally, api->memory_drop(backend, made.base, &error) == XOP_NOT_FOUND,
                "dropped twice");
    tally_check(&tally, memory_holds(fixture, &tally, again, fixture->inbox.seen, 4096),
                "the import lost its bytes with the original");
    tally_check(&tally, api->unregister_host(backend, again, &error) == XOP_NOT_FOUND,
                "device memory passed for the host's");
    tally_check(&tally, api->memory_drop(backend, fixture->inbox.seen, &error) == XOP_NOT_FOUND,
                "host memory passed for the device's");
    tally_check(&tally,
                api->memory_import(backend, made.fd, made.bytes + 100, &ignored, &error) ==
                    XOP_INVALID_ARGUMENT,
                "imported with a size that no memory has");
    tally_check(&tally,
                api->memory_import(backend, made.fd, made.bytes << 8, &ignored, &error) != XOP_OK,
                "imported with more bytes than there are");
    tally_check(&tally, api->memory_drop(backend, again, &error) == XOP_OK, "%s", error.message);
    api->info(backend, &info);
    bytes = 2 * info.memory_total / made.bytes * made.bytes;
    snprintf(number, sizeof number, "%llu", (unsigned long long)bytes);
    tally_check(&tally,
                api->memory_make(backend, &bytes, false, &fd, &ignored, &error) ==
                    XOP_RESOURCE_EXHAUSTED,
                "twice the memory that there is");
    tally_check(&tally, strstr(error.message, number) != NULL, "it only says: %s", error.message);
    bytes = 0;
    tally_check(&tally, api->memory_make(backend, &bytes, false, &fd, &ignored, &error) != XOP_OK,
                "a memory of no bytes");
    close(made.fd);
    tally_end(&tally);
}

/* The maker: a process of its own, which fills device memory, hands it over and waits to be killed.
 */
static const uint64_t memory_made_bytes = 5 << 20;

static void memory_fill(unsigned char *to) {
    for (uint64_t i = 0; i < memory_made_bytes; i += 4)
        *(uint32_t *)(to + i) = (uint32_t)(i * 2246822519u + 1);
}

static int memory_maker(const char *path, int channel) {
    struct fixture fixture;
    struct xop_error error = {XOP_OK, ""};
    char control[CMSG_SPACE(sizeof(int))] = {};

    fixture_open(&fixture, path, 8 << 20, 1 << 20);
    struct memory_made made = memory_make(fixture.api, fixture.backend, memory_made_bytes, false);
    memory_fill(fixture.inbox.write);
    const struct memory_copy copy = {made.base, fixture.inbox.seen, memory_made_bytes};
    if (memory_copy_all(fixture.api, fixture.backend, &copy, 1, &error) != XOP_OK)
        FIXTURE_DIE("%s", error.message);
    struct iovec part = {&made.bytes, sizeof made.bytes};
    struct msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &made.fd, sizeof(int));
    if (sendmsg(channel, &message, 0) != (ssize_t)sizeof made.bytes)
        FIXTURE_DIE("sendmsg: %s", strerror(errno));
    for (;;)
        pause();
}

/* Starts the maker, takes what it made, and kills it; the descriptor, and its bytes. */
static int memory_from_dead_maker(const char *path, uint64_t *bytes) {
    char control[CMSG_SPACE(sizeof(int))] = {}, number[16];
    int ends[2], fd = -1, status;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0)
        FIXTURE_DIE("socketpair: %s", strerror(errno));
    snprintf(number, sizeof number, "%d", ends[1]);
    pid_t child = fork();
    if (child < 0)
        FIXTURE_DIE("fork: %s", strerror(errno));
    if (child == 0) {
        close(ends[0]);
        execl("/proc/self/exe", "memory_maker", MEMORY_MAKER, number, path, (char *)NULL);
        _exit(3);
    }
    close(ends[1]);
    struct iovec part = {bytes, sizeof *bytes};
    struct msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *bytes ||
        !CMSG_FIRSTHDR(&message))
        FIXTURE_DIE("the other process made no memory");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    if (kill(child, SIGKILL) < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
        FIXTURE_DIE("the other process was not killed");
    close(ends[0]);
    return fd;
}

static void memory_survives(struct fixture *fixture, const char *path) {
    struct tally tally = tally_begin("memory outlives the process that made it");
    struct xop_error error = {XOP_OK, ""};
    uint64_t bytes = 0;
    void *base = NULL;
    int fd = memory_from_dead_maker(path, &bytes);

    memory_fill(fixture->inbox.write);
    if (tally_check(&tally,
                    fixture->api->memory_import(fixture->backend, fd, bytes, &base, &error) ==
                        XOP_OK,
                    "%s", error.message)) {
        tally_check(&tally,
                    memory_holds(fixture, &tally, base, fixture->inbox.seen, memory_made_bytes),
                    "its bytes did not");
        tally_check(&tally, fixture->api->memory_drop(fixture->backend, base, &error) == XOP_OK,
                    "%s", error.message);
    }
    close(fd);
    tally_end(&tally);
}

/* ---- Operands and keeps ---- */

struct memory_job {
    struct fixture_request host, there;
    void *keep[3];
    int64_t n;
};

/* square_bias of `n` calls: with all operands in host memory, then with those of the mask `device`
 * (x, b, y) in made memory, and those of the mask `kept` kept. The bits must be the same. */
static void memory_run(struct fixture *fixture, struct tally *tally, uint32_t n, uint32_t device,
                       uint32_t kept, bool large) {
    static struct memory_job jobs[MEMORY_MOST];
    static struct xop_call calls[MEMORY_MOST];
    static const struct xop_plan *plans[MEMORY_MOST];
    static void *const *keeps[MEMORY_MOST];
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    const uint64_t slot = large ? 1 << 20 : 1 << 15;
    struct memory_made made = memory_make(fixture->api, fixture->backend, 6 * slot * n, true);
    struct xop_error error = {XOP_OK, ""};
    struct xop_group group = {};

    fixture_reset(fixture);
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < n; i++) {
        struct memory_job *job = &jobs[i];
        unsigned char *at = made.base + 6 * slot * i;
        job->n = large ? 200001 : 1 + 29 * (int64_t)i % 8000;
        for (uint32_t k = 0; k < 2; k++)
            job->host.in[k] = operators_input(fixture, XOP_F32, 1, &job->n, 2 * i + k, 0);
        operators_run_one(fixture, tally, op, XOP_FORWARD, &job->host, 1, 0);
        job->there = job->host;
        calls[i] = fixture_prepare(fixture, op, XOP_FORWARD, &job->there, device & 4 ? 0 : 1, 0);
        for (uint32_t k = 0; k < 3; k++) {
            struct xop_tensor *tensor = k < 2 ? &job->there.in[k] : &job->there.out[0];
            if (device >> k & 1) {
                if (k < 2)
                    memory_copy(fixture, tally, at + k * slot, tensor->data, (uint64_t)job->n * 4);
                tensor->data = at + k * slot;
            }
            job->keep[k] = kept >> k & 1 ? at + (3 + k) * slot : NULL;
        }
        plans[i] = &job->there.plan;
        keeps[i] = kept ? job->keep : NULL;
    }
    group.op = op;
    group.ncalls = n;
    group.calls = calls;
    group.plans = plans;
    group.keeps = kept ? keeps : NULL;
    tally_check(tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK,
                "%u calls, device %u, kept %u: %s", n, device, kept, error.message);
    for (uint32_t i = 0; i < n; i++) {
        struct memory_job *job = &jobs[i];
        uint64_t bytes = (uint64_t)job->n * 4;
        const struct xop_tensor *y = &job->there.out[0];
        const void *want[] = {job->host.in[0].data, job->host.in[1].data, job->host.out[0].data};
        tally_check(tally,
                    device & 4 ? memory_holds(fixture, tally, y->data, want[2], bytes)
                               : memcmp(y->data, want[2], bytes) == 0,
                    "y of call %u of %u differs, device %u, kept %u", i, n, device, kept);
        if (!(device & 4))
            tally_check(tally, fixture_guarded(y), "wrote outside y of call %u of %u", i, n);
        for (uint32_t k = 0; k < 3; k++)
            if (job->keep[k])
                tally_check(tally, memory_holds(fixture, tally, job->keep[k], want[k], bytes),
                            "operand %u of call %u of %u was not kept, device %u, kept %u", k, i, n,
                            device, kept);
    }
    memory_drop(fixture, &made);
}

static void memory_operands(struct fixture *fixture, bool reduced) {
    struct tally tally = tally_begin("operands in device memory, and what is kept of them");

    for (uint32_t device = 0; device < 8; device++)
        for (uint32_t kept = 0; kept < 8; kept++) {
            memory_run(fixture, &tally, 3, device, kept, false);
            memory_run(fixture, &tally, 1, device, kept, true);
        }
    for (uint32_t way : {0x00u, 0x70u, 0x07u, 0x77u, 0x25u})
        if (!reduced)
            memory_run(fixture, &tally, MEMORY_MOST, way & 7, way >> 4, false);
    tally_end(&tally);
}

/* Staged operands: kept ones have their place for the launch where they are kept. */
static void memory_staged(struct fixture *fixture) {
    struct tally tally = tally_begin("operands that would be staged are kept");
    struct memory_made made = memory_make(fixture->api, fixture->backend, 4 << 20, true);
    struct xop_op op = seam_op(-1);

    seam_behaviour = seam_launch_add;
    seam_workspace = 0;
    for (int64_t n : {100, 100000})
        for (uint32_t way = 0; way < 16; way++) {
            void *const keep[] = {way & 1 ? made.base : NULL,
                                  way & 2 ? made.base + (2 << 20) : NULL};
            void *const *const keeps[] = {keep};
            struct fixture_request run;
            struct xop_group group = {};
            struct xop_error error = {XOP_OK, ""};
            uint64_t bytes = (uint64_t)n * 4;
            seam_read_once = way >> 2 & 1;
            seam_write_once = way >> 3 & 1;
            fixture_reset(fixture);
            memset(&run, 0, sizeof run);
            run.in[0] = operators_input(fixture, XOP_I32, 1, &n, 1, 0);
            int32_t *x = (int32_t *)fixture_writable(fixture, run.in[0].data);
            for (int32_t i = 0; i < n; i++)
                x[i] = 3 * i + (int32_t)way;
            struct xop_call call = fixture_prepare(fixture, &op, XOP_FORWARD, &run, 1, 0);
            const struct xop_plan *plan = &run.plan;
            group.op = &op;
            group.ncalls = 1;
            group.calls = &call;
            group.plans = &plan;
            group.keeps = keeps;
            tally_check(&tally,
                        fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK, "%s",
                        error.message);
            const int32_t *y = (const int32_t *)run.out[0].data;
            tally_check(&tally, y[0] == x[0] + 1 && y[n - 1] == x[n - 1] + 1,
                        "y is wrong in way %u", way);
            tally_check(&tally, !keep[0] || memory_holds(fixture, &tally, keep[0], x, bytes),
                        "x was not kept in way %u", way);
            tally_check(&tally, !keep[1] || memory_holds(fixture, &tally, keep[1], y, bytes),
                        "y was not kept in way %u", way);
        }
    memory_drop(fixture, &made);
    tally_end(&tally);
}

/* What is wanted nowhere but kept, and what is kept where no memory is. */
static void memory_only_kept(struct fixture *fixture) {
    struct tally tally = tally_begin("an output may be kept alone, but only in device memory");
    struct memory_made made = memory_make(fixture->api, fixture->backend, 1 << 20, true);
    const struct xop_op *op = fixture_op(fixture, "sigmoid");
    const int64_t n = 10001;
    struct fixture_request apart, run;
    struct xop_group group = {};
    struct xop_error error = {XOP_OK, ""};

    fixture_reset(fixture);
    memset(&apart, 0, sizeof apart);
    apart.in[0] = operators_input(fixture, XOP_F32, 1, &n, 1, 0);
    operators_run_one(fixture, &tally, op, XOP_FORWARD, &apart, 1, 0);
    run = apart;
    struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &run, 0, 0);
    const struct xop_plan *plan = &run.plan;
    void *keep[] = {NULL, made.base};
    void *const *const keeps[] = {keep};
    run.out[0].data = made.base;
    group.op = op;
    group.ncalls = 1;
    group.calls = &call;
    group.plans = &plan;
    group.keeps = keeps;
    tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK, "%s",
                error.message);
    tally_check(&tally, group.copy_ns == 0, "something was copied");
    tally_check(&tally, memory_holds(fixture, &tally, made.base, apart.out[0].data, 4 * n),
                "y is wrong");
    keep[0] = fixture->outbox.seen;
    tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_INTERNAL,
                "x was kept in host memory");
    keep[0] = made.base + made.bytes - 4;
    tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_INTERNAL,
                "x was kept beyond the memory's end");
    memory_drop(fixture, &made);
    tally_end(&tally);
}

/* y in x's memory, the host's and the device's. */
static void memory_in_place(struct fixture *fixture, enum xop_dtype dtype) {
    struct tally tally = tally_begin("activations over their input %s", xop_dtype_name(dtype));
    struct memory_made made = memory_make(fixture->api, fixture->backend, 8 << 20, false);

    for (int kind = 0; kind < 3; kind++)
        for (int64_t n : {1, 7, 1024, 5001, 400003})
            for (int place = 0; place < 2; place++) {
                const struct xop_op *op = fixture_op(fixture, reference_activations[kind]);
                uint64_t bytes = (uint64_t)n * xop_dtype_size(dtype);
                struct fixture_request apart, there;
                struct xop_group group = {};
                struct xop_error error = {XOP_OK, ""};
                fixture_reset(fixture);
                memset(&apart, 0, sizeof apart);
                apart.in[0] = operators_input(fixture, dtype, 1, &n, (uint32_t)n, 0);
                operators_run_one(fixture, &tally, op, XOP_FORWARD, &apart, 1, 0);
                there = apart;
                fixture_place(&fixture->outbox, &there.in[0], 0);
                if (place)
                    there.in[0].data = made.base;
                memory_copy(fixture, &tally, there.in[0].data, apart.in[0].data, bytes);
                struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &there, 0, 0);
                const struct xop_plan *plan = &there.plan;
                there.out[0].data = there.in[0].data;
                group.op = op;
                group.ncalls = 1;
                group.calls = &call;
                group.plans = &plan;
                tally_check(&tally,
                            fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK,
                            "%s", error.message);
                tally_check(
                    &tally,
                    memory_holds(fixture, &tally, there.in[0].data, apart.out[0].data, bytes),
                    "%s of %lld elements in place %d differs", op->name, (long long)n, place);
            }
    memory_drop(fixture, &made);
    tally_end(&tally);
}

/* ---- Registered memory, use, the helper's thread, probes ---- */

static void memory_pieces(struct fixture *fixture) {
    const uint64_t piece = 64 << 20;
    struct tally tally = tally_begin("tensors lie across the pieces of registered memory");
    struct fixture_memory more = fixture_map(3 * piece, false);
    struct memory_made made = memory_make(fixture->api, fixture->backend, 2 * piece, false);
    const struct xop_backend_api *api = fixture->api;
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    struct xop_error error = {XOP_OK, ""};
    uint64_t edge = piece - (uintptr_t)more.seen % piece; /* the first boundary, from the start */

    if (api->register_host(fixture->backend, more.seen, more.bytes, false, &error) != XOP_OK)
        FIXTURE_DIE("%s", error.message);
    for (uint64_t n : {(uint64_t)1000, (uint64_t)100000, piece / 4 + 1000}) {
        float *x = (float *)(more.seen + edge - 400);
        struct fixture_request run;
        struct xop_group group = {};
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0] = run.in[1] = memory_tensor(XOP_F32, (int64_t)n, x);
        for (uint64_t i = 0; i < n; i++)
            x[i] = (float)(i % 1000);
        struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &run, 1, 0);
        const struct xop_plan *plan = &run.plan;
        group.op = op;
        group.ncalls = 1;
        group.calls = &call;
        group.plans = &plan;
        tally_check(&tally, fixture_run(api, fixture->backend, &group, &error) == XOP_OK, "%s",
                    error.message);
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < n; i++)
            wrong += ((float *)run.out[0].data)[i] != x[i] * x[i] + x[i];
        tally_check(&tally, wrong == 0, "%llu of %llu elements are wrong",
                    (unsigned long long)wrong, (unsigned long long)n);
        memory_copy(fixture, &tally, made.base, x, 4 * n);
        tally_check(&tally, memory_holds(fixture, &tally, made.base, x, 4 * n),
                    "%llu bytes changed on the way", (unsigned long long)(4 * n));
        memset(x, 0, 4 * n);
        memory_copy(fixture, &tally, x, made.base, 4 * n);
        tally_check(&tally, x[0] == 0 && x[1] == 1 && x[n - 1] == (float)((n - 1) % 1000),
                    "it did not come back");
    }
    tally_check(&tally,
                api->unregister_host(fixture->backend, more.seen + edge, &error) == XOP_NOT_FOUND,
                "a piece was given back");
    tally_check(&tally, api->unregister_host(fixture->backend, more.seen, &error) == XOP_OK, "%s",
                error.message);
    const struct memory_copy copy = {made.base, more.seen + edge, 100};
    tally_check(&tally, memory_copy_all(api, fixture->backend, &copy, 1, &error) == XOP_INTERNAL,
                "a piece was left behind");
    memory_drop(fixture, &made);
    munmap(more.seen, more.bytes);
    tally_end(&tally);
}

static void memory_in_use(struct fixture *fixture) {
    struct tally tally = tally_begin("memory in use is not dropped");
    const struct xop_backend_api *api = fixture->api;
    const struct xop_op *op = fixture_op(fixture, "sigmoid");
    const int64_t n = 100000;
    struct xop_error error = {XOP_OK, ""};

    for (int way = 0; way < 3; way++) { /* as input, as output, as a keep */
        struct memory_made made = memory_make(api, fixture->backend, 1 << 20, true);
        struct fixture_request run;
        struct xop_group group = {}, *done = NULL;
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0] = operators_input(fixture, XOP_F32, 1, &n, 1, 0);
        struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &run, 1, 0);
        const struct xop_plan *plan = &run.plan;
        void *const keep[] = {NULL, way == 2 ? made.base : NULL};
        void *const *const keeps[] = {keep};
        if (way < 2)
            *(way ? &run.out[0].data : &run.in[0].data) = made.base + 4096;
        group.op = op;
        group.ncalls = 1;
        group.calls = &call;
        group.plans = &plan;
        group.keeps = keeps;
        if (api->submit(fixture->backend, &group, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
        tally_check(&tally,
                    api->memory_drop(fixture->backend, made.base, &error) ==
                        XOP_FAILED_PRECONDITION,
                    "dropped while a group used it in way %d", way);
        if (fixture_wait(api, fixture->backend, &done, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
        tally_check(&tally, api->memory_drop(fixture->backend, made.base, &error) == XOP_OK, "%s",
                    error.message);
        tally_check(&tally, done->status == XOP_OK, "%s", done->error.message);
        close(made.fd);
    }
    tally_end(&tally);
}

struct memory_helper {
    const struct fixture *fixture;
    bool stop; /* atomically */
    unsigned rounds, failures;
    struct xop_error error;
};

/* Memory comes and goes, of both kinds. */
static void *memory_help(void *arg) {
    struct memory_helper *helper = (struct memory_helper *)arg;
    const struct xop_backend_api *api = helper->fixture->api;
    struct xop_backend *backend = helper->fixture->backend;
    struct fixture_memory more = fixture_map(1 << 20, false);

    while (!__atomic_load_n(&helper->stop, __ATOMIC_ACQUIRE) || helper->rounds < 3) {
        uint64_t bytes = 1 << 20;
        struct xop_error *error = &helper->error;
        void *base = NULL, *again = NULL;
        int fd = -1;
        bool good = api->register_host(backend, more.seen, more.bytes, false, error) == XOP_OK &&
                    api->memory_make(backend, &bytes, true, &fd, &base, error) == XOP_OK &&
                    api->memory_import(backend, fd, bytes, &again, error) == XOP_OK &&
                    api->memory_drop(backend, base, error) == XOP_OK &&
                    api->memory_drop(backend, again, error) == XOP_OK &&
                    api->unregister_host(backend, more.seen, error) == XOP_OK;
        helper->failures += !good;
        helper->rounds++;
        close(fd);
    }
    munmap(more.seen, more.bytes);
    return NULL;
}

static void memory_beside_the_loop(struct fixture *fixture, bool reduced) {
    struct tally tally = tally_begin("memory comes and goes while groups run");
    struct memory_helper helper = {};
    pthread_t thread;

    helper.fixture = fixture;
    if (pthread_create(&thread, NULL, memory_help, &helper) != 0)
        FIXTURE_DIE("no thread");
    for (int i = 0; i < (reduced ? 20 : 2000); i++) {
        struct fixture_request run;
        const int64_t n = 1 + i * 37 % 5000;
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0] = operators_input(fixture, XOP_F32, 1, &n, (uint32_t)i, 0);
        run.in[1] = operators_input(fixture, XOP_F32, 1, &n, (uint32_t)i + 1, 0);
        operators_run_one(fixture, &tally, fixture_op(fixture, "square_bias"), XOP_FORWARD, &run, 1,
                          0);
        operators_check_forward(&tally, run.in, &run.out[0]);
    }
    __atomic_store_n(&helper.stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    tally_check(&tally, helper.failures == 0, "%u of %u rounds failed: %s", helper.failures,
                helper.rounds, helper.error.message);
    tally_end(&tally);
}

static void memory_probes(struct fixture *fixture) {
    struct tally tally = tally_begin("the bare device is timed");
    struct xop_error error = {XOP_OK, ""};
    struct xop_probe probe;

    for (uint64_t bytes : {UINT64_C(4), UINT64_C(100000), UINT64_C(64) << 20}) {
        tally_check(&tally,
                    fixture->api->probe(fixture->backend, bytes, bytes / 2, &probe, &error) ==
                        XOP_OK,
                    "%s", error.message);
        printf("# %llu bytes in, half out: launch %llu, direct %llu, copy %llu, device %llu ns\n",
               (unsigned long long)bytes, (unsigned long long)probe.launch_ns,
               (unsigned long long)probe.direct_ns, (unsigned long long)probe.copy_ns,
               (unsigned long long)probe.device_ns);
        tally_check(&tally,
                    probe.launch_ns > 0 && probe.direct_ns > 0 && probe.copy_ns > 0 &&
                        probe.device_ns > 0,
                    "something took no time");
    }
    tally_check(&tally, fixture->api->probe(fixture->backend, 0, 0, &probe, &error) == XOP_OK, "%s",
                error.message);
    tally_check(&tally, probe.launch_ns > 0 && probe.direct_ns == 0, "moving nothing took time");
    tally_check(&tally,
                fixture->api->probe(fixture->backend, UINT64_C(1) << 40, 0, &probe, &error) ==
                    XOP_RESOURCE_EXHAUSTED,
                "a probe of 1 TiB");
    tally_end(&tally);
}

static void memory_all(struct fixture *fixture, const char *path, bool reduced) {
    memory_makes(fixture);
    memory_survives(fixture, path);
    memory_copies(fixture);
    memory_operands(fixture, reduced);
    memory_staged(fixture);
    memory_only_kept(fixture);
    for (enum xop_dtype dtype : {XOP_F16, XOP_BF16, XOP_F32, XOP_F64})
        memory_in_place(fixture, dtype);
    memory_pieces(fixture);
    memory_in_use(fixture);
    memory_beside_the_loop(fixture, reduced);
    memory_probes(fixture);
}

#endif
