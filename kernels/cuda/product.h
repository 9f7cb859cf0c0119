/*
 * Products of matrices on CUDA, by cuBLASLt: batches of them as strided batches, sums over a batch
 * in the workspace. What has an empty sum is filled by a kernel of ours. Called on the loop's
 * thread; only enqueues.
 */
#ifndef KERNELS_CUDA_PRODUCT_H
#define KERNELS_CUDA_PRODUCT_H

#include "kernels/product.h"

#ifdef __cplusplus
extern "C" {
#endif

/* workspace: sum_bytes and library_bytes of its cut, aligned to 256. Nothing is done where the
 * product is not wanted. */
enum xop_status product_enqueue(const struct xop_launch *launch, const struct product *product,
                                void *workspace, struct xop_error *error);

enum xop_status product_preload(struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
