/*
 * softmax and log_softmax: rows that lie together and are not too long are kept in registers, each
 * element read and written once; others are walked twice, the first time with the largest so far
 * and a sum that is scaled whenever that grows.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row.cuh"
#include "kernels/cuda/row.h"

template <class T> struct softmax_forward {
    using V = vector<T>;
    using C = typename V::compute;

    static __device__ void run(const row_job &job, uint32_t tile) {
        const int64_t row = (int64_t)tile * (ELEMENT_BLOCK / job.lanes) + threadIdx.x / job.lanes;
        const row_part<T, ROW_VECTORS> part(job, row < job.rows);
        T *y = (T *)job.out + row * job.n;
        uint4 raw[ROW_VECTORS];
        C value[V::size], most = -(C)INFINITY, sum = 0;

        part.load((const T *)job.x + row * job.n, raw);
#pragma unroll
        for (int u = 0; u < ROW_VECTORS; u++) {
            part.unpack(raw[u], u, -(C)INFINITY, value);
#pragma unroll
            for (int k = 0; k < V::size; k++)
                most = row_max::join(most, value[k]);
        }
        most = row_reduce<row_max>(most, job.lanes);
#pragma unroll
        for (int u = 0; u < ROW_VECTORS; u++) {
            part.unpack(raw[u], u, -(C)INFINITY, value);
#pragma unroll
            for (int k = 0; k < V::size; k++)
                value[k] = row_exp<T>(value[k] - most);
            sum += row_add_up(value);
            /* In f16 and bf16 they would be rounded; there they are computed again. */
            if (sizeof(T) > 2 && !(job.flags & ROW_LOG))
                raw[u] = V::pack(value);
        }
        sum = row_reduce<row_add>(sum, job.lanes);
        if (job.flags & ROW_LOG) {
            const C log_sum = row_log(sum);
#pragma unroll
            for (int u = 0; u < ROW_VECTORS; u++) {
                V::unpack(raw[u], value);
#pragma unroll
                for (int k = 0; k < V::size; k++)
                    value[k] = value[k] - most - log_sum;
                part.store(y, u, value);
            }
        } else {
            const C scale = 1 / sum;
#pragma unroll
            for (int u = 0; u < ROW_VECTORS; u++) {
                V::unpack(raw[u], value);
#pragma unroll
                for (int k = 0; k < V::size; k++)
                    value[k] = (sizeof(T) > 2 ? value[k] : row_exp<T>(value[k] - most)) * scale;
                part.store(y, u, value);
            }
        }
    }
};

/* What backward sums over a row, and what it makes of an element with the sum. */
template <class C, int W>
static __device__ C softmax_term(const C (&y)[W], const C (&g)[W], bool is_log) {
    C term[W];
#pragma unroll
    for (int k = 0; k < W; k++)
        term[k] = is_log ? g[k] : y[k] * g[k];
    return row_add_up(term);
}

template <class C, int W>
static __device__ void softmax_gradient(C (&y)[W], const C (&g)[W], C sum, bool is_log) {
#pragma unroll
    for (int k = 0; k < W; k++)
        y[k] = is_log ? g[k] - row_exp<C>(y[k]) * sum : y[k] * (g[k] - sum);
}

template <class T> struct softmax_backward {
    using V = vector<T>;
    using C = typename V::compute;

    static __device__ void run(const row_job &job, uint32_t tile) {
        const int64_t row = (int64_t)tile * (ELEMENT_BLOCK / job.lanes) + threadIdx.x / job.lanes;
        const row_part<T, ROW_VECTORS> part(job, row < job.rows);
        const bool is_log = job.flags & ROW_LOG;
        uint4 raw_y[ROW_VECTORS], raw_g[ROW_VECTORS];
        C y[V::size], g[V::size], sum = 0;

        part.load((const T *)job.x + row * job.n, raw_y);
        part.load((const T *)job.g + row * job.n, raw_g);
#pragma unroll
        for (int u = 0; u < ROW_VECTORS; u++) {
            V::unpack(raw_y[u], y); /* 0 where there is none, and so is the term */
            V::unpack(raw_g[u], g);
            sum += softmax_term(y, g, is_log);
        }
        sum = row_reduce<row_add>(sum, job.lanes);
#pragma unroll
        for (int u = 0; u < ROW_VECTORS; u++) {
            V::unpack(raw_y[u], y);
            V::unpack(raw_g[u], g);
            softmax_gradient(y, g, sum, is_log);
            part.store((T *)job.out + row * job.n, u, y);
        }
    }
};

/* ---- Rows that are walked ---- */

#define WALK_UNROLL 4 /* accesses that a thread has in flight */

