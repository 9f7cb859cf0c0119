/*
 * where on the CPU. Callable as launch.h says.
 */
#ifndef KERNELS_CPU_WHERE_H
#define KERNELS_CPU_WHERE_H

#include <xop/op.h>

enum xop_status where_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status where_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

#endif
