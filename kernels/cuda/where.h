/*
 * The launch functions of where on CUDA, as those of launch.h.
 */
#ifndef KERNELS_CUDA_WHERE_H
#define KERNELS_CUDA_WHERE_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum xop_status where_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status where_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status where_preload(struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
