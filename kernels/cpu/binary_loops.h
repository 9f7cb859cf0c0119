/*
 * The innermost loops of the binary operators, part of struct loops (loops.h) and compiled as those
 * are, in a file of their own: y of x and b, and what an element adds to the gradients of x and of
 * b, which take g, too. step_x and step_b are 1, or 0 where the first element serves for all. out
 * may be x, b or g. Callable from any thread.
 */
#ifndef KERNELS_CPU_BINARY_LOOPS_H
#define KERNELS_CPU_BINARY_LOOPS_H

#include <stdint.h>

#include "kernels/binary.h"

typedef void (*binary_f32_fn)(float *out, const float *x, int step_x, const float *b, int step_b,
                              const float *g, int64_t n);
typedef void (*binary_f64_fn)(double *out, const double *x, int step_x, const double *b, int step_b,
                              const double *g, int64_t n);

struct binary_loops {
    binary_f32_fn f32[BINARY_OPS][BINARY_RESULTS];
    binary_f64_fn f64[BINARY_OPS][BINARY_RESULTS];
};

#if defined(__x86_64__)
extern const struct binary_loops binary_loops_sse2, binary_loops_avx2, binary_loops_avx512;
#elif defined(__aarch64__)
extern const struct binary_loops binary_loops_neon;
#else
extern const struct binary_loops binary_loops_plain;
#endif

#endif
