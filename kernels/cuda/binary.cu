#include "kernels/cuda/binary.cuh"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce_add.cuh"

/* One element is walked, too, in a dimension of its own. */
static void collapse(const struct xop_call *call, const struct xop_tensor *y,
                     struct shape_map *map) {
    shape_collapse(&call->in[BROADCAST_X], &call->in[BROADCAST_B], y, map);
    if (map->ndims == 0) {
        map->ndims = 1;
        map->dim[0].size = 1;
    }
}

/* ---- Forward ---- */

template <int DIMS>
static enum xop_status forward_of(enum binary_kind op, const struct xop_launch *launch,
                                  struct xop_error *error) {
    broadcast_builder<binary_value, DIMS> builder(launch, launch->calls[0].in[BROADCAST_X].dtype,
                                                  error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        struct shape_map map;
        collapse(call, &call->out[0], &map);
        if (call->out[0].data)
            broadcast_add(&builder, &map, call->in[BROADCAST_X].data, call->in[BROADCAST_B].data,
                          call->out[0].data, op);
    }
    return builder.finish();
}

static enum xop_status forward(enum binary_kind op, const struct xop_launch *launch,
                               struct xop_error *error) {
    return launch->plans[0]->group == BINARY_TWO ? forward_of<2>(op, launch, error)
                                                 : forward_of<XOP_MAX_RANK>(op, launch, error);
}

/* ---- Backward ---- */

/* A gradient of a call: where it goes, and where the terms are, if it is a sum. */
struct gradient {
    void *out;
    const struct shape_reduction *shape;
    void *terms; /* NULL: grad_y are the terms */
    double *partial;
    uint32_t flags; /* of the finished sum */
    bool is_sum;
};

static uint32_t flags_of_halves(enum xop_dtype dtype) {
    return dtype == XOP_F16 ? REDUCE_TO_F16 : dtype == XOP_BF16 ? REDUCE_TO_BF16 : 0;
}

struct gradients {
    struct broadcast_backward plan;
    struct gradient x, b;
};

static struct gradient gradient_of(enum binary_kind op, const struct xop_call *call, uint32_t which,
                                   const struct shape_reduction *shape, uint64_t partial_offset,
                                   uint64_t terms_offset) {
    char *workspace = (char *)call->workspace;
    struct gradient gradient = {};

    gradient.out = call->out[which].data;
    gradient.shape = shape;
    gradient.is_sum = shape->form != SHAPE_FULL;
    if (workspace && gradient.is_sum)
        gradient.partial = (double *)(workspace + partial_offset);
    if (binary_saves(op)) {
        gradient.flags = flags_of_halves(call->in[BROADCAST_GRAD_Y].dtype);
        if (workspace && gradient.is_sum)
            gradient.terms = workspace + terms_offset;
    } else if (op == BINARY_sub && which == BROADCAST_B) {
        gradient.flags = REDUCE_NEGATE;
    }
    return gradient;
}

static void plan_gradients(enum binary_kind op, const struct xop_call *call,
                           struct gradients *all) {
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    struct binary_terms terms;

    broadcast_backward_plan(&call->in[BROADCAST_X], &call->in[BROADCAST_B], grad_y, &all->plan);
    binary_terms_plan(op, grad_y, &all->plan, &terms);
    all->x = gradient_of(op, call, BROADCAST_X, &all->plan.x, 0, terms.x_offset);
    all->b = gradient_of(op, call, BROADCAST_B, &all->plan.b, all->plan.b_offset, terms.b_offset);
}

static void add_sum(struct reduce_builders *sums, const struct gradient *gradient,
                    const void *grad_y) {
    struct reduce_request request = {};

    if (!gradient->out || !gradient->is_sum)
        return;
    request.shape = gradient->shape;
    request.g = gradient->terms ? gradient->terms : grad_y;
    request.flags = gradient->flags;
    request.sum = gradient->out;
    request.partial = gradient->partial;
    reduce_add(sums, &request);
}

/* Where a gradient's elements go: to the terms of its sum, to itself, or nowhere. */
static void *elements_of(const struct gradient *gradient) {
    if (!gradient->out)
        return NULL;
    return gradient->is_sum ? gradient->terms : gradient->out;
}

