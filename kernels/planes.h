/*
 * group_norm and batch_norm: what both backends share. x is (N, C, ...), seen as N * C planes of
 * `inner` elements, one plane a channel of a sample. Each element is normalized by the statistics
 * of a group of channels of its sample (group_norm), or of its channel in all samples (batch_norm).
 * Everything is cut by the shape alone, so the same request gives the same bits. plan.group is 0:
 * calls of every shape may share a launch.
 */
#ifndef KERNELS_PLANES_H
#define KERNELS_PLANES_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op group_norm_declaration, batch_norm_declaration;

/* Forward of group_norm takes the first three, of batch_norm all. */
enum planes_operand {
    PLANES_X = 0,
    PLANES_WEIGHT = 1,
    PLANES_BIAS = 2,
    PLANES_RUNNING_MEAN = 3,
    PLANES_RUNNING_VAR = 4
};
/* Backward of group_norm takes x, weight and grad_y; of batch_norm x, weight, mean, invstd and
 * grad_y. */
enum planes_backward_operand {
    PLANES_GROUP_GRAD_Y = 2,
    PLANES_BACKWARD_MEAN = 2,
    PLANES_BACKWARD_INVSTD = 3,
    PLANES_BATCH_GRAD_Y = 4
};
/* Forward of group_norm gives y alone. */
enum planes_output {
    PLANES_Y = 0,
    PLANES_MEAN = 1,
    PLANES_INVSTD = 2,
    PLANES_NEW_MEAN = 3,
    PLANES_NEW_VAR = 4
};
enum planes_gradient { PLANES_GRAD_X = 0, PLANES_GRAD_WEIGHT = 1, PLANES_GRAD_BIAS = 2 };

/* Elements that are summed together: element i of strand s lies at
 * s * step + i / run * stride + i % run. Strands are cut into `pieces` of `piece` elements (the
 * last may be shorter), which are summed apart and then joined in order. */
struct planes_strands {
    int64_t strands, n, run, step, stride, piece;
    uint32_t pieces; /* 0 where n is */
};

/* How a call is done. The workspace holds doubles: for each piece of the strands of both kinds two
 * partial sums, then for each strand of `together` its statistics and its sums; for each channel
 * its weight and bias (the CPU's). */
struct planes_plan {
    bool batch, fixed; /* batch_norm; by statistics that are given */
    double eps, momentum;
    int64_t elements, channels, inner;
    int64_t together_channels;      /* of which statistics are those of a sample; batch_norm: 1 */
    struct planes_strands together; /* what is normalized together */
    struct planes_strands channel;  /* each channel's elements; batch_norm: the same */
    uint64_t parts, channel_parts, stats, sums, parameters; /* offsets in the workspace */
    uint64_t workspace_bytes;
};

/* Whether strands lie side by side, an element of each after the other. */
static inline bool planes_side_by_side(const struct planes_strands *strands) {
    return strands->run == 1 && strands->n > 1;
}

/* Of a call that infer has accepted. */
void planes_measure(enum xop_pass pass, const struct xop_call *call, bool batch,
                    struct planes_plan *plan);

/* ---- For the declarations ---- */

/* x's rank, the dtypes and shapes of weight and, where `bias`, bias. */
enum xop_status planes_check(const struct xop_call *call, bool bias, struct xop_error *error);
/* Whether a tensor that came has x's dtype and an element for each channel. */
enum xop_status planes_check_vector(const struct xop_call *call, uint32_t operand, const char *name,
                                    struct xop_error *error);
/* The shape of an output that has an element for each channel. */
void planes_vector(const struct xop_call *call, struct xop_tensor *out);
void planes_costs(const struct xop_call *call, const struct planes_plan *how, uint32_t nin,
                  uint32_t nout, struct xop_plan *plan);

/* Attributes, in the order of the declarations. */
enum planes_group_attr { PLANES_NUM_GROUPS = 0, PLANES_GROUP_EPS = 1 };
enum planes_batch_attr { PLANES_TRAINING = 0, PLANES_MOMENTUM = 1, PLANES_BATCH_EPS = 2 };

#ifdef __cplusplus
}
#endif
#endif
