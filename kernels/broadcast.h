/*
 * What operators of two inputs that broadcast against each other have in common: x and b give y,
 * of the shape that they broadcast to, and backward takes x, b and grad_y, in this order, and gives
 * grad_x and grad_b, each summed over the dimensions along which its input was repeated. Pure
 * functions, callable from any thread.
 */
#ifndef KERNELS_BROADCAST_H
#define KERNELS_BROADCAST_H

#include "kernels/shape.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum broadcast_operand { BROADCAST_X = 0, BROADCAST_B = 1, BROADCAST_GRAD_Y = 2 };

/* What backward has to do. The gradient of an operand is elementwise where its form is SHAPE_FULL,
 * else a sum. Partial sums of grad_x, as doubles, lie at the start of the workspace, those of
 * grad_b at workspace + b_offset; workspace_bytes is an upper bound from the shapes alone. */
struct broadcast_backward {
    struct shape_reduction x, b;
    uint64_t b_offset, workspace_bytes;
};

void broadcast_backward_plan(const struct xop_tensor *x, const struct xop_tensor *b,
                             const struct xop_tensor *grad_y, struct broadcast_backward *plan);

/* Checks a call of forward and fills in the plan but for flops and group; map becomes that of x and
 * b against y. */
enum xop_status broadcast_infer(const struct xop_call *call, struct xop_plan *plan,
                                struct shape_map *map, struct xop_error *error);

/* The same for backward; read_once and bytes are left to the operator as well. */
enum xop_status broadcast_infer_backward(const struct xop_call *call, struct xop_plan *plan,
                                         struct broadcast_backward *back, struct xop_error *error);

/* 0 for a shape without data that is too large, which no call has. */
uint64_t broadcast_bytes(const struct xop_tensor *tensor);
uint64_t broadcast_elements(const struct xop_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
