/*
 * Reductions over any dimensions. Where the innermost axis is kept, neighbouring threads fold
 * neighbouring outputs; where it is reduced, neighbouring threads take neighbouring terms of one.
 * Which thread takes which terms follows from the shape and dtype alone.
 *
 * There is one kernel for each type of element, which looks up the summary for a tile as a whole,
 * as the unary operators' do.
 */
#include "kernels/cuda/fold.h"

#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table.cuh"

#define FOLD_UNROLL 4 /* accesses that a thread has in flight */

enum fold_flags {
    FOLD_SIDE_BY_SIDE = 1, /* the innermost axis is kept */
    FOLD_VECTORS = 2,      /* the terms of an output lie together */
    FOLD_ALIGNED = 4       /* and each piece of them begins at a multiple of 16 bytes */
};

struct fold_job {
    const void *x, *y; /* y: for FOLD_TIES */
    fold_target to;
    int64_t reduced, piece;
    uint32_t first_tile, lanes, flags, nkept, nreduced;
    struct shape_axis kept[XOP_MAX_RANK], axis[XOP_MAX_RANK];
};

/* Over several axes. Out of line: each summary would have it inlined FOLD_UNROLL times otherwise,
 * and the divisions take the compiler minutes. */
static __device__ __noinline__ int64_t fold_offset_over(const struct shape_axis *axis, uint32_t n,
                                                        int64_t position) {
    int64_t offset = 0;
#pragma unroll 1
    for (uint32_t i = n; i-- > 1;) {
        element_quotient split = element_divide(position, axis[i].size);
        offset += split.rest * axis[i].stride;
        position = split.quotient;
    }
    return offset + position * axis[0].stride;
}

/* The offset in x of a position counted in C order over some axes. */
static __device__ int64_t fold_offset(const struct shape_axis *axis, uint32_t n, int64_t position) {
    if (n <= 1)
        return n > 0 ? position * axis[0].stride : 0;
    return fold_offset_over(axis, n, position);
}

template <class T> struct fold_task {
    using C = typename element<T>::compute;

    /* Terms first, first + step, ... before end, of the output whose elements begin at x. */
    template <enum fold_summary SUMMARY>
    static __device__ fold_parts scattered(const fold_job &job, const T *x, C y, int64_t first,
                                           int64_t end, int64_t step) {
        fold_of<SUMMARY, T> fold;
#pragma unroll 1
        for (int64_t t = first; t < end; t += FOLD_UNROLL * step) {
            C value[FOLD_UNROLL];
#pragma unroll
            for (int u = 0; u < FOLD_UNROLL; u++)
                if (t + u * step < end)
                    value[u] =
                        element<T>::load(x[fold_offset(job.axis, job.nreduced, t + u * step)]);
#pragma unroll
            for (int u = 0; u < FOLD_UNROLL; u++)
                if (t + u * step < end)
                    fold.add(value[u], y);
        }
        return fold.parts();
    }

    /* A thread's share of count terms that lie together, a vector at a time. */
    template <enum fold_summary SUMMARY>
    static __device__ fold_parts together(const fold_job &job, const T *x, C y, int64_t count,
                                          uint32_t lane) {
        using V = vector<T>;
        const int64_t step = (int64_t)job.lanes * V::size;
        const bool aligned = job.flags & FOLD_ALIGNED;
        fold_of<SUMMARY, T> fold;
#pragma unroll 1
        for (int64_t i = (int64_t)lane * V::size; i < count; i += FOLD_UNROLL * step) {
            uint4 raw[FOLD_UNROLL];
#pragma unroll
            for (int u = 0; u < FOLD_UNROLL; u++) {
                int64_t left = count - i - u * step;
                if (left > 0)
                    raw[u] =
                        V::load(x + i + u * step, left < V::size ? (int)left : V::size, aligned);
            }
            /* The terms of one vector are there once, as in unary.cuh: the others move up. */
#pragma unroll 1
            for (int64_t left = count - i, n = FOLD_UNROLL; left > 0 && n > 0; left -= step, n--) {
                C value[V::size];
                V::unpack(raw[0], value);
#pragma unroll
                for (int k = 0; k < V::size; k++)
                    if (k < left)
                        fold.add(value[k], y);
#pragma unroll
                for (int u = 0; u + 1 < FOLD_UNROLL; u++)
                    raw[u] = raw[u + 1];
            }
        }
        return fold.parts();
    }

    template <enum fold_summary SUMMARY>
    static __device__ void fold(const fold_job &job, uint32_t tile) {
        const bool apart = job.flags & FOLD_SIDE_BY_SIDE;
        const uint32_t lanes = job.lanes, others = ELEMENT_BLOCK / lanes;
        const uint32_t lane = apart ? threadIdx.x / lanes : threadIdx.x % lanes;
        const int64_t within = apart ? threadIdx.x % lanes : threadIdx.x / lanes;
        element_quotient split = element_divide(tile, job.to.pieces); /* outputs, and their piece */
        const int64_t output = split.quotient * (apart ? lanes : others) + within;
        const int64_t first = split.rest * job.piece;
        int64_t end = first + job.piece;
        fold_parts parts = fold_of<SUMMARY, T>().parts();

        if (end > job.reduced)
            end = job.reduced;
        if (output < job.to.outputs && first < end) {
            const T *x = (const T *)job.x + fold_offset(job.kept, job.nkept, output);
            C y = SUMMARY == FOLD_TIES ? element<T>::load(((const T *)job.y)[output]) : C(0);
            if (job.flags & FOLD_VECTORS)
                parts = together<SUMMARY>(job, x + first, y, end - first, lane);
            else
                parts = scattered<SUMMARY>(job, x, y, first + lane, end, apart ? others : lanes);
        }
        parts = fold_block<SUMMARY>(parts, lanes, apart);
        if (lane != 0 || output >= job.to.outputs)
            return;
        if (job.to.pieces == 1) {
            fold_finish<T>(job.to, output, parts);
        } else {
            fold_partial(job.to, 0, split.rest, output) = parts.a;
            fold_partial(job.to, 1, split.rest, output) = parts.b;
            fold_partial(job.to, 2, split.rest, output) = parts.c;
        }
    }

    static __device__ void run(const fold_job &job, uint32_t tile) {
#define FOLD_TILE(SUMMARY) fold<SUMMARY>(job, tile)
        FOLD_EACH(job.to.summary, FOLD_TILE)
#undef FOLD_TILE
    }
};

