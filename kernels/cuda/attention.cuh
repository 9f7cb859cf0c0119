/*
 * attention: a block computes some columns of a block of rows of a result, tile of scores by tile.
 * Scores are products of slices that are brought to shared memory; the softmax is carried along in
 * registers. f16 and bf16 are computed in f32. Which thread adds what, and when, follows from the
 * shape alone.
 *
 * Eight neighbouring threads have a row of a tile, each every eighth column of it.
 */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include "kernels/attention.h"
#include "kernels/cuda/table.cuh"

#define ATTENTION_TILE 32  /* queries, and keys, of a tile */
#define ATTENTION_SLICE 64 /* columns of what is multiplied, and of a result */
#define ATTENTION_TEAM 8   /* threads of a row */
#define ATTENTION_SCORES (ATTENTION_TILE / ATTENTION_TEAM) /* of a thread */
#define ATTENTION_CELLS (ATTENTION_SLICE / ATTENTION_TEAM) /* of a result, of a thread */
static_assert(ATTENTION_TILE * ATTENTION_TEAM == ELEMENT_BLOCK, "a thread has one row");

struct attention_job {
    const void *query, *key, *value, *grad_y;
    void *out;     /* of the task */
    double *stats; /* of each query */
    struct attention_plan plan;
    uint32_t first_tile;
};

/* What a block shares. Rows are padded, so that columns lie in different banks. */
template <class C> struct attention_shared {
    C left[ATTENTION_TILE][ATTENTION_SLICE + 1], right[ATTENTION_TILE][ATTENTION_SLICE + 1];
    C tile[ATTENTION_TILE][ATTENTION_TILE + 1];
};

/* Rows of one head of an operand. */
template <class T> struct attention_rows {
    const T *data;
    int64_t n, width;

    __device__ attention_rows(const void *base, int64_t head, int64_t height, int64_t its_width,
                              int64_t first)
        : data((const T *)base + (head * height + first) * its_width), n(height - first),
          width(its_width) {
        if (n > ATTENTION_TILE)
            n = ATTENTION_TILE;
    }
};

/* Where a tile of scores is. Heads are counted over all samples. */
struct attention_place {
    int64_t head, key_head, query, key;
};

/* A thread's row and first column of a tile. */
static __device__ inline int attention_row() { return (int)(threadIdx.x / ATTENTION_TEAM); }
static __device__ inline int attention_column() { return (int)(threadIdx.x % ATTENTION_TEAM); }

