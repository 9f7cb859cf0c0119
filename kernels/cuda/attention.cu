/*
 * attention: the launches.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.h"

struct attention_forward_family {
    using job = attention_job;
    template <class T> using task = attention_forward<T>;
};
struct attention_stats_family {
    using job = attention_job;
    template <class T> using task = attention_stats<T>;
};
struct attention_grad_query_family {
    using job = attention_job;
    template <class T> using task = attention_grad_query<T>;
};
struct attention_grad_key_family {
    using job = attention_job;
    template <class T> using task = attention_grad_key<T>;
};
struct attention_grad_value_family {
    using job = attention_job;
    template <class T> using task = attention_grad_value<T>;
};

static attention_job job_of(const struct xop_call *call) {
    attention_job job = {};
    job.query = call->in[ATTENTION_QUERY].data;
    job.key = call->in[ATTENTION_KEY].data;
    job.value = call->in[ATTENTION_VALUE].data;
    job.stats = (double *)call->workspace;
    attention_measure(call, &job.plan);
    return job;
}

/* Blocks of rows of a result, by slices of its columns. */
static uint64_t tiles_of(int64_t heads, int64_t height, int64_t width) {
    int64_t blocks = height / ATTENTION_TILE + (height % ATTENTION_TILE != 0);
    int64_t slices = width / ATTENTION_SLICE + (width % ATTENTION_SLICE != 0);
    return (uint64_t)(heads * blocks * slices);
}

enum xop_status attention_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    table_builder<attention_forward_family> builder(
        launch, launch->calls[0].in[ATTENTION_QUERY].dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        attention_job job = job_of(&launch->calls[i]);
        uint64_t tiles =
            tiles_of(job.plan.batch * job.plan.heads, job.plan.queries, job.plan.value_width);
        job.out = launch->calls[i].out[0].data;
        if (job.out && tiles > 0)
            builder.add(job, tiles);
    }
    return builder.finish();
}

/* ---- Backward ---- */

struct attention_builders {
    table_builder<attention_stats_family> stats;
    table_builder<attention_grad_query_family> query;
    table_builder<attention_grad_key_family> key;
    table_builder<attention_grad_value_family> value;

    attention_builders(const struct xop_launch *launch, enum xop_dtype dtype,
                       struct xop_error *error)
        : stats(launch, dtype, error), query(launch, dtype, error), key(launch, dtype, error),
          value(launch, dtype, error) {}

    /* Statistics first: the others build on them. */
    enum xop_status launch_all() {
        enum xop_status status = stats.finish();
        if (status == XOP_OK)
            status = query.finish();
        if (status == XOP_OK)
            status = key.finish();
        if (status == XOP_OK)
            status = value.finish();
        return status;
    }
};

template <class BUILDER>
static void add(BUILDER &builder, attention_job job, void *out, uint64_t tiles) {
    job.out = out;
    if (out && tiles > 0)
        builder.add(job, tiles);
}

static enum xop_status add_backward(attention_builders *all, const struct xop_call *call) {
    attention_job job = job_of(call);
    const struct attention_plan &plan = job.plan;
    const int64_t heads = plan.batch * plan.heads, key_heads = plan.batch * plan.key_heads;
    const uint64_t stats = plan.keys > 0 ? tiles_of(heads, plan.queries, 1) : 0;
    const uint64_t query = tiles_of(heads, plan.queries, plan.width);
    const uint64_t key = tiles_of(key_heads, plan.keys, plan.width);
    const uint64_t value = tiles_of(key_heads, plan.keys, plan.value_width);
    enum xop_status status = XOP_OK;

    job.grad_y = call->in[ATTENTION_GRAD_Y].data;
    if (all->stats.full(stats) || all->query.full(query) || all->key.full(key) ||
        all->value.full(value))
        status = all->launch_all();
    if (stats > 0)
        all->stats.add(job, stats);
    add(all->query, job, call->out[ATTENTION_GRAD_QUERY].data, query);
    add(all->key, job, call->out[ATTENTION_GRAD_KEY].data, key);
    add(all->value, job, call->out[ATTENTION_GRAD_VALUE].data, value);
    return status;
}

enum xop_status attention_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    attention_builders all(launch, launch->calls[0].in[ATTENTION_QUERY].dtype, error);
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++)
        status = add_backward(&all, &launch->calls[i]);
    return status == XOP_OK ? all.launch_all() : status;
}

enum xop_status attention_preload(struct xop_error *error) {
    enum xop_status (*const preload[])(struct xop_error *) = {
        table_builder<attention_forward_family>::preload,
        table_builder<attention_stats_family>::preload,
        table_builder<attention_grad_query_family>::preload,
        table_builder<attention_grad_key_family>::preload,
        table_builder<attention_grad_value_family>::preload,
    };
    enum xop_status status = XOP_OK;
    for (auto one : preload)
        if (status == XOP_OK)
            status = one(error);
    return status;
}
