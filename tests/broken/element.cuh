/*
 * square_bias an element at a time, for broken operators of CUDA that choose their elements
 * wrongly.
 */
#ifndef BROKEN_ELEMENT_CUH
#define BROKEN_ELEMENT_CUH

#include "kernels/cuda/check.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.h"
#include "tests/broken/broken.h"

struct element_args {
    const void *x, *b;
    void *y;
    int64_t n;
    struct shape_map map;
};

/* Computes element `from` of y and writes it at `to`, wherever that is. from is within y. */
template <class T>
static __device__ void element_forward(const element_args &args, int64_t from, int64_t to) {
    int64_t index = from, at_x = 0, at_b = 0;
    for (int d = (int)args.map.ndims - 1; d >= 0; d--) {
        const struct shape_dim *dim = &args.map.dim[d];
        at_x += index % dim->size * dim->stride_x;
        at_b += index % dim->size * dim->stride_b;
        index /= dim->size;
    }
    auto x = element<T>::load(((const T *)args.x)[at_x]);
    auto b = element<T>::load(((const T *)args.b)[at_b]);
    ((T *)args.y)[to] = element<T>::store(x * x + b);
}

/* KERNEL<T>::start(args, stream) launches a forward; this does so for each call of a group. */
template <template <class> class KERNEL>
static enum xop_status element_launch(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const struct xop_call *call = &launch->calls[i];
        const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
        cudaStream_t stream = (cudaStream_t)launch->stream;
        element_args args = {x->data, b->data, call->out[0].data, 0, {}};
        shape_collapse(x, b, &call->out[0], &args.map);
        args.n = args.map.elements;
        if (!args.y || args.n == 0)
            continue;
        switch (x->dtype) {
        case XOP_F16: KERNEL<__half>::start(args, stream); break;
        case XOP_BF16: KERNEL<__nv_bfloat16>::start(args, stream); break;
        case XOP_F32: KERNEL<float>::start(args, stream); break;
        default: KERNEL<double>::start(args, stream); break;
        }
        status = CHECK_CUDA(error, cudaGetLastError());
    }
    return status;
}

#endif
