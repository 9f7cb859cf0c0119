/*
 * Wrong: no check against the end. Whole blocks of 4 elements are written, so up to 3 elements past
 * the end of y. What is read stays within the inputs, so that the damage is to the memory behind y.
 */
#include "tests/broken/element.cuh"

template <class T> static __global__ void forward(const element_args args) {
    int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    element_forward<T>(args, index < args.n ? index : args.n - 1, index);
}

template <class T> struct unchecked {
    static void start(const element_args &args, cudaStream_t stream) {
        forward<T><<<(unsigned)((args.n + 3) / 4), 4, 0, stream>>>(args);
    }
};

static enum xop_status launch_forward(const struct xop_launch *launch, struct xop_error *error) {
    return element_launch<unchecked>(launch, error);
}

BROKEN_LIBRARY("cuda", "broken_tail", launch_forward, square_bias_cuda_backward);
