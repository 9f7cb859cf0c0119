/*
 * Kernels of layer_norm and rms_norm. A row's mean and its mean squared distance from it are found
 * one after the other, from registers, since a single pass loses digits where the mean is large.
 *
 * Backward sums columns on its way over the rows: a block takes a piece of the rows, each of its
 * threads the same columns of every one, and leaves sums that row_columns_finish adds up in order.
 * Rows that are too long for that are walked instead; their means and scales are kept, and
 * row_norm_columns_task reads everything once more for the columns.
 */
#ifndef KERNELS_CUDA_ROW_NORM_CUH
#define KERNELS_CUDA_ROW_NORM_CUH

#include <cuda_pipeline.h>

#include "kernels/cuda/row.cuh"

static __device__ inline float row_inverse_root(float x) { return 1 / sqrtf(x); }
static __device__ inline double row_inverse_root(double x) { return 1 / sqrt(x); }

/* Two sums at once. */
template <class C> struct row_pair { C a, b; };

template <class C> static __device__ row_pair<C> row_reduce_pair(row_pair<C> sum, uint32_t lanes) {
    __shared__ row_pair<C> warps[ELEMENT_BLOCK / 32];
    for (uint32_t step = (lanes < 32 ? lanes : 32) / 2; step > 0; step /= 2) {
        sum.a += __shfl_xor_sync(0xffffffffu, sum.a, (int)step);
        sum.b += __shfl_xor_sync(0xffffffffu, sum.b, (int)step);
    }
    if (lanes <= 32)
        return sum;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    const row_pair<C> *mine = warps + threadIdx.x / lanes * (lanes / 32);
    sum = mine[0];
    for (uint32_t i = 1; i < lanes / 32; i++) {
        sum.a += mine[i].a;
        sum.b += mine[i].b;
    }
    return sum;
}

/* ---- Kept rows ---- */

/* a: the mean, b: the scale. All threads of the block call it. */
template <class T, int U>
static __device__ row_pair<typename element<T>::compute>
row_stats_of(const row_job &job, const row_part<T, U> &part, const uint4 (&raw)[U]) {
    using V = vector<T>;
    using C = typename V::compute;
    C value[V::size], mean = 0, squares = 0;

    if (job.flags & ROW_CENTERED) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            V::unpack(raw[u], value); /* 0 where there is none */
            mean += row_add_up(value);
        }
        mean = row_reduce<row_add>(mean, job.lanes) / (C)job.n;
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        part.unpack(raw[u], u, mean, value);
#pragma unroll
        for (int k = 0; k < V::size; k++)
            value[k] = (value[k] - mean) * (value[k] - mean);
        squares += row_add_up(value);
    }
    squares = row_reduce<row_add>(squares, job.lanes);
    return {mean, row_inverse_root(squares / (C)job.n + (C)job.eps)};
}

template <class T> struct row_norm_forward {
    using V = vector<T>;
    using C = typename V::compute;

    static __device__ void run(const row_job &job, uint32_t tile) {
        const int64_t row = (int64_t)tile * (ELEMENT_BLOCK / job.lanes) + threadIdx.x / job.lanes;
        const row_part<T, ROW_VECTORS> part(job, row < job.rows);
        uint4 raw[ROW_VECTORS];

        part.load((const T *)job.x + row * job.n, raw);
        const row_pair<C> stats = row_stats_of<T>(job, part, raw);
#pragma unroll
        for (int u = 0; u < ROW_VECTORS; u++) {
            C value[V::size], weight[V::size], bias[V::size];
            V::unpack(raw[u], value);
            part.parameter(job.weight, u, C(1), weight);
            part.parameter(job.bias, u, C(0), bias);
#pragma unroll
            for (int k = 0; k < V::size; k++)
                value[k] = (value[k] - stats.a) * stats.b * weight[k] + bias[k];
            part.store((T *)job.out + row * job.n, u, value);
        }
    }
};

/* Vectors of a row that a thread keeps backward: 64 bytes of what is computed in. */
template <class T>
constexpr int row_norm_vectors = ROW_KEPT_BACKWARD_BYTES / ELEMENT_BLOCK /
                                 (int)sizeof(typename element<T>::compute) / vector<T>::size;

