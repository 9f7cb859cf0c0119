/*
 * rotary_embedding: a thread for each pair, and for each element that is copied. A thread reads
 * both elements of its pair before it writes either, so that y may be in x's place.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/table.cuh"
#include "kernels/rotary.h"

struct rotary_job {
    const void *x, *cosine, *sine;
    void *y;
    struct rotary_plan plan;
    uint32_t first_tile;
    bool back; /* by the negative angle: backward */
};

template <class T> struct rotary_rotate {
    static __device__ void run(const rotary_job &job, uint32_t tile) {
        using C = typename element<T>::compute;
        const struct rotary_plan &plan = job.plan;
        const int64_t index = (int64_t)tile * ELEMENT_BLOCK + threadIdx.x;
        const element_quotient place = element_divide(index, plan.width - plan.half);
        const int64_t row = place.quotient, k = place.rest;
        if (row >= plan.rows)
            return;
        const T *x = (const T *)job.x + row * plan.width;
        T *y = (T *)job.y + row * plan.width;
        if (k >= plan.half) {
            y[k + plan.half] = x[k + plan.half];
            return;
        }
        const int64_t at =
            element_divide(row, plan.rows_of_sample).quotient * plan.angles_of_sample +
            element_divide(row, plan.positions).rest * plan.half + k;
        const int64_t i = plan.interleaved ? 2 * k : k;
        const int64_t j = plan.interleaved ? i + 1 : k + plan.half;
        const C a = element<T>::load(x[i]), b = element<T>::load(x[j]);
        const C c = element<T>::load(((const T *)job.cosine)[at]);
        C d = element<T>::load(((const T *)job.sine)[at]);
        if (job.back)
            d = -d;
        y[i] = element<T>::store(a * c - b * d);
        y[j] = element<T>::store(a * d + b * c);
    }
};

struct rotary_family {
    using job = rotary_job;
    template <class T> using task = rotary_rotate<T>;
};

static enum xop_status run(const struct xop_launch *launch, struct xop_error *error) {
    const bool back = launch->pass == XOP_BACKWARD;
    table_builder<rotary_family> builder(launch, launch->calls[0].in[0].dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        rotary_job job = {};
        job.x = call->in[back ? ROTARY_GRAD_Y : ROTARY_X].data;
        job.cosine = call->in[back ? ROTARY_BACKWARD_COS : ROTARY_COS].data;
        job.sine = call->in[back ? ROTARY_BACKWARD_SIN : ROTARY_SIN].data;
        job.y = call->out[0].data;
        job.back = back;
        rotary_measure(launch->pass, call, &job.plan);
        int64_t threads = job.plan.rows * (job.plan.width - job.plan.half);
        if (job.y && threads > 0)
            builder.add(job, (uint64_t)((threads - 1) / ELEMENT_BLOCK + 1));
    }
    return builder.finish();
}

enum xop_status rotary_embedding_cuda_forward(const struct xop_launch *launch,
                                              struct xop_error *error) {
    return run(launch, error);
}
enum xop_status rotary_embedding_cuda_backward(const struct xop_launch *launch,
                                               struct xop_error *error) {
    return run(launch, error);
}

enum xop_status rotary_preload(struct xop_error *error) {
    return table_builder<rotary_family>::preload(error);
}
