/*
 * What kernels over rows share. A row of up to ROW_KEPT_BYTES is kept in the registers of `lanes`
 * neighbouring threads, so that each of its elements is read and written once; a block does as many
 * rows at a time as it has threads for. Longer rows are walked by a whole block, several times.
 *
 * Which thread has which elements, and the order of every sum, follow from the row's length and
 * dtype alone; where a row cannot be loaded in vectors, because of its length or its address, the
 * same elements are gathered one by one.
 */
#ifndef KERNELS_CUDA_ROW_CUH
#define KERNELS_CUDA_ROW_CUH

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table.cuh"
#include "kernels/row.h"

#define ROW_VECTORS (ROW_KEPT_BYTES / 16 / ELEMENT_BLOCK) /* of a row that a thread keeps */
#define ROW_FEW_LANES 4                                   /* of a short row: 64 bytes together */

enum row_flags {
    ROW_ALIGNED = 1, /* rows begin, and end, at multiples of 16 bytes in every operand */
    ROW_LOG = 2,     /* log_softmax */
    ROW_CENTERED = 4 /* layer_norm */
};

/* Of any kernel over rows; each says which members it uses. */
struct row_job {
    const void *x, *g, *weight, *bias; /* backward of softmax: x is y. weight, bias: or NULL */
    void *out;                         /* y or grad_x; NULL: not wanted */
    double *stats;                     /* mean and scale of each row */
    void *sums;                        /* of columns, in what is computed in, for each piece */
    void *grad_weight, *grad_bias;     /* or NULL */
    int64_t rows, n, inner;
    int64_t piece; /* rows of a piece */
    double eps;
    uint32_t first_tile, flags, lanes, pieces;
};

/* ---- Reductions over the threads of a row ---- */

struct row_add {
    template <class C> static __device__ C join(C a, C b) { return a + b; }
};
/* NaN is passed over. */
struct row_max {
    static __device__ float join(float a, float b) { return fmaxf(a, b); }
    static __device__ double join(double a, double b) { return fmax(a, b); }
};

/* Over `lanes` neighbouring threads, a power of two up to the block, in each of them. All threads
 * of the block call it. */
template <class OP, class C> static __device__ C row_reduce(C value, uint32_t lanes) {
    __shared__ C warps[ELEMENT_BLOCK / 32];
    for (uint32_t step = (lanes < 32 ? lanes : 32) / 2; step > 0; step /= 2)
        value = OP::join(value, __shfl_xor_sync(0xffffffffu, value, (int)step));
    if (lanes <= 32)
        return value;
    __syncthreads(); /* what the reduction before left is read */
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();
    const C *mine = warps + threadIdx.x / lanes * (lanes / 32);
    value = mine[0];
    for (uint32_t i = 1; i < lanes / 32; i++)
        value = OP::join(value, mine[i]);
    return value;
}

/* Over the threads `lanes` apart, of which there are ELEMENT_BLOCK / lanes, in each of them. */
template <class OP, class C> static __device__ C row_reduce_levels(C value, uint32_t lanes) {
    __shared__ C all[ELEMENT_BLOCK];
    __syncthreads();
    all[threadIdx.x] = value;
    for (uint32_t half = ELEMENT_BLOCK / 2; half >= lanes; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            all[threadIdx.x] = OP::join(all[threadIdx.x], all[threadIdx.x + half]);
    }
    __syncthreads();
    return all[threadIdx.x % lanes];
}

/* The sum of W values, by halves. */
template <int W, class C> static __device__ C row_add_up(const C (&value)[W]) {
    C part[W];
#pragma unroll
    for (int k = 0; k < W; k++)
        part[k] = value[k];
#pragma unroll
    for (int half = W / 2; half > 0; half /= 2)
#pragma unroll
        for (int k = 0; k < half; k++)
            part[k] += part[k + half];
    return part[0];
}

/* exp(d). For f16 and bf16 the device's own exponential does, whose relative error of 2^-21, and
 * 2^-22 |d| from rounding its argument, is a small part of half a unit in their last place. */
template <class T, class C> static __device__ C row_exp(C d) {
    if constexpr (sizeof(T) == 2)
        return __expf(d);
    else if constexpr (sizeof(C) == 4)
        return expf(d);
    else
        return exp(d);
}

static __device__ inline float row_log(float x) { return logf(x); }
static __device__ inline double row_log(double x) { return log(x); }

/* ---- Rows that are kept ---- */

