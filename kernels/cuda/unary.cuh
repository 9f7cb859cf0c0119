/*
 * The unary operators' kernels. There is one for each pass and type of element, and not one for
 * each operator, which would take minutes to compile and long to load: it looks up the operator for
 * a tile as a whole, and a function of that operator's own does the tile. A thread starts all its
 * loads before it uses the first, so that enough are in flight to cover the latency of the bus or
 * the memory.
 */
#ifndef KERNELS_CUDA_UNARY_CUH
#define KERNELS_CUDA_UNARY_CUH

#include "kernels/cuda/launch.h"
#include "kernels/cuda/table.cuh"
#include "kernels/cuda/unary_math.cuh"

#define UNARY_UNROLL 4 /* vectors of a thread */

struct unary_job {
    const void *a, *b;
    void *out;
    int64_t n;
    double p[UNARY_PARAMETERS];
    enum unary_kind kind;
    bool aligned; /* every pointer is a multiple of 16 */
    uint32_t first_tile;
};

template <class T> constexpr int unary_tile_size = ELEMENT_BLOCK *UNARY_UNROLL * 16 / sizeof(T);

template <enum unary_kind KIND, enum xop_pass PASS, class T>
static __device__ void unary_tile(const unary_job &job, int64_t begin) {
    using V = vector<T>;
    using C = typename V::compute;
    using formula = unary_formula<KIND, PASS, typename unary_math_of<T>::type>;
    const T *a = (const T *)job.a + begin, *b = (const T *)job.b + begin;
    T *out = (T *)job.out + begin;
    const C p[UNARY_PARAMETERS] = {C(job.p[0]), C(job.p[1])};
    const int64_t left = job.n - begin;
    const int size = left < unary_tile_size<T> ? (int)left : unary_tile_size<T>;
    const int count = job.aligned ? size / V::size : 0;
    uint4 raw_a[UNARY_UNROLL], raw_b[UNARY_UNROLL];

#pragma unroll
    for (int u = 0; u < UNARY_UNROLL; u++) {
        int v = (int)threadIdx.x + u * ELEMENT_BLOCK;
        if (v < count) {
            raw_a[u] = __ldcs((const uint4 *)a + v);
            if (formula::binary)
                raw_b[u] = __ldcs((const uint4 *)b + v);
        }
    }
    /* The formula is there once for the elements of a vector and not for all of a thread's, which
     * would take four times as long to compile: the vectors move up instead. */
#pragma unroll 1
    for (int v = (int)threadIdx.x; v < count; v += ELEMENT_BLOCK) {
        C value[V::size], second[V::size] = {};
        V::unpack(raw_a[0], value);
        if (formula::binary)
            V::unpack(raw_b[0], second);
#pragma unroll
        for (int i = 0; i < V::size; i++)
            value[i] = formula::apply(value[i], second[i], p);
        __stcs((uint4 *)out + v, V::pack(value));
#pragma unroll
        for (int u = 0; u + 1 < UNARY_UNROLL; u++) {
            raw_a[u] = raw_a[u + 1];
            raw_b[u] = raw_b[u + 1];
        }
    }
    /* One by one: the end of an array, and arrays that are not aligned. */
#pragma unroll 1
    for (int i = count * V::size + (int)threadIdx.x; i < size; i += ELEMENT_BLOCK) {
        C second = formula::binary ? element<T>::load(b[i]) : C(0);
        out[i] = element<T>::store(formula::apply(element<T>::load(a[i]), second, p));
    }
}

template <enum xop_pass PASS, class T> struct unary_task {
    static __device__ void run(const unary_job &job, uint32_t tile) {
        const int64_t begin = (int64_t)tile * unary_tile_size<T>;
        switch (job.kind) {
#define UNARY_KIND(name, ...)                                                                      \
    case UNARY_##name:                                                                             \
        unary_tile<UNARY_##name, PASS, T>(job, begin);                                             \
        break;
#include "kernels/unary.def"
#undef UNARY_KIND
        default: break;
        }
    }
};

template <enum xop_pass PASS> struct unary_family {
    using job = unary_job;
    template <class T> using task = unary_task<PASS, T>;
};

/* Where a pass has one input only, it is the second, too. */
template <enum xop_pass PASS>
static enum xop_status unary_run(enum unary_kind op, const struct xop_launch *launch,
                                 struct xop_error *error) {
    const enum xop_dtype dtype = launch->calls[0].in[0].dtype;
    const int64_t tile =
        (int64_t)ELEMENT_BLOCK * UNARY_UNROLL * 16 / (int64_t)xop_dtype_size(dtype);
    const uint32_t second = unary_declarations[op].pass[PASS].nin - 1;
    table_builder<unary_family<PASS>> builder(launch, dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        unary_job job = {};
        if (!call->out[0].data || !xop_tensor_elements(&call->in[0], &job.n) || job.n == 0)
            continue;
        job.kind = unary_parameters(op, call->attrs, job.p);
        job.a = call->in[0].data;
        job.b = call->in[second].data;
        job.out = call->out[0].data;
        job.aligned = element_aligned(job.a) && element_aligned(job.b) && element_aligned(job.out);
        builder.add(job, (uint64_t)((job.n - 1) / tile + 1));
    }
    return builder.finish();
}

#endif
