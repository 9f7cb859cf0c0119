/* Wrong: the sign of grad_x. */
#include "tests/broken/element.cuh"

/* The sign is the highest bit of every floating dtype, and elements are little-endian. */
static __global__ void negate(unsigned char *data, uint64_t bytes, uint32_t size) {
    uint64_t index = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index < bytes / size)
        data[index * size + size - 1] ^= 0x80;
}

static enum xop_status launch_backward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = square_bias_cuda_backward(launch, error);
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const struct xop_tensor *grad_x = &launch->calls[i].out[0];
        uint32_t size = (uint32_t)xop_dtype_size(grad_x->dtype);
        uint64_t bytes = 0;
        if (!grad_x->data || !xop_tensor_bytes(grad_x, &bytes) || bytes == 0)
            continue;
        negate<<<(unsigned)((bytes / size + 255) / 256), 256, 0, (cudaStream_t)launch->stream>>>(
            (unsigned char *)grad_x->data, bytes, size);
        status = CHECK_CUDA(error, cudaGetLastError());
    }
    return status;
}

BROKEN_LIBRARY("cuda", "broken_gradient", square_bias_cuda_forward, launch_backward);
