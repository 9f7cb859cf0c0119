/*
 * The summaries of kernels/fold.h on CUDA: what a thread keeps of the terms that it has seen, how
 * two threads' are joined, and what becomes of the whole. Sums and products are in double, which
 * costs nothing beside the memory; exponentials are in what the dtype is computed in.
 */
#ifndef KERNELS_CUDA_FOLD_CUH
#define KERNELS_CUDA_FOLD_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/fold.h"

/* As it lies in shared memory and in the workspace. */
struct fold_parts {
    double a, b, c;
};

template <class T, class C> static __device__ C fold_exp(C d) {
    if constexpr (sizeof(T) == 2)
        return __expf(d); /* see row_exp in row_softmax.cu */
    else if constexpr (sizeof(C) == 4)
        return expf(d);
    else
        return exp(d);
}

template <enum fold_summary SUMMARY, class T> struct fold_of;

template <class T> struct fold_of<FOLD_TOTAL, T> {
    using C = typename element<T>::compute;
    double total = 0;
    __device__ void add(C x, C) { total += x; }
    __device__ fold_parts parts() const { return {total, 0, 0}; }
    static __device__ void join(fold_parts &to, const fold_parts &other) { to.a += other.a; }
};

/* NaN wins. */
template <class T> struct fold_of<FOLD_LARGEST, T> {
    using C = typename element<T>::compute;
    C most = -(C)INFINITY;
    __device__ void add(C x, C) { most = x > most || isnan(x) ? x : most; }
    __device__ fold_parts parts() const { return {(double)most, 0, 0}; }
    static __device__ void join(fold_parts &to, const fold_parts &other) {
        to.a = other.a > to.a || isnan(other.a) ? other.a : to.a;
    }
};
template <class T> struct fold_of<FOLD_SMALLEST, T> {
    using C = typename element<T>::compute;
    C least = (C)INFINITY;
    __device__ void add(C x, C) { least = x < least || isnan(x) ? x : least; }
    __device__ fold_parts parts() const { return {(double)least, 0, 0}; }
    static __device__ void join(fold_parts &to, const fold_parts &other) {
        to.a = other.a < to.a || isnan(other.a) ? other.a : to.a;
    }
};

template <class T> struct fold_of<FOLD_PRODUCT, T> {
    using C = typename element<T>::compute;
    double product = 1;
    __device__ void add(C x, C) { product *= x; }
    __device__ fold_parts parts() const { return {product, 0, 0}; }
    static __device__ void join(fold_parts &to, const fold_parts &other) { to.a *= other.a; }
};

/* exp(x - m) is 1 where both are the same infinity, which makes the edge values come out right. */
template <class T> struct fold_of<FOLD_EXPONENTIALS, T> {
    using C = typename element<T>::compute;
    C most = -(C)INFINITY;
    double sum = 0;
    __device__ void add(C x, C) {
        if (x > most) {
            sum *= fold_exp<T>(most - x);
            most = x;
        }
        sum += x == most ? C(1) : fold_exp<T>(x - most);
    }
    __device__ fold_parts parts() const { return {(double)most, sum, 0}; }
    static __device__ double scaled(double sum, double from, double to) {
        return from == to ? sum : sum * exp(from - to);
    }
    static __device__ void join(fold_parts &to, const fold_parts &other) {
        double most = other.a > to.a ? other.a : to.a;
        to.b = scaled(to.b, to.a, most) + scaled(other.b, other.a, most);
        to.a = most;
    }
};

/* Relative to the first term, so that a mean that is large beside the distances from it costs no
 * digits. */
template <class T> struct fold_of<FOLD_SQUARES, T> {
    using C = typename element<T>::compute;
    double first = 0, sum = 0, squares = 0, n = 0;
    __device__ void add(C x, C) {
        if (n == 0)
            first = x;
        double d = x - first;
        sum += d;
        squares = fma(d, d, squares);
        n += 1;
    }
    __device__ fold_parts parts() const {
        if (n == 0)
            return {0, 0, 0};
        double left = squares - sum / n * sum;
        return {first + sum / n, left < 0 ? 0 : left, n};
    }
    static __device__ void join(fold_parts &to, const fold_parts &other) {
        double all = to.c + other.c, d = other.a - to.a;
        if (other.c == 0)
            return;
        if (to.c == 0) {
            to = other;
            return;
        }
        to.a += d * (other.c / all);
        to.b += other.b + d * d * (to.c * other.c / all);
        to.c = all;
    }
};

