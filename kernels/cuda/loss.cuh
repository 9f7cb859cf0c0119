/*
 * What the losses' kernels share: the sums of pieces, which a launch leaves in the workspace and a
 * second one adds up, a block for each call; and targets that are indices. Which thread adds what
 * follows from the number of pieces alone.
 */
#ifndef KERNELS_CUDA_LOSS_CUH
#define KERNELS_CUDA_LOSS_CUH

#include "kernels/cuda/row.cuh"
#include "kernels/loss.h"
#include <xop/check.h>

static_assert(LOSS_BLOCK == ELEMENT_BLOCK, "a piece of rows is what a block does");

/* Leaves the block's sums as those of a piece. All threads call it. */
static __device__ inline void loss_partial(double *partials, uint32_t piece, double loss,
                                           double weight) {
    loss = row_reduce<row_add>(loss, ELEMENT_BLOCK);
    weight = row_reduce<row_add>(weight, ELEMENT_BLOCK);
    if (threadIdx.x == 0) {
        partials[(int64_t)LOSS_PARTS * piece] = loss;
        partials[(int64_t)LOSS_PARTS * piece + 1] = weight;
    }
}

struct loss_finish_job {
    const double *partials;
    void *out;      /* an element; or a double, which gets the sum of the weights */
    int64_t pieces; /* there may be none */
    double divisor; /* of the sum of losses; 0: the sum of the weights */
    bool is_total;  /* out is the double */
    uint32_t first_tile;
};

template <class T> struct loss_finish {
    static __device__ void run(const loss_finish_job &job, uint32_t) {
        double loss = 0, weight = 0;
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < job.pieces; i += ELEMENT_BLOCK) {
            loss += job.partials[LOSS_PARTS * i];
            weight += job.partials[LOSS_PARTS * i + 1];
        }
        loss = row_reduce<row_add>(loss, ELEMENT_BLOCK);
        weight = row_reduce<row_add>(weight, ELEMENT_BLOCK);
        if (threadIdx.x != 0)
            return;
        if (job.is_total)
            *(double *)job.out = weight;
        else
            *(T *)job.out = element<T>::round(loss / (job.divisor != 0 ? job.divisor : weight));
    }
};
struct loss_finish_family {
    using job = loss_finish_job;
    template <class T> using task = loss_finish<T>;
};

/* ---- Targets that are indices ---- */

enum loss_flags {
    LOSS_ALIGNED = 1,       /* rows begin, and end, at multiples of 16 bytes in every operand */
    LOSS_PROBABILITIES = 2, /* target holds them */
    LOSS_NARROW = 4,        /* target is i32 */
    LOSS_EACH = 8           /* reduction is "none" */
};

/* Of both kernels over classes. Row r begins at element r / inner * n * inner + r % inner. */
struct loss_classes_job {
    const void *x, *target, *weight, *g; /* g: backward. weight: or NULL */
    void *out;
    double *partials;    /* forward: NULL where reduction is "none" */
    const double *total; /* backward: what a mean divides by, or NULL */
    struct xop_bad_index *bad;
    int64_t rows, n, inner, ignore_index;
    double smoothing, scale; /* scale: of g */
    uint32_t first_tile, lanes, flags;
};

/* A row's index, read once; -1 where the row does not count. One out of range is reported by the
 * thread that is to. */
static __device__ inline int64_t loss_target(const loss_classes_job &job, int64_t row,
                                             bool reports) {
    int64_t index =
        xop_index(job.flags & LOSS_NARROW ? XOP_I32 : XOP_I64, job.target, (uint64_t)row);
    if (index == job.ignore_index)
        return -1;
    if (index >= 0 && index < job.n)
        return index;
    if (reports)
        atomicMin((unsigned long long *)&job.bad->at, (unsigned long long)row);
    return -1;
}

template <class T>
static __device__ typename element<T>::compute loss_weight(const loss_classes_job &job,
                                                           int64_t index) {
    return job.weight ? element<T>::load(((const T *)job.weight)[index]) : 1;
}

/* What a row's gradient is multiplied by. */
template <class T>
static __device__ typename element<T>::compute loss_gradient(const loss_classes_job &job,
                                                             int64_t row) {
    double g = element<T>::load(((const T *)job.g)[job.flags & LOSS_EACH ? row : 0]);
    return (typename element<T>::compute)(job.total ? g / *job.total : g * job.scale);
}

/* ---- The host's side ---- */

/* The operands of a call, forward or backward. */
static inline loss_classes_job loss_classes_operands(const struct xop_call *call,
                                                     const struct loss_classes *classes,
                                                     bool backward) {
    loss_classes_job job = {};
    job.x = call->in[LOSS_X].data;
    job.target = call->in[LOSS_TARGET].data;
    job.weight = call->in[LOSS_WEIGHT].data;
    job.out = call->out[0].data;
    job.bad = call->bad_index;
    job.rows = classes->rows;
    job.n = classes->size.n;
    job.inner = classes->size.inner;
    job.ignore_index = classes->ignore_index;
    job.smoothing = classes->smoothing;
    job.scale = 1;
    job.flags = (classes->probabilities ? LOSS_PROBABILITIES : 0) |
                (call->in[LOSS_TARGET].dtype == XOP_I32 ? LOSS_NARROW : 0) |
                (classes->reduction == LOSS_NONE ? LOSS_EACH : 0);
    if (!backward) {
        job.partials = classes->reduction == LOSS_NONE ? NULL : (double *)call->workspace;
        return job;
    }
    job.g = call->in[LOSS_CLASSES_GRAD_Y].data;
    if (loss_classes_total(classes))
        job.total = (const double *)call->workspace;
    else if (classes->reduction == LOSS_MEAN)
        job.scale = 1 / (double)classes->rows;
    return job;
}

/* Adds up the pieces of each call's forward that has any. */
enum xop_status loss_finish_forward(const struct xop_launch *launch, bool entropy,
                                    struct xop_error *error);

/* Adds up the weights of all targets, for each call's backward that needs them. */
enum xop_status loss_totals(const struct xop_launch *launch, bool entropy, struct xop_error *error);

#endif
