/*
 * Element-wise operators in CUDA from a functor, which says what happens to one element:
 *
 *     struct forward {
 *         template <class T> __device__ void operator()(const T (&in)[2], T (&out)[1]) const {
 *             out[0] = in[0] * in[0] + in[1];
 *         }
 *     };
 *     static enum xop_status launch_forward(const struct xop_launch *launch,
 *                                           struct xop_error *error) {
 *         return xop_elementwise<2, 1>(launch, forward(), error);
 *     }
 *
 * Index, bounds, dtypes and launches are seen to here: f16 and bf16 are computed in float and
 * rounded at the end, inputs whose data was left out are 0, outputs that nobody wants are not
 * written. All inputs and outputs have as many elements as the first output. Header only, for
 * plain nvcc with -std=c++17; a launch only enqueues.
 */
#ifndef XOP_ELEMENTWISE_CUH
#define XOP_ELEMENTWISE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <xop/check.h>

/* CALL is checked; what it says goes into error. */
static inline enum xop_status xop_check_cuda(cudaError_t code, const char *what,
                                             struct xop_error *error) {
    if (code == cudaSuccess)
        return XOP_OK;
    return xop_fail(error, XOP_INTERNAL, "%s: %s (%s)", what, cudaGetErrorName(code),
                    cudaGetErrorString(code));
}

namespace xop {

/* What elements of a type are computed in. */
template <class T> struct arithmetic { typedef T type; };
template <> struct arithmetic<__half> { typedef float type; };
template <> struct arithmetic<__nv_bfloat16> { typedef float type; };

static inline __device__ float load(__half x) { return __half2float(x); }
static inline __device__ float load(__nv_bfloat16 x) { return __bfloat162float(x); }
static inline __device__ float load(float x) { return x; }
static inline __device__ double load(double x) { return x; }
static inline __device__ void store(__half *to, float x) { *to = __float2half(x); }
static inline __device__ void store(__nv_bfloat16 *to, float x) { *to = __float2bfloat16(x); }
static inline __device__ void store(float *to, float x) { *to = x; }
static inline __device__ void store(double *to, double x) { *to = x; }

template <class T, int NIN, int NOUT> struct elements {
    const T *in[NIN];
    T *out[NOUT];
    int64_t n;
};

/* Each thread takes the element of its flat index, and then the one a whole grid further on, until
 * none is left: right for every n and every grid. 64 bits, since n may pass 2^31. */
template <int NIN, int NOUT, class T, class F>
static __global__ void each_element(const elements<T, NIN, NOUT> of, const F functor) {
    typedef typename arithmetic<T>::type A;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < of.n; i += step) {
        A in[NIN], out[NOUT];
        for (int k = 0; k < NIN; k++)
            in[k] = of.in[k] ? load(of.in[k][i]) : A(0);
        functor(in, out);
        for (int k = 0; k < NOUT; k++)
            if (of.out[k])
                store(&of.out[k][i], out[k]);
    }
}

/* Blocks of 256 threads for n elements: at most 32 for each multiprocessor, which keeps it busy,
 * and no more than the worker allows. */
static inline unsigned blocks_for(int64_t n, const struct xop_host *host) {
    int64_t blocks = n / 256 + (n % 256 != 0);
    int64_t most = 32 * (int64_t)(host->multiprocessors > 0 ? host->multiprocessors : 1);
    if (host->max_blocks > 0 && host->max_blocks < most)
        most = host->max_blocks;
    return (unsigned)(blocks < most ? blocks : most);
}

template <int NIN, int NOUT, class T, class F>
static enum xop_status start(const struct xop_launch *launch, uint32_t which, const F &functor,
                             struct xop_error *error) {
    const struct xop_call *call = &launch->calls[which];
    elements<T, NIN, NOUT> of = {};
    bool wanted = false;
    of.n = xop_elements(&call->out[0]);
    for (int k = 0; k < NIN; k++) {
        of.in[k] = (const T *)call->in[k].data;
        if (of.in[k] && xop_elements(&call->in[k]) != of.n)
            return xop_fail(error, XOP_INTERNAL,
                            "input %d has %lld elements and output 0 has %lld: infer has to refuse "
                            "that",
                            k, (long long)xop_elements(&call->in[k]), (long long)of.n);
    }
    for (int k = 0; k < NOUT; k++) {
        of.out[k] = (T *)call->out[k].data;
        wanted = wanted || of.out[k];
        if (xop_elements(&call->out[k]) != of.n)
            return xop_fail(error, XOP_INTERNAL, "outputs 0 and %d differ in size", k);
    }
    if (of.n == 0 || !wanted) /* a grid of no blocks is an error */
        return XOP_OK;
    each_element<NIN, NOUT, T, F>
        <<<blocks_for(of.n, launch->host), 256, 0, (cudaStream_t)launch->stream>>>(of, functor);
    return xop_check_cuda(cudaGetLastError(), "the launch", error);
}

} // namespace xop

/* Launches the functor for each call of the group, in the dtype of the first output. */
template <int NIN, int NOUT, class F>
static enum xop_status xop_elementwise(const struct xop_launch *launch, const F &functor,
                                       struct xop_error *error) {
    enum xop_status status = XOP_OK;
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        enum xop_dtype dtype = launch->calls[i].out[0].dtype;
        switch (dtype) {
        case XOP_F16: status = xop::start<NIN, NOUT, __half>(launch, i, functor, error); break;
        case XOP_BF16:
            status = xop::start<NIN, NOUT, __nv_bfloat16>(launch, i, functor, error);
            break;
        case XOP_F32: status = xop::start<NIN, NOUT, float>(launch, i, functor, error); break;
        case XOP_F64: status = xop::start<NIN, NOUT, double>(launch, i, functor, error); break;
        default:
            status = xop_fail(error, XOP_UNIMPLEMENTED, "%s is no floating dtype",
                              xop_dtype_name(dtype));
        }
    }
    return status;
}

#endif
