/*
 * Host memory that was registered with the device, and finding it again: where the device sees a
 * host address. Owned by the backend; the loop's thread only, but for what is registered before it
 * starts.
 *
 * Memory that the process may only read is pinned with a flag of its own. A device that does not
 * know this flag cannot pin it at all: such a range is kept as one that must be copied, which is
 * slower (pageable memory) but right.
 */
#ifndef KERNELS_CUDA_PINNED_H
#define KERNELS_CUDA_PINNED_H

#include "kernels/cuda/gpu.h"

#define PINNED_MAX 4096u /* ranges */

struct pinned_range {
    char *host, *device; /* device is NULL where the memory could not be pinned */
    uint64_t bytes;
    bool read_only;
};

struct pinned {
    struct pinned_range *range; /* sorted by address */
    uint32_t n, capacity;
};

enum xop_status pinned_add(struct pinned *pinned, const struct gpu *gpu, void *base, uint64_t bytes,
                           bool read_only, struct xop_error *error);
enum xop_status pinned_remove(struct pinned *pinned, void *base, struct xop_error *error);

/* The range that holds all of these bytes, or NULL. */
const struct pinned_range *pinned_find(const struct pinned *pinned, const void *at, uint64_t bytes);

/* Whether some of the ranges could not be pinned. */
bool pinned_has_pageable(const struct pinned *pinned);

/* Unregisters everything (not where the device is lost or busy) and frees the table. */
void pinned_close(struct pinned *pinned, bool unregister);

#endif
