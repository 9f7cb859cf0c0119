/*
 * where: elements of x or of b as a condition has it, all three broadcast against each other. What
 * both backends share: the declaration and how the operands lie against y. Elements are moved as
 * they are, bit by bit.
 */
#ifndef KERNELS_WHERE_H
#define KERNELS_WHERE_H

#include "kernels/broadcast.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op where_declaration;

/* Forward takes condition, x and b; backward grad_y besides, and of x and b the shapes alone. */
enum where_operand { WHERE_CONDITION = 0, WHERE_X = 1, WHERE_B = 2, WHERE_GRAD_Y = 3 };

/* A dimension to walk: its extent and the steps that each operand takes, 0 where it is repeated. */
struct where_dim {
    int64_t size, step[3];
};
/* The operands against y. Dimensions of extent 1 are gone, and neighbours that all operands walk
 * alike are joined; dim[0] is the outermost. */
struct where_map {
    int64_t elements; /* of y */
    uint32_t ndims;
    struct where_dim dim[XOP_MAX_RANK];
};
/* `in` are the three; y is what they broadcast to. */
void where_collapse(const struct xop_tensor *in, const struct xop_tensor *y, struct where_map *map);

/* What backward does. A gradient whose operand was not repeated is written element by element, any
 * other is a sum. Partial sums lie in the workspace where broadcast.h says; terms of sums, of
 * grad_y's shape and dtype, from the offsets on, for backends that want them. */
struct where_backward {
    struct broadcast_backward sums;
    uint64_t x_offset, b_offset, workspace_bytes;
};
void where_backward_plan(const struct xop_call *call, struct where_backward *plan);

#ifdef __cplusplus
}
#endif
#endif
