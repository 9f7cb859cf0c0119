/*
 * Sums of a full array g to the shape of an operand that was broadcast to it: the gradient of a
 * broadcast input. Terms are accumulated in double, in an order that the shape alone fixes: which
 * thread sums which terms does not depend on the grid, on the group, nor on how the array is
 * aligned.
 *
 * The common forms read g once and may compute an elementwise result from it on the way, so that g
 * crosses the bus once for both gradients:
 *
 *     reduce_rows     the result is a scalar or a column: each element sums neighbouring terms
 *     reduce_columns  the result is a row: each element sums a column
 *
 * reduce_any takes any other pattern of axes. Where a sum is cut into pieces (shape.h), these leave
 * partial sums, which reduce_finish adds up in order.
 */
#ifndef KERNELS_CUDA_REDUCE_CUH
#define KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/table.cuh"
#include "kernels/shape.h"

#define REDUCE_UNROLL 4      /* accesses that a thread has in flight */
#define REDUCE_LONG_ROW 2048 /* from here on a whole block sums a row */

enum reduce_flags {
    REDUCE_VECTORS = 1,    /* threads take vectors of terms; said by the shape alone */
    REDUCE_ALIGNED = 2,    /* and their addresses are multiples of 16 */
    REDUCE_TWICE = 4,      /* the finished sum is doubled */
    REDUCE_OUTER_AXIS = 8, /* reduce_any: the innermost axis is kept, not summed over */
    REDUCE_NEGATE = 16,    /* the finished sum changes its sign */
    REDUCE_TO_F16 = 32,    /* terms are f32, the sum is f16 or bf16 */
    REDUCE_TO_BF16 = 64
};

/* Where a sum goes: partial[output * pieces + piece] where there are several pieces, else sum. */
struct reduce_result {
    void *sum;
    double *partial;
    uint32_t pieces, flags;
};

struct reduce_job {
    const void *g;
    const void *factor; /* of the result's shape: terms are multiplied by its element; or NULL */
    const void *x;      /* of g's shape; each[i] = 2 * x[i] * g[i], or g[i] where it is NULL */
    void *each;         /* NULL: none */
    struct reduce_result result;
    int64_t rows, columns, piece; /* of g; terms of a piece, along the axis that is summed over */
    uint32_t first_tile, lanes;   /* threads side by side, a power of two */
};

struct reduce_any_job {
    const void *g, *factor;
    struct reduce_result result;
    int64_t outputs, reduced, piece;
    uint32_t first_tile, nkept, nreduced;
    struct shape_axis kept[XOP_MAX_RANK], axis[XOP_MAX_RANK];
};

struct reduce_finish_job {
    struct reduce_result result; /* pieces 0: the sums are 0 */
    int64_t outputs;
    uint32_t first_tile, lanes;
};

/* What a thread loads at once: W elements, where W is a vector's or 1. */
template <class T, int W> struct reduce_cell {
    using raw = uint4;
    using V = vector<T>;
    static __device__ raw load(const T *from, int count, bool aligned) {
        return V::load(from, count, aligned);
    }
    static __device__ void store(T *to, int count, bool aligned, raw value) {
        V::store(to, count, aligned, value);
    }
    static __device__ void unpack(raw value, typename V::compute (&to)[W]) { V::unpack(value, to); }
    static __device__ raw pack(const typename V::compute (&from)[W]) { return V::pack(from); }
};
template <class T> struct reduce_cell<T, 1> {
    using raw = T;
    using C = typename element<T>::compute;
    static __device__ raw load(const T *from, int, bool) { return *from; }
    static __device__ void store(T *to, int, bool, raw value) { *to = value; }
    static __device__ void unpack(raw value, C (&to)[1]) { to[0] = element<T>::load(value); }
    static __device__ raw pack(const C (&from)[1]) { return element<T>::store(from[0]); }
};

