/*
 * max_pool2d and avg_pool2d: a thread for each element of the result. Sums are in double.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plane.cuh"
#include "kernels/cuda/table.cuh"
#include "kernels/cuda/window.h"
#include "kernels/window_math.h"

struct window_job {
    const void *x, *g;
    void *out;       /* y or grad_x */
    uint32_t *found; /* of each window: which element is the largest */
    struct window_plan plan;
    uint32_t first_tile;
};

/* A window: its first element, which may be outside, and those that are inside. */
template <class T> struct window_view {
    struct window_range rows, columns;
    const T *start;
    int64_t row_step, column_step;

    __device__ window_view(const window_job &job, const plane_place &at)
        : rows(window_inside(&job.plan.rows, at.row)),
          columns(window_inside(&job.plan.columns, at.column)) {
        const struct window_dim &r = job.plan.rows, &c = job.plan.columns;
        int64_t row = at.row * r.stride - r.padding, column = at.column * c.stride - c.padding;
        start = (const T *)job.x + (at.plane * r.in + row) * c.in + column;
        row_step = r.dilation * c.in;
        column_step = c.dilation;
    }
    __device__ double get(int64_t j, int64_t k) const {
        return (double)element<T>::load(start[j * row_step + k * column_step]);
    }
};

static __device__ plane_place window_output(const window_job &job, uint32_t tile) {
    return plane_place(tile, job.plan.planes, job.plan.rows.out, job.plan.columns.out);
}

template <class T> struct window_max {
    static __device__ void run(const window_job &job, uint32_t tile) {
        const plane_place at = window_output(job, tile);
        double most = -INFINITY;
        if (!at.active)
            return;
        const window_view<T> view(job, at);
        for (int64_t j = view.rows.first; j < view.rows.last; j++)
            for (int64_t k = view.columns.first; k < view.columns.last; k++) {
                double value = view.get(j, k);
                if (value > most || value != value)
                    most = value;
            }
        ((T *)job.out)[at.index] = element<T>::round(most);
    }
};

/* Of several that are the largest the first, of several NaN the last. */
template <class T> struct window_find {
    static __device__ void run(const window_job &job, uint32_t tile) {
        const plane_place at = window_output(job, tile);
        uint32_t which = WINDOW_NONE;
        double most = -INFINITY;
        if (!at.active)
            return;
        const window_view<T> view(job, at);
        for (int64_t j = view.rows.first; j < view.rows.last; j++)
            for (int64_t k = view.columns.first; k < view.columns.last; k++) {
                double value = view.get(j, k);
                if (which != WINDOW_NONE && !(value > most) && value == value)
                    continue;
                most = value;
                which = (uint32_t)(j * job.plan.columns.kernel + k);
            }
        job.found[at.index] = which;
    }
};

template <class T> struct window_avg {
    static __device__ void run(const window_job &job, uint32_t tile) {
        const plane_place at = window_output(job, tile);
        double sum = 0;
        if (!at.active)
            return;
        const window_view<T> view(job, at);
        for (int64_t j = view.rows.first; j < view.rows.last; j++) {
            double part = 0;
            for (int64_t k = view.columns.first; k < view.columns.last; k++)
                part += view.get(j, k);
            sum += part;
        }
        ((T *)job.out)[at.index] =
            element<T>::round(sum / window_divisor(&job.plan, at.row, at.column));
    }
};

