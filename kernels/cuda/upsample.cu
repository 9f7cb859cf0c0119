/*
 * upsample: a thread for each element of the result. Sums are in double.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plane.cuh"
#include "kernels/cuda/table.cuh"
#include "kernels/cuda/window.h"
#include "kernels/upsample_math.h"

struct upsample_job {
    const void *from; /* x or grad_y */
    void *out;        /* y or grad_x */
    struct upsample_plan plan;
    uint32_t first_tile;
};

template <class T> struct upsample_forward {
    /* A row's part of an output. */
    static __device__ double along(const T *row, const struct upsample_source &source) {
        double value = (double)element<T>::load(row[source.first]);
        if (source.next > 0)
            value = (1 - source.next) * value +
                    source.next * (double)element<T>::load(row[source.first + 1]);
        return value;
    }

    static __device__ void run(const upsample_job &job, uint32_t tile) {
        const struct upsample_dim &rows = job.plan.rows, &columns = job.plan.columns;
        const plane_place at(tile, job.plan.planes, rows.out, columns.out);
        if (!at.active)
            return;
        const struct upsample_source r = upsample_source(&rows, at.row),
                                     c = upsample_source(&columns, at.column);
        const T *row = (const T *)job.from + (at.plane * rows.in + r.first) * columns.in;
        double value = along(row, c);
        if (r.next > 0)
            value = (1 - r.next) * value + r.next * along(row + columns.in, c);
        ((T *)job.out)[at.index] = element<T>::round(value);
    }
};

template <class T> struct upsample_backward {
    static __device__ void run(const upsample_job &job, uint32_t tile) {
        const struct upsample_dim &rows = job.plan.rows, &columns = job.plan.columns;
        const plane_place at(tile, job.plan.planes, rows.in, columns.in);
        double sum = 0;
        if (!at.active)
            return;
        const struct upsample_range r = upsample_readers(&rows, at.row),
                                    c = upsample_readers(&columns, at.column);
        for (int64_t i = r.first; i < r.last; i++) {
            const double weight = upsample_weight(&rows, i, at.row);
            const T *row = (const T *)job.from + (at.plane * rows.out + i) * columns.out;
            double part = 0;
            if (!(weight > 0))
                continue;
            for (int64_t k = c.first; k < c.last; k++) {
                const double share = upsample_weight(&columns, k, at.column);
                if (share > 0)
                    part += share * (double)element<T>::load(row[k]);
            }
            sum += weight * part;
        }
        ((T *)job.out)[at.index] = element<T>::round(sum);
    }
};

struct upsample_forward_family {
    using job = upsample_job;
    template <class T> using task = upsample_forward<T>;
};
struct upsample_backward_family {
    using job = upsample_job;
    template <class T> using task = upsample_backward<T>;
};

/* ---- Launches ---- */

template <class FAMILY>
static enum xop_status run(const struct xop_launch *launch, uint32_t operand,
                           struct xop_error *error) {
    table_builder<FAMILY> builder(launch, launch->calls[0].in[UPSAMPLE_X].dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        const int64_t *shape = call->out[0].shape;
        upsample_job job = {};
        job.from = call->in[operand].data;
        job.out = call->out[0].data;
        upsample_measure(call, &job.plan);
        uint64_t tiles = plane_tiles(job.plan.planes, shape[2], shape[3]);
        if (job.out && tiles > 0)
            builder.add(job, tiles);
    }
    return builder.finish();
}

enum xop_status upsample_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run<upsample_forward_family>(launch, UPSAMPLE_X, error);
}
enum xop_status upsample_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    return run<upsample_backward_family>(launch, UPSAMPLE_GRAD_Y, error);
}

enum xop_status upsample_preload(struct xop_error *error) {
    enum xop_status status = table_builder<upsample_forward_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<upsample_backward_family>::preload(error);
    return status;
}
