/*
 * The launch functions of max_pool2d and avg_pool2d on the CPU, as those of launch.h.
 */
#ifndef KERNELS_CPU_WINDOW_H
#define KERNELS_CPU_WINDOW_H

#include <xop/op.h>

enum xop_status max_pool2d_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status max_pool2d_cpu_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status avg_pool2d_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status avg_pool2d_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

#endif
