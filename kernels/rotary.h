/*
 * rotary_embedding: what both backends share. x is (..., S, D): rows of D elements, of which pairs
 * of the first R are rotated by the angle of the row's position. plan.group is 0: calls of every
 * shape may share a launch.
 */
#ifndef KERNELS_ROTARY_H
#define KERNELS_ROTARY_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op rotary_embedding_declaration;

/* Forward takes x, cos, sin; backward cos, sin, grad_y, which has x's shape. */
enum rotary_operand {
    ROTARY_X = 0,
    ROTARY_COS = 1,
    ROTARY_SIN = 2,
    ROTARY_BACKWARD_COS = 0,
    ROTARY_BACKWARD_SIN = 1,
    ROTARY_GRAD_Y = 2
};

/* Row r is at position r % positions of sample r / rows_of_sample; sample s has its angles at
 * s * angles_of_sample, `half` of them a position. */
struct rotary_plan {
    int64_t rows, width, half, positions, rows_of_sample, angles_of_sample;
    bool interleaved;
};

/* Of a call that infer has accepted. */
void rotary_measure(enum xop_pass pass, const struct xop_call *call, struct rotary_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
