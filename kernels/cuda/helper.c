#include "kernels/cuda/helper.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/pinned.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/state.h"

static enum xop_status add(struct xop_backend *backend, const struct range *pieces, uint32_t n,
                           struct xop_error *error) {
    enum xop_status status;
    pthread_mutex_lock(&backend->lock);
    status = ranges_add(&backend->ranges, pieces, n, error);
    pthread_mutex_unlock(&backend->lock);
    return status;
}

/* ---- Memory in use ---- */

static bool overlaps(const struct xop_tensor *tensor, const void *at, const char *base,
                     uint64_t bytes) {
    uintptr_t begin = (uintptr_t)at, from = (uintptr_t)base;
    uint64_t its_bytes = 0;
    return at && xop_tensor_bytes(tensor, &its_bytes) && begin < from + bytes &&
           from < begin + its_bytes;
}

static bool uses(const struct xop_tensor *tensors, uint32_t n, void *const *keeps, const char *base,
                 uint64_t bytes) {
    for (uint32_t k = 0; k < n; k++)
        if (overlaps(&tensors[k], tensors[k].data, base, bytes) ||
            (keeps && overlaps(&tensors[k], keeps[k], base, bytes)))
            return true;
    return false;
}

/* Whether a group in flight uses the memory. With the lock held. */
static bool is_used(const struct xop_backend *backend, const char *base, uint64_t bytes) {
    for (uint32_t l = 0; l < backend->nlanes; l++) {
        const struct xop_group *group = backend->lane[l].group;
        const struct xop_signature *signature = group ? &group->op->pass[group->pass] : NULL;
        for (uint32_t i = 0; group && i < group->ncalls; i++) {
            void *const *keeps = group->keeps ? group->keeps[i] : NULL;
            if (uses(group->calls[i].in, signature->nin, keeps, base, bytes) ||
                uses(group->calls[i].out, signature->nout, keeps ? keeps + signature->nin : NULL,
                     base, bytes))
                return true;
        }
    }
    return false;
}

/* Takes the pieces of a memory that nothing uses out of the table, so that nothing will; the caller
 * frees *pieces. */
static enum xop_status take(struct xop_backend *backend, void *base, bool on_device,
                            struct range **pieces, uint32_t *n, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    const struct range *found;

    *pieces = NULL;
    pthread_mutex_lock(&backend->lock);
    found = ranges_of(&backend->ranges, base, on_device, n);
    if (!found)
        status = xop_fail(error, XOP_NOT_FOUND, "no memory is %s at %p",
                          on_device ? "made or imported" : "registered", base);
    else if (is_used(backend, base, ranges_bytes(found, *n)))
        status = xop_fail(error, XOP_FAILED_PRECONDITION,
                          "the memory at %p is used by a group in flight", base);
    else if (!(*pieces = malloc(*n * sizeof **pieces)))
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory to take %u ranges", *n);
    if (*pieces) {
        memcpy(*pieces, found, *n * sizeof **pieces);
        ranges_remove(&backend->ranges, found, *n);
    }
    pthread_mutex_unlock(&backend->lock);
    return status;
}

/* ---- Host memory ---- */

enum xop_status helper_register_host(struct xop_backend *backend, void *base, size_t bytes,
                                     bool read_only, struct xop_error *error) {
    enum xop_status status = gpu_enter(&backend->gpu, error);
    struct range *pieces = NULL;
    uint32_t n = 0;

    if (status ==
        XOP_OK) /* no other thread changes the table, so that this may look without lock */
        status = ranges_check(&backend->ranges, base, bytes, error);
    if (status == XOP_OK)
        status = pinned_make(&backend->gpu, base, bytes, read_only, &pieces, &n, error);
    if (status != XOP_OK)
        return status;
    status = add(backend, pieces, n, error);
    if (status != XOP_OK)
        pinned_unmake(pieces, n, NULL);
    free(pieces);
    return status;
}

enum xop_status helper_unregister_host(struct xop_backend *backend, void *base,
                                       struct xop_error *error) {
    enum xop_status status = gpu_enter(&backend->gpu, error);
    struct range *pieces = NULL;
    uint32_t n = 0;

    if (status == XOP_OK)
        status = take(backend, base, false, &pieces, &n, error);
    if (status != XOP_OK)
        return status;
    status = pinned_unmake(pieces, n, error);
    free(pieces);
    return status;
}

/* ---- Device memory ---- */

static enum xop_status add_device(struct xop_backend *backend, void *base, uint64_t bytes,
                                  struct xop_error *error) {
    const struct range range = {base, base, bytes, base, false, true};
    enum xop_status status = add(backend, &range, 1, error);
    if (status != XOP_OK)
        memory_unmap(&backend->memory, base, bytes, NULL);
    return status;
}

enum xop_status helper_memory_make(struct xop_backend *backend, uint64_t *bytes, bool zeroed,
                                   int *descriptor, void **base, struct xop_error *error) {
    struct memory *memory = &backend->memory;
    enum xop_status status = gpu_enter(&backend->gpu, error);
    uint64_t size = *bytes;
    void *at = NULL;
    int fd = -1;

    if (status != XOP_OK)
        return status;
    status = memory_make(memory, &size, &fd, &at, error);
    if (status == XOP_RESOURCE_EXHAUSTED) {
        state_give_back_idle(backend, memory->stream);
        status = memory_make(memory, &size, &fd, &at, error);
    }
    if (status != XOP_OK)
        return status;
    if (zeroed)
        status = memory_zero(memory, at, size, error);
    if (status != XOP_OK)
        memory_unmap(memory, at, size, NULL);
    else
        status = add_device(backend, at, size, error);
    if (status != XOP_OK) {
        close(fd);
        return status;
    }
    *bytes = size;
    *descriptor = fd;
    *base = at;
    return XOP_OK;
}

enum xop_status helper_memory_import(struct xop_backend *backend, int descriptor, uint64_t bytes,
                                     void **base, struct xop_error *error) {
    enum xop_status status = gpu_enter(&backend->gpu, error);
    void *at = NULL;

    if (status == XOP_OK)
        status = memory_import(&backend->memory, descriptor, bytes, &at, error);
    if (status == XOP_OK)
        status = add_device(backend, at, bytes, error);
    if (status == XOP_OK)
        *base = at;
    return status;
}

enum xop_status helper_memory_drop(struct xop_backend *backend, void *base,
                                   struct xop_error *error) {
    enum xop_status status = gpu_enter(&backend->gpu, error);
    struct range *pieces = NULL;
    uint32_t n = 0;

    if (status == XOP_OK)
        status = take(backend, base, true, &pieces, &n, error);
    if (status != XOP_OK)
        return status;
    status = memory_unmap(&backend->memory, base, ranges_bytes(pieces, n), error);
    free(pieces);
    return status;
}

/* ---- The rest ---- */

enum xop_status helper_probe(struct xop_backend *backend, uint64_t bytes_in, uint64_t bytes_out,
                             struct xop_probe *probe, struct xop_error *error) {
    enum xop_status status = gpu_enter(&backend->gpu, error);
    if (status == XOP_OK)
        status = probe_cuda(bytes_in, bytes_out, backend->copy_blocks, backend->pool, probe, error);
    return status;
}

void helper_close(struct xop_backend *backend) {
    for (uint32_t i = 0; i < backend->ranges.n; i++) {
        const struct range *range = &backend->ranges.range[i];
        if (range->on_device)
            memory_unmap(&backend->memory, range->at, range->bytes, NULL);
        else
            pinned_unmake(range, 1, NULL);
    }
}
