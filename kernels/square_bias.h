/*
 * square_bias: y = x*x + b, where x and b broadcast against each other. What both backends share:
 * the declaration, the checks, and how the gradients' sums are cut.
 */
#ifndef KERNELS_SQUARE_BIAS_H
#define KERNELS_SQUARE_BIAS_H

#include "kernels/shape.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op square_bias_declaration;

enum square_bias_operand { SQUARE_BIAS_X = 0, SQUARE_BIAS_B = 1, SQUARE_BIAS_GRAD_Y = 2 };

/* plan.group: what a launch may hold together. A launch meets calls of one group only, of any sizes
 * and any shapes that fall into it. */
enum square_bias_group {
    /* forward: x FULL and b FULL or SCALAR; backward: both FULL. One loop over the elements. */
    SQUARE_BIAS_FLAT = 1,
    /* forward: x FULL, b ROW or COLUMN; backward: x FULL, b SCALAR, ROW or COLUMN. */
    SQUARE_BIAS_SIMPLE = 2,
    SQUARE_BIAS_GENERAL = 3
};

/* What backward has to do: with x and b of the shapes given and g that of grad_y. grad_x is
 * elementwise where x.form is SHAPE_FULL, else element k is the sum of 2*x[k]*grad_y over what x
 * was repeated along; grad_b likewise with 1 for 2*x[k]. Partial sums of x, as doubles, lie at the
 * start of the workspace, those of b at workspace + b_offset. */
struct square_bias_backward {
    struct shape_reduction x, b;
    uint64_t b_offset, workspace_bytes;
};

void square_bias_backward_plan(const struct xop_tensor *x, const struct xop_tensor *b,
                               const struct xop_tensor *grad_y, struct square_bias_backward *plan);

/* Bytes of workspace that backward needs, an upper bound from the shapes alone. */
uint64_t square_bias_workspace(const struct xop_tensor *x, const struct xop_tensor *b,
                               const struct xop_tensor *grad_y);

#ifdef __cplusplus
}
#endif
#endif
