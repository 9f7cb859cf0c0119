/*
 * For programs that use the CUDA backend as a worker does, through kernels/backend.h: they open
 * xop-cuda.so, share memory with it (an inbox that it may only read, an outbox that it writes), and
 * run groups of calls. Host code; a failure of the machinery itself ends the program.
 */
#ifndef TESTS_GPU_FIXTURE_H
#define TESTS_GPU_FIXTURE_H

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "kernels/cuda/check.h"

#define FIXTURE_GUARD 256
#define FIXTURE_FILL 0xa5
#define FIXTURE_POISON 0xff /* a NaN in every floating dtype */

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define FIXTURE_DIE(...)                                                                           \
    do {                                                                                           \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fprintf(stderr, "\n");                                                                     \
        exit(2);                                                                                   \
    } while (0)

/* A shared memory file, mapped for writing, and once more for reading only if `sealed`. */
struct fixture_memory {
    unsigned char *write;
    unsigned char *seen; /* what the backend is given: the read-only mapping, or `write` */
    size_t bytes, used;
};

struct fixture {
    const struct xop_backend_api *api;
    struct xop_backend *backend;
    struct fixture_memory inbox, outbox;
};

static inline struct fixture_memory fixture_map(size_t bytes, bool sealed) {
    struct fixture_memory memory = {NULL, NULL, bytes, 0};
    int fd = memfd_create("fixture", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        FIXTURE_DIE("no memory file of %zu bytes", bytes);
    memory.write = (unsigned char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memory.seen = memory.write;
    if (sealed) {
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) < 0)
            FIXTURE_DIE("the memory file cannot be sealed");
        memory.seen = (unsigned char *)mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (memory.write == MAP_FAILED || memory.seen == MAP_FAILED)
        FIXTURE_DIE("%zu bytes cannot be mapped", bytes);
    return memory;
}

/* The backend's entry. The library stays open for the life of the process. */
static inline const struct xop_backend_api *fixture_load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    xop_backend_entry_fn entry;
    if (!library)
        FIXTURE_DIE("%s", dlerror());
    entry = (xop_backend_entry_fn)dlsym(library, XOP_BACKEND_ENTRY);
    if (!entry || !entry(XOP_BACKEND_ABI))
        FIXTURE_DIE("%s is no backend of this version", path);
    return entry(XOP_BACKEND_ABI);
}

static inline struct xop_backend *fixture_start(const struct xop_backend_api *api, uint32_t lanes) {
    struct xop_backend_config config = {0, lanes, 0};
    struct xop_backend *backend = NULL;
    struct xop_error error;
    if (api->open(&config, &backend, &error) != XOP_OK)
        FIXTURE_DIE("%s: %s", xop_status_name(error.status), error.message);
    return backend;
}

static inline void fixture_open(struct fixture *fixture, const char *path, size_t inbox_bytes,
                                size_t outbox_bytes) {
    struct xop_error error;
    fixture->api = fixture_load(path);
    fixture->backend = fixture_start(fixture->api, 0);
    fixture->inbox = fixture_map(inbox_bytes, true);
    fixture->outbox = fixture_map(outbox_bytes, false);
    if (fixture->api->register_host(fixture->backend, fixture->inbox.seen, inbox_bytes, true,
                                    &error) != XOP_OK ||
        fixture->api->register_host(fixture->backend, fixture->outbox.seen, outbox_bytes, false,
                                    &error) != XOP_OK)
        FIXTURE_DIE("%s: %s", xop_status_name(error.status), error.message);
}

static inline const struct xop_op *fixture_op(const struct fixture *fixture, const char *name) {
    const struct xop_library *library = fixture->api->library();
    for (uint32_t i = 0; i < library->nops; i++)
        if (strcmp(library->ops[i]->name, name) == 0)
            return library->ops[i];
    FIXTURE_DIE("no operator %s", name);
}

/* The attributes of a request that names none. */
static inline void fixture_defaults(const struct xop_op *op, struct xop_attr *attrs) {
    for (uint32_t i = 0; i < op->nattrs; i++) {
        attrs[i] = op->attrs[i].fallback;
        attrs[i].name = op->attrs[i].name;
    }
}

