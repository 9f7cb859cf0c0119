#include "kernels/matmul.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/product.h"

static enum xop_status run(const struct xop_launch *launch, const struct xop_call *call, int result,
                           struct xop_error *error) {
    struct product product;

    if (!call->out[result].data)
        return XOP_OK;
    matmul_product(call, launch->pass, result, &product);
    product.c = call->out[result].data;
    return product_enqueue(launch, &product, call->workspace, error);
}

enum xop_status matmul_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++)
        status = run(launch, &launch->calls[i], MATMUL_Y, error);
    return status;
}

/* One gradient after the other, in one workspace. */
enum xop_status matmul_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        status = run(launch, &launch->calls[i], MATMUL_GRAD_A, error);
        if (status == XOP_OK)
            status = run(launch, &launch->calls[i], MATMUL_GRAD_B, error);
    }
    return status;
}
