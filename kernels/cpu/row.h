/*
 * The launch functions of the operators over rows on the CPU, as those of launch.h.
 */
#ifndef KERNELS_CPU_ROW_H
#define KERNELS_CPU_ROW_H

#include <xop/op.h>

enum xop_status softmax_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status softmax_cpu_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status log_softmax_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status log_softmax_cpu_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status layer_norm_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status layer_norm_cpu_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status rms_norm_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status rms_norm_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

#endif
