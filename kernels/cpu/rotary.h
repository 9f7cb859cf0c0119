/*
 * The launch functions of rotary_embedding on the CPU, as those of launch.h.
 */
#ifndef KERNELS_CPU_ROTARY_H
#define KERNELS_CPU_ROTARY_H

#include <xop/op.h>

enum xop_status rotary_embedding_cpu_forward(const struct xop_launch *launch,
                                             struct xop_error *error);
enum xop_status rotary_embedding_cpu_backward(const struct xop_launch *launch,
                                              struct xop_error *error);

#endif
