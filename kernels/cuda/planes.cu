/*
 * group_norm and batch_norm: the launches.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/planes.cuh"
#include "kernels/cuda/planes.h"

struct planes_stats_family {
    using job = planes_job;
    template <class T> using task = planes_stats<T>;
};
struct planes_end_stats_family {
    using job = planes_job;
    template <class T> using task = planes_end_stats<T>;
};
struct planes_sums_family {
    using job = planes_job;
    template <class T> using task = planes_sums<T>;
};
struct planes_end_sums_family {
    using job = planes_job;
    template <class T> using task = planes_end_sums<T>;
};
struct planes_apply_family {
    using job = planes_job;
    template <class T> using task = planes_apply<T>;
};

template <class FAMILY> static bool has_room(const table_builder<FAMILY> &builder, uint64_t tiles) {
    return builder.jobs.njobs + 2 <= (uint32_t)table_capacity<planes_job>() &&
           tiles <= UINT32_MAX - builder.jobs.tiles;
}

struct planes_builders {
    table_builder<planes_stats_family> stats;
    table_builder<planes_end_stats_family> end_stats;
    table_builder<planes_sums_family> sums;
    table_builder<planes_end_sums_family> end_sums;
    table_builder<planes_apply_family> apply;

    planes_builders(const struct xop_launch *launch, enum xop_dtype dtype, struct xop_error *error)
        : stats(launch, dtype, error), end_stats(launch, dtype, error), sums(launch, dtype, error),
          end_sums(launch, dtype, error), apply(launch, dtype, error) {}

    /* In this order: each builds on what those before it leave. */
    enum xop_status launch_all() {
        enum xop_status status = stats.finish();
        if (status == XOP_OK)
            status = end_stats.finish();
        if (status == XOP_OK)
            status = sums.finish();
        if (status == XOP_OK)
            status = end_sums.finish();
        if (status == XOP_OK)
            status = apply.finish();
        return status;
    }

    /* So that no builder launches by itself before those that it builds on: up to two jobs of a
     * call go into each, which have no more tiles than this. */
    enum xop_status make_room(uint64_t tiles) {
        if (has_room(stats, tiles) && has_room(end_stats, tiles) && has_room(sums, tiles) &&
            has_room(end_sums, tiles) && has_room(apply, tiles))
            return XOP_OK;
        return launch_all();
    }
};

static planes_job strands_job(planes_job job, const struct planes_strands *strands) {
    job.strands = strands->strands;
    job.n = strands->n;
    job.run = strands->run;
    job.step = strands->step;
    job.stride = strands->stride;
    job.piece = strands->piece;
    job.pieces = strands->pieces;
    job.lanes = planes_side_by_side(strands) ? reduce_power(strands->strands, 32) : 1;
    return job;
}

static uint64_t piece_tiles(const planes_job &job) {
    return (uint64_t)reduce_ceil(job.strands, job.lanes) * job.pieces;
}

static uint64_t strand_tiles(const planes_job &job) {
    return (uint64_t)reduce_ceil(job.strands, ELEMENT_BLOCK);
}

static uint64_t apply_tiles(const planes_job &job, enum xop_dtype dtype) {
    int64_t width = ELEMENT_BLOCK * (int64_t)(16 / xop_dtype_size(dtype));
    return (uint64_t)reduce_ceil(job.elements, width);
}

template <class BUILDER>
static void add_some(BUILDER &builder, const planes_job &job, uint64_t tiles) {
    if (tiles > 0)
        builder.add(job, tiles);
}

static planes_job job_of(const struct xop_call *call, const struct planes_plan *plan) {
    planes_job job = {};
    job.x = call->in[PLANES_X].data;
    job.weight = call->in[PLANES_WEIGHT].data;
    job.stats = (double *)((char *)call->workspace + plan->stats);
    job.partial = (double *)((char *)call->workspace + plan->parts);
    job.elements = plan->elements;
    job.channels = plan->channels;
    job.inner = plan->inner;
    job.group = plan->together.n;
    job.eps = plan->eps;
    job.momentum = plan->momentum;
    job.flags = (plan->batch ? PLANES_BATCH : 0) | (plan->fixed ? PLANES_FIXED : 0);
    return job;
}

static void add_statistics(struct planes_builders *all, const planes_job &job) {
    if (!(job.flags & PLANES_FIXED))
        add_some(all->stats, job, piece_tiles(job));
    add_some(all->end_stats, job, strand_tiles(job));
}

static void add_apply(struct planes_builders *all, planes_job job, const struct xop_call *call,
                      enum xop_dtype dtype) {
    job.out = call->out[0].data;
    if (element_aligned(job.x) && element_aligned(job.g) && element_aligned(job.out))
        job.flags |= PLANES_ALIGNED;
    if (job.out)
        add_some(all->apply, job, apply_tiles(job, dtype));
}

