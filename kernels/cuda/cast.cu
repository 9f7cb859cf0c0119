/*
 * cast: each thread converts units of four neighbouring elements, so that f16 is read in accesses
 * of 8 bytes and f64 in two of 16. The dtype that is read is the kernel's, that which is written is
 * looked up once for a tile.
 */
#include "kernels/cast.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/table.cuh"

#define CAST_UNROLL 4 /* units of a thread */
#define CAST_UNIT 4   /* elements */
#define CAST_TILE (ELEMENT_BLOCK * CAST_UNROLL * CAST_UNIT)

struct cast_job {
    const void *from;
    void *to;
    int64_t n;
    enum xop_dtype to_dtype;
    bool aligned; /* both pointers are multiples of 16 */
    uint32_t first_tile;
};

/* Four elements as they lie in memory. */
template <class T> struct alignas(sizeof(T) * CAST_UNIT < 16 ? 8 : 16) cast_unit {
    T value[CAST_UNIT];
};

template <class T, class U> static __device__ U cast_element(T value) {
    return element<U>::store((typename element<U>::compute)element<T>::load(value));
}

template <class T, class U> static __device__ void cast_tile(const cast_job &job, int64_t begin) {
    const T *from = (const T *)job.from + begin;
    U *to = (U *)job.to + begin;
    const int64_t left = job.n - begin;
    const int size = left < CAST_TILE ? (int)left : CAST_TILE;
    const int units = job.aligned ? size / CAST_UNIT : 0;
    cast_unit<T> raw[CAST_UNROLL];

#pragma unroll
    for (int u = 0; u < CAST_UNROLL; u++) {
        int i = (int)threadIdx.x + u * ELEMENT_BLOCK;
        if (i < units)
            raw[u] = ((const cast_unit<T> *)from)[i];
    }
#pragma unroll
    for (int u = 0; u < CAST_UNROLL; u++) {
        int i = (int)threadIdx.x + u * ELEMENT_BLOCK;
        cast_unit<U> result;
        if (i >= units)
            break;
#pragma unroll
        for (int k = 0; k < CAST_UNIT; k++)
            result.value[k] = cast_element<T, U>(raw[u].value[k]);
        ((cast_unit<U> *)to)[i] = result;
    }
#pragma unroll 1
    for (int i = units * CAST_UNIT + (int)threadIdx.x; i < size; i += ELEMENT_BLOCK)
        to[i] = cast_element<T, U>(from[i]);
}

template <class T> struct cast_task {
    static __device__ void run(const cast_job &job, uint32_t tile) {
        const int64_t begin = (int64_t)tile * CAST_TILE;
        switch (job.to_dtype) {
        case XOP_F16: cast_tile<T, __half>(job, begin); break;
        case XOP_BF16: cast_tile<T, __nv_bfloat16>(job, begin); break;
        case XOP_F32: cast_tile<T, float>(job, begin); break;
        case XOP_F64: cast_tile<T, double>(job, begin); break;
        default: break;
        }
    }
};

struct cast_family {
    using job = cast_job;
    template <class T> using task = cast_task<T>;
};

/* `input` is what is converted. */
static enum xop_status run(uint32_t input, const struct xop_launch *launch,
                           struct xop_error *error) {
    table_builder<cast_family> builder(launch, launch->calls[0].in[input].dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        cast_job job = {};
        if (!call->out[0].data || !xop_tensor_elements(&call->in[input], &job.n) || job.n == 0)
            continue;
        job.from = call->in[input].data;
        job.to = call->out[0].data;
        job.to_dtype = call->out[0].dtype;
        job.aligned = element_aligned(job.from) && element_aligned(job.to);
        builder.add(job, (uint64_t)((job.n - 1) / CAST_TILE + 1));
    }
    return builder.finish();
}

enum xop_status cast_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run(0, launch, error);
}

enum xop_status cast_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return run(1, launch, error);
}

enum xop_status cast_preload(struct xop_error *error) {
    return table_builder<cast_family>::preload(error);
}
