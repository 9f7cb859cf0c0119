/*
 * layer_norm and rms_norm: the launches.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/row_norm.cuh"

struct row_norm_forward_family {
    using job = row_job;
    template <class T> using task = row_norm_forward<T>;
};
struct row_norm_walk_forward_family {
    using job = row_job;
    template <class T> using task = row_norm_walk_forward<T>;
};
struct row_norm_backward_family {
    using job = row_job;
    template <class T> using task = row_norm_backward<T>;
};
struct row_norm_walk_backward_family {
    using job = row_job;
    template <class T> using task = row_norm_walk_backward<T>;
};
struct row_norm_columns_family {
    using job = row_job;
    template <class T> using task = row_norm_columns_task<T>;
};
struct row_columns_finish_family {
    using job = row_job;
    template <class T> using task = row_columns_finish<T>;
};

static row_job job_of(const struct xop_call *call, const struct row_size *size, bool centered) {
    row_job job = {};
    job.x = call->in[ROW_NORM_X].data;
    job.weight = call->in[ROW_NORM_WEIGHT].data;
    job.out = call->out[0].data;
    job.rows = size->outer;
    job.n = size->n;
    job.inner = 1;
    job.eps = row_norm_eps(call);
    job.flags = centered ? ROW_CENTERED : 0;
    return job;
}

static enum xop_status forward(const struct xop_launch *launch, bool centered,
                               struct xop_error *error) {
    enum xop_dtype dtype = launch->calls[0].in[ROW_NORM_X].dtype;
    table_builder<row_norm_forward_family> kept(launch, dtype, error);
    table_builder<row_norm_walk_forward_family> walked(launch, dtype, error);
    enum xop_status status;

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        struct row_size size;
        row_norm_measure(call, &size);
        row_job job = job_of(call, &size, centered);
        if (!job.out || size.n == 0 || size.outer == 0)
            continue;
        if (centered)
            job.bias = call->in[ROW_NORM_BIAS].data;
        row_align(&job, dtype);
        if (row_kept(&size, dtype))
            kept.add(job, row_keep(&job, dtype, ROW_VECTORS));
        else
            walked.add(job, (uint64_t)size.outer);
    }
    status = kept.finish();
    return status == XOP_OK ? walked.finish() : status;
}

/* ---- Backward ---- */

struct backward_builders {
    table_builder<row_norm_backward_family> kept;
    table_builder<row_norm_walk_backward_family> walked;
    table_builder<row_norm_columns_family> columns;
    table_builder<row_columns_finish_family> finish;

    backward_builders(const struct xop_launch *launch, enum xop_dtype dtype,
                      struct xop_error *error)
        : kept(launch, dtype, error), walked(launch, dtype, error), columns(launch, dtype, error),
          finish(launch, dtype, error) {}

    /* In this order: each builds on what those before it leave. */
    enum xop_status launch_all() {
        enum xop_status status = kept.finish();
        if (status == XOP_OK)
            status = walked.finish();
        if (status == XOP_OK)
            status = columns.finish();
        if (status == XOP_OK)
            status = finish.finish();
        return status;
    }
};

static int64_t vectors_of(enum xop_dtype dtype) {
    switch (dtype) {
    case XOP_F16: return row_norm_vectors<__half>;
    case XOP_BF16: return row_norm_vectors<__nv_bfloat16>;
    case XOP_F32: return row_norm_vectors<float>;
    default: return row_norm_vectors<double>;
    }
}

/* What backward computes on its way over the rows. */
static void add_rows(struct backward_builders *all, row_job job, const struct row_size *size,
                     const struct row_columns *columns, char *workspace, enum xop_dtype dtype) {
    uint64_t strips = (uint64_t)reduce_ceil(job.n, ELEMENT_BLOCK) * columns->pieces;

    if (columns->pieces == 0 || (!job.out && !job.sums))
        return;
    if (row_kept_backward(size, dtype)) {
        row_keep(&job, dtype, vectors_of(dtype));
        all->kept.add(job, columns->pieces);
        return;
    }
    if (job.sums)
        job.stats = (double *)(workspace + columns->stats_offset);
    all->walked.add(job, (uint64_t)job.rows);
    if (!job.sums)
        return;
    if (all->columns.full(strips))
        all->launch_all();
    all->columns.add(job, strips);
}

static void add_backward(struct backward_builders *all, const struct xop_call *call, bool centered,
                         enum xop_dtype dtype) {
    struct row_columns columns;
    struct row_size size;

    row_norm_measure(call, &size);
    row_norm_columns(&size, dtype, &columns);
    row_job job = job_of(call, &size, centered);
    job.g = call->in[ROW_NORM_GRAD_Y].data;
    job.piece = columns.piece;
    job.pieces = columns.pieces;
    job.grad_weight = call->out[ROW_NORM_GRAD_WEIGHT].data;
    job.grad_bias = centered ? call->out[ROW_NORM_GRAD_BIAS].data : NULL;
    if (job.grad_weight || job.grad_bias)
        job.sums = call->workspace;
    row_align(&job, dtype);
    add_rows(all, job, &size, &columns, (char *)call->workspace, dtype);
    if ((job.grad_weight || job.grad_bias) && size.n > 0) {
        uint64_t tiles = (uint64_t)reduce_ceil(2 * size.n, row_columns_finish<float>::width);
        if (all->finish.full(tiles))
            all->launch_all();
        all->finish.add(job, tiles);
    }
}

static enum xop_status backward(const struct xop_launch *launch, bool centered,
                                struct xop_error *error) {
    enum xop_dtype dtype = launch->calls[0].in[ROW_NORM_X].dtype;
    struct backward_builders all(launch, dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++)
        add_backward(&all, &launch->calls[i], centered, dtype);
    return all.launch_all();
}

enum xop_status layer_norm_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return forward(launch, true, error);
}
enum xop_status layer_norm_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return backward(launch, true, error);
}
enum xop_status rms_norm_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return forward(launch, false, error);
}
enum xop_status rms_norm_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return backward(launch, false, error);
}

enum xop_status row_norm_preload(struct xop_error *error) {
    enum xop_status (*const preload[])(struct xop_error *) = {
        table_builder<row_norm_forward_family>::preload,
        table_builder<row_norm_walk_forward_family>::preload,
        table_builder<row_norm_backward_family>::preload,
        table_builder<row_norm_walk_backward_family>::preload,
        table_builder<row_norm_columns_family>::preload,
        table_builder<row_columns_finish_family>::preload,
    };
    enum xop_status status = XOP_OK;
    for (auto one : preload)
        if (status == XOP_OK)
            status = one(error);
    return status;
}