template <class T> struct row_norm_backward {
    using V = vector<T>;
    using C = typename V::compute;
    static constexpr int U = row_norm_vectors<T>, W = V::size;
    using part_type = row_part<T, U>;

    /* Adds what the threads of the same columns have summed, and leaves it for the piece. */
    static __device__ void leave(const row_job &job, const part_type &part, uint32_t piece,
                                 uint32_t which, const C (&sum)[U][W]) {
        __shared__ C shared[W * ELEMENT_BLOCK];
        C *to = (C *)job.sums + ((int64_t)piece * 2 + which) * job.n;

#pragma unroll
        for (int u = 0; u < U; u++) {
            __syncthreads(); /* what was there before is read */
#pragma unroll
            for (int k = 0; k < W; k++)
                shared[k * ELEMENT_BLOCK + threadIdx.x] = sum[u][k];
            for (uint32_t half = ELEMENT_BLOCK / 2; half >= job.lanes; half /= 2) {
                __syncthreads();
                if (threadIdx.x < half)
#pragma unroll
                    for (int k = 0; k < W; k++)
                        shared[k * ELEMENT_BLOCK + threadIdx.x] +=
                            shared[k * ELEMENT_BLOCK + threadIdx.x + half];
            }
            if (threadIdx.x < job.lanes)
#pragma unroll
                for (int k = 0; k < W; k++)
                    if (part.begin(u) + k < (int)job.n)
                        to[part.begin(u) + k] = shared[k * ELEMENT_BLOCK + threadIdx.x];
        }
    }

    /* Where a thread's next vectors arrive while it works on the row before; it alone reads them.
     */
    using stage_type = uint4[2][U][ELEMENT_BLOCK];

    static __device__ void fetch(const part_type &part, const T *row,
                                 uint4 (&to)[U][ELEMENT_BLOCK]) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            uint4 *place = &to[u][threadIdx.x];
            if (part.count(u) <= 0)
                *place = make_uint4(0, 0, 0, 0);
            else if (part.aligned)
                __pipeline_memcpy_async(place, row + part.begin(u), sizeof *place);
            else
                *place = V::gather(row + part.begin(u), part.count(u));
        }
    }

    static __device__ void run(const row_job &job, uint32_t tile) {
        __shared__ stage_type stage;
        const uint32_t levels = ELEMENT_BLOCK / job.lanes;
        const int64_t begin = tile * job.piece;
        const int64_t end = begin + job.piece < job.rows ? begin + job.piece : job.rows;
        int64_t row = begin + threadIdx.x / job.lanes;
        C weight_sum[U][W] = {}, bias_sum[U][W] = {};

        {
            const part_type first(job, row < end);
            fetch(first, (const T *)job.x + row * job.n, stage[0]);
            fetch(first, (const T *)job.g + row * job.n, stage[1]);
        }
        for (int64_t done = begin; done < end; done += levels, row += levels) {
            const part_type part(job, row < end), next(job, row + levels < end);
            uint4 raw[U];
            C g[U][W];
            row_pair<C> sums = {0, 0};

            __pipeline_commit();
            __pipeline_wait_prior(0);
#pragma unroll
            for (int u = 0; u < U; u++) {
                raw[u] = stage[0][u][threadIdx.x];
                V::unpack(stage[1][u][threadIdx.x], g[u]);
            }
            __syncwarp(); /* what was read is not overwritten before */
            fetch(next, (const T *)job.x + (row + levels) * job.n, stage[0]);
            fetch(next, (const T *)job.g + (row + levels) * job.n, stage[1]);
            const row_pair<C> stats = row_stats_of<T>(job, part, raw);
            /* Without a row the scale may be infinite, and 0 times it would spoil the sums. */
#pragma unroll
            for (int u = 0; u < U; u++) {
                C h[W], weight[W];
                if (row >= end)
                    break;
                part.unpack(raw[u], u, stats.a, h);
                part.parameter(job.weight, u, C(1), weight);
#pragma unroll
                for (int k = 0; k < W; k++) {
                    h[k] = (h[k] - stats.a) * stats.b;
                    weight_sum[u][k] = fma(g[u][k], h[k], weight_sum[u][k]);
                    bias_sum[u][k] += g[u][k];
                    g[u][k] *= weight[k];
                    h[k] *= g[u][k];
                }
                sums.a += row_add_up(g[u]);
                sums.b += row_add_up(h);
            }
            if (!job.out)
                continue;
            sums = row_reduce_pair(sums, job.lanes);
            const C mean_u = job.flags & ROW_CENTERED ? sums.a / (C)job.n : C(0);
            const C mean_uh = sums.b / (C)job.n;
#pragma unroll
            for (int u = 0; u < U; u++) {
                C x[W];
                V::unpack(raw[u], x);
#pragma unroll
                for (int k = 0; k < W; k++)
                    x[k] = (g[u][k] - mean_u - (x[k] - stats.a) * stats.b * mean_uh) * stats.b;
                part.store((T *)job.out + row * job.n, u, x);
            }
        }
        __pipeline_commit();
        __pipeline_wait_prior(0);
        if (!job.sums)
            return;
        const part_type all(job, true);
        leave(job, all, tile, 0, weight_sum);
        leave(job, all, tile, 1, bias_sum);
    }
};

