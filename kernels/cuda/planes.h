/*
 * The launch functions of group_norm and batch_norm on CUDA, as those of launch.h.
 */
#ifndef KERNELS_CUDA_PLANES_H
#define KERNELS_CUDA_PLANES_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum xop_status group_norm_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status group_norm_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status batch_norm_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status batch_norm_cuda_backward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status planes_preload(struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
