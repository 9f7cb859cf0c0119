/*
 * OpenBLAS, opened when it is there: this build needs neither its headers nor itself. It is used on
 * one thread at a time of ours, so that the backend's pool alone decides who computes what.
 */
#ifndef KERNELS_CPU_BLAS_H
#define KERNELS_CPU_BLAS_H

#include <xop/types.h>

/* Of cblas.h, whose integers have 32 bits in every build that distributions ship under this name.
 */
enum blas_order { BLAS_ROW_MAJOR = 101 };
enum blas_transpose { BLAS_PLAIN = 111, BLAS_TRANSPOSED = 112 };

typedef void (*blas_sgemm_fn)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                              float alpha, const float *a, int lda, const float *b, int ldb,
                              float beta, float *c, int ldc);
typedef void (*blas_dgemm_fn)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                              double alpha, const double *a, int lda, const double *b, int ldb,
                              double beta, double *c, int ldc);

struct blas {
    char name[128]; /* "OpenBLAS 0.3.21 (SkylakeX)" */
    blas_sgemm_fn sgemm;
    blas_dgemm_fn dgemm;
};

/* Opens the library, the first time. XOP_CPU_BLAS=none in the environment turns it off from then
 * on, and its absence at a later call on again. Called when a backend is opened, before threads
 * compute. */
void blas_open(void);

/* NULL where there is none, or it is turned off. Any thread. */
const struct blas *blas_best(void);

#endif
