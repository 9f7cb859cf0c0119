/*
 * The launch functions of attention on the CPU, as those of launch.h.
 */
#ifndef KERNELS_CPU_ATTENTION_H
#define KERNELS_CPU_ATTENTION_H

#include <xop/op.h>

enum xop_status attention_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status attention_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

#endif
