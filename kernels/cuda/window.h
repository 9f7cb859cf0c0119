/*
 * The launch functions of max_pool2d, avg_pool2d and upsample on CUDA, as those of launch.h.
 */
#ifndef KERNELS_CUDA_WINDOW_H
#define KERNELS_CUDA_WINDOW_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum xop_status max_pool2d_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status max_pool2d_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status avg_pool2d_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status avg_pool2d_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status upsample_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status upsample_cuda_backward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status window_preload(struct xop_error *error);
enum xop_status upsample_preload(struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
