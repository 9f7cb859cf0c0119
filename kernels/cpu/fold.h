/*
 * The launch functions of the reductions on the CPU, as those of launch.h.
 */
#ifndef KERNELS_CPU_FOLD_H
#define KERNELS_CPU_FOLD_H

#include <xop/op.h>

#define FOLD_CPU(name)                                                                             \
    enum xop_status name##_cpu_forward(const struct xop_launch *launch, struct xop_error *error);  \
    enum xop_status name##_cpu_backward(const struct xop_launch *launch, struct xop_error *error);
FOLD_CPU(sum)
FOLD_CPU(mean)
FOLD_CPU(max)
FOLD_CPU(min)
FOLD_CPU(prod)
FOLD_CPU(logsumexp)
FOLD_CPU(var)
#undef FOLD_CPU

#endif