/* Stores a finished sum. */
template <class T>
static __device__ void reduce_end(const reduce_result &result, int64_t output, double sum) {
    if (result.flags & REDUCE_TWICE)
        sum = 2 * sum;
    if (result.flags & REDUCE_NEGATE)
        sum = -sum;
    if (sizeof(T) == sizeof(float) && result.flags & REDUCE_TO_F16)
        ((__half *)result.sum)[output] = element<__half>::round(sum);
    else if (sizeof(T) == sizeof(float) && result.flags & REDUCE_TO_BF16)
        ((__nv_bfloat16 *)result.sum)[output] = element<__nv_bfloat16>::round(sum);
    else
        ((T *)result.sum)[output] = element<T>::round(sum);
}

template <class T>
static __device__ void reduce_store(const reduce_result &result, int64_t output, int64_t piece,
                                    double sum) {
    if (result.pieces > 1)
        result.partial[output * result.pieces + piece] = sum;
    else
        reduce_end<T>(result, output, sum);
}

/* The sum over `lanes` neighbouring threads, a power of two up to 32, in each of them. */
static __device__ inline double reduce_lanes(double sum, uint32_t lanes) {
    for (uint32_t step = lanes / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, (int)step);
    return sum;
}

/* The sum over a block, in its thread 0. All threads call it. */
static __device__ inline double reduce_block(double sum) {
    __shared__ double warps[ELEMENT_BLOCK / 32];
    sum = reduce_lanes(sum, 32);
    __syncthreads(); /* thread 0 is done with the sums of the tile before */
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 1; i < ELEMENT_BLOCK / 32; i++)
            sum += warps[i];
    return sum;
}

/* Handles W terms that were loaded: the elementwise result, if any. */
template <class T, int W>
static __device__ void reduce_each(const reduce_job &job, int64_t at, int count, bool aligned,
                                   typename reduce_cell<T, W>::raw raw_g,
                                   typename reduce_cell<T, W>::raw raw_x,
                                   const typename element<T>::compute (&g)[W]) {
    using cell = reduce_cell<T, W>;
    if (!job.each)
        return;
    if (job.x) {
        typename element<T>::compute x[W];
        cell::unpack(raw_x, x);
#pragma unroll
        for (int k = 0; k < W; k++)
            x[k] = 2 * (x[k] * g[k]);
        raw_g = cell::pack(x);
    }
    cell::store((T *)job.each + at, count, aligned, raw_g);
}

template <class T> struct reduce_rows {
    /* What falls to one of `lanes` threads of the `count` terms from `at` on. */
    template <int W>
    static __device__ double span(const reduce_job &job, int64_t at, int64_t count, uint32_t lane,
                                  double factor) {
        using cell = reduce_cell<T, W>;
        const bool aligned = job.result.flags & REDUCE_ALIGNED, with_x = job.each && job.x;
        const T *g = (const T *)job.g + at, *x = (const T *)job.x + at;
        const int64_t step = (int64_t)job.lanes * W;
        double sum = 0;

        for (int64_t i = (int64_t)lane * W; i < count; i += REDUCE_UNROLL * step) {
            typename cell::raw raw_g[REDUCE_UNROLL], raw_x[REDUCE_UNROLL];
#pragma unroll
            for (int u = 0; u < REDUCE_UNROLL; u++) {
                int64_t left = count - i - u * step;
                int some = left < W ? (int)left : W;
                if (left <= 0)
                    break;
                raw_g[u] = cell::load(g + i + u * step, some, aligned);
                if (with_x)
                    raw_x[u] = cell::load(x + i + u * step, some, aligned);
            }
#pragma unroll
            for (int u = 0; u < REDUCE_UNROLL; u++) {
                int64_t left = count - i - u * step;
                int some = left < W ? (int)left : W;
                typename element<T>::compute value[W];
                if (left <= 0)
                    break;
                cell::unpack(raw_g[u], value);
                reduce_each<T, W>(job, at + i + u * step, some, aligned, raw_g[u], raw_x[u], value);
#pragma unroll
                for (int k = 0; k < W; k++)
                    if (k < some)
                        sum = fma(factor, (double)value[k], sum);
            }
        }
        return sum;
    }

    static __device__ void run(const reduce_job &job, uint32_t tile) {
        const uint32_t lane = threadIdx.x % job.lanes, pieces = job.result.pieces;
        int64_t index = (int64_t)tile * (ELEMENT_BLOCK / job.lanes) + threadIdx.x / job.lanes;
        element_quotient split = element_divide(index, pieces); /* the row, and its piece */
        const bool active = split.quotient < job.rows;
        double sum = 0;

        if (active) {
            int64_t begin = split.rest * job.piece, count = job.columns - begin;
            int64_t at = split.quotient * job.columns + begin;
            double factor = 1;
            if (job.factor)
                factor = (double)element<T>::load(((const T *)job.factor)[split.quotient]);
            if (count > job.piece)
                count = job.piece;
            if (job.result.flags & REDUCE_VECTORS)
                sum = span<vector<T>::size>(job, at, count, lane, factor);
            else
                sum = span<1>(job, at, count, lane, factor);
        }
        sum = job.lanes > 32 ? reduce_block(sum) : reduce_lanes(sum, job.lanes);
        if (active && lane == 0)
            reduce_store<T>(job.result, split.quotient, split.rest, sum);
    }
};