template <class T> struct attention_tiles {
    using C = typename element<T>::compute;
    typedef attention_shared<C> shared;

    /* Columns from `from` on; 0 where there are none. */
    static __device__ void bring(C (*to)[ATTENTION_SLICE + 1], const attention_rows<T> &rows,
                                 int64_t from) {
        for (int i = threadIdx.x; i < ATTENTION_TILE * ATTENTION_SLICE; i += ELEMENT_BLOCK) {
            int row = i / ATTENTION_SLICE, column = i % ATTENTION_SLICE;
            bool there = row < rows.n && from + column < rows.width;
            to[row][column] =
                there ? element<T>::load(rows.data[row * rows.width + from + column]) : C(0);
        }
    }

    /* The thread's elements of a b^T. All threads call it. */
    static __device__ void multiply(shared &s, const attention_rows<T> &a,
                                    const attention_rows<T> &b, C (&out)[ATTENTION_SCORES]) {
#pragma unroll
        for (int k = 0; k < ATTENTION_SCORES; k++)
            out[k] = 0;
        for (int64_t from = 0; from < a.width; from += ATTENTION_SLICE) {
            __syncthreads(); /* what was there before is read */
            bring(s.left, a, from);
            bring(s.right, b, from);
            __syncthreads();
            for (int d = 0; d < ATTENTION_SLICE; d++) {
                const C left = s.left[attention_row()][d];
#pragma unroll
                for (int k = 0; k < ATTENTION_SCORES; k++)
                    out[k] = fma(left, s.right[attention_column() + k * ATTENTION_TEAM][d], out[k]);
            }
        }
    }

    /* Leaves the thread's elements of a tile for all. Whoever reads it synchronises first. */
    static __device__ void leave(shared &s, const C (&value)[ATTENTION_SCORES]) {
        __syncthreads(); /* the tile before is read */
#pragma unroll
        for (int k = 0; k < ATTENTION_SCORES; k++)
            s.tile[attention_row()][attention_column() + k * ATTENTION_TEAM] = value[k];
    }

    /* The thread's cells of tile b, or tile^T b, are added to what it has. b's columns are those
     * from `from` on. */
    static __device__ void accumulate(shared &s, bool transposed, const attention_rows<T> &b,
                                      int64_t from, C (&cells)[ATTENTION_CELLS]) {
        bring(s.right, b, from);
        __syncthreads();
        for (int i = 0; i < ATTENTION_TILE; i++) {
            const C weight = transposed ? s.tile[i][attention_row()] : s.tile[attention_row()][i];
#pragma unroll
            for (int k = 0; k < ATTENTION_CELLS; k++)
                cells[k] =
                    fma(weight, s.right[i][attention_column() + k * ATTENTION_TEAM], cells[k]);
        }
        __syncthreads(); /* before another brings what comes next */
    }

    /* The thread's cells, multiplied, as elements of the result. */
    static __device__ void finish(const attention_job &job, int64_t head, int64_t height,
                                  int64_t width, int64_t first, int64_t from,
                                  const C (&cells)[ATTENTION_CELLS], C factor) {
        const int64_t row = first + attention_row();
        T *out = (T *)job.out + (head * height + row) * width;
#pragma unroll
        for (int k = 0; k < ATTENTION_CELLS; k++) {
            int64_t column = from + attention_column() + k * ATTENTION_TEAM;
            if (row < height && column < width)
                out[column] = element<T>::store(cells[k] * factor);
        }
    }

    static __device__ attention_rows<T> queries(const attention_job &job,
                                                const attention_place &at) {
        return attention_rows<T>(job.query, at.head, job.plan.queries, job.plan.width, at.query);
    }
    static __device__ attention_rows<T> keys(const attention_job &job, const attention_place &at) {
        return attention_rows<T>(job.key, at.key_head, job.plan.keys, job.plan.width, at.key);
    }
    static __device__ attention_rows<T> values(const attention_job &job,
                                               const attention_place &at) {
        return attention_rows<T>(job.value, at.key_head, job.plan.keys, job.plan.value_width,
                                 at.key);
    }
    static __device__ attention_rows<T> grads(const attention_job &job, const attention_place &at) {
        return attention_rows<T>(job.grad_y, at.head, job.plan.queries, job.plan.value_width,
                                 at.query);
    }

    /* Whether the thread's query sees the k-th of its keys. */
    static __device__ bool sees(const attention_job &job, const attention_place &at, int k) {
        int64_t query = at.query + attention_row();
        int64_t key = at.key + attention_column() + k * ATTENTION_TEAM;
        return query < job.plan.queries && key < job.plan.keys &&
               (!job.plan.causal || key <= query);
    }

    /* Whether any query of the tile sees a key of it. */
    static __device__ bool any(const attention_job &job, const attention_place &at) {
        return at.key < job.plan.keys && at.query < job.plan.queries &&
               (!job.plan.causal || at.key < at.query + ATTENTION_TILE);
    }

    /* The thread's scores; -inf where a key is not seen. */
    static __device__ void scores(shared &s, const attention_job &job, const attention_place &at,
                                  C (&score)[ATTENTION_SCORES]) {
        multiply(s, queries(job, at), keys(job, at), score);
#pragma unroll
        for (int k = 0; k < ATTENTION_SCORES; k++)
            score[k] = sees(job, at, k) ? score[k] * (C)job.plan.scale : -(C)INFINITY;
    }

    /* The softmax of a tile and, with `grads`, the gradients of its scores, of queries whose stats
     * are known. */
    static __device__ void weights(shared &s, const attention_job &job, const attention_place &at,
                                   C (&weight)[ATTENTION_SCORES], bool with_grads,
                                   C (&grad)[ATTENTION_SCORES]) {
        const int64_t query = at.query + attention_row();
        C sum = 0, mean = 0;
        scores(s, job, at, weight);
        if (with_grads)
            multiply(s, grads(job, at), values(job, at), grad);
        if (query < job.plan.queries) {
            const double *stats = job.stats + 2 * (at.head * job.plan.queries + query);
            sum = (C)stats[0];
            mean = (C)stats[1];
        }
#pragma unroll
        for (int k = 0; k < ATTENTION_SCORES; k++) {
            weight[k] = sees(job, at, k) ? exp(weight[k] - sum) : C(0);
            grad[k] = with_grads && sees(job, at, k)
                          ? weight[k] * (grad[k] - mean) * (C)job.plan.scale
                          : C(0);
        }
    }
};

