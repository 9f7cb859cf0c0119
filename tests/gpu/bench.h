/*
 * What measurements share: medians and a table of lines. Times are in seconds.
 */
#ifndef TESTS_GPU_BENCH_H
#define TESTS_GPU_BENCH_H

#include <time.h>

#include "tests/gpu/fixture.h"

#define BENCH_CUDA(call)                                                                           \
    do {                                                                                           \
        struct xop_error bench_error;                                                              \
        if (CHECK_CUDA(&bench_error, call) != XOP_OK)                                              \
            FIXTURE_DIE("%s", bench_error.message);                                                \
    } while (0)

static int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the samples; q is 0.5 for the median. */
static double bench_quantile(double *samples, int n, double q) {
    qsort(samples, (size_t)n, sizeof *samples, bench_compare);
    return samples[(int)(q * (n - 1) + 0.5)];
}

static double bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Random bits that are numbers between 1 and 2, or their negatives, in every floating dtype: large
 * exponents and NaN would make work that ordinary data does not. */
static __global__ void bench_fill(uint32_t *data, size_t words, uint32_t size) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t bits = (uint32_t)i * 2654435761u ^ 0x9e3779b9u;
        bits ^= bits >> 15;
        bits *= 2246822519u;
        bits ^= bits >> 13;
        if (size == 2) /* bf16: sign and seven bits of mantissa */
            bits = (bits & 0x807f807fu) | 0x3f803f80u;
        else if (size == 4)
            bits = (bits & 0x807fffffu) | 0x3f800000u;
        else if (i % 2)
            bits = (bits & 0x800fffffu) | 0x3ff00000u;
        data[i] = bits;
    }
}

#endif