template <class T> struct reduce_columns {
    /* A strip of columns, `lanes` threads wide, over the rows of one piece. */
    template <int W> static __device__ void strip(const reduce_job &job, uint32_t tile) {
        using cell = reduce_cell<T, W>;
        __shared__ double shared[W * ELEMENT_BLOCK];
        const bool aligned = job.result.flags & REDUCE_ALIGNED, with_x = job.each && job.x;
        const uint32_t lanes = job.lanes, high = ELEMENT_BLOCK / lanes;
        const uint32_t lane = threadIdx.x % lanes, level = threadIdx.x / lanes;
        const int64_t width = (int64_t)lanes * W, strips = (job.columns - 1) / width + 1;
        const element_quotient split = element_divide(tile, strips);
        const int64_t column = split.rest * width + (int64_t)lane * W;
        const bool active = column < job.columns;
        int64_t row = split.quotient * job.piece, last = row + job.piece;
        double sum[W], factor[W];

        if (last > job.rows)
            last = job.rows;
#pragma unroll
        for (int k = 0; k < W; k++) {
            sum[k] = 0;
            factor[k] = 1;
            if (active && job.factor)
                factor[k] = (double)element<T>::load(((const T *)job.factor)[column + k]);
        }
        for (row += level; active && row < last; row += REDUCE_UNROLL * high) {
            typename cell::raw raw_g[REDUCE_UNROLL], raw_x[REDUCE_UNROLL];
#pragma unroll
            for (int u = 0; u < REDUCE_UNROLL; u++) {
                int64_t r = row + u * (int64_t)high, at = r * job.columns + column;
                if (r >= last)
                    break;
                raw_g[u] = cell::load((const T *)job.g + at, W, aligned);
                if (with_x)
                    raw_x[u] = cell::load((const T *)job.x + at, W, aligned);
            }
#pragma unroll
            for (int u = 0; u < REDUCE_UNROLL; u++) {
                int64_t r = row + u * (int64_t)high, at = r * job.columns + column;
                typename element<T>::compute value[W];
                if (r >= last)
                    break;
                cell::unpack(raw_g[u], value);
                reduce_each<T, W>(job, at, W, aligned, raw_g[u], raw_x[u], value);
#pragma unroll
                for (int k = 0; k < W; k++)
                    sum[k] = fma(factor[k], (double)value[k], sum[k]);
            }
        }
        __syncthreads(); /* the sums of the tile before are read */
#pragma unroll
        for (int k = 0; k < W; k++)
            shared[k * ELEMENT_BLOCK + threadIdx.x] = sum[k];
        for (uint32_t half = high / 2; half > 0; half /= 2) {
            __syncthreads();
            if (level < half)
#pragma unroll
                for (int k = 0; k < W; k++)
                    shared[k * ELEMENT_BLOCK + threadIdx.x] +=
                        shared[k * ELEMENT_BLOCK + threadIdx.x + half * lanes];
        }
        if (active && level == 0)
#pragma unroll
            for (int k = 0; k < W; k++)
                reduce_store<T>(job.result, column + k, split.quotient,
                                shared[k * ELEMENT_BLOCK + threadIdx.x]);
    }

    static __device__ void run(const reduce_job &job, uint32_t tile) {
        if (job.result.flags & REDUCE_VECTORS)
            strip<vector<T>::size>(job, tile);
        else
            strip<1>(job, tile);
    }
};