/* ---- Rows that are walked ---- */

/* A whole block sums over a row that lies together: adds f's terms of the elements [i, i + count).
 */
template <class T, class F> static __device__ void row_norm_walk(int64_t n, F f) {
    constexpr int W = vector<T>::size;
#pragma unroll 4
    for (int64_t i = (int64_t)threadIdx.x * W; i < n; i += ELEMENT_BLOCK * W)
        f(i, n - i < W ? (int)(n - i) : W);
}

template <class T> struct row_norm_row {
    using V = vector<T>;
    using C = typename V::compute;
    static constexpr int W = V::size;
    const row_job &job;
    int64_t row;
    bool aligned;

    __device__ row_norm_row(const row_job &its_job, uint32_t tile)
        : job(its_job), row(tile), aligned(its_job.flags & ROW_ALIGNED) {}

    /* Elements of a row, with `fill` for what is not there. */
    __device__ void load(const void *from, int64_t i, int count, C fill, C (&to)[W]) const {
        V::unpack(V::load((const T *)from + row * job.n + i, count, aligned), to);
#pragma unroll
        for (int k = 1; k < W; k++)
            to[k] = k < count ? to[k] : fill;
    }
    __device__ void parameter(const void *from, int64_t i, int count, C value, C (&to)[W]) const {
        if (from)
            V::unpack(V::load((const T *)from + i, count, aligned), to);
        else
#pragma unroll
            for (int k = 0; k < W; k++)
                to[k] = value;
    }
    __device__ void store(int64_t i, int count, const C (&value)[W]) const {
        V::store((T *)job.out + row * job.n + i, count, aligned, V::pack(value));
    }

    __device__ row_pair<C> stats() const {
        C mean = 0, squares = 0;
        if (job.flags & ROW_CENTERED) {
            row_norm_walk<T>(job.n, [&](int64_t i, int count) {
                C value[W];
                load(job.x, i, count, C(0), value);
                mean += row_add_up(value);
            });
            mean = row_reduce<row_add>(mean, ELEMENT_BLOCK) / (C)job.n;
        }
        row_norm_walk<T>(job.n, [&](int64_t i, int count) {
            C value[W];
            load(job.x, i, count, mean, value);
#pragma unroll
            for (int k = 0; k < W; k++)
                value[k] = (value[k] - mean) * (value[k] - mean);
            squares += row_add_up(value);
        });
        squares = row_reduce<row_add>(squares, ELEMENT_BLOCK);
        return {mean, row_inverse_root(squares / (C)job.n + (C)job.eps)};
    }
};

template <class T> struct row_norm_walk_forward {
    using C = typename element<T>::compute;
    static constexpr int W = vector<T>::size;

    static __device__ void run(const row_job &job, uint32_t tile) {
        const row_norm_row<T> row(job, tile);
        const row_pair<C> stats = row.stats();
        row_norm_walk<T>(job.n, [&](int64_t i, int count) {
            C value[W], weight[W], bias[W];
            row.load(job.x, i, count, C(0), value);
            row.parameter(job.weight, i, count, C(1), weight);
            row.parameter(job.bias, i, count, C(0), bias);
#pragma unroll
            for (int k = 0; k < W; k++)
                value[k] = (value[k] - stats.a) * stats.b * weight[k] + bias[k];
            row.store(i, count, value);
        });
    }
};

