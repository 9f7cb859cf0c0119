/*
 * Products of matrices by cuBLASLt, which is opened and not linked: without it the operators that
 * need it fail with a sentence that says so, and nothing else does.
 *
 * Opening the library takes long, so a thread does it from when the backend is opened. Its state is
 * the process's, and stays until the process ends. What the library's heuristics choose for a
 * product is kept, so that the same sizes at the same alignments are computed in the same way every
 * time. lt_begin and lt_product_enqueue are called on the loop's thread.
 */
#ifndef KERNELS_CUDA_LT_H
#define KERNELS_CUDA_LT_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/gpu.h"
#include <xop/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c (rows, columns) = a (rows, inner) b (inner, columns), row-major and dense, no size 0. Where one
 * is transposed, what is stored is its transpose. All in device memory, of one floating dtype; f16
 * and bf16 are summed in f32, f32 without TF32 unless that is allowed, f64 in f64. `batch` of them,
 * 1 or more, each so many elements after the one before (0: the same one). */
struct lt_product {
    enum xop_dtype dtype, c_dtype; /* f16 and bf16 may give an f32 c */
    int64_t rows, columns, inner;
    bool a_transposed, b_transposed;
    bool adds;       /* to what is in c; not with a bias */
    bool allow_tf32; /* f32 alone heeds it */
    bool any_order;  /* the library need not give the same bits again */
    int64_t batch, step_a, step_b, step_c;
    const void *a, *b;
    const void *bias; /* columns elements, added to every row; or NULL; not with a batch */
    void *c;
    void *workspace; /* multiple of 256; nothing else may use it until the stream is through */
    uint64_t workspace_bytes;
};

/* Starts to open the library for the device, unless that was done. Failing is for later. */
void lt_begin(const struct gpu *gpu);

/* UNIMPLEMENTED where the library is missing, and where it has no way to compute this product;
 * `unsupported` tells the second. */
enum xop_status lt_product_enqueue(const struct lt_product *product, cudaStream_t stream,
                                   bool *unsupported, struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