template <class T> struct reduce_any {
    static __device__ int64_t offset(const shape_axis *axis, uint32_t n, int64_t index) {
        int64_t at = 0;
#pragma unroll
        for (int d = XOP_MAX_RANK - 1; d >= 0; d--) {
            if (d >= (int)n)
                continue;
            if (d > 0) {
                element_quotient split = element_divide(index, axis[d].size);
                at += split.rest * axis[d].stride;
                index = split.quotient;
            } else {
                at += index * axis[d].stride;
            }
        }
        return at;
    }

    /* Every `step`th term of an output from `term` on, up to `last`. */
    static __device__ double terms(const reduce_any_job &job, int64_t output, int64_t term,
                                   int64_t last, int64_t step) {
        const T *g = (const T *)job.g + offset(job.kept, job.nkept, output);
        double factor = 1, sum = 0;
        if (job.factor)
            factor = (double)element<T>::load(((const T *)job.factor)[output]);
#pragma unroll 4
        for (; term < last; term += step)
            sum =
                fma(factor, (double)element<T>::load(g[offset(job.axis, job.nreduced, term)]), sum);
        return sum;
    }

    static __device__ void run(const reduce_any_job &job, uint32_t tile) {
        const bool outer = job.result.flags & REDUCE_OUTER_AXIS;
        int64_t output, piece, first, last;

        if (outer) { /* a thread for each of neighbouring outputs */
            int64_t strips = (job.outputs - 1) / ELEMENT_BLOCK + 1;
            element_quotient split = element_divide(tile, strips);
            output = split.rest * ELEMENT_BLOCK + threadIdx.x;
            piece = split.quotient;
        } else { /* a warp for each piece of an output */
            int64_t index = (int64_t)tile * (ELEMENT_BLOCK / 32) + threadIdx.x / 32;
            element_quotient split = element_divide(index, job.result.pieces);
            output = split.quotient;
            piece = split.rest;
        }
        if (output >= job.outputs)
            return; /* whole warps, or threads that meet no barrier */
        first = piece * job.piece;
        last = job.reduced - first < job.piece ? job.reduced : first + job.piece;
        if (outer) {
            reduce_store<T>(job.result, output, piece, terms(job, output, first, last, 1));
        } else {
            double sum = terms(job, output, first + threadIdx.x % 32, last, 32);
            sum = reduce_lanes(sum, 32);
            if (threadIdx.x % 32 == 0)
                reduce_store<T>(job.result, output, piece, sum);
        }
    }
};

template <class T> struct reduce_finish {
    static __device__ void run(const reduce_finish_job &job, uint32_t tile) {
        const uint32_t lane = threadIdx.x % job.lanes, pieces = job.result.pieces;
        int64_t output = (int64_t)tile * (ELEMENT_BLOCK / job.lanes) + threadIdx.x / job.lanes;
        double sum = 0;

        if (output < job.outputs)
#pragma unroll 4
            for (uint32_t p = lane; p < pieces; p += job.lanes)
                sum += job.result.partial[output * pieces + p];
        sum = reduce_lanes(sum, job.lanes);
        if (output < job.outputs && lane == 0)
            reduce_end<T>(job.result, output, sum);
    }
};

/* ---- For the host, when it cuts work into tiles ---- */

static inline int64_t reduce_ceil(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* The smallest power of two that is at least n, but at most `most`. */
static inline uint32_t reduce_power(int64_t n, uint32_t most) {
    uint32_t power = 1;
    while (power < n && power < most)
        power *= 2;
    return power;
}

#endif