/* No launch of a call has more tiles, both jobs of one together. */
static uint64_t most_tiles(const struct planes_plan *plan) {
    return 2 * ((uint64_t)plan->elements / ELEMENT_BLOCK + (uint64_t)plan->channel.strands +
                (uint64_t)plan->together.strands * plan->together.pieces +
                (uint64_t)plan->channel.strands * plan->channel.pieces + 2);
}

static void *output(const struct xop_call *call, uint32_t i) {
    return call->out[i].shape[0] > 0 ? call->out[i].data : NULL;
}

static enum xop_status add_forward(struct planes_builders *all, const struct xop_call *call,
                                   bool batch, enum xop_dtype dtype) {
    struct planes_plan plan;
    planes_measure(XOP_FORWARD, call, batch, &plan);
    planes_job job = strands_job(job_of(call, &plan), &plan.together);
    enum xop_status status = all->make_room(most_tiles(&plan));

    if (status != XOP_OK)
        return status;
    planes_job statistics = job;
    if (batch) {
        statistics.given_mean = call->in[PLANES_RUNNING_MEAN].data;
        statistics.given_scale = call->in[PLANES_RUNNING_VAR].data;
        statistics.first = output(call, PLANES_MEAN);
        statistics.second = output(call, PLANES_INVSTD);
        statistics.third = output(call, PLANES_NEW_MEAN);
        statistics.fourth = output(call, PLANES_NEW_VAR);
    }
    add_statistics(all, statistics);
    job.bias = call->in[PLANES_BIAS].data;
    add_apply(all, job, call, dtype);
    return XOP_OK;
}

/* Of the channels, which are the gradients of weight and bias and, of batch_norm, what the
 * elements' need. */
static void add_channels(struct planes_builders *all, planes_job job, const struct xop_call *call,
                         const struct planes_plan *plan) {
    job = strands_job(job, &plan->channel);
    if (!plan->batch) {
        job.partial = (double *)((char *)call->workspace + plan->channel_parts);
        job.sums = NULL;
    }
    add_some(all->sums, job, piece_tiles(job));
    job.first = call->out[PLANES_GRAD_BIAS].data;
    job.second = call->out[PLANES_GRAD_WEIGHT].data;
    add_some(all->end_sums, job, strand_tiles(job));
}

static enum xop_status add_backward(struct planes_builders *all, const struct xop_call *call,
                                    bool batch, enum xop_dtype dtype) {
    struct planes_plan plan;
    planes_measure(XOP_BACKWARD, call, batch, &plan);
    planes_job job = strands_job(job_of(call, &plan), &plan.together);
    const bool parameters = call->out[PLANES_GRAD_WEIGHT].data || call->out[PLANES_GRAD_BIAS].data;
    const bool needs_sums = call->out[PLANES_GRAD_X].data && !plan.fixed;
    enum xop_status status = all->make_room(most_tiles(&plan));

    if (status != XOP_OK)
        return status;
    planes_job statistics = job;
    if (batch) {
        statistics.given_mean = call->in[PLANES_BACKWARD_MEAN].data;
        statistics.given_scale = call->in[PLANES_BACKWARD_INVSTD].data;
        statistics.flags |= PLANES_IS_SCALE;
    }
    add_statistics(all, statistics);
    job.g = call->in[batch ? PLANES_BATCH_GRAD_Y : PLANES_GROUP_GRAD_Y].data;
    if (needs_sums)
        job.sums = (double *)((char *)call->workspace + plan.sums);
    if (needs_sums && !batch) {
        planes_job groups = job;
        groups.flags |= PLANES_WEIGHTED;
        add_some(all->sums, groups, piece_tiles(groups));
        add_some(all->end_sums, groups, strand_tiles(groups));
    }
    if (parameters || (needs_sums && batch))
        add_channels(all, job, call, &plan);
    add_apply(all, job, call, dtype);
    return XOP_OK;
}

static enum xop_status run(const struct xop_launch *launch, bool batch, struct xop_error *error) {
    enum xop_dtype dtype = launch->calls[0].in[PLANES_X].dtype;
    struct planes_builders all(launch, dtype, error);
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++)
        status = (launch->pass == XOP_FORWARD ? add_forward : add_backward)(&all, &launch->calls[i],
                                                                            batch, dtype);
    return status == XOP_OK ? all.launch_all() : status;
}

enum xop_status group_norm_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run(launch, false, error);
}
enum xop_status group_norm_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return run(launch, false, error);
}
enum xop_status batch_norm_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run(launch, true, error);
}
enum xop_status batch_norm_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return run(launch, true, error);
}

enum xop_status planes_preload(struct xop_error *error) {
    enum xop_status (*const preload[])(struct xop_error *) = {
        table_builder<planes_stats_family>::preload,
        table_builder<planes_end_stats_family>::preload,
        table_builder<planes_sums_family>::preload,
        table_builder<planes_end_sums_family>::preload,
        table_builder<planes_apply_family>::preload,
    };
    enum xop_status status = XOP_OK;
    for (auto one : preload)
        if (status == XOP_OK)
            status = one(error);
    return status;
}
