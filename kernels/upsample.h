/*
 * upsample, nearest or bilinear: what both backends share. x is (N, C, H, W), seen as planes of H
 * rows. Backward gathers: each element of x sums over the outputs that read it, in order, so the
 * same request gives the same bits. plan.group is 0: calls of every shape may share a launch.
 */
#ifndef KERNELS_UPSAMPLE_H
#define KERNELS_UPSAMPLE_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op upsample_declaration;

/* Backward needs of x the shape alone. */
enum upsample_operand { UPSAMPLE_X = 0, UPSAMPLE_GRAD_Y = 1 };

/* How outputs along a dimension find what they are made of. */
struct upsample_dim {
    int64_t in, out;
    double scale; /* elements of x from output to output */
    bool linear, align_corners;
};

struct upsample_plan {
    int64_t planes;
    struct upsample_dim rows, columns;
};

/* Of a call that infer has accepted. */
void upsample_measure(const struct xop_call *call, struct upsample_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
