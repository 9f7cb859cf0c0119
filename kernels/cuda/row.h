/*
 * The launch functions of the operators over rows on CUDA, as those of launch.h.
 */
#ifndef KERNELS_CUDA_ROW_H
#define KERNELS_CUDA_ROW_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum xop_status softmax_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status softmax_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status log_softmax_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status log_softmax_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status layer_norm_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status layer_norm_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status rms_norm_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status rms_norm_cuda_backward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status softmax_preload(struct xop_error *error);
enum xop_status row_norm_preload(struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
