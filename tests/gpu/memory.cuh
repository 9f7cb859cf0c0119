/*
 * Tests of device memory that outlives its maker, and of copies; what keeps.cuh and registered.cuh
 * build on. Part of test_cuda_backend.
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

static void memory_all(struct fixture *fixture, const char *path) {
    memory_makes(fixture);
    memory_survives(fixture, path);
    memory_copies(fixture);
}

#endif
