/*
 * The launch functions of the losses on CUDA, as those of launch.h.
 */
#ifndef KERNELS_CUDA_LOSS_H
#define KERNELS_CUDA_LOSS_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOSS_CUDA(name)                                                                            \
    enum xop_status name##_cuda_forward(const struct xop_launch *launch, struct xop_error *error); \
    enum xop_status name##_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
LOSS_CUDA(mse_loss)
LOSS_CUDA(binary_cross_entropy_with_logits)
LOSS_CUDA(cross_entropy)
LOSS_CUDA(nll_loss)
#undef LOSS_CUDA

enum xop_status loss_pointwise_preload(struct xop_error *error);
enum xop_status cross_entropy_preload(struct xop_error *error);
enum xop_status nll_loss_preload(struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
