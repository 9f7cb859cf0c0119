/*
 * The launch functions of group_norm and batch_norm on the CPU, as those of launch.h.
 */
#ifndef KERNELS_CPU_PLANES_H
#define KERNELS_CPU_PLANES_H

#include <xop/op.h>

enum xop_status group_norm_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status group_norm_cpu_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status batch_norm_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status batch_norm_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

#endif
