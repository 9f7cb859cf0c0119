/*
 * Products of matrices on one thread, by OpenBLAS or by loops of our own. Both add to what is
 * there, in an order that the sizes alone fix. Callable from any thread.
 */
#ifndef KERNELS_CPU_GEMM_H
#define KERNELS_CPU_GEMM_H

#include "kernels/cpu/blas.h"
#include "kernels/cpu/loops.h"

/* Row-major; a row begins `step` elements after the one before. Where it is transposed, what is
 * stored is its transpose. */
struct gemm_matrix {
    const void *data;
    int64_t step;
    bool transposed;
};

/* C (rows, columns) += A (rows, inner) B (inner, columns), all f32 or all f64. C overlaps neither;
 * any size may be 0. */
struct gemm {
    enum xop_dtype dtype;
    int64_t rows, columns, inner;
    struct gemm_matrix a, b;
    void *c;
    int64_t step_c;
};

/* blas: NULL for our own loops. */
void gemm_run(const struct loops *loops, const struct blas *blas, const struct gemm *gemm);

/* The part of a matrix from that row and column on. size: an element's bytes. */
struct gemm_matrix gemm_part(const struct gemm_matrix *matrix, int64_t row, int64_t column,
                             size_t size);

#endif
