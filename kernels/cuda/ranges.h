/*
 * The memory that calls may use, and finding it again: host memory that was registered, and where
 * the device sees it, and device memory. Owned by the backend, whose lock guards it: the helper
 * thread, which alone changes the table, holds the lock while it does, and the loop's thread while
 * it looks.
 *
 * What was registered as one may be several ranges, one behind the other; a tensor may lie across
 * them.
 */
#ifndef KERNELS_CUDA_RANGES_H
#define KERNELS_CUDA_RANGES_H

#include <xop/types.h>

#define RANGES_MAX 65536u

struct range {
    char *at;     /* its address in calls */
    char *device; /* the same as the device sees it; NULL: pageable, the device cannot */
    uint64_t bytes;
    char *base; /* where the memory begins that it is a part of */
    bool read_only;
    bool on_device; /* it is the device's memory; else it is the host's */
};

struct ranges {
    struct range *range; /* sorted by address */
    uint32_t n, capacity;
};

/* Whether this memory may be added. INVALID_ARGUMENT where it does not begin at a page,
 * ALREADY_EXISTS where it overlaps what is there. */
enum xop_status ranges_check(const struct ranges *ranges, const void *base, uint64_t bytes,
                             struct xop_error *error);

/* Adds the pieces of one memory, in the order of their addresses; all or none. */
enum xop_status ranges_add(struct ranges *ranges, const struct range *pieces, uint32_t n,
                           struct xop_error *error);

/* The pieces of the memory that begins at base; *n is how many. NULL where there is none, or where
 * it is not on the device as asked. */
const struct range *ranges_of(const struct ranges *ranges, const void *base, bool on_device,
                              uint32_t *n);
uint64_t ranges_bytes(const struct range *pieces, uint32_t n);

/* Forgets n pieces, from this one. */
void ranges_remove(struct ranges *ranges, const struct range *first, uint32_t n);

/* The first of the ranges of one memory that hold all of these bytes, or NULL. */
const struct range *ranges_find(const struct ranges *ranges, const void *at, uint64_t bytes);

/* Whether some of them are pageable. */
bool ranges_has_pageable(const struct ranges *ranges);

void ranges_close(struct ranges *ranges);

#endif