/* Over the threads of a row, in each of them. */
template <class C> static __device__ C attention_sum(C value) {
    for (int step = ATTENTION_TEAM / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}
/* NaN is passed over. */
template <class C> static __device__ C attention_most(C value) {
    for (int step = ATTENTION_TEAM / 2; step > 0; step /= 2)
        value = max(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}

/* A row's softmax that is carried along: the largest score, the sum of exponentials, and in
 * backward that of their products with G; each of the row's threads has all of it. */
template <class C> struct attention_carried {
    C most, sum, product;

    __device__ attention_carried() : most(-(C)INFINITY), sum(0), product(0) {}

    /* Makes scores exponentials; returns what those of the tiles before are multiplied by. */
    __device__ C carry(C (&score)[ATTENTION_SCORES]) {
        C before = most, added = 0;
#pragma unroll
        for (int k = 0; k < ATTENTION_SCORES; k++)
            most = max(most, score[k]);
        most = attention_most(most);
        const C shift = most == -(C)INFINITY ? C(0) : most;
#pragma unroll
        for (int k = 0; k < ATTENTION_SCORES; k++) {
            score[k] = exp(score[k] - shift);
            added += score[k];
        }
        const C factor = exp(before - shift);
        sum = sum * factor + attention_sum(added);
        return factor;
    }
};

/* Which part of a result a block computes: columns of a block of rows of a head. */
struct attention_unit {
    int64_t head, first, from;
    __device__ attention_unit(uint32_t tile, int64_t height, int64_t width) {
        element_quotient split = element_divide(tile, (width - 1) / ATTENTION_SLICE + 1);
        from = split.rest * ATTENTION_SLICE;
        split = element_divide(split.quotient, (height - 1) / ATTENTION_TILE + 1);
        first = split.rest * ATTENTION_TILE;
        head = split.quotient;
    }
};

static __device__ inline int64_t attention_key_head(const attention_job &job, int64_t head) {
    return job.plan.keys > 0 ? element_divide(head, job.plan.heads / job.plan.key_heads).quotient
                             : 0;
}

template <class T> struct attention_forward {
    static __device__ void run(const attention_job &job, uint32_t tile) {
        using tiles = attention_tiles<T>;
        using C = typename tiles::C;
        __shared__ typename tiles::shared s;
        const attention_unit unit(tile, job.plan.queries, job.plan.value_width);
        attention_place at = {unit.head, attention_key_head(job, unit.head), unit.first, 0};
        attention_carried<C> carried;
        C score[ATTENTION_SCORES], cells[ATTENTION_CELLS] = {};

        for (; tiles::any(job, at); at.key += ATTENTION_TILE) {
            tiles::scores(s, job, at, score);
            const C factor = carried.carry(score);
#pragma unroll
            for (int k = 0; k < ATTENTION_CELLS; k++)
                cells[k] *= factor;
            tiles::leave(s, score);
            tiles::accumulate(s, false, tiles::values(job, at), unit.from, cells);
        }
        tiles::finish(job, unit.head, job.plan.queries, job.plan.value_width, unit.first, unit.from,
                      cells, job.plan.keys > 0 ? 1 / carried.sum : C(0));
    }
};

/* Of each query, what backward needs to find its weights and their gradients. */
template <class T> struct attention_stats {
    static __device__ void run(const attention_job &job, uint32_t tile) {
        using tiles = attention_tiles<T>;
        using C = typename tiles::C;
        __shared__ typename tiles::shared s;
        const attention_unit unit(tile, job.plan.queries, 1);
        attention_place at = {unit.head, attention_key_head(job, unit.head), unit.first, 0};
        attention_carried<C> carried;
        C score[ATTENTION_SCORES], grad[ATTENTION_SCORES];

        for (; tiles::any(job, at); at.key += ATTENTION_TILE) {
            C product = 0;
            tiles::scores(s, job, at, score);
            tiles::multiply(s, tiles::grads(job, at), tiles::values(job, at), grad);
            const C factor = carried.carry(score);
#pragma unroll
            for (int k = 0; k < ATTENTION_SCORES; k++)
                if (tiles::sees(job, at, k))
                    product = fma(score[k], grad[k], product);
            carried.product = carried.product * factor + attention_sum(product);
        }
        const int64_t query = unit.first + attention_row();
        if (query < job.plan.queries && attention_column() == 0) {
            double *stats = job.stats + 2 * (unit.head * job.plan.queries + query);
            stats[0] = (double)(carried.most + log(carried.sum));
            stats[1] = (double)(carried.product / carried.sum);
        }
    }
};

template <class T> struct attention_grad_query {
    static __device__ void run(const attention_job &job, uint32_t tile) {
        using tiles = attention_tiles<T>;
        using C = typename tiles::C;
        __shared__ typename tiles::shared s;
        const attention_unit unit(tile, job.plan.queries, job.plan.width);
        attention_place at = {unit.head, attention_key_head(job, unit.head), unit.first, 0};
        C weight[ATTENTION_SCORES], grad[ATTENTION_SCORES], cells[ATTENTION_CELLS] = {};

        for (; tiles::any(job, at); at.key += ATTENTION_TILE) {
            tiles::weights(s, job, at, weight, true, grad);
            tiles::leave(s, grad);
            tiles::accumulate(s, false, tiles::keys(job, at), unit.from, cells);
        }
        tiles::finish(job, unit.head, job.plan.queries, job.plan.width, unit.first, unit.from,
                      cells, C(1));
    }
};

/* grad_key, or grad_value: sums over the queries of all heads that share a head of keys. */
template <class T, bool VALUE>
static __device__ void attention_shared_grad(const attention_job &job, uint32_t tile) {
    using tiles = attention_tiles<T>;
    using C = typename tiles::C;
    __shared__ typename tiles::shared s;
    const int64_t width = VALUE ? job.plan.value_width : job.plan.width;
    const int64_t group = job.plan.heads / job.plan.key_heads;
    const attention_unit unit(tile, job.plan.keys, width);
    attention_place at = {unit.head * group, unit.head, 0, unit.first};
    C weight[ATTENTION_SCORES], grad[ATTENTION_SCORES], cells[ATTENTION_CELLS] = {};

    for (; at.head < (unit.head + 1) * group; at.head++)
        for (at.query = 0; at.query < job.plan.queries; at.query += ATTENTION_TILE) {
            if (!tiles::any(job, at))
                continue;
            tiles::weights(s, job, at, weight, !VALUE, grad);
            tiles::leave(s, VALUE ? weight : grad);
            tiles::accumulate(s, true, VALUE ? tiles::grads(job, at) : tiles::queries(job, at),
                              unit.from, cells);
        }
    tiles::finish(job, unit.head, job.plan.keys, width, unit.first, unit.from, cells, C(1));
}

template <class T> struct attention_grad_key {
    static __device__ void run(const attention_job &job, uint32_t tile) {
        attention_shared_grad<T, false>(job, tile);
    }
};
template <class T> struct attention_grad_value {
    static __device__ void run(const attention_job &job, uint32_t tile) {
        attention_shared_grad<T, true>(job, tile);
    }
};

#endif