/* ---- Joining pieces ---- */

struct fold_join_job {
    fold_target to;
    uint32_t first_tile, lanes; /* threads of an output */
};

template <class T> struct fold_join_task {
    template <enum fold_summary SUMMARY>
    static __device__ void join(const fold_join_job &job, uint32_t tile) {
        const uint32_t lane = threadIdx.x % job.lanes;
        const int64_t output =
            (int64_t)tile * (ELEMENT_BLOCK / job.lanes) + threadIdx.x / job.lanes;
        const bool active = output < job.to.outputs;
        fold_parts parts = fold_of<SUMMARY, T>().parts();

        for (uint32_t piece = lane; active && piece < job.to.pieces; piece += job.lanes) {
            fold_parts other = {fold_partial(job.to, 0, piece, output),
                                fold_partial(job.to, 1, piece, output),
                                fold_partial(job.to, 2, piece, output)};
            fold_of<SUMMARY, T>::join(parts, other);
        }
        parts = fold_block<SUMMARY>(parts, job.lanes, false);
        if (active && lane == 0)
            fold_finish<T>(job.to, output, parts);
    }

    static __device__ void run(const fold_join_job &job, uint32_t tile) {
#define FOLD_TILE(SUMMARY) join<SUMMARY>(job, tile)
        FOLD_EACH(job.to.summary, FOLD_TILE)
#undef FOLD_TILE
    }
};

/* ---- Backward: grad_y spread over x's shape ---- */

struct fold_spread_job {
    const void *x, *y, *g; /* x, y: NULL where they are not read */
    void *out;
    const double *stats; /* or NULL */
    int64_t elements, outputs;
    double divisor;
    enum fold_kind kind;
    uint32_t first_tile, ndims;
    bool aligned;
    struct shape_dim dim[XOP_MAX_RANK];
};

#define FOLD_SPREAD_UNROLL 2
template <class T>
constexpr int fold_spread_tile = ELEMENT_BLOCK *FOLD_SPREAD_UNROLL * 16 / sizeof(T);

