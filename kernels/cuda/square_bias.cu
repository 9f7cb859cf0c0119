/*
 * square_bias: forward as an elementwise or a broadcast kernel, backward as an elementwise kernel
 * and sums, joined where grad_y serves both.
 */
#include "kernels/square_bias.h"

#include "kernels/cuda/broadcast.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce_add.cuh"

struct square_bias_value {
    static constexpr bool binary = true, copies = false;
    template <class T, class C> static __device__ C apply(C x, C b) { return x * x + b; }
    template <class T, class C, int N>
    static __device__ void each(uint32_t, C (&x)[N], const C (&b)[N]) {
#pragma unroll
        for (int k = 0; k < N; k++)
            x[k] = apply<T, C>(x[k], b[k]);
    }
};

/* a: x, b: grad_y. Doubled last: 2*x might overflow where the product does not. */
struct square_bias_gradient {
    static constexpr bool binary = true, copies = true;
    template <class T, class C> static __device__ C apply(C x, C g) { return 2 * (x * g); }
};

/* ---- Forward ---- */

/* Of the group FLAT: b is as large as x, or has one element. */
static enum xop_status forward_flat(const struct xop_launch *launch, enum xop_dtype dtype,
                                    struct xop_error *error) {
    elementwise_builder<square_bias_value> builder(launch, dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
        struct elementwise_job job = {x->data, b->data, call->out[0].data, NULL, 0, 0, 0};
        int64_t b_elements;
        if (!xop_tensor_elements(&call->out[0], &job.n) || !xop_tensor_elements(b, &b_elements))
            continue;
        job.flags = b_elements == 1 ? ELEMENTWISE_B_SCALAR : 0;
        elementwise_add(&builder, job);
    }
    return builder.finish();
}

/* Those of the other groups that have more than `above` dimensions, but DIMS at most. */
template <int DIMS>
static enum xop_status forward_broadcast(const struct xop_launch *launch, enum xop_dtype dtype,
                                         uint32_t above, struct xop_error *error) {
    broadcast_builder<square_bias_value, DIMS> builder(launch, dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
        struct shape_map map;
        shape_collapse(x, b, &call->out[0], &map);
        if (call->out[0].data && map.ndims > above && map.ndims <= DIMS)
            broadcast_add(&builder, &map, x->data, b->data, call->out[0].data);
    }
    return builder.finish();
}

enum xop_status square_bias_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_dtype dtype = launch->calls[0].in[BROADCAST_X].dtype;
    uint64_t group = launch->plans[0]->group;
    enum xop_status status;

    if (group == SQUARE_BIAS_FLAT)
        return forward_flat(launch, dtype, error);
    status = forward_broadcast<2>(launch, dtype, 0, error);
    if (status == XOP_OK && group == SQUARE_BIAS_GENERAL)
        status = forward_broadcast<XOP_MAX_RANK>(launch, dtype, 2, error);
    return status;
}

/* ---- Backward ---- */

struct backward {
    elementwise_builder<square_bias_gradient> each;
    struct reduce_builders sums;

    backward(const struct xop_launch *launch, enum xop_dtype dtype, struct xop_error *error)
        : each(launch, dtype, error), sums(launch, dtype, error) {}
};

static void add_backward(struct backward *all, const struct xop_call *call) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    void *grad_x = call->out[0].data, *grad_b = call->out[1].data;
    char *workspace = (char *)call->workspace;
    struct broadcast_backward plan;
    struct elementwise_job each = {x->data, grad_y->data, NULL, NULL, 0, 0, 0};

    broadcast_backward_plan(x, b, grad_y, &plan);
    struct reduce_request sum_x = {&plan.x, grad_y->data,        x->data, REDUCE_TWICE,
                                   NULL,    (double *)workspace, NULL,    NULL};
    struct reduce_request sum_b = {&plan.b, grad_y->data, NULL, 0, NULL, NULL, NULL, NULL};
    if (workspace)
        sum_b.partial = (double *)(workspace + plan.b_offset);

    *(plan.x.form == SHAPE_FULL ? &each.out : &sum_x.sum) = grad_x;
    *(plan.b.form == SHAPE_FULL ? &each.copy : &sum_b.sum) = grad_b;
    if (each.out && sum_b.sum && reduce_is_simple(plan.b.form)) {
        /* grad_x on the way to grad_b. */
        sum_b.x = x->data;
        sum_b.each = each.out;
        each.out = NULL;
    } else if (each.copy && sum_x.sum && reduce_is_simple(plan.x.form)) {
        /* grad_b, which is grad_y, on the way to grad_x. */
        sum_x.each = each.copy;
        each.copy = NULL;
    }
    if (xop_tensor_elements(grad_y, &each.n))
        elementwise_add(&all->each, each);
    if (sum_x.sum)
        reduce_add(&all->sums, &sum_x);
    if (sum_b.sum)
        reduce_add(&all->sums, &sum_b);
}

enum xop_status square_bias_cuda_backward(const struct xop_launch *launch,
                                          struct xop_error *error) {
    struct backward all(launch, launch->calls[0].in[BROADCAST_GRAD_Y].dtype, error);
    enum xop_status status;

    for (uint32_t i = 0; i < launch->ncalls; i++)
        add_backward(&all, &launch->calls[i]);
    status = all.each.finish();
    return status == XOP_OK ? reduce_launch(&all.sums) : status;
}

enum xop_status square_bias_preload(struct xop_error *error) {
    enum xop_status status = elementwise_builder<square_bias_value>::preload(error);
    if (status == XOP_OK)
        status = elementwise_builder<square_bias_gradient>::preload(error);
    if (status == XOP_OK)
        status = broadcast_builder<square_bias_value, 2>::preload(error);
    if (status == XOP_OK)
        status = broadcast_builder<square_bias_value, XOP_MAX_RANK>::preload(error);
    return status == XOP_OK ? reduce_preload(error) : status;
}