template <class T> struct fold_of<FOLD_TIES, T> {
    using C = typename element<T>::compute;
    double ties = 0;
    __device__ void add(C x, C y) { ties += x == y; }
    __device__ fold_parts parts() const { return {ties, 0, 0}; }
    static __device__ void join(fold_parts &to, const fold_parts &other) { to.a += other.a; }
};

template <class T> struct fold_of<FOLD_ZEROS, T> {
    using C = typename element<T>::compute;
    double product = 1, zeros = 0;
    __device__ void add(C x, C) {
        product *= x == 0 ? C(1) : x;
        zeros += x == 0;
    }
    __device__ fold_parts parts() const { return {product, zeros, 0}; }
    static __device__ void join(fold_parts &to, const fold_parts &other) {
        to.a *= other.a;
        to.b += other.b;
    }
};

/* Calls what<SUMMARY>() for the job's summary. */
#define FOLD_EACH(summary, what)                                                                   \
    switch (summary) {                                                                             \
    case FOLD_TOTAL: what(FOLD_TOTAL); break;                                                      \
    case FOLD_LARGEST: what(FOLD_LARGEST); break;                                                  \
    case FOLD_SMALLEST: what(FOLD_SMALLEST); break;                                                \
    case FOLD_PRODUCT: what(FOLD_PRODUCT); break;                                                  \
    case FOLD_EXPONENTIALS: what(FOLD_EXPONENTIALS); break;                                        \
    case FOLD_SQUARES: what(FOLD_SQUARES); break;                                                  \
    case FOLD_TIES: what(FOLD_TIES); break;                                                        \
    case FOLD_ZEROS: what(FOLD_ZEROS); break;                                                      \
    case FOLD_NOTHING: break;                                                                      \
    }

/* One for all summaries. */
static __device__ fold_parts *fold_shared() {
    __shared__ fold_parts all[ELEMENT_BLOCK];
    return all;
}

/* Joins the parts of `lanes` threads, a power of two: neighbours, or, where they are `apart`, those
 * that are `lanes` from each other. The first of them has the whole. All threads of the block call
 * it. */
template <enum fold_summary SUMMARY>
static __device__ fold_parts fold_block(fold_parts mine, uint32_t lanes, bool apart) {
    fold_parts *all = fold_shared();
    const uint32_t begin = (apart ? ELEMENT_BLOCK : lanes) / 2, end = apart ? lanes : 1;
    const uint32_t place = apart ? threadIdx.x : threadIdx.x % lanes;

    __syncthreads(); /* what the tile before left is read */
    all[threadIdx.x] = mine;
    for (uint32_t half = begin; half >= end; half /= 2) {
        __syncthreads();
        if (place < half)
            fold_of<SUMMARY, double>::join(all[threadIdx.x], all[threadIdx.x + half]);
    }
    return all[threadIdx.x];
}

/* Where summaries go: to a piece's place in the workspace, to backward's, or to the result. */
struct fold_target {
    double *partial, *stats;
    void *out;
    int64_t outputs;
    double divisor;
    uint32_t pieces;
    enum fold_summary summary;
};

template <class T>
static __device__ void fold_finish(const fold_target &to, int64_t output, const fold_parts &parts) {
    if (to.stats) {
        to.stats[output] = parts.a;
        to.stats[to.outputs + output] = parts.b;
        to.stats[2 * to.outputs + output] = parts.c;
        return;
    }
    double value = (to.summary == FOLD_SQUARES ? parts.b : parts.a) / to.divisor;
    if (to.summary == FOLD_EXPONENTIALS)
        value = parts.a + log(parts.b);
    ((T *)to.out)[output] = element<T>::round(value);
}

static __device__ inline double &fold_partial(const fold_target &to, int part, int64_t piece,
                                              int64_t output) {
    return to.partial[((int64_t)part * to.pieces + piece) * to.outputs + output];
}

#endif
