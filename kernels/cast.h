/*
 * cast: a tensor in another dtype. What both backends share: the declaration and the checks.
 * Forward takes x and gives y; backward takes x's shape and grad_y, and gives grad_x in x's dtype.
 * In either pass the last input is what is converted. Calls of every size and shape have plan.group
 * 0 and may share a launch.
 */
#ifndef KERNELS_CAST_H
#define KERNELS_CAST_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op cast_declaration;

#ifdef __cplusplus
}
#endif
#endif
