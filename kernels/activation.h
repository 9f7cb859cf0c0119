/*
 * sigmoid, sigmoid_complement and bose_einstein: elementwise activations whose gradient is a
 * polynomial in their own result. What both backends share: the declarations and the checks.
 * Forward takes x and gives y; backward takes y and grad_y and gives grad_x, all of one shape and
 * dtype. Calls of every size and shape have plan.group 0 and may share a launch.
 */
#ifndef KERNELS_ACTIVATION_H
#define KERNELS_ACTIVATION_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op sigmoid_declaration;            /* 1 / (1 + exp(-x)) */
extern const struct xop_op sigmoid_complement_declaration; /* exp(-x) / (1 + exp(-x)) */
extern const struct xop_op bose_einstein_declaration;      /* exp(-x) / (1 - exp(-x)) */

#ifdef __cplusplus
}
#endif
#endif
