#include "kernels/cuda/pinned.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/check.h"

/* The number of ranges that begin at or before the address. */
static uint32_t rank_of(const struct pinned *pinned, const void *at) {
    uint32_t low = 0, high = pinned->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if ((uintptr_t)pinned->range[middle].host <= (uintptr_t)at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct pinned_range *pinned_find(const struct pinned *pinned, const void *at,
                                       uint64_t bytes) {
    uint32_t rank = rank_of(pinned, at);
    const struct pinned_range *range;
    uint64_t offset;

    if (rank == 0)
        return NULL;
    range = &pinned->range[rank - 1];
    offset = (uint64_t)((uintptr_t)at - (uintptr_t)range->host);
    return offset <= range->bytes && bytes <= range->bytes - offset ? range : NULL;
}

bool pinned_has_pageable(const struct pinned *pinned) {
    for (uint32_t i = 0; i < pinned->n; i++)
        if (!pinned->range[i].device)
            return true;
    return false;
}

static bool overlaps(const struct pinned *pinned, const char *base, uint64_t bytes) {
    for (uint32_t i = 0; i < pinned->n; i++) {
        const struct pinned_range *range = &pinned->range[i];
        if ((uintptr_t)base < (uintptr_t)range->host + range->bytes &&
            (uintptr_t)range->host < (uintptr_t)base + bytes)
            return true;
    }
    return false;
}

static enum xop_status check(const struct pinned *pinned, const void *base, uint64_t bytes,
                             struct xop_error *error) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end;

    if (!base || bytes == 0 || (uintptr_t)base % page != 0 ||
        __builtin_add_overflow((uintptr_t)base, bytes, &end))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%llu bytes at %p cannot be registered: memory must begin at a page",
                        (unsigned long long)bytes, base);
    if (overlaps(pinned, base, bytes))
        return xop_fail(error, XOP_ALREADY_EXISTS,
                        "%llu bytes at %p overlap memory that is registered already",
                        (unsigned long long)bytes, base);
    if (pinned->n == PINNED_MAX)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%u ranges of memory are registered already",
                        PINNED_MAX);
    return XOP_OK;
}

static enum xop_status reserve(struct pinned *pinned, struct xop_error *error) {
    uint32_t capacity = pinned->capacity ? 2 * pinned->capacity : 16;
    struct pinned_range *range;

    if (pinned->n < pinned->capacity)
        return XOP_OK;
    range = realloc(pinned->range, capacity * sizeof *range);
    if (!range)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory for another registered range");
    pinned->range = range;
    pinned->capacity = capacity;
    return XOP_OK;
}

/* Pins the range and finds its device address. */
static enum xop_status pin(struct pinned_range *range, struct xop_error *error) {
    unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable |
                     (range->read_only ? cudaHostRegisterReadOnly : 0);
    cudaError_t code = cudaHostRegister(range->host, range->bytes, flags);
    void *device = NULL;

    if (code != cudaSuccess) {
        cudaGetLastError(); /* not a later call's failure */
        return xop_fail(
            error, code == cudaErrorMemoryAllocation ? XOP_RESOURCE_EXHAUSTED : check_status(code),
            "%llu MiB at %p cannot be pinned%s: %s (%s)", (unsigned long long)(range->bytes >> 20),
            (void *)range->host, range->read_only ? " read-only" : "", cudaGetErrorString(code),
            cudaGetErrorName(code));
    }
    if (CHECK_CUDA(error, cudaHostGetDevicePointer(&device, range->host, 0)) != XOP_OK) {
        cudaHostUnregister(range->host);
        cudaGetLastError();
        return error ? error->status : XOP_INTERNAL;
    }
    range->device = device;
    return XOP_OK;
}

enum xop_status pinned_add(struct pinned *pinned, const struct gpu *gpu, void *base, uint64_t bytes,
                           bool read_only, struct xop_error *error) {
    struct pinned_range range = {base, NULL, bytes, read_only};
    enum xop_status status = check(pinned, base, bytes, error);
    uint32_t at;

    if (status == XOP_OK)
        status = reserve(pinned, error);
    if (status == XOP_OK && (!read_only || gpu->registers_read_only))
        status = pin(&range, error);
    if (status != XOP_OK)
        return status;
    at = rank_of(pinned, base);
    memmove(pinned->range + at + 1, pinned->range + at, (pinned->n - at) * sizeof range);
    pinned->range[at] = range;
    pinned->n++;
    return XOP_OK;
}

enum xop_status pinned_remove(struct pinned *pinned, void *base, struct xop_error *error) {
    uint32_t rank = rank_of(pinned, base);
    struct pinned_range *range;
    enum xop_status status = XOP_OK;

    if (rank == 0 || pinned->range[rank - 1].host != base)
        return xop_fail(error, XOP_NOT_FOUND, "no memory is registered at %p", base);
    range = &pinned->range[rank - 1];
    if (range->device)
        status = CHECK_CUDA(error, cudaHostUnregister(base));
    if (status != XOP_OK)
        return status;
    memmove(range, range + 1, (pinned->n - rank) * sizeof *range);
    pinned->n--;
    return XOP_OK;
}

void pinned_close(struct pinned *pinned, bool unregister) {
    for (uint32_t i = 0; unregister && i < pinned->n; i++)
        if (pinned->range[i].device)
            cudaHostUnregister(pinned->range[i].host);
    free(pinned->range);
    memset(pinned, 0, sizeof *pinned);
}
