/*
 * The innermost loops of the CPU kernels over contiguous memory, compiled once for each vector
 * extension (loops.c) and chosen when the process starts to use them, so that one binary runs on
 * any processor of its architecture and uses what the processor has. All give the same bits: none
 * contracts or reorders floating-point operations. Callable from any thread.
 */
#ifndef KERNELS_CPU_LOOPS_H
#define KERNELS_CPU_LOOPS_H

#include <stdint.h>

#include "kernels/cpu/binary_loops.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/cpu/unary_loops.h"
#include <xop/types.h>

/* What the elementwise loops compute from p and q; those of one argument take p for q, too. */
enum loops_kind {
    LOOPS_SQUARE_BIAS,        /* p*p + q */
    LOOPS_TWICE_PRODUCT,      /* 2*(p*q) */
    LOOPS_SIGMOID,            /* of p */
    LOOPS_SIGMOID_COMPLEMENT, /* of p */
    LOOPS_BOSE_EINSTEIN,      /* of p */
    LOOPS_SIGMOID_GRAD,       /* q * p * (1 - p) */
    LOOPS_SIGMOID_COMPL_GRAD, /* -q * p * (1 - p) */
    LOOPS_BOSE_EINSTEIN_GRAD, /* -q * p * (p + 1) */
    LOOPS_KINDS
};

/* step_p and step_q are 1, or 0 where the first element serves for all (not where there is but one
 * argument). out may be p or q. */
typedef void (*loops_f32_fn)(float *out, const float *p, int step_p, const float *q, int step_q,
                             int64_t n);
typedef void (*loops_f64_fn)(double *out, const double *p, int step_p, const double *q, int step_q,
                             int64_t n);

/* The tile of a product that is summed in registers: so many rows, and so many bytes of columns. */
#define LOOPS_GEMM_ROWS 6
#define LOOPS_GEMM_BYTES 64

struct loops {
    const char *name; /* "AVX2, FMA, F16C" */
    const struct unary_loops *unary;
    const struct binary_loops *binary;
    const struct row_loops *rows;
    void (*f16_to_f32)(float *to, const uint16_t *from, int64_t n);
    void (*f32_to_f16)(uint16_t *to, const float *from, int64_t n);
    void (*bf16_to_f32)(float *to, const uint16_t *from, int64_t n);
    void (*f32_to_bf16)(uint16_t *to, const float *from, int64_t n);
    loops_f32_fn f32[LOOPS_KINDS];
    loops_f64_fn f64[LOOPS_KINDS];
    /* The sum of factor * from[i], in an order that n fixes. */
    double (*sum_f32)(const float *from, double factor, int64_t n);
    double (*sum_f64)(const double *from, double factor, int64_t n);
    /* to[i] += factor[i] * from[i] */
    void (*add_f32)(double *to, const float *from, const double *factor, int64_t n);
    void (*add_f64)(double *to, const double *from, const double *factor, int64_t n);
    /* c[i][j], of a tile that is dense, = the sum over k, in order, of a[k][i] * b[k][j]. b is
     * aligned to 64 bytes. */
    void (*gemm_f32)(int64_t inner, const float *a, const float *b, float *c);
    void (*gemm_f64)(int64_t inner, const double *a, const double *b, double *c);
};

/* The best that this processor runs. */
const struct loops *loops_best(void);
/* The i-th that this processor runs, best first; NULL past the last. */
const struct loops *loops_supported(uint32_t i);

/* The same for any floating dtype; out, p and q point to elements of it. f16 and bf16 are computed
 * in f32 and rounded once. n may be 0. */
void loops_run(const struct loops *loops, enum loops_kind kind, enum xop_dtype dtype, void *out,
               const void *p, int step_p, const void *q, int step_q, int64_t n);
/* For a unary operator's pass: a is x or y or, where backward needs neither, grad_y; b is grad_y
 * where a is not. */
void loops_unary(const struct loops *loops, enum unary_kind kind, enum xop_pass pass,
                 enum xop_dtype dtype, void *out, const void *a, const void *b,
                 const double p[UNARY_PARAMETERS], int64_t n);
/* For a binary operator's result: y, where g is not used, or what elements add to a gradient. Where
 * `computed`, out is of the dtype computed in, f32 or f64. */
struct loops_operands {
    const void *x, *b, *g;
    int step_x, step_b; /* 1, or 0 where the first element serves for all */
};
void loops_binary(const struct loops *loops, enum binary_kind op, enum binary_result result,
                  enum xop_dtype dtype, void *out, bool computed, const struct loops_operands *in,
                  int64_t n);
double loops_sum(const struct loops *loops, enum xop_dtype dtype, const void *from, double factor,
                 int64_t n);
void loops_add(const struct loops *loops, enum xop_dtype dtype, double *to, const void *from,
               const double *factor, int64_t n);
/* Elements to doubles, and doubles to elements (to f16 and bf16 by way of f32). */
void loops_load(const struct loops *loops, enum xop_dtype dtype, double *to, const void *from,
                int64_t n);
void loops_store(const struct loops *loops, enum xop_dtype dtype, void *to, const double *from,
                 int64_t n);
/* From one dtype to another. */
void loops_cast(const struct loops *loops, enum xop_dtype to_dtype, void *to,
                enum xop_dtype from_dtype, const void *from, int64_t n);

#endif
