/*
 * Sums with numbers of elements and bytes. Pure functions, callable from any thread.
 */
#ifndef KERNELS_SIZE_H
#define KERNELS_SIZE_H

#include <stdint.h>

static inline int64_t size_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* a / b, rounded up. */
static inline int64_t size_ceil(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* Of a part of a workspace, so that the next part is aligned as the first. */
static inline uint64_t size_aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

#endif