template <class T> struct row_norm_walk_backward {
    using C = typename element<T>::compute;
    static constexpr int W = vector<T>::size;

    static __device__ void run(const row_job &job, uint32_t tile) {
        const row_norm_row<T> row(job, tile);
        const row_pair<C> stats = row.stats();
        row_pair<C> sums = {0, 0};

        if (threadIdx.x == 0 && job.stats) {
            job.stats[2 * row.row] = stats.a;
            job.stats[2 * row.row + 1] = stats.b;
        }
        if (!job.out)
            return; /* all of the block */
        row_norm_walk<T>(job.n, [&](int64_t i, int count) {
            C x[W], u[W], weight[W];
            row.load(job.x, i, count, stats.a, x);
            row.load(job.g, i, count, C(0), u);
            row.parameter(job.weight, i, count, C(1), weight);
#pragma unroll
            for (int k = 0; k < W; k++) {
                u[k] *= weight[k];
                x[k] = u[k] * ((x[k] - stats.a) * stats.b);
            }
            sums.a += row_add_up(u);
            sums.b += row_add_up(x);
        });
        sums = row_reduce_pair(sums, ELEMENT_BLOCK);
        const C mean_u = job.flags & ROW_CENTERED ? sums.a / (C)job.n : C(0);
        const C mean_uh = sums.b / (C)job.n;
        row_norm_walk<T>(job.n, [&](int64_t i, int count) {
            C x[W], u[W], weight[W];
            row.load(job.x, i, count, C(0), x);
            row.load(job.g, i, count, C(0), u);
            row.parameter(job.weight, i, count, C(1), weight);
#pragma unroll
            for (int k = 0; k < W; k++)
                x[k] = (u[k] * weight[k] - mean_u - (x[k] - stats.a) * stats.b * mean_uh) * stats.b;
            row.store(i, count, x);
        });
    }
};

/* The columns of walked rows: a thread for each, over the rows of one piece. */
template <class T> struct row_norm_columns_task {
    using C = typename element<T>::compute;

    static __device__ void run(const row_job &job, uint32_t tile) {
        const element_quotient split = element_divide(tile, (job.n - 1) / ELEMENT_BLOCK + 1);
        const int64_t column = split.rest * ELEMENT_BLOCK + threadIdx.x;
        const int64_t begin = split.quotient * job.piece;
        const int64_t end = begin + job.piece < job.rows ? begin + job.piece : job.rows;
        C *to = (C *)job.sums + split.quotient * 2 * job.n + column;
        C weight_sum = 0, bias_sum = 0;

        if (column >= job.n)
            return;
#pragma unroll 8
        for (int64_t row = begin; row < end; row++) {
            C x = element<T>::load(((const T *)job.x)[row * job.n + column]);
            C g = element<T>::load(((const T *)job.g)[row * job.n + column]);
            C h = (x - (C)job.stats[2 * row]) * (C)job.stats[2 * row + 1];
            weight_sum = fma(g, h, weight_sum);
            bias_sum += g;
        }
        to[0] = weight_sum;
        to[job.n] = bias_sum;
    }
};

/* The sums of all pieces, in order: 32 columns of weight, then of bias, side by side. */
template <class T> struct row_columns_finish {
    using C = typename element<T>::compute;
    static constexpr uint32_t width = 32, levels = ELEMENT_BLOCK / width;

    static __device__ void run(const row_job &job, uint32_t tile) {
        __shared__ double shared[ELEMENT_BLOCK];
        const uint32_t level = threadIdx.x / width;
        const int64_t output = (int64_t)tile * width + threadIdx.x % width, outputs = 2 * job.n;
        const C *from = (const C *)job.sums + output;
        double sum = 0;

        if (output < outputs)
#pragma unroll 8
            for (uint32_t piece = level; piece < job.pieces; piece += levels)
                sum += (double)from[piece * outputs];
        __syncthreads(); /* the sums of the tile before are read */
        shared[threadIdx.x] = sum;
        __syncthreads();
        if (level > 0 || output >= outputs)
            return;
        for (uint32_t i = 1; i < levels; i++)
            sum += shared[threadIdx.x + i * width];
        T *to = (T *)(output < job.n ? job.grad_weight : job.grad_bias);
        if (to)
            to[output < job.n ? output : output - job.n] = element<T>::round(sum);
    }
};

#endif