template <class T> struct softmax_walk_forward {
    using C = typename element<T>::compute;

    /* What exponentials are relative to: the largest, but a number where there is only -inf. */
    static __device__ C reference(C most) { return most == -(C)INFINITY ? C(0) : most; }

    template <int W> static __device__ void walk(const row_job &job, uint32_t tile) {
        const row_walk<T, W> way(job, tile);
        const bool is_log = job.flags & ROW_LOG;
        C most = -(C)INFINITY, sum = 0;

        for (int64_t i = way.first; i < way.n; i += WALK_UNROLL * way.step) {
            C value[WALK_UNROLL][W], larger = most;
#pragma unroll
            for (int u = 0; u < WALK_UNROLL; u++) {
                if (i + u * way.step < way.n)
                    way.load(job.x, i + u * way.step, -(C)INFINITY, value[u]);
                else
#pragma unroll
                    for (int k = 0; k < W; k++)
                        value[u][k] = -(C)INFINITY;
            }
#pragma unroll
            for (int u = 0; u < WALK_UNROLL; u++)
#pragma unroll
                for (int k = 0; k < W; k++)
                    larger = row_max::join(larger, value[u][k]);
            sum *= row_exp<T>(most - reference(larger));
            most = larger;
#pragma unroll
            for (int u = 0; u < WALK_UNROLL; u++) {
#pragma unroll
                for (int k = 0; k < W; k++)
                    value[u][k] = row_exp<T>(value[u][k] - reference(most));
                sum += row_add_up(value[u]);
            }
        }
        C largest = row_reduce_levels<row_max>(most, job.lanes);
        sum *= row_exp<T>(most - reference(largest));
        sum = row_reduce_levels<row_add>(sum, job.lanes);
        const C log_sum = row_log(sum), scale = 1 / sum;
        for (int64_t i = way.first; i < way.n; i += WALK_UNROLL * way.step) {
            C value[WALK_UNROLL][W];
#pragma unroll
            for (int u = 0; u < WALK_UNROLL; u++)
                if (i + u * way.step < way.n)
                    way.load(job.x, i + u * way.step, C(0), value[u]);
#pragma unroll
            for (int u = 0; u < WALK_UNROLL; u++) {
                if (i + u * way.step >= way.n)
                    break;
#pragma unroll
                for (int k = 0; k < W; k++)
                    value[u][k] = is_log ? value[u][k] - largest - log_sum
                                         : row_exp<T>(value[u][k] - largest) * scale;
                way.store(job.out, i + u * way.step, value[u]);
            }
        }
    }

    static __device__ void run(const row_job &job, uint32_t tile) {
        if (job.inner == 1)
            walk<vector<T>::size>(job, tile);
        else
            walk<1>(job, tile);
    }
};

template <class T> struct softmax_walk_backward {
    using C = typename element<T>::compute;

    template <int W> static __device__ void walk(const row_job &job, uint32_t tile) {
        const row_walk<T, W> way(job, tile);
        const bool is_log = job.flags & ROW_LOG;
        C y[W], g[W], sum = 0;

#pragma unroll 4
        for (int64_t i = way.first; i < way.n; i += way.step) {
            way.load(job.x, i, C(0), y);
            way.load(job.g, i, C(0), g);
            sum += softmax_term(y, g, is_log);
        }
        sum = row_reduce_levels<row_add>(sum, job.lanes);
        for (int64_t i = way.first; i < way.n; i += way.step) {
            way.load(job.x, i, C(0), y);
            way.load(job.g, i, C(0), g);
            softmax_gradient(y, g, sum, is_log);
            way.store(job.out, i, y);
        }
    }

    static __device__ void run(const row_job &job, uint32_t tile) {
        if (job.inner == 1)
            walk<vector<T>::size>(job, tile);
        else
            walk<1>(job, tile);
    }
};

/* ---- Launches ---- */

struct softmax_forward_family {
    using job = row_job;
    template <class T> using task = softmax_forward<T>;
    template <class T> using walk = softmax_walk_forward<T>;
};
struct softmax_backward_family {
    using job = row_job;
    template <class T> using task = softmax_backward<T>;
    template <class T> using walk = softmax_walk_backward<T>;
};
template <class FAMILY> struct softmax_walk_family {
    using job = row_job;
    template <class T> using task = typename FAMILY::template walk<T>;
};

template <class FAMILY>
static enum xop_status run(const struct xop_launch *launch, bool is_log, bool backward,
                           struct xop_error *error) {
    enum xop_dtype dtype = launch->calls[0].in[0].dtype;
    table_builder<FAMILY> kept(launch, dtype, error);
    table_builder<softmax_walk_family<FAMILY>> walked(launch, dtype, error);
    enum xop_status status;

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        struct row_size size;
        row_job job = {};
        row_softmax_measure(call, &size);
        if (!call->out[0].data || size.n == 0)
            continue;
        job.x = call->in[0].data;
        job.g = backward ? call->in[ROW_SOFTMAX_GRAD_Y].data : NULL;
        job.out = call->out[0].data;
        job.rows = size.outer;
        job.n = size.n;
        job.inner = size.inner;
        job.flags = is_log ? ROW_LOG : 0;
        row_align(&job, dtype);
        if (row_kept(&size, dtype))
            kept.add(job, row_keep(&job, dtype, ROW_VECTORS));
        else
            walked.add(job, row_walked(&job));
    }
    status = kept.finish();
    return status == XOP_OK ? walked.finish() : status;
}

enum xop_status softmax_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run<softmax_forward_family>(launch, false, false, error);
}
enum xop_status softmax_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return run<softmax_backward_family>(launch, false, true, error);
}
enum xop_status log_softmax_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run<softmax_forward_family>(launch, true, false, error);
}
enum xop_status log_softmax_cuda_backward(const struct xop_launch *launch,
                                          struct xop_error *error) {
    return run<softmax_backward_family>(launch, true, true, error);
}

enum xop_status softmax_preload(struct xop_error *error) {
    enum xop_status (*const preload[])(struct xop_error *) = {
        table_builder<softmax_forward_family>::preload,
        table_builder<softmax_backward_family>::preload,
        table_builder<softmax_walk_family<softmax_forward_family>>::preload,
        table_builder<softmax_walk_family<softmax_backward_family>>::preload,
    };
    enum xop_status status = XOP_OK;
    for (auto one : preload)
        if (status == XOP_OK)
            status = one(error);
    return status;
}
