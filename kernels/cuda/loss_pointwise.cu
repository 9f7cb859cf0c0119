/*
 * mse_loss and binary_cross_entropy_with_logits: a block does LOSS_PIECE elements, a vector at a
 * time, and stores what comes of them or leaves their sum.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/loss.h"

struct pointwise_job {
    const void *x, *target, *weight, *pos_weight, *g; /* NULL where there is none */
    void *out[2];                                     /* y, or the gradients; NULL: not wanted */
    double *partials; /* NULL: y is of x's shape, or it is backward */
    int64_t n;
    double scale; /* backward: of g */
    uint32_t first_tile, ndims;
    bool bce, each, aligned;
    struct shape_dim dim[XOP_MAX_RANK]; /* of weight and pos_weight */
};

static __device__ inline float pointwise_exp(float x) { return expf(x); }
static __device__ inline double pointwise_exp(double x) { return exp(x); }
static __device__ inline float pointwise_log1p(float x) { return log1pf(x); }
static __device__ inline double pointwise_log1p(double x) { return log1p(x); }

/* Of sigmoid(x), and log(1 + exp(-x)). */
template <class C> struct pointwise_logit {
    C sigmoid, softplus;
    __device__ explicit pointwise_logit(C x) {
        C e = pointwise_exp(x < 0 ? x : -x);
        sigmoid = (x < 0 ? e : 1) / (1 + e);
        softplus = pointwise_log1p(e) + (x < 0 ? -x : 0);
    }
};

template <class T> struct pointwise_task {
    using V = vector<T>;
    using C = typename V::compute;

    static __device__ void weights(const pointwise_job &job, int64_t i, C *weight, C *pos_weight) {
        int64_t at = 0, pos_at = 0;
        *weight = *pos_weight = 1;
        if (!job.weight && !job.pos_weight)
            return;
        for (uint32_t d = job.ndims; d-- > 0;) {
            element_quotient split = element_divide(i, job.dim[d].size);
            at += split.rest * job.dim[d].stride_x;
            pos_at += split.rest * job.dim[d].stride_b;
            i = split.quotient;
        }
        if (job.weight)
            *weight = element<T>::load(((const T *)job.weight)[at]);
        if (job.pos_weight)
            *pos_weight = element<T>::load(((const T *)job.pos_weight)[pos_at]);
    }

    static __device__ C loss(const pointwise_job &job, int64_t i, C x, C t) {
        C weight, pos_weight;
        if (!job.bce)
            return (x - t) * (x - t);
        weights(job, i, &weight, &pos_weight);
        return weight * ((1 - t) * x + (1 + (pos_weight - 1) * t) * pointwise_logit<C>(x).softplus);
    }

    /* In place of x and t. */
    static __device__ void gradients(const pointwise_job &job, int64_t i, C g, C &x, C &t) {
        C weight, pos_weight;
        if (!job.bce) {
            x = 2 * ((x - t) * g);
            t = -x;
            return;
        }
        weights(job, i, &weight, &pos_weight);
        const pointwise_logit<C> logit(x);
        const C change = (pos_weight - 1) * logit.softplus - x;
        g *= weight;
        x = g * ((1 + (pos_weight - 1) * t) * logit.sigmoid - pos_weight * t);
        t = g * change;
    }

    static __device__ uint4 load(const pointwise_job &job, const void *from, int64_t at,
                                 int count) {
        return V::load((const T *)from + at, count, job.aligned);
    }

    static __device__ void run(const pointwise_job &job, uint32_t tile) {
        const int64_t first = (int64_t)tile * LOSS_PIECE;
        const int64_t end = first + LOSS_PIECE < job.n ? first + LOSS_PIECE : job.n;
        C sum = 0;

        for (int64_t at = first + (int64_t)threadIdx.x * V::size; at < end;
             at += ELEMENT_BLOCK * V::size) {
            const int count = end - at < V::size ? (int)(end - at) : V::size;
            C x[V::size], t[V::size], g[V::size];
            V::unpack(load(job, job.x, at, count), x);
            V::unpack(load(job, job.target, at, count), t);
            if (job.g) {
                if (job.each)
                    V::unpack(load(job, job.g, at, count), g);
                const C one = job.each ? C(0) : element<T>::load(*(const T *)job.g);
#pragma unroll
                for (int k = 0; k < V::size; k++)
                    if (k < count)
                        gradients(job, at + k, (job.each ? g[k] : one) * (C)job.scale, x[k], t[k]);
            } else {
#pragma unroll
                for (int k = 0; k < V::size; k++)
                    x[k] = k < count ? loss(job, at + k, x[k], t[k]) : C(0);
            }
            if (job.partials)
                sum += row_add_up(x);
            else if (job.out[0])
                V::store((T *)job.out[0] + at, count, job.aligned, V::pack(x));
            if (job.out[1])
                V::store((T *)job.out[1] + at, count, job.aligned, V::pack(t));
        }
        if (job.partials)
            loss_partial(job.partials, tile, sum, 0);
    }
};
struct pointwise_family {
    using job = pointwise_job;
    template <class T> using task = pointwise_task<T>;
};

