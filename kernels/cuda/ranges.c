#include "kernels/cuda/ranges.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number of ranges that begin at or before the address. */
static uint32_t rank_of(const struct ranges *ranges, const void *at) {
    uint32_t low = 0, high = ranges->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if ((uintptr_t)ranges->range[middle].at <= (uintptr_t)at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether b follows a as a part of the same memory, for the host and for the device. */
static bool follows(const struct range *a, const struct range *b) {
    return b->base == a->base && b->at == a->at + a->bytes &&
           (a->device ? b->device == a->device + a->bytes : !b->device);
}

const struct range *ranges_find(const struct ranges *ranges, const void *at, uint64_t bytes) {
    uint32_t rank = rank_of(ranges, at);
    const struct range *first, *end = ranges->range + ranges->n;
    uint64_t offset, held;

    if (rank == 0)
        return NULL;
    first = &ranges->range[rank - 1];
    offset = (uint64_t)((uintptr_t)at - (uintptr_t)first->at);
    if (offset >= first->bytes)
        return NULL;
    held = first->bytes - offset;
    for (const struct range *last = first; held < bytes; last++) {
        if (last + 1 == end || !follows(last, last + 1))
            return NULL;
        held += last[1].bytes;
    }
    return first;
}

bool ranges_has_pageable(const struct ranges *ranges) {
    for (uint32_t i = 0; i < ranges->n; i++)
        if (!ranges->range[i].device)
            return true;
    return false;
}

static bool overlaps(const struct ranges *ranges, const char *base, uint64_t bytes) {
    uint32_t rank = rank_of(ranges, base + bytes - 1);
    const struct range *last = rank > 0 ? &ranges->range[rank - 1] : NULL;
    return last && (uintptr_t)base < (uintptr_t)last->at + last->bytes;
}

enum xop_status ranges_check(const struct ranges *ranges, const void *base, uint64_t bytes,
                             struct xop_error *error) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end;

    if (!base || bytes == 0 || (uintptr_t)base % page != 0 ||
        __builtin_add_overflow((uintptr_t)base, bytes, &end))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%llu bytes at %p cannot be registered: memory must begin at a page",
                        (unsigned long long)bytes, base);
    if (overlaps(ranges, base, bytes))
        return xop_fail(error, XOP_ALREADY_EXISTS,
                        "%llu bytes at %p overlap memory that is registered already",
                        (unsigned long long)bytes, base);
    return XOP_OK;
}

static enum xop_status reserve(struct ranges *ranges, uint32_t more, struct xop_error *error) {
    uint32_t capacity = ranges->capacity ? ranges->capacity : 16;
    struct range *range;

    if (more > RANGES_MAX || ranges->n > RANGES_MAX - more)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%u ranges of memory are registered already",
                        ranges->n);
    while (capacity < ranges->n + more)
        capacity *= 2;
    if (capacity == ranges->capacity)
        return XOP_OK;
    range = realloc(ranges->range, capacity * sizeof *range);
    if (!range)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory for another registered range");
    ranges->range = range;
    ranges->capacity = capacity;
    return XOP_OK;
}

enum xop_status ranges_add(struct ranges *ranges, const struct range *pieces, uint32_t n,
                           struct xop_error *error) {
    enum xop_status status = reserve(ranges, n, error);
    uint32_t at;

    if (status != XOP_OK)
        return status;
    at = rank_of(ranges, pieces->at);
    memmove(ranges->range + at + n, ranges->range + at, (ranges->n - at) * sizeof *pieces);
    memcpy(ranges->range + at, pieces, n * sizeof *pieces);
    ranges->n += n;
    return XOP_OK;
}

const struct range *ranges_of(const struct ranges *ranges, const void *base, bool on_device,
                              uint32_t *n) {
    uint32_t rank = rank_of(ranges, base);
    const struct range *first = rank > 0 ? &ranges->range[rank - 1] : NULL;

    *n = 0;
    if (!first || first->at != base || first->base != base || first->on_device != on_device)
        return NULL;
    while (rank - 1 + *n < ranges->n && first[*n].base == first->base)
        ++*n;
    return first;
}

uint64_t ranges_bytes(const struct range *pieces, uint32_t n) {
    return (uint64_t)(pieces[n - 1].at - pieces->at) + pieces[n - 1].bytes;
}

void ranges_remove(struct ranges *ranges, const struct range *first, uint32_t n) {
    uint32_t at = (uint32_t)(first - ranges->range);
    memmove(ranges->range + at, ranges->range + at + n, (ranges->n - at - n) * sizeof *first);
    ranges->n -= n;
}

void ranges_close(struct ranges *ranges) {
    free(ranges->range);
    memset(ranges, 0, sizeof *ranges);
}