template <class T> struct fold_spread_task {
    using V = vector<T>;
    using C = typename V::compute;

    static __device__ C gradient(const fold_spread_job &job, C x, int64_t k) {
        const C g = element<T>::load(((const T *)job.g)[k]);
        const C y = job.y ? element<T>::load(((const T *)job.y)[k]) : C(0);
        const double a = job.stats ? job.stats[k] : 0;

        switch (job.kind) {
        case FOLD_MAX:
        case FOLD_MIN: return (x == y ? g : g * C(0)) / C(a);
        case FOLD_PROD: {
            const double zeros = job.stats[job.outputs + k];
            if (zeros == 0)
                return C(g * (a / x));
            return zeros == 1 && x == 0 ? C(g * a) : g * C(0);
        }
        case FOLD_LOGSUMEXP: return g * fold_exp<C>(x - y);
        case FOLD_VAR: return C(2 / job.divisor * g * (x - a));
        default: return g / C(job.divisor);
        }
    }

    static __device__ void run(const fold_spread_job &job, uint32_t tile) {
        const uint32_t inner = job.ndims > 0 ? job.ndims - 1 : 0;
        const int64_t size = job.ndims > 0 ? job.dim[inner].size : 1;
        const int64_t step = job.ndims > 0 ? job.dim[inner].stride_b : 0;
        const int64_t begin = (int64_t)tile * fold_spread_tile<T>;

#pragma unroll 1
        for (int u = 0; u < FOLD_SPREAD_UNROLL; u++) {
            int64_t at = begin + ((int64_t)u * ELEMENT_BLOCK + threadIdx.x) * V::size;
            int64_t left = job.elements - at;
            if (left <= 0)
                return;
            int count = left < V::size ? (int)left : V::size;
            C value[V::size] = {};
            if (job.x)
                V::unpack(V::load((const T *)job.x + at, count, job.aligned), value);
            element_quotient split = element_divide(at, size);
            int64_t row = split.quotient, within = split.rest, base = base_of(job, inner, row);
#pragma unroll
            for (int k = 0; k < V::size; k++) {
                if (k >= count)
                    break;
                if (within == size) {
                    within = 0;
                    base = base_of(job, inner, ++row);
                }
                value[k] = gradient(job, value[k], base + within * step);
                within++;
            }
            V::store((T *)job.out + at, count, job.aligned, V::pack(value));
        }
    }

    /* The first output of a row, counted over the dimensions outside the innermost. */
    static __device__ int64_t base_of(const fold_spread_job &job, uint32_t outer, int64_t row) {
        int64_t base = 0;
        for (uint32_t i = outer; i-- > 0;) {
            element_quotient split = element_divide(row, job.dim[i].size);
            base += split.rest * job.dim[i].stride_b;
            row = split.quotient;
        }
        return base;
    }
};

/* ---- Launches ---- */

struct fold_family {
    using job = fold_job;
    template <class T> using task = fold_task<T>;
};
struct fold_join_family {
    using job = fold_join_job;
    template <class T> using task = fold_join_task<T>;
};
struct fold_spread_family {
    using job = fold_spread_job;
    template <class T> using task = fold_spread_task<T>;
};

/* What a launch does, one after the other: each reads what those before it left. */
struct fold_work {
    table_builder<fold_family> folds;
    table_builder<fold_join_family> joins;
    table_builder<fold_spread_family> spreads;

    fold_work(const struct xop_launch *launch, enum xop_dtype dtype, struct xop_error *error)
        : folds(launch, dtype, error), joins(launch, dtype, error), spreads(launch, dtype, error) {}

    enum xop_status finish() {
        enum xop_status status = folds.finish();
        if (status == XOP_OK)
            status = joins.finish();
        return status == XOP_OK ? spreads.finish() : status;
    }
};

static uint64_t fold_tiles(fold_job *job, const struct shape_reduction *shape,
                           enum xop_dtype dtype) {
    const int64_t size = (int64_t)xop_dtype_size(dtype), width = 16 / size;
    const bool apart = shape->nkept > 0 && shape->kept[shape->nkept - 1].stride == 1;
    uint64_t groups;

    job->to.pieces = shape->partials;
    job->to.outputs = shape->outputs;
    job->reduced = shape->reduced;
    job->piece = shape->piece;
    job->nkept = shape->nkept;
    job->nreduced = shape->nreduced;
    for (uint32_t i = 0; i < shape->nkept; i++)
        job->kept[i] = shape->kept[i];
    for (uint32_t i = 0; i < shape->nreduced; i++)
        job->axis[i] = shape->axis[i];
    if (apart) {
        job->flags = FOLD_SIDE_BY_SIDE;
        job->lanes = reduce_power(shape->outputs, 32);
        groups = (uint64_t)reduce_ceil(shape->outputs, job->lanes);
    } else {
        if (shape->nreduced <= 1)
            job->flags = FOLD_VECTORS;
        if (element_aligned(job->x) && shape->reduced * size % 16 == 0 &&
            shape->piece * size % 16 == 0)
            job->flags |= FOLD_ALIGNED;
        job->lanes = reduce_power(
            shape->nreduced <= 1 ? (shape->piece - 1) / width + 1 : shape->piece, ELEMENT_BLOCK);
        groups = (uint64_t)reduce_ceil(shape->outputs, ELEMENT_BLOCK / job->lanes);
    }
    return groups * shape->partials;
}