/* ---- Launches ---- */

static pointwise_job job_of(const struct xop_call *call, enum loss_pointwise_kind kind,
                            bool backward) {
    const enum loss_reduction reduction = loss_reduction(call);
    pointwise_job job = {};
    struct shape_map map;

    job.x = call->in[LOSS_X].data;
    job.target = call->in[LOSS_TARGET].data;
    job.bce = kind == LOSS_BCE;
    job.each = reduction == LOSS_NONE;
    job.n = xop_elements(&call->in[LOSS_X]);
    job.scale = reduction == LOSS_MEAN ? 1 / (double)job.n : 1;
    if (job.bce) {
        job.weight = call->in[LOSS_WEIGHT].data;
        job.pos_weight = call->in[LOSS_POS_WEIGHT].data;
        loss_pointwise_weights(call, &map);
        job.ndims = map.ndims;
        for (uint32_t i = 0; i < map.ndims; i++)
            job.dim[i] = map.dim[i];
    }
    if (backward) {
        job.g = call->in[LOSS_GRAD_Y(kind)].data;
        job.out[1] = call->out[1].data;
    }
    if (backward || job.each)
        job.out[0] = call->out[0].data;
    else
        job.partials = (double *)call->workspace;
    const void *const operands[] = {job.x, job.target, job.each ? job.g : NULL, job.out[0],
                                    job.out[1]};
    job.aligned = true;
    for (const void *operand : operands)
        job.aligned = job.aligned && element_aligned(operand);
    return job;
}

static bool is_wanted(const struct xop_call *call, bool backward) {
    return call->out[0].data || (backward && call->out[1].data);
}

static enum xop_status run(const struct xop_launch *launch, enum loss_pointwise_kind kind,
                           bool backward, struct xop_error *error) {
    const enum xop_dtype dtype = launch->calls[0].in[LOSS_X].dtype;
    table_builder<pointwise_family> all(launch, dtype, error);
    table_builder<loss_finish_family> ends(launch, dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        pointwise_job job = job_of(&launch->calls[i], kind, backward);
        if (is_wanted(&launch->calls[i], backward) && job.n > 0)
            all.add(job, (uint64_t)loss_pieces(job.n));
    }
    enum xop_status status = all.finish();
    for (uint32_t i = 0; !backward && status == XOP_OK && i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        const enum loss_reduction reduction = loss_reduction(call);
        loss_finish_job job = {};
        if (!call->out[0].data || reduction == LOSS_NONE)
            continue;
        const int64_t n = xop_elements(&call->in[LOSS_X]);
        job.partials = (const double *)call->workspace;
        job.out = call->out[0].data;
        job.pieces = loss_pieces(n);
        job.divisor = reduction == LOSS_MEAN ? (double)n : 1; /* 0 / 0 where there are none */
        ends.add(job, 1);
    }
    return status == XOP_OK ? ends.finish() : status;
}

#define POINTWISE(name, kind)                                                                      \
    enum xop_status name##_cuda_forward(const struct xop_launch *launch,                           \
                                        struct xop_error *error) {                                 \
        return run(launch, kind, false, error);                                                    \
    }                                                                                              \
    enum xop_status name##_cuda_backward(const struct xop_launch *launch,                          \
                                         struct xop_error *error) {                                \
        return run(launch, kind, true, error);                                                     \
    }
POINTWISE(mse_loss, LOSS_MSE)
POINTWISE(binary_cross_entropy_with_logits, LOSS_BCE)

enum xop_status loss_pointwise_preload(struct xop_error *error) {
    enum xop_status status = table_builder<pointwise_family>::preload(error);
    return status == XOP_OK ? table_builder<loss_finish_family>::preload(error) : status;
}