/* Whether it makes one element of one: not those that go over a dimension. */
static inline bool fixture_elementwise(const struct xop_op *op) {
    const struct xop_signature *forward = &op->pass[XOP_FORWARD];
    return forward->nin == 1 && forward->nout == 1 && forward->out->flags & XOP_OPERAND_IN_PLACE &&
           op->pass[XOP_BACKWARD].launch &&
           !(op->nattrs > 0 && strcmp(op->attrs[0].name, "dim") == 0);
}

/* Forgets all tensors. */
static inline void fixture_reset(struct fixture *fixture) {
    fixture->inbox.used = fixture->outbox.used = 0;
}

/* Space for a tensor between guards, poisoned; `skew` bytes past a multiple of 256. */
static inline void fixture_place(struct fixture_memory *memory, struct xop_tensor *tensor,
                                 size_t skew) {
    uint64_t bytes = 0;
    size_t at = memory->used + FIXTURE_GUARD + skew;
    if (!xop_tensor_bytes(tensor, &bytes) || at + bytes + 2 * FIXTURE_GUARD > memory->bytes)
        FIXTURE_DIE("a tensor of %llu bytes does not fit", (unsigned long long)bytes);
    memset(memory->write + memory->used, FIXTURE_FILL, bytes + 2 * FIXTURE_GUARD + skew);
    memset(memory->write + at, FIXTURE_POISON, bytes);
    tensor->data = memory->seen + at;
    memory->used = (at + bytes + FIXTURE_GUARD + 255) / 256 * 256;
}

/* Where the test may write what lies in the inbox. */
static inline void *fixture_writable(const struct fixture *fixture, const void *seen) {
    return fixture->inbox.write + ((const unsigned char *)seen - fixture->inbox.seen);
}

/* Whether the bytes before and behind an output are as they were. */
static inline bool fixture_guarded(const struct xop_tensor *tensor) {
    const unsigned char *data = (const unsigned char *)tensor->data;
    uint64_t bytes = 0;
    if (!data || !xop_tensor_bytes(tensor, &bytes))
        return true;
    for (int i = 0; i < FIXTURE_GUARD; i++)
        if (data[-1 - i] != FIXTURE_FILL || data[bytes + (uint64_t)i] != FIXTURE_FILL)
            return false;
    return true;
}

/* A call with its plan and outputs. The inputs stay the test's. */
struct fixture_request {
    struct xop_plan plan;
    struct xop_tensor in[5], out[3];
    const struct xop_attr *attrs; /* of all that the operator has; NULL where it has none */
};

/* Infers and places the outputs that are wanted (a mask). */
static inline struct xop_call fixture_prepare(struct fixture *fixture, const struct xop_op *op,
                                              enum xop_pass pass, struct fixture_request *request,
                                              uint32_t wanted, size_t skew) {
    struct xop_call call = {};
    struct xop_error error;
    call.in = request->in;
    call.out = request->out;
    call.attrs = request->attrs;
    memset(&request->plan, 0, sizeof request->plan);
    if (op->pass[pass].infer(&call, &request->plan, &error) != XOP_OK)
        FIXTURE_DIE("%s: %s", op->name, error.message);
    for (uint32_t i = 0; i < op->pass[pass].nout; i++) {
        request->out[i] = request->plan.out[i];
        request->out[i].data = NULL;
        if (wanted & 1u << i)
            fixture_place(&fixture->outbox, &request->out[i], skew);
    }
    return call;
}

/* Waits for a group as a loop does that never sleeps. DEVICE_FAULT where the device is lost. */
static inline enum xop_status fixture_wait(const struct xop_backend_api *api,
                                           struct xop_backend *backend, struct xop_group **done,
                                           struct xop_error *error) {
    uint32_t count = 0;
    enum xop_status status = XOP_OK;
    while (status == XOP_OK && count == 0)
        status = api->poll(backend, done, 1, &count, error);
    return status;
}

/* Runs a group; the status of its end, with the reason in error. */
static inline enum xop_status fixture_run(const struct xop_backend_api *api,
                                          struct xop_backend *backend, struct xop_group *group,
                                          struct xop_error *error) {
    struct xop_group *done = NULL;
    enum xop_status status = api->submit(backend, group, error);
    if (status == XOP_OK)
        status = fixture_wait(api, backend, &done, error);
    if (status == XOP_OK && done != group)
        FIXTURE_DIE("another group came back");
    if (status == XOP_OK && group->status != XOP_OK) {
        *error = group->error;
        return group->status;
    }
    return status;
}

#endif
