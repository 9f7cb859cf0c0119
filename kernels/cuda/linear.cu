/*
 * linear: products by cuBLASLt, which adds the bias on the way, and our own sum for grad_b.
 */
#include "kernels/linear.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/reduce_add.cuh"

/* y, grad_x or grad_w, one after the other in one workspace, behind the partial sums. */
static enum xop_status multiply(const struct xop_launch *launch, const struct xop_call *call,
                                int result, struct xop_error *error) {
    struct linear_workspace workspace;
    struct product product;

    if (!call->out[result].data)
        return XOP_OK;
    linear_product(call, launch->pass, result, &product);
    linear_workspace_plan(call, launch->pass, &workspace);
    product.c = call->out[result].data;
    return product_enqueue(launch, &product, (char *)call->workspace + workspace.sum_bytes, error);
}

static enum xop_status add_bias_sum(const struct xop_launch *launch, struct reduce_builders *sums,
                                    const struct xop_call *call, const struct linear_size *size,
                                    struct xop_error *error) {
    const struct xop_tensor *grad_b = &call->out[LINEAR_GRAD_B];
    struct shape_reduction shape;
    struct reduce_request sum = {};

    if (!grad_b->data)
        return XOP_OK;
    if (size->rows == 1) /* the sum of one term */
        return CHECK_CUDA(error,
                          cudaMemcpyAsync(grad_b->data, call->in[LINEAR_GRAD_Y].data,
                                          (size_t)size->out * xop_dtype_size(grad_b->dtype),
                                          cudaMemcpyDeviceToDevice, (cudaStream_t)launch->stream));
    linear_bias_sum(size, grad_b->dtype, &shape);
    sum.shape = &shape;
    sum.g = call->in[LINEAR_GRAD_Y].data;
    sum.sum = grad_b->data;
    sum.partial = (double *)call->workspace;
    reduce_add(sums, &sum);
    return XOP_OK;
}

enum xop_status linear_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++)
        status = multiply(launch, &launch->calls[i], LINEAR_Y, error);
    return status;
}

enum xop_status linear_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    struct reduce_builders sums(launch, launch->calls[0].in[LINEAR_X].dtype, error);
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const struct xop_call *call = &launch->calls[i];
        struct linear_size size;
        linear_measure(call, &size);
        status = multiply(launch, call, LINEAR_GRAD_X, error);
        if (status == XOP_OK)
            status = multiply(launch, call, LINEAR_GRAD_W, error);
        if (status == XOP_OK)
            status = add_bias_sum(launch, &sums, call, &size, error);
    }
    return status == XOP_OK ? reduce_launch(&sums) : status;
}
