/*
 * Operators over rows: softmax and log_softmax along one dimension, layer_norm and rms_norm over
 * the last ones. What both backends share: the declarations, the checks, how a tensor is seen as
 * rows, and how the sums for the gradients of weight and bias are cut. plan.group is 0: calls of
 * every shape may share a launch.
 */
#ifndef KERNELS_ROW_H
#define KERNELS_ROW_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op softmax_declaration, log_softmax_declaration;
extern const struct xop_op layer_norm_declaration, rms_norm_declaration;

/* softmax: x forward, y and grad_y backward. */
enum row_softmax_operand { ROW_SOFTMAX_Y = 0, ROW_SOFTMAX_GRAD_Y = 1 };
/* Forward takes x, weight and, layer_norm only, bias; backward x, weight and grad_y. */
enum row_norm_operand {
    ROW_NORM_X = 0,
    ROW_NORM_WEIGHT = 1,
    ROW_NORM_BIAS = 2,
    ROW_NORM_GRAD_Y = 2
};
enum row_norm_gradient { ROW_NORM_GRAD_X = 0, ROW_NORM_GRAD_WEIGHT = 1, ROW_NORM_GRAD_BIAS = 2 };

/* A tensor seen as (outer, n, inner): outer * inner rows of n elements that lie `inner` apart. */
struct row_size {
    int64_t outer, n, inner;
};

/* Of calls that infer has accepted. */
void row_softmax_measure(const struct xop_call *call, struct row_size *size);
void row_norm_measure(const struct xop_call *call, struct row_size *size);
double row_norm_eps(const struct xop_call *call);

/* Rows that a block on CUDA keeps in registers, so that each element is read once: up to so many
 * bytes. */
#define ROW_KEPT_BYTES 16384
/* For the norms' backward, which keeps two rows and two sums for each column, up to so many bytes
 * of what is computed in. */
#define ROW_KEPT_BACKWARD_BYTES 16384
bool row_kept(const struct row_size *size, enum xop_dtype dtype);
bool row_kept_backward(const struct row_size *size, enum xop_dtype dtype);

/* The sums over all rows for the gradients of weight and bias: rows are cut into `pieces` of
 * `piece` rows (the last may be shorter), which are summed apart and then added in order. The cut
 * depends on the shape alone, so the same request gives the same bits. The workspace holds, for
 * each piece, n sums for weight and then n for bias, as doubles or floats, and after all of them,
 * from stats_offset on, two doubles a row where rows are not kept. */
struct row_columns {
    int64_t piece;
    uint32_t pieces; /* 0 where there are no rows or no columns */
    uint64_t stats_offset, workspace_bytes;
};
void row_norm_columns(const struct row_size *size, enum xop_dtype dtype,
                      struct row_columns *columns);

#ifdef __cplusplus
}
#endif
#endif
