/*
 * attention: what both backends share. Queries are (N, Hq, L, E), keys (N, H, S, E) and values
 * (N, H, S, Ev), H dividing Hq: heads of queries share those of keys in groups. Scores are computed
 * in tiles and never kept; the softmax is carried along. Which tile is added when depends on the
 * shape alone, so the same request gives the same bits. plan.group is 0: calls of every shape may
 * share a launch.
 */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op attention_declaration;

/* Of both passes; backward's y is not needed. */
enum attention_operand {
    ATTENTION_QUERY = 0,
    ATTENTION_KEY = 1,
    ATTENTION_VALUE = 2,
    ATTENTION_GRAD_Y = 3
};
enum attention_gradient {
    ATTENTION_GRAD_QUERY = 0,
    ATTENTION_GRAD_KEY = 1,
    ATTENTION_GRAD_VALUE = 2
};

struct attention_plan {
    int64_t batch, heads, key_heads, queries, keys, width, value_width;
    double scale;
    bool causal; /* query i sees keys up to the i-th */
};

/* Of a call that infer has accepted. Backward has two doubles for each query in the workspace: the
 * logarithm of its exponentials' sum, and the mean of the gradients of its weights. */
void attention_measure(const struct xop_call *call, struct attention_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
