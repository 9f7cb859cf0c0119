/* Wrong: the precision of grad_b in f16, which is rounded to f16 after every addition. */
#include "kernels/cuda/reduce.cuh"
#include "tests/broken/element.cuh"

/* A warp for each element of b: it loads terms side by side, but adds them one after the other. */
static __global__ void sum_in_half(const __half *terms, __half *sums,
                                   const struct shape_reduction shape) {
    const int64_t output = blockIdx.x;
    const __half *from = terms + reduce_any<__half>::offset(shape.kept, shape.nkept, output);
    __half sum = __float2half_rn(0.0f);

    for (int64_t base = 0; base < shape.reduced; base += 32) {
        int64_t left = shape.reduced - base, mine = base + threadIdx.x;
        __half term = __float2half_rn(0.0f);
        if (mine < shape.reduced)
            term = from[reduce_any<__half>::offset(shape.axis, shape.nreduced, mine)];
        for (int k = 0; k < 32; k++) {
            __half next = __shfl_sync(0xffffffffu, term, k);
            if (k < left)
                sum = __float2half_rn(__half2float(sum) + __half2float(next));
        }
    }
    if (threadIdx.x == 0)
        sums[output] = sum;
}

static enum xop_status launch_backward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = square_bias_cuda_backward(launch, error);
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const struct xop_call *call = &launch->calls[i];
        const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y], *grad_b = &call->out[1];
        struct shape_reduction shape;
        if (!grad_b->data || grad_b->dtype != XOP_F16)
            continue;
        shape_reduce(&call->in[BROADCAST_B], grad_y, &shape);
        if (shape.outputs == 0)
            continue;
        sum_in_half<<<(unsigned)shape.outputs, 32, 0, (cudaStream_t)launch->stream>>>(
            (const __half *)grad_y->data, (__half *)grad_b->data, shape);
        status = CHECK_CUDA(error, cudaGetLastError());
    }
    return status;
}

BROKEN_LIBRARY("cuda", "broken_half", square_bias_cuda_forward, launch_backward);
