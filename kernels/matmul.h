/*
 * matmul: products of matrices and batches of them, with torch.matmul's shapes. What both backends
 * share: the declaration, the checks, and which products a pass consists of.
 */
#ifndef KERNELS_MATMUL_H
#define KERNELS_MATMUL_H

#include "kernels/product.h"
#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same operator twice: as it is, and with workspace for each product, for a library that is
 * given some. */
extern const struct xop_op matmul_declaration, matmul_workspace_declaration;

enum matmul_operand { MATMUL_A = 0, MATMUL_B = 1, MATMUL_GRAD_Y = 2 };
enum matmul_result { MATMUL_Y = 0, MATMUL_GRAD_A = 0, MATMUL_GRAD_B = 1 };

/* The product that gives a result of a call that infer has accepted, all but c. Where nothing
 * is summed, the result is one row of sums of 0 terms. */
void matmul_product(const struct xop_call *call, enum xop_pass pass, int result,
                    struct product *product);

#ifdef __cplusplus
}
#endif
#endif
