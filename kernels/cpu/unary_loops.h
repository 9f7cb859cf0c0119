/*
 * The innermost loops of the unary operators, part of struct loops (loops.h) and compiled as those
 * are, in a file of their own. out may be a or b. Callable from any thread.
 */
#ifndef KERNELS_CPU_UNARY_LOOPS_H
#define KERNELS_CPU_UNARY_LOOPS_H

#include <stdint.h>

#include "kernels/unary.h"

typedef void (*unary_f32_fn)(float *out, const float *a, const float *b,
                             const float p[UNARY_PARAMETERS], int64_t n);
typedef void (*unary_f64_fn)(double *out, const double *a, const double *b,
                             const double p[UNARY_PARAMETERS], int64_t n);

struct unary_loops {
    unary_f32_fn f32[UNARY_KINDS][XOP_PASS_COUNT];
    unary_f64_fn f64[UNARY_KINDS][XOP_PASS_COUNT];
};

#if defined(__x86_64__)
extern const struct unary_loops unary_loops_sse2, unary_loops_avx2, unary_loops_avx512;
#elif defined(__aarch64__)
extern const struct unary_loops unary_loops_neon;
#else
extern const struct unary_loops unary_loops_plain;
#endif

#endif
