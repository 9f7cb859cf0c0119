#include "kernels/cuda/pinned.h"

#include <stdlib.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/copy.h"

/* Pins the range and finds its device address. */
static enum xop_status pin(struct range *range, struct xop_error *error) {
    unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable |
                     (range->read_only ? cudaHostRegisterReadOnly : 0);
    cudaError_t code = cudaHostRegister(range->at, range->bytes, flags);
    enum xop_status status;
    void *device = NULL;

    if (code != cudaSuccess) {
        cudaGetLastError(); /* not a later call's failure */
        return xop_fail(
            error, code == cudaErrorMemoryAllocation ? XOP_RESOURCE_EXHAUSTED : check_status(code),
            "%llu KiB at %p cannot be pinned%s: %s (%s)", (unsigned long long)(range->bytes >> 10),
            (void *)range->at, range->read_only ? " read-only" : "", cudaGetErrorString(code),
            cudaGetErrorName(code));
    }
    status = CHECK_CUDA(error, cudaHostGetDevicePointer(&device, range->at, 0));
    if (status != XOP_OK) {
        cudaHostUnregister(range->at);
        cudaGetLastError();
    }
    range->device = device;
    return status;
}

enum xop_status pinned_unmake(const struct range *pieces, uint32_t n, struct xop_error *error) {
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; i < n; i++) {
        struct xop_error why;
        enum xop_status one =
            pieces[i].device ? CHECK_CUDA(&why, cudaHostUnregister(pieces[i].at)) : XOP_OK;
        if (one == XOP_OK)
            continue;
        cudaGetLastError(); /* not a later call's failure */
        if (status == XOP_OK)
            status = xop_fail(error, one, "%.400s", why.message);
    }
    return status;
}

/* The piece that begins at `at`: up to the next multiple of COPY_PIECE, where the device sees host
 * memory at the host's addresses, so that the pieces join. */
static uint64_t piece_of(const struct gpu *gpu, uintptr_t at, uint64_t left) {
    uint64_t most = COPY_PIECE - at % COPY_PIECE;
    return gpu->sees_host_addresses && most < left ? most : left;
}

enum xop_status pinned_make(const struct gpu *gpu, void *base, uint64_t bytes, bool read_only,
                            struct range **pieces, uint32_t *n, struct xop_error *error) {
    uint64_t most = bytes / COPY_PIECE + 2, at = 0;
    bool pins = !read_only || gpu->registers_read_only;
    enum xop_status status = XOP_OK;
    struct range *piece;

    *n = 0;
    *pieces = NULL;
    piece = most <= RANGES_MAX ? calloc(most, sizeof *piece) : NULL;
    if (!piece)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                        "no memory for the table of %llu registered bytes",
                        (unsigned long long)bytes);
    while (status == XOP_OK && at < bytes) {
        uint64_t some = piece_of(gpu, (uintptr_t)base + at, bytes - at);
        piece[*n] = (struct range){(char *)base + at, NULL, some, base, read_only, false};
        if (pins)
            status = pin(&piece[*n], error);
        *n += status == XOP_OK;
        at += some;
    }
    if (status != XOP_OK) {
        pinned_unmake(piece, *n, NULL);
        free(piece);
        *n = 0;
        return status;
    }
    *pieces = piece;
    return XOP_OK;
}
