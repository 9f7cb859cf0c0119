/*
 * The launch functions of the reductions on CUDA, as those of launch.h.
 */
#ifndef KERNELS_CUDA_FOLD_H
#define KERNELS_CUDA_FOLD_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FOLD_CUDA(name)                                                                            \
    enum xop_status name##_cuda_forward(const struct xop_launch *launch, struct xop_error *error); \
    enum xop_status name##_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
FOLD_CUDA(sum)
FOLD_CUDA(mean)
FOLD_CUDA(max)
FOLD_CUDA(min)
FOLD_CUDA(prod)
FOLD_CUDA(logsumexp)
FOLD_CUDA(var)
#undef FOLD_CUDA

enum xop_status fold_preload(struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