template <class T> struct window_backward {
    static __device__ bool is_found(const window_job &job, int64_t index, int64_t j, int64_t k) {
        return j >= 0 && k >= 0 && job.found[index] == (uint32_t)(j * job.plan.columns.kernel + k);
    }

    static __device__ void run(const window_job &job, uint32_t tile) {
        const struct window_dim &rows = job.plan.rows, &columns = job.plan.columns;
        const plane_place at(tile, job.plan.planes, rows.in, columns.in);
        double sum = 0;
        if (!at.active)
            return;
        const struct window_range r = window_readers(&rows, at.row),
                                  c = window_readers(&columns, at.column);
        for (int64_t i = r.first; i < r.last; i++)
            for (int64_t k = c.first; k < c.last; k++) {
                int64_t index = (at.plane * rows.out + i) * columns.out + k;
                if (job.plan.max && !is_found(job, index, window_place(&rows, i, at.row),
                                              window_place(&columns, k, at.column)))
                    continue;
                double g = (double)element<T>::load(((const T *)job.g)[index]);
                sum += job.plan.max ? g : g / window_divisor(&job.plan, i, k);
            }
        ((T *)job.out)[at.index] = element<T>::round(sum);
    }
};

struct window_max_family {
    using job = window_job;
    template <class T> using task = window_max<T>;
};
struct window_find_family {
    using job = window_job;
    template <class T> using task = window_find<T>;
};
struct window_avg_family {
    using job = window_job;
    template <class T> using task = window_avg<T>;
};
struct window_backward_family {
    using job = window_job;
    template <class T> using task = window_backward<T>;
};

/* ---- Launches ---- */

static window_job job_of(const struct xop_call *call, bool max) {
    window_job job = {};
    job.x = call->in[WINDOW_X].data;
    job.out = call->out[0].data;
    job.found = (uint32_t *)call->workspace;
    window_measure(call, max, &job.plan);
    return job;
}

static uint64_t output_tiles(const window_job &job) {
    return plane_tiles(job.plan.planes, job.plan.rows.out, job.plan.columns.out);
}

template <class FAMILY>
static enum xop_status forward(const struct xop_launch *launch, bool max, struct xop_error *error) {
    table_builder<FAMILY> builder(launch, launch->calls[0].in[WINDOW_X].dtype, error);
    for (uint32_t i = 0; i < launch->ncalls; i++) {
        window_job job = job_of(&launch->calls[i], max);
        if (job.out && output_tiles(job) > 0)
            builder.add(job, output_tiles(job));
    }
    return builder.finish();
}

struct window_builders {
    table_builder<window_find_family> find;
    table_builder<window_backward_family> backward;

    window_builders(const struct xop_launch *launch, enum xop_dtype dtype, struct xop_error *error)
        : find(launch, dtype, error), backward(launch, dtype, error) {}

    /* In this order: the one builds on the other. */
    enum xop_status launch_all() {
        enum xop_status status = find.finish();
        return status == XOP_OK ? backward.finish() : status;
    }
};

static enum xop_status backward(const struct xop_launch *launch, bool max,
                                struct xop_error *error) {
    window_builders all(launch, launch->calls[0].in[WINDOW_X].dtype, error);
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        window_job job = job_of(&launch->calls[i], max);
        uint64_t tiles = plane_tiles(job.plan.planes, job.plan.rows.in, job.plan.columns.in);
        if (!job.out || tiles == 0)
            continue;
        job.g = launch->calls[i].in[WINDOW_GRAD_Y].data;
        if (all.find.full(output_tiles(job)) || all.backward.full(tiles))
            status = all.launch_all();
        if (max)
            all.find.add(job, output_tiles(job));
        all.backward.add(job, tiles);
    }
    return status == XOP_OK ? all.launch_all() : status;
}

enum xop_status max_pool2d_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return forward<window_max_family>(launch, true, error);
}
enum xop_status max_pool2d_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return backward(launch, true, error);
}
enum xop_status avg_pool2d_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return forward<window_avg_family>(launch, false, error);
}
enum xop_status avg_pool2d_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return backward(launch, false, error);
}

enum xop_status window_preload(struct xop_error *error) {
    enum xop_status (*const preload[])(struct xop_error *) = {
        table_builder<window_max_family>::preload,
        table_builder<window_find_family>::preload,
        table_builder<window_avg_family>::preload,
        table_builder<window_backward_family>::preload,
    };
    enum xop_status status = XOP_OK;
    for (auto one : preload)
        if (status == XOP_OK)
            status = one(error);
    return status;
}
