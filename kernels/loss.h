/*
 * Losses: mse_loss and binary_cross_entropy_with_logits of single elements (loss_pointwise.c),
 * cross_entropy and nll_loss of classes (loss_classes.c). What both backends share: the
 * declarations, the checks, and how the terms of a mean or sum are cut into pieces that are summed
 * apart, in double precision, and then added in order. The cuts depend on shapes and dtypes alone.
 * plan.group is 0: calls of every shape may share a launch.
 */
#ifndef KERNELS_LOSS_H
#define KERNELS_LOSS_H

#include "kernels/row.h"
#include "kernels/shape.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op mse_loss_declaration, binary_cross_entropy_with_logits_declaration;
extern const struct xop_op cross_entropy_declaration, nll_loss_declaration;

/* What becomes of the terms: the attribute `reduction`, the first of every loss (a C file's
 * declaration has LOSS_REDUCTION_SPEC). */
enum loss_reduction { LOSS_NONE, LOSS_MEAN, LOSS_SUM };
enum loss_reduction loss_reduction(const struct xop_call *call);
enum xop_status loss_check_reduction(const struct xop_call *call, struct xop_error *error);
#define LOSS_REDUCTION_SPEC                                                                        \
    {                                                                                              \
        .name = "reduction", .doc = "\"none\": a loss for each term; \"mean\" or \"sum\": of all", \
        .type = XOP_ATTR_STRING, .fallback = {                                                     \
            .type = XOP_ATTR_STRING,                                                               \
            .count = 4,                                                                            \
            .value.string = "mean"                                                                 \
        }                                                                                          \
    }

/* The workspace holds, for each piece, two doubles: the sum of its terms, and that of their
 * weights where a mean divides by it. */
#define LOSS_PARTS 2
uint64_t loss_partials_bytes(int64_t pieces);

/* ---- Of single elements ---- */

enum loss_pointwise_kind { LOSS_MSE, LOSS_BCE };

/* mse_loss takes x and target, binary_cross_entropy_with_logits weight and pos_weight besides;
 * backward the same and grad_y, which is the last. */
enum { LOSS_X = 0, LOSS_TARGET = 1, LOSS_WEIGHT = 2, LOSS_POS_WEIGHT = 3 };
#define LOSS_GRAD_Y(kind) ((kind) == LOSS_MSE ? 2 : 4)

#define LOSS_PIECE 4096 /* elements */
int64_t loss_pieces(int64_t elements);

/* How weight and pos_weight lie against x: stride_x of a dimension is weight's, stride_b
 * pos_weight's; 0 where there is none. */
void loss_pointwise_weights(const struct xop_call *call, struct shape_map *map);

/* ---- Of classes ---- */

/* Both take x, target and weight; backward grad_y besides. */
#define LOSS_CLASSES_GRAD_Y 3

/* x of shape (C) or (N, C, ...) seen as outer * inner rows of n = C elements, inner apart. Row r
 * has the target r, and begins at element r / inner * n * inner + r % inner. */
struct loss_classes {
    struct row_size size;
    int64_t rows;
    enum loss_reduction reduction;
    int64_t ignore_index;
    double smoothing;   /* 0 for nll_loss */
    bool probabilities; /* target holds them, else indices */
};
void loss_classes_measure(const struct xop_call *call, bool entropy, struct loss_classes *classes);

/* Rows of a piece. Where inner is 1, `lanes` neighbouring threads do a row on CUDA, and a piece is
 * as many rows as a block has threads for; else a piece is up to `lanes` neighbouring rows of one
 * outer index. */
#define LOSS_BLOCK 256
struct loss_cut {
    uint32_t lanes;
    int64_t pieces;
};
void loss_classes_cut(const struct row_size *size, enum xop_dtype dtype, struct loss_cut *cut);
/* The rows of a piece: [*first, *end). */
static inline void loss_cut_rows(const struct row_size *size, const struct loss_cut *cut,
                                 int64_t piece, int64_t *first, int64_t *end) {
    int64_t rows = size->inner == 1 ? LOSS_BLOCK / cut->lanes : cut->lanes;
    int64_t most = size->inner == 1 ? size->outer : size->inner;
    int64_t strips = size->inner == 1 ? 1 : (size->inner - 1) / rows + 1;
    int64_t outer = size->inner == 1 ? 0 : piece / strips;
    int64_t at = (size->inner == 1 ? piece : piece % strips) * rows;

    *first = outer * size->inner + at;
    *end = *first + (most - at < rows ? most - at : rows);
}

/* Whether backward has to add up the weights of all targets before anything else, which a mean over
 * indices divides by. Their sum is the first double of the workspace, partial sums of pieces of
 * LOSS_PIECE targets follow at LOSS_TOTAL_BYTES. */
#define LOSS_TOTAL_BYTES 256
static inline bool loss_classes_total(const struct loss_classes *classes) {
    return classes->reduction == LOSS_MEAN && !classes->probabilities;
}

#ifdef __cplusplus
}
#endif
#endif
