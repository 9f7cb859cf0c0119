/*
 * linear: y = x w^T + b, the fully connected layer of PyTorch's torch.nn.functional.linear. What
 * both backends share: the declaration, the checks, and how the sum for grad_b is cut.
 */
#ifndef KERNELS_LINEAR_H
#define KERNELS_LINEAR_H

#include "kernels/product.h"
#include "kernels/shape.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same operator twice: as it is, and with workspace for each product, for a library that is
 * given some. */
extern const struct xop_op linear_declaration, linear_workspace_declaration;

enum linear_operand { LINEAR_X = 0, LINEAR_W = 1, LINEAR_B = 2, LINEAR_GRAD_Y = 2 };
enum linear_result { LINEAR_Y = 0, LINEAR_GRAD_X = 0, LINEAR_GRAD_W = 1, LINEAR_GRAD_B = 2 };

/* x is (rows, in), w is (out, in) and y is (rows, out), whatever the leading dimensions of x. */
struct linear_size {
    int64_t rows, in, out;
};

/* Of a call that infer has accepted. */
void linear_measure(const struct xop_call *call, struct linear_size *size);

/* The product that gives y, grad_x or grad_w, all but c. */
void linear_product(const struct xop_call *call, enum xop_pass pass, int result,
                    struct product *product);

/* How grad_y is summed to grad_b. Its partial sums come first in backward's workspace. */
void linear_bias_sum(const struct linear_size *size, enum xop_dtype dtype,
                     struct shape_reduction *sum);

/* What a call's workspace is cut into: the partial sums and then, with linear_workspace_declaration
 * alone, what a product may use, one product at a time. Both are multiples of 256. */
struct linear_workspace {
    uint64_t sum_bytes, product_bytes;
};
void linear_workspace_plan(const struct xop_call *call, enum xop_pass pass,
                           struct linear_workspace *workspace);

#ifdef __cplusplus
}
#endif
#endif
