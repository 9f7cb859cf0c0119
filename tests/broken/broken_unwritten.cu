/* Wrong: the middle element of y is never written. */
#include "tests/broken/element.cuh"

template <class T> static __global__ void forward(const element_args args) {
    int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index < args.n && index != args.n / 2)
        element_forward<T>(args, index, index);
}

template <class T> struct incomplete {
    static void start(const element_args &args, cudaStream_t stream) {
        forward<T><<<(unsigned)((args.n + 255) / 256), 256, 0, stream>>>(args);
    }
};

static enum xop_status launch_forward(const struct xop_launch *launch, struct xop_error *error) {
    return element_launch<incomplete>(launch, error);
}

BROKEN_LIBRARY("cuda", "broken_unwritten", launch_forward, square_bias_cuda_backward);
