/*
 * where: elements are moved one by one, from wherever their operands lie against y. Backward makes
 * both gradients in one pass; where one is a sum, the pass leaves its terms, which are elements of
 * grad_y or 0, in the workspace, and the sums' kernels (reduce.cuh) add them up.
 */
#include "kernels/where.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce_add.cuh"
#include "kernels/cuda/table.cuh"
#include "kernels/cuda/where.h"
#include <xop/check.h>

#define WHERE_UNROLL 4
#define WHERE_TILE (ELEMENT_BLOCK * WHERE_UNROLL) /* elements that a block does */

struct where_job {
    const unsigned char *condition;
    const void *x, *b; /* backward: NULL */
    const void *g;     /* forward: NULL */
    void *out_x;       /* y, or grad_x or its terms; NULL: not wanted */
    void *out_b;
    int64_t n;
    uint32_t first_tile, ndims;
    struct where_dim dim[XOP_MAX_RANK];
};

template <class T> struct where_task {
    using bits = typename bits_of<sizeof(T)>::type;

    static __device__ void offsets(const where_job &job, int64_t i, int64_t (&at)[3]) {
        at[0] = at[1] = at[2] = 0;
        for (uint32_t d = job.ndims; d-- > 0;) {
            const struct where_dim &dim = job.dim[d];
            element_quotient split = {0, i}; /* the outermost needs no division */
            if (d > 0)
                split = element_divide(i, dim.size);
#pragma unroll
            for (int k = 0; k < 3; k++)
                at[k] += split.rest * dim.step[k];
            i = split.quotient;
        }
    }

    static __device__ void run(const where_job &job, uint32_t tile) {
        const int64_t first = (int64_t)tile * WHERE_TILE + threadIdx.x;
#pragma unroll
        for (int u = 0; u < WHERE_UNROLL; u++) {
            const int64_t i = first + u * ELEMENT_BLOCK;
            int64_t at[3];
            if (i >= job.n)
                break;
            offsets(job, i, at);
            const bool holds = job.condition[at[0]] != 0;
            if (!job.g) {
                ((bits *)job.out_x)[i] =
                    holds ? ((const bits *)job.x)[at[1]] : ((const bits *)job.b)[at[2]];
                continue;
            }
            const bits g = ((const bits *)job.g)[i];
            if (job.out_x)
                ((bits *)job.out_x)[i] = holds ? g : bits(0);
            if (job.out_b)
                ((bits *)job.out_b)[i] = holds ? bits(0) : g;
        }
    }
};
struct where_family {
    using job = where_job;
    template <class T> using task = where_task<T>;
};

static where_job job_of(const struct xop_call *call, const struct xop_tensor *y) {
    struct where_map map;
    where_job job = {};
    where_collapse(call->in, y, &map);
    job.condition = (const unsigned char *)call->in[WHERE_CONDITION].data;
    job.n = map.elements;
    job.ndims = map.ndims;
    for (uint32_t i = 0; i < map.ndims; i++)
        job.dim[i] = map.dim[i];
    return job;
}

static uint64_t tiles_of(const where_job &job) { return (uint64_t)((job.n - 1) / WHERE_TILE + 1); }

enum xop_status where_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    table_builder<where_family> all(launch, launch->calls[0].out[0].dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        where_job job = job_of(call, &call->out[0]);
        job.x = call->in[WHERE_X].data;
        job.b = call->in[WHERE_B].data;
        job.out_x = call->out[0].data;
        if (job.n > 0 && job.out_x)
            all.add(job, tiles_of(job));
    }
    return all.finish();
}

/* ---- Backward ---- */

/* Where a gradient's elements go: to the terms of its sum, to itself, or nowhere. */
static void *elements_of(const struct xop_call *call, uint32_t which,
                         const struct shape_reduction *shape, uint64_t terms_offset) {
    if (!call->out[which].data)
        return NULL;
    return shape->form == SHAPE_FULL ? call->out[which].data
                                     : (char *)call->workspace + terms_offset;
}

static void add_sum(struct reduce_builders *sums, const struct xop_call *call, uint32_t which,
                    const struct shape_reduction *shape, uint64_t partial_offset,
                    uint64_t terms_offset) {
    struct reduce_request request = {};
    char *workspace = (char *)call->workspace;

    if (!call->out[which].data || shape->form == SHAPE_FULL)
        return;
    request.shape = shape;
    request.g = workspace ? workspace + terms_offset : NULL; /* without terms there is none */
    request.sum = call->out[which].data;
    request.partial = workspace ? (double *)(workspace + partial_offset) : NULL;
    reduce_add(sums, &request);
}

/* Terms come before any sum of them. */
enum xop_status where_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    const enum xop_dtype dtype = launch->calls[0].in[WHERE_GRAD_Y].dtype;
    table_builder<where_family> elements(launch, dtype, error);
    struct reduce_builders sums(launch, dtype, error);
    struct where_backward plan;

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        where_job job = job_of(call, &call->in[WHERE_GRAD_Y]);
        where_backward_plan(call, &plan);
        job.g = call->in[WHERE_GRAD_Y].data;
        job.out_x = elements_of(call, 0, &plan.sums.x, plan.x_offset);
        job.out_b = elements_of(call, 1, &plan.sums.b, plan.b_offset);
        if (job.n > 0 && (job.out_x || job.out_b))
            elements.add(job, tiles_of(job));
    }
    enum xop_status status = elements.finish();
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const struct xop_call *call = &launch->calls[i];
        where_backward_plan(call, &plan);
        add_sum(&sums, call, 0, &plan.sums.x, 0, plan.x_offset);
        add_sum(&sums, call, 1, &plan.sums.b, plan.sums.b_offset, plan.b_offset);
    }
    return status == XOP_OK ? reduce_launch(&sums) : status;
}

enum xop_status where_preload(struct xop_error *error) {
    enum xop_status status = table_builder<where_family>::preload(error);
    return status == XOP_OK ? reduce_preload(error) : status;
}
