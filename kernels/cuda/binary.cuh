/*
 * The binary operators' formulas and kernels. There is one kernel for each pass, type of element
 * and number of dimensions, and not one for each operator, which would take minutes to compile: it
 * looks up the operator for a vector of elements.
 *
 * Backward makes both gradients in one pass over y. Where a gradient is a sum, that pass leaves its
 * terms in the workspace, in the type computed in, and the sums' kernels (reduce.cuh) add them up.
 */
#ifndef KERNELS_CUDA_BINARY_CUH
#define KERNELS_CUDA_BINARY_CUH

#include "kernels/binary.h"
#include "kernels/cuda/broadcast.cuh"

/* Long functions are there once, not for each element of a vector. */
template <class R> struct binary_math;
template <> struct binary_math<float> {
    static __device__ __noinline__ float pow(float x, float b) { return ::powf(x, b); }
    static __device__ __noinline__ float log(float x) { return ::logf(x); }
};
template <> struct binary_math<double> {
    static __device__ __noinline__ double pow(double x, double b) { return ::pow(x, b); }
    static __device__ __noinline__ double log(double x) { return ::log(x); }
};

/* The lines of the table: y, and what an element adds to each gradient. */
template <enum binary_kind KIND, class R> struct binary_formula;
#define M(f) binary_math<R>::f
#define BINARY(name, saved, flops, forward, its_grad_x, its_grad_b)                                \
    template <class R> struct binary_formula<BINARY_##name, R> {                                   \
        static __device__ R y(R x, R b) { return forward; }                                        \
        static __device__ R grad_x(R x, R b, R g) { return its_grad_x; }                           \
        static __device__ R grad_b(R x, R b, R g) { return its_grad_b; }                           \
    };
#include "kernels/binary.def"
#undef M

struct binary_value {
    /* x becomes y. */
    template <class T, class R, int N>
    static __device__ void each(uint32_t kind, R (&x)[N], const R (&b)[N]) {
        switch (kind) {
#define BINARY(name, ...)                                                                          \
    case BINARY_##name:                                                                            \
        _Pragma("unroll") for (int k = 0; k < N; k++) x[k] =                                       \
            binary_formula<BINARY_##name, R>::y(x[k], b[k]);                                       \
        break;
#include "kernels/binary.def"
        default: break;
        }
    }
};

/* x becomes the terms of grad_x, b those of grad_b. */
template <class R, int N>
static __device__ void binary_gradients(uint32_t kind, R (&x)[N], R (&b)[N], const R (&g)[N]) {
    switch (kind) {
#define BINARY(name, ...)                                                                          \
    case BINARY_##name:                                                                            \
        _Pragma("unroll") for (int k = 0; k < N; k++) {                                            \
            const R of_x = binary_formula<BINARY_##name, R>::grad_x(x[k], b[k], g[k]);             \
            b[k] = binary_formula<BINARY_##name, R>::grad_b(x[k], b[k], g[k]);                     \
            x[k] = of_x;                                                                           \
        }                                                                                          \
        break;
#include "kernels/binary.def"
    default: break;
    }
}

enum binary_flags {
    /* Besides those of broadcast_flags: an output is of the type computed in. */
    BINARY_X_TERMS = 8,
    BINARY_B_TERMS = 16,
    /* x and b have no elements, which the formulas do without. */
    BINARY_NO_OPERANDS = 32
};

struct binary_job {
    const void *x, *b, *g;
    void *out_x, *out_b; /* of y's shape; NULL: none */
    int64_t n;
    uint32_t first_tile, flags, ndims, kind;
    struct shape_dim dim[XOP_MAX_RANK];
};

template <class T> struct binary_backward {
    using V = vector<T>;
    using C = typename V::compute;
    using walk = broadcast_walk<binary_job, XOP_MAX_RANK, T>;
    static constexpr int tile_size = ELEMENT_BLOCK * V::size;

    /* Terms lie at multiples of 16, whatever the operands' addresses are. */
    static __device__ void store_terms(C *to, int count, const C (&value)[V::size]) {
        using W = vector<C>;
        if (count == V::size) {
#pragma unroll
            for (int i = 0; i < V::size; i += W::size) {
                C part[W::size];
#pragma unroll
                for (int k = 0; k < W::size; k++)
                    part[k] = value[i + k];
                *(uint4 *)(to + i) = W::pack(part);
            }
        } else {
#pragma unroll
            for (int i = 0; i < V::size; i++)
                if (i < count)
                    to[i] = value[i];
        }
    }

    static __device__ void store(void *out, bool terms, int64_t i, int count, bool aligned,
                                 const C (&value)[V::size]) {
        if (!out)
            return;
        if (terms)
            store_terms((C *)out + i, count, value);
        else
            V::store((T *)out + i, count, aligned, V::pack(value));
    }

    static __device__ void run(const binary_job &job, uint32_t tile) {
        const bool aligned = job.flags & BROADCAST_ALIGNED;
        const bool x_full = job.flags & BROADCAST_X_FULL, b_full = job.flags & BROADCAST_B_FULL;
        const int64_t i = (int64_t)tile * tile_size + (int64_t)threadIdx.x * V::size;
        const int count = job.n - i < V::size ? (int)(job.n - i) : V::size;
        uint4 raw_x = {}, raw_b = {}, raw_g;
        C x[V::size] = {}, b[V::size] = {}, g[V::size];

        if (count <= 0)
            return;
        raw_g = V::load((const T *)job.g + i, count, aligned);
        if (!(job.flags & BINARY_NO_OPERANDS)) {
            if (x_full)
                raw_x = V::load((const T *)job.x + i, count, aligned);
            if (b_full)
                raw_b = V::load((const T *)job.b + i, count, aligned);
            if (x_full)
                V::unpack(raw_x, x);
            if (b_full)
                V::unpack(raw_b, b);
            walk::operands(job, i, count, x, b);
        }
        V::unpack(raw_g, g);
        binary_gradients(job.kind, x, b, g);
        store(job.out_b, job.flags & BINARY_B_TERMS, i, count, aligned, b);
        store(job.out_x, job.flags & BINARY_X_TERMS, i, count, aligned, x);
    }
};

struct binary_backward_family {
    using job = binary_job;
    template <class T> using task = binary_backward<T>;
};

#endif