static bool vectors_fit(const void *from, bool is_used) {
    return !is_used || element_aligned(from);
}

static void add_elements(table_builder<binary_backward_family> *builder, enum binary_kind op,
                         const struct xop_call *call, const struct gradients *all) {
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    const struct gradient *x = &all->x, *b = &all->b;
    const int64_t tile = (int64_t)ELEMENT_BLOCK * 16 / (int64_t)xop_dtype_size(grad_y->dtype);
    const bool saves = binary_saves(op);
    struct shape_map map;
    struct binary_job job = {};

    collapse(call, grad_y, &map);
    job.x = call->in[BROADCAST_X].data;
    job.b = call->in[BROADCAST_B].data;
    job.g = grad_y->data;
    job.out_x = elements_of(x);
    job.out_b = elements_of(b);
    job.n = map.elements;
    job.kind = op;
    job.ndims = map.ndims;
    for (uint32_t i = 0; i < map.ndims; i++)
        job.dim[i] = map.dim[i];
    if (job.n == 0 || (!job.out_x && !job.out_b))
        return;
    job.flags = (map.x_form == SHAPE_FULL ? BROADCAST_X_FULL : 0) |
                (map.b_form == SHAPE_FULL ? BROADCAST_B_FULL : 0) |
                (x->is_sum ? BINARY_X_TERMS : 0) | (b->is_sum ? BINARY_B_TERMS : 0) |
                (saves ? 0 : BINARY_NO_OPERANDS);
    if (element_aligned(job.g) && vectors_fit(job.x, saves && map.x_form == SHAPE_FULL) &&
        vectors_fit(job.b, saves && map.b_form == SHAPE_FULL) && element_aligned(job.out_x) &&
        element_aligned(job.out_b))
        job.flags |= BROADCAST_ALIGNED;
    builder->add(job, (uint64_t)((job.n - 1) / tile + 1));
}

/* What is summed: terms of the type computed in, or grad_y itself. */
static enum xop_dtype terms_dtype(enum binary_kind op, enum xop_dtype dtype) {
    return binary_saves(op) && dtype != XOP_F64 ? XOP_F32 : dtype;
}

/* Terms come before any sum of them. A gradient that takes the place of x is written by the thread
 * that has read what it replaces, or after everything was read. */
static enum xop_status backward(enum binary_kind op, const struct xop_launch *launch,
                                struct xop_error *error) {
    const enum xop_dtype dtype = launch->calls[0].in[BROADCAST_GRAD_Y].dtype;
    table_builder<binary_backward_family> elements(launch, dtype, error);
    struct reduce_builders sums(launch, terms_dtype(op, dtype), error);
    enum xop_status status;

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        struct gradients all;
        plan_gradients(op, &launch->calls[i], &all);
        add_elements(&elements, op, &launch->calls[i], &all);
    }
    status = elements.finish();
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const void *grad_y = launch->calls[i].in[BROADCAST_GRAD_Y].data;
        struct gradients all;
        plan_gradients(op, &launch->calls[i], &all);
        add_sum(&sums, &all.x, grad_y);
        add_sum(&sums, &all.b, grad_y);
    }
    return status == XOP_OK ? reduce_launch(&sums) : status;
}

#define BINARY(name, ...)                                                                          \
    enum xop_status binary_##name##_cuda_forward(const struct xop_launch *launch,                  \
                                                 struct xop_error *error) {                        \
        return forward(BINARY_##name, launch, error);                                              \
    }                                                                                              \
    enum xop_status binary_##name##_cuda_backward(const struct xop_launch *launch,                 \
                                                  struct xop_error *error) {                       \
        return backward(BINARY_##name, launch, error);                                             \
    }
#include "kernels/binary.def"

enum xop_status binary_preload(struct xop_error *error) {
    enum xop_status status = broadcast_builder<binary_value, 2>::preload(error);
    if (status == XOP_OK)
        status = broadcast_builder<binary_value, XOP_MAX_RANK>::preload(error);
    if (status == XOP_OK)
        status = table_builder<binary_backward_family>::preload(error);
    return status == XOP_OK ? reduce_preload(error) : status;
}