static void fold_add(fold_work *work, const struct xop_call *call, enum fold_kind kind,
                     const struct fold_plan *plan, double *stats) {
    const enum xop_dtype dtype = call->in[FOLD_X].dtype;
    fold_job job = {};
    fold_join_job join = {};

    if (plan->shape.outputs == 0)
        return;
    job.x = call->in[FOLD_X].data;
    job.y = stats && fold_traits[kind].saved_y ? call->in[FOLD_Y].data : NULL;
    job.to.partial = (double *)call->workspace;
    job.to.stats = stats;
    job.to.out = call->out[0].data;
    job.to.divisor = plan->divisor;
    job.to.summary = stats ? fold_traits[kind].backward : fold_traits[kind].forward;
    work->folds.add(job, fold_tiles(&job, &plan->shape, dtype));
    if (plan->shape.partials == 1)
        return;
    join.to = job.to;
    join.lanes = reduce_power(plan->shape.partials, ELEMENT_BLOCK);
    work->joins.add(join, (uint64_t)reduce_ceil(plan->shape.outputs, ELEMENT_BLOCK / join.lanes));
}

static void fold_spread(fold_work *work, const struct xop_call *call, enum fold_kind kind,
                        const struct fold_plan *plan, const double *stats) {
    const struct fold_traits *traits = &fold_traits[kind];
    const enum xop_dtype dtype = call->in[FOLD_X].dtype;
    fold_spread_job job = {};

    job.x = traits->reads_x ? call->in[FOLD_X].data : NULL;
    job.y = traits->saved_y ? call->in[FOLD_Y].data : NULL;
    job.g = call->in[1 + traits->saved_y].data;
    job.out = call->out[0].data;
    job.stats = stats;
    job.elements = plan->spread.elements;
    job.outputs = plan->shape.outputs;
    job.divisor = plan->divisor;
    job.kind = kind;
    job.ndims = plan->spread.ndims;
    for (uint32_t i = 0; i < job.ndims; i++)
        job.dim[i] = plan->spread.dim[i];
    job.aligned = element_aligned(job.out) && (!job.x || element_aligned(job.x));
    work->spreads.add(job,
                      (uint64_t)reduce_ceil(job.elements, ELEMENT_BLOCK * FOLD_SPREAD_UNROLL * 16 /
                                                              (int64_t)xop_dtype_size(dtype)));
}

static enum xop_status fold_run(const struct xop_launch *launch, enum fold_kind kind,
                                enum xop_pass pass, struct xop_error *error) {
    fold_work work(launch, launch->calls[0].in[FOLD_X].dtype, error);
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const struct xop_call *call = &launch->calls[i];
        struct fold_plan plan;
        double *stats;

        if (!call->out[0].data)
            continue;
        /* No table may be launched because it is full before those that it builds on. A call whose
         * tiles do not fit beside those before it counts as well. */
        if (work.folds.full(UINT32_MAX / 2) || work.joins.full(UINT32_MAX / 2) ||
            work.spreads.full(UINT32_MAX / 2))
            status = work.finish();
        fold_measure(kind, pass, call, &plan);
        stats = pass == XOP_BACKWARD && fold_traits[kind].backward != FOLD_NOTHING
                    ? (double *)((char *)call->workspace + plan.stats_offset)
                    : NULL;
        if (pass == XOP_BACKWARD && plan.spread.elements == 0)
            continue;
        if (pass == XOP_FORWARD || stats)
            fold_add(&work, call, kind, &plan, stats);
        if (pass == XOP_BACKWARD)
            fold_spread(&work, call, kind, &plan, stats);
    }
    return status == XOP_OK ? work.finish() : status;
}

#define FOLD(name, kind)                                                                           \
    enum xop_status name##_cuda_forward(const struct xop_launch *launch,                           \
                                        struct xop_error *error) {                                 \
        return fold_run(launch, kind, XOP_FORWARD, error);                                         \
    }                                                                                              \
    enum xop_status name##_cuda_backward(const struct xop_launch *launch,                          \
                                         struct xop_error *error) {                                \
        return fold_run(launch, kind, XOP_BACKWARD, error);                                        \
    }
FOLD(sum, FOLD_SUM)
FOLD(mean, FOLD_MEAN)
FOLD(max, FOLD_MAX)
FOLD(min, FOLD_MIN)
FOLD(prod, FOLD_PROD)
FOLD(logsumexp, FOLD_LOGSUMEXP)
FOLD(var, FOLD_VAR)

enum xop_status fold_preload(struct xop_error *error) {
    enum xop_status status = table_builder<fold_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<fold_join_family>::preload(error);
    return status == XOP_OK ? table_builder<fold_spread_family>::preload(error) : status;
}
