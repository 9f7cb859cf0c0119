/*
 * linear: products by cuBLASLt, which adds the bias on the way, and our own sum for grad_b. What
 * has an empty sum is filled by a kernel of ours.
 */
#include "kernels/linear.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/lt.h"
#include "kernels/cuda/reduce_add.cuh"

#define MOST_BLOCKS 1024 /* enough for the memory's whole bandwidth */

/* Every row of y is b, or 0 where there is none. T: unsigned, of an element's size. */
template <class T>
static __global__ void __launch_bounds__(ELEMENT_BLOCK)
    linear_fill(T *y, const T *b, int64_t columns, int64_t n) {
    const int64_t step = (int64_t)gridDim.x * ELEMENT_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * ELEMENT_BLOCK + threadIdx.x; i < n; i += step)
        y[i] = b ? b[i % columns] : T(0);
}

template <class T>
static void fill_typed(const struct xop_launch *launch, void *y, const void *b, int64_t columns,
                       int64_t n) {
    int64_t blocks = (n - 1) / ELEMENT_BLOCK + 1;
    if (blocks > MOST_BLOCKS)
        blocks = MOST_BLOCKS;
    linear_fill<T><<<(uint32_t)blocks, ELEMENT_BLOCK, 0, (cudaStream_t)launch->stream>>>(
        (T *)y, (const T *)b, columns, n);
}

/* rows and columns > 0. */
static enum xop_status fill(const struct xop_launch *launch, enum xop_dtype dtype, void *y,
                            const void *b, int64_t rows, int64_t columns, struct xop_error *error) {
    switch (xop_dtype_size(dtype)) {
    case 2: fill_typed<uint16_t>(launch, y, b, columns, rows * columns); break;
    case 4: fill_typed<uint32_t>(launch, y, b, columns, rows * columns); break;
    default: fill_typed<uint64_t>(launch, y, b, columns, rows * columns); break;
    }
    return CHECK_CUDA(error, cudaGetLastError());
}

/* Whether the library's way of adding the bias rounds once. In f16 and bf16 its kernels for rows
 * that do not begin on a multiple of 16 bytes were seen to round the product first, and what
 * cancels in the sum with the bias is then lost. */
static bool adds_bias_well(const struct lt_product *product) {
    int64_t size = (int64_t)xop_dtype_size(product->dtype);
    return size > 2 || (product->inner * size % 16 == 0 && product->columns * size % 16 == 0);
}

/* The product, where it is wanted, has elements and its sums have terms; else what it is then. */
static enum xop_status multiply(const struct xop_launch *launch, struct lt_product *product,
                                struct xop_error *error) {
    cudaStream_t stream = (cudaStream_t)launch->stream;
    bool unsupported = false;
    enum xop_status status;

    if (!product->c || product->rows == 0 || product->columns == 0)
        return XOP_OK;
    if (product->inner == 0)
        return fill(launch, product->dtype, product->c, product->bias, product->rows,
                    product->columns, error);
    if (!product->bias || adds_bias_well(product)) {
        status = lt_product_enqueue(product, stream, &unsupported, error);
        if (!unsupported || !product->bias)
            return status;
    }
    /* Also, not every dtype and device has products that add a bias on the way. */
    status = fill(launch, product->dtype, product->c, product->bias, product->rows,
                  product->columns, error);
    if (status != XOP_OK)
        return status;
    product->bias = NULL;
    product->adds = true;
    return lt_product_enqueue(product, stream, &unsupported, error);
}

/* A product of the call's, with its workspace. */
static struct lt_product product_of(const struct xop_call *call, enum xop_pass pass) {
    struct linear_workspace workspace;
    struct lt_product product = {};

    linear_workspace_plan(call, pass, &workspace);
    product.dtype = call->in[LINEAR_X].dtype;
    product.workspace = (char *)call->workspace + workspace.sum_bytes;
    product.workspace_bytes = workspace.product_bytes;
    return product;
}

static enum xop_status forward_call(const struct xop_launch *launch, const struct xop_call *call,
                                    struct xop_error *error) {
    struct lt_product y = product_of(call, XOP_FORWARD);
    struct linear_size size;

    linear_measure(call, &size);
    y.rows = size.rows;
    y.columns = size.out;
    y.inner = size.in;
    y.b_transposed = true;
    y.a = call->in[LINEAR_X].data;
    y.b = call->in[LINEAR_W].data;
    y.bias = call->in[LINEAR_B].data;
    y.c = call->out[0].data;
    return multiply(launch, &y, error);
}

/* grad_x = grad_y w and grad_w = grad_y^T x, one after the other in one workspace. */
static enum xop_status backward_products(const struct xop_launch *launch,
                                         const struct xop_call *call,
                                         const struct linear_size *size, struct xop_error *error) {
    struct lt_product grad_x = product_of(call, XOP_BACKWARD), grad_w = grad_x;
    enum xop_status status;

    grad_x.rows = size->rows;
    grad_x.columns = size->in;
    grad_x.inner = size->out;
    grad_x.a = call->in[LINEAR_GRAD_Y].data;
    grad_x.b = call->in[LINEAR_W].data;
    grad_x.c = call->out[LINEAR_GRAD_X].data;
    grad_w.rows = size->out;
    grad_w.columns = size->in;
    grad_w.inner = size->rows;
    grad_w.a_transposed = true;
    grad_w.a = call->in[LINEAR_GRAD_Y].data;
    grad_w.b = call->in[LINEAR_X].data;
    grad_w.c = call->out[LINEAR_GRAD_W].data;
    status = multiply(launch, &grad_x, error);
    return status == XOP_OK ? multiply(launch, &grad_w, error) : status;
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
        status = forward_call(launch, &launch->calls[i], error);
    return status;
}

enum xop_status linear_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    struct reduce_builders sums(launch, launch->calls[0].in[LINEAR_X].dtype, error);
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const struct xop_call *call = &launch->calls[i];
        struct linear_size size;
        linear_measure(call, &size);
        status = backward_products(launch, call, &size, error);
        if (status == XOP_OK)
            status = add_bias_sum(launch, &sums, call, &size, error);
    }
    return status == XOP_OK ? reduce_launch(&sums) : status;
}

enum xop_status linear_preload(struct xop_error *error) {
    const void *const kernels[] = {(const void *)linear_fill<uint16_t>,
                                   (const void *)linear_fill<uint32_t>,
                                   (const void *)linear_fill<uint64_t>};
    enum xop_status status = reduce_preload(error);
    for (const void *one : kernels) {
        cudaFuncAttributes attributes;
        if (status == XOP_OK)
            status = CHECK_CUDA(error, cudaFuncGetAttributes(&attributes, one));
    }
    return status;
}
