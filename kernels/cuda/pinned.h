/*
 * Registering host memory with the device. It is done in pieces, so that no call holds the driver,
 * and with it the loop, for long. The helper thread only.
 *
 * Memory that the process may only read is pinned with a flag of its own. A device that does not
 * know this flag cannot pin it at all: such memory is left pageable, and has to be copied, which is
 * slower but right.
 */
#ifndef KERNELS_CUDA_PINNED_H
#define KERNELS_CUDA_PINNED_H

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/ranges.h"

/* Pins the memory, and makes the ranges that it consists of; the caller frees *pieces. */
enum xop_status pinned_make(const struct gpu *gpu, void *base, uint64_t bytes, bool read_only,
                            struct range **pieces, uint32_t *n, struct xop_error *error);

/* Unpins the ranges. The first failure, but none is left out. */
enum xop_status pinned_unmake(const struct range *pieces, uint32_t n, struct xop_error *error);

#endif