/* A thread's part of a row: vectors lane, lane + lanes, ..., of which it keeps U. */
template <class T, int U> struct row_part {
    using V = vector<T>;
    using C = typename V::compute;
    uint32_t lane, lanes;
    int n; /* of the row; 0 where the thread has none */
    bool aligned;

    __device__ row_part(const row_job &job, bool active)
        : lane(threadIdx.x & (job.lanes - 1)), lanes(job.lanes), n(active ? (int)job.n : 0),
          aligned(job.flags & ROW_ALIGNED) {}

    __device__ int begin(int u) const { return (int)((lane + u * lanes) * V::size); }
    /* How many of vector u's elements there are; not above 0 where there are none. */
    __device__ int count(int u) const {
        int left = n - begin(u);
        return left < V::size ? left : V::size;
    }

    /* What is not there is 0. */
    __device__ void load(const T *row, uint4 (&raw)[U]) const {
        if (aligned) {
#pragma unroll
            for (int u = 0; u < U; u++)
                raw[u] =
                    begin(u) < n ? __ldcs((const uint4 *)(row + begin(u))) : make_uint4(0, 0, 0, 0);
        } else {
#pragma unroll
            for (int u = 0; u < U; u++)
                raw[u] = V::gather(row + begin(u), count(u));
        }
    }

    /* One vector of a parameter, which other rows need as well; `value` where there is none. */
    __device__ void parameter(const void *from, int u, C value, C (&to)[V::size]) const {
        const T *at = (const T *)from + begin(u);
        if (!from) {
#pragma unroll
            for (int k = 0; k < V::size; k++)
                to[k] = value;
        } else if (aligned) {
            V::unpack(begin(u) < n ? *(const uint4 *)at : make_uint4(0, 0, 0, 0), to);
        } else {
            V::unpack(V::gather(at, count(u)), to);
        }
    }

    __device__ void store(T *row, int u, const C (&value)[V::size]) const {
        if (count(u) > 0)
            V::store(row + begin(u), count(u), aligned, V::pack(value));
    }

    /* With `fill` for what is not there. */
    __device__ void unpack(uint4 raw, int u, C fill, C (&to)[V::size]) const {
        int there = count(u);
        V::unpack(raw, to);
        if (there < V::size)
#pragma unroll
            for (int k = 0; k < V::size; k++)
                to[k] = k < there ? to[k] : fill;
    }
};

/* ---- Rows that are walked ---- */

/* A thread's way through a row whose elements lie `inner` apart, W at a time (1 where inner is not
 * 1): `lanes` rows lie side by side, and the threads of one take turns. */
template <class T, int W> struct row_walk {
    using cell = reduce_cell<T, W>;
    using C = typename element<T>::compute;
    int64_t at, n, inner, step;
    int64_t first; /* of the thread's elements; n where it has no row */
    bool aligned;

    __device__ row_walk(const row_job &job, uint32_t tile) {
        const uint32_t lanes = job.lanes;
        element_quotient split = element_divide(tile, (job.inner - 1) / lanes + 1);
        int64_t column = split.rest * lanes + threadIdx.x % lanes;
        n = job.n;
        inner = job.inner;
        at = split.quotient * n * inner + column;
        step = (int64_t)(ELEMENT_BLOCK / lanes) * W;
        first = column < inner ? (int64_t)(threadIdx.x / lanes) * W : n;
        aligned = job.flags & ROW_ALIGNED;
    }
    __device__ int count(int64_t i) const { return n - i < W ? (int)(n - i) : W; }
    __device__ void load(const void *from, int64_t i, C fill, C (&to)[W]) const {
        cell::unpack(cell::load((const T *)from + at + i * inner, count(i), aligned), to);
#pragma unroll
        for (int k = 1; k < W; k++)
            to[k] = k < count(i) ? to[k] : fill;
    }
    __device__ void store(void *to, int64_t i, const C (&value)[W]) const {
        cell::store((T *)to + at + i * inner, count(i), aligned, cell::pack(value));
    }
};

/* ---- The host's side ---- */

/* Sets what a job of kept rows needs besides its operands; returns its tiles. U: vectors that a
 * thread keeps. */
static inline uint64_t row_keep(row_job *job, enum xop_dtype dtype, int64_t u) {
    int64_t width = (int64_t)(16 / xop_dtype_size(dtype)), vectors = (job->n - 1) / width + 1;
    uint32_t few = reduce_power(vectors, ROW_FEW_LANES);
    job->lanes = reduce_power((vectors - 1) / u + 1, ELEMENT_BLOCK);
    if (job->lanes < few)
        job->lanes = few;
    return (uint64_t)reduce_ceil(job->rows, ELEMENT_BLOCK / job->lanes);
}

/* The same for rows that are walked. */
static inline uint64_t row_walked(row_job *job) {
    job->lanes = reduce_power(job->inner, 32);
    return (uint64_t)job->rows * (uint64_t)reduce_ceil(job->inner, job->lanes);
}

static inline void row_align(row_job *job, enum xop_dtype dtype) {
    const void *const operands[] = {job->x, job->g, job->weight, job->bias, job->out};
    bool aligned = job->n * (int64_t)xop_dtype_size(dtype) % 16 == 0;
    for (const void *operand : operands)
        aligned = aligned && element_aligned(operand);
    if (aligned)
        job->flags |= ROW_ALIGNED;
}

#endif
