/*
 * max_pool2d and avg_pool2d: what both backends share. x is (N, C, H, W) or (C, H, W), seen as
 * planes of H rows; an output element is made of a window of its plane. Backward gathers: each
 * element of x sums over the windows that read it, in order, so the same request gives the same
 * bits. plan.group is 0: calls of every shape may share a launch.
 */
#ifndef KERNELS_WINDOW_H
#define KERNELS_WINDOW_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op max_pool2d_declaration, avg_pool2d_declaration;

/* Forward takes x alone; backward x, of which avg_pool2d needs the shape only. */
enum window_operand { WINDOW_X = 0, WINDOW_GRAD_Y = 1 };

/* Window o has the elements o * stride - padding + j * dilation, for j < kernel, as far as they are
 * in [0, in). */
struct window_dim {
    int64_t in, out, kernel, stride, padding, dilation;
};

struct window_plan {
    bool max, include_pad;
    int64_t divisor; /* 0: by the number of elements */
    int64_t planes;
    struct window_dim rows, columns;
};

/* Of a call that infer has accepted. Backward of max_pool2d has a uint32_t for each output in the
 * workspace: the element of the window that is the largest, counted in C order over the kernel. */
void window_measure(const struct xop_call *call, bool max, struct window_plan *plan);
#define WINDOW_NONE UINT32_MAX /* of a window without elements */

#ifdef __cplusplus
}
#endif
#endif
