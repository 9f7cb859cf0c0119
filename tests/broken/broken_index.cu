/*
 * Wrong: the elements that are computed. A known tutorial launches (n+3)/4 blocks of 4 threads and
 * has each take element blockIdx.x + blockDim.x*blockIdx.y. All threads of a block take the same
 * one then, and three quarters of the result are never written.
 */
#include "tests/broken/element.cuh"

template <class T> static __global__ void forward(const element_args args) {
    int64_t index = blockIdx.x + blockDim.x * blockIdx.y;
    if (index < args.n)
        element_forward<T>(args, index, index);
}

template <class T> struct tutorial {
    static void start(const element_args &args, cudaStream_t stream) {
        forward<T><<<(unsigned)((args.n + 3) / 4), 4, 0, stream>>>(args);
    }
};

static enum xop_status launch_forward(const struct xop_launch *launch, struct xop_error *error) {
    return element_launch<tutorial>(launch, error);
}

BROKEN_LIBRARY("cuda", "broken_index", launch_forward, square_bias_cuda_backward);
