/*
 * The unary elementwise operators, of which unary.def is the table. What both backends share: the
 * declarations, made of the table and of the documentation and attributes in unary.c. Forward takes
 * x and gives y; backward takes what the line names of x and y, and grad_y, and gives grad_x, all
 * of one shape and dtype. Calls of every size and shape have plan.group 0 and may share a launch.
 */
#ifndef KERNELS_UNARY_H
#define KERNELS_UNARY_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is computed: an operator's own formula, or a form that an attribute asks for. */
enum unary_kind {
#define UNARY(name, ...) UNARY_##name,
#include "kernels/unary.def"
    UNARY_OPS, /* the operators; forms follow */
    UNARY_BEFORE_FORMS = UNARY_OPS - 1,
#define UNARY_FORM(name, ...) UNARY_##name,
#include "kernels/unary.def"
    UNARY_KINDS
};

#define UNARY_PARAMETERS 2

extern const struct xop_op unary_declarations[UNARY_OPS];

/* The kind that a call of an operator asks for, and its attributes as the table's p[]. */
enum unary_kind unary_parameters(enum unary_kind op, const struct xop_attr *attrs,
                                 double p[UNARY_PARAMETERS]);

#ifdef __cplusplus
}
#endif
#endif
