/*
 * square_bias: y = x*x + b, where x and b broadcast against each other. What both backends share:
 * the declaration. Backward is a sum of 2*x*grad_y for x, and of grad_y for b.
 */
#ifndef KERNELS_SQUARE_BIAS_H
#define KERNELS_SQUARE_BIAS_H

#include "kernels/broadcast.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op square_bias_declaration;

/* plan.group: what a launch may hold together. A launch meets calls of one group only, of any sizes
 * and any shapes that fall into it. */
enum square_bias_group {
    /* forward: x FULL and b FULL or SCALAR; backward: both FULL. One loop over the elements. */
    SQUARE_BIAS_FLAT = 1,
    /* forward: x FULL, b ROW or COLUMN; backward: x FULL, b SCALAR, ROW or COLUMN. */
    SQUARE_BIAS_SIMPLE = 2,
    SQUARE_BIAS_GENERAL = 3
};

#ifdef __cplusplus
}
#endif
#endif
