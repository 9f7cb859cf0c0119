/*
 * The binary elementwise operators, of which binary.def is the table. What both backends share: the
 * declarations, made of the table and of the documentation in binary.c.
 */
#ifndef KERNELS_BINARY_H
#define KERNELS_BINARY_H

#include "kernels/broadcast.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum binary_kind {
#define BINARY(name, ...) BINARY_##name,
#include "kernels/binary.def"
    BINARY_OPS
};

/* What a formula gives: y, or what an element of y adds to a gradient. */
enum binary_result { BINARY_Y, BINARY_GRAD_X, BINARY_GRAD_B, BINARY_RESULTS };

/* plan.group: of how many dimensions the walk over y is at most. */
enum binary_group { BINARY_TWO = 1, BINARY_ANY = 2 };

/* The second kind have workspace for the terms of sums. */
extern const struct xop_op binary_declarations[BINARY_OPS], binary_terms_declarations[BINARY_OPS];

/* Whether backward takes the elements of x and b, not their shapes alone. */
bool binary_saves(enum binary_kind op);

/* Where, in the workspace of the second kind, the terms of a sum lie, as f32 or, for f64, f64:
 * those of grad_x and of grad_b, in grad_y's shape, behind the partial sums. 0 where there are
 * none. */
struct binary_terms {
    uint64_t x_offset, b_offset, workspace_bytes;
};

void binary_terms_plan(enum binary_kind op, const struct xop_tensor *grad_y,
                       const struct broadcast_backward *back, struct binary_terms *terms);

#ifdef __cplusplus
}
#endif
#endif
