/*
 * Reductions over any dimensions: sum, mean, max, min, prod, logsumexp and var. What both backends
 * share: the declarations, the checks, how a call's dimensions are collapsed, and how the terms of
 * an output are cut into pieces that are folded apart. plan.group is 0: calls of every shape may
 * share a launch.
 *
 * Backward spreads grad_y over x's shape. Where that takes more than x, y and grad_y hold, it folds
 * x anew first and leaves a summary of each output's terms in the workspace.
 */
#ifndef KERNELS_FOLD_H
#define KERNELS_FOLD_H

#include "kernels/shape.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fold_kind {
    FOLD_SUM,
    FOLD_MEAN,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_PROD,
    FOLD_LOGSUMEXP,
    FOLD_VAR,
    FOLD_KINDS
};

/* In the order of fold_kind. */
extern const struct xop_op fold_declarations[FOLD_KINDS];

/* What is kept of the terms that were seen, in up to three numbers a, b and c. */
enum fold_summary {
    FOLD_TOTAL,        /* a: their sum */
    FOLD_LARGEST,      /* a; NaN where one is */
    FOLD_SMALLEST,     /* a; NaN where one is */
    FOLD_PRODUCT,      /* a */
    FOLD_EXPONENTIALS, /* a: the largest, NaN passed over; b: the sum of exp(x - a) */
    FOLD_SQUARES,      /* a: the mean; b: the sum of (x - a)^2; c: how many they are */
    FOLD_TIES,         /* a: how many equal the output's y */
    FOLD_ZEROS,        /* a: the product of those that are not 0; b: how many are 0 */
    FOLD_NOTHING
};

/* Numbers of a summary, in the workspace. */
#define FOLD_PARTS 3

/* An operator's summaries: what forward makes y of, and what backward needs beside its inputs. */
struct fold_traits {
    enum fold_summary forward, backward;
    int saved_y;   /* whether backward takes y */
    int reads_x;   /* whether backward reads x's elements; its shape it always needs */
    int has_empty; /* whether there is a result where there are no terms */
};
extern const struct fold_traits fold_traits[FOLD_KINDS];

/* Inputs of backward: x, y where it is taken, and grad_y, which is the last. */
#define FOLD_X 0
#define FOLD_Y 1

/* A call that infer has accepted, collapsed. The workspace holds FOLD_PARTS doubles for each piece
 * of each output, where there are several pieces, and from stats_offset on FOLD_PARTS for each
 * output, where backward needs a summary. Part p of output k in piece i is at
 * (p * pieces + i) * outputs + k. */
struct fold_plan {
    struct shape_reduction shape; /* of x to y */
    struct shape_map spread;      /* y, with extents of 1, against x */
    double terms;                 /* of each output */
    double divisor;               /* mean: terms; var: terms - correction, at least 0; else 1 */
    uint64_t stats_offset, workspace_bytes;
};
void fold_measure(enum fold_kind kind, enum xop_pass pass, const struct xop_call *call,
                  struct fold_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
