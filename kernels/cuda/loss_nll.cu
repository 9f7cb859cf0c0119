/*
 * nll_loss: a thread looks up one element of a row, and backward fills x's shape; and the sums of
 * weights that backward of a mean over indices begins with, nll_loss's or cross_entropy's.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/loss.h"

/* LOSS_PIECE rows. Where there is no x, their weights alone are added up, or nothing is, and
 * indices are looked at only. */
template <class T> struct nll_forward {
    using C = typename element<T>::compute;

    static __device__ C loss_at(const loss_classes_job &job, int64_t row, int64_t index, C weight) {
        element_quotient split = element_divide(row, job.inner);
        int64_t at = (split.quotient * job.n + index) * job.inner + split.rest;
        return -weight * element<T>::load(((const T *)job.x)[at]);
    }

    static __device__ void run(const loss_classes_job &job, uint32_t tile) {
        const int64_t first = (int64_t)tile * LOSS_PIECE;
        const int64_t end = first + LOSS_PIECE < job.rows ? first + LOSS_PIECE : job.rows;
        C loss = 0, weights = 0;

        for (int64_t row = first + threadIdx.x; row < end; row += ELEMENT_BLOCK) {
            const int64_t index = loss_target(job, row, true);
            const C weight = index >= 0 ? loss_weight<T>(job, index) : C(0);
            const C mine = index >= 0 && job.x ? loss_at(job, row, index, weight) : C(0);
            if (job.x && job.flags & LOSS_EACH)
                ((T *)job.out)[row] = element<T>::store(mine);
            loss += mine;
            weights += weight;
        }
        if (job.partials)
            loss_partial(job.partials, tile, loss, weights);
    }
};

/* LOSS_PIECE elements of x. */
template <class T> struct nll_backward {
    using C = typename element<T>::compute;

    static __device__ void run(const loss_classes_job &job, uint32_t tile) {
        const int64_t elements = job.rows * job.n, first = (int64_t)tile * LOSS_PIECE;
        const int64_t end = first + LOSS_PIECE < elements ? first + LOSS_PIECE : elements;

        for (int64_t at = first + threadIdx.x; at < end; at += ELEMENT_BLOCK) {
            const element_quotient inner = element_divide(at, job.inner);
            const element_quotient outer = element_divide(inner.quotient, job.n);
            const int64_t row = outer.quotient * job.inner + inner.rest;
            const int64_t index = loss_target(job, row, outer.rest == 0);
            C gradient = 0;
            if (index == outer.rest)
                gradient = -loss_weight<T>(job, index) * loss_gradient<T>(job, row);
            ((T *)job.out)[at] = element<T>::store(gradient);
        }
    }
};

struct nll_forward_family {
    using job = loss_classes_job;
    template <class T> using task = nll_forward<T>;
};
struct nll_backward_family {
    using job = loss_classes_job;
    template <class T> using task = nll_backward<T>;
};

/* ---- Sums ---- */

enum xop_status loss_finish_forward(const struct xop_launch *launch, bool entropy,
                                    struct xop_error *error) {
    const enum xop_dtype dtype = launch->calls[0].in[LOSS_X].dtype;
    table_builder<loss_finish_family> ends(launch, dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        struct loss_classes classes;
        struct loss_cut cut;
        loss_finish_job job = {};
        loss_classes_measure(call, entropy, &classes);
        if (!call->out[0].data || classes.reduction == LOSS_NONE)
            continue;
        loss_classes_cut(&classes.size, dtype, &cut);
        job.partials = (const double *)call->workspace;
        job.out = call->out[0].data;
        job.pieces = entropy ? cut.pieces : loss_pieces(classes.rows);
        if (classes.reduction == LOSS_SUM)
            job.divisor = 1;
        else if (classes.probabilities)
            job.divisor = (double)classes.rows; /* 0 / 0 where there are none */
        ends.add(job, 1);
    }
    return ends.finish();
}

/* One kernel looks at all targets, another adds up what it leaves: each has to be launched before
 * the next is begun. */
enum xop_status loss_totals(const struct xop_launch *launch, bool entropy,
                            struct xop_error *error) {
    const enum xop_dtype dtype = launch->calls[0].in[LOSS_X].dtype;
    table_builder<nll_forward_family> weights(launch, dtype, error);
    table_builder<loss_finish_family> ends(launch, dtype, error);
    enum xop_status status = XOP_OK;

    for (int pass = 0; pass < 2 && status == XOP_OK; pass++) {
        for (uint32_t i = 0; i < launch->ncalls; i++) {
            const struct xop_call *call = &launch->calls[i];
            struct loss_classes classes;
            loss_classes_measure(call, entropy, &classes);
            const bool total = loss_classes_total(&classes);
            /* Without classes nobody else looks at an index. */
            const bool looks =
                !classes.probabilities && classes.rows > 0 && (total || classes.size.n == 0);
            double *partials =
                total ? (double *)((char *)call->workspace + LOSS_TOTAL_BYTES) : NULL;
            if (pass == 0 && looks) {
                loss_classes_job job = loss_classes_operands(call, &classes, true);
                job.x = NULL;
                job.partials = partials;
                weights.add(job, (uint64_t)loss_pieces(classes.rows));
            } else if (pass == 1 && total) {
                loss_finish_job job = {};
                job.partials = partials;
                job.out = call->workspace;
                job.pieces = loss_pieces(classes.rows);
                job.is_total = true;
                ends.add(job, 1);
            }
        }
        status = pass == 0 ? weights.finish() : ends.finish();
    }
    return status;
}

/* ---- Launches ---- */

enum xop_status nll_loss_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    table_builder<nll_forward_family> all(launch, launch->calls[0].in[LOSS_X].dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        struct loss_classes classes;
        loss_classes_measure(&launch->calls[i], false, &classes);
        if (launch->calls[i].out[0].data && classes.rows > 0)
            all.add(loss_classes_operands(&launch->calls[i], &classes, false),
                    (uint64_t)loss_pieces(classes.rows));
    }
    enum xop_status status = all.finish();
    return status == XOP_OK ? loss_finish_forward(launch, false, error) : status;
}

enum xop_status nll_loss_cuda_backward(const struct xop_launch *launch, struct xop_error *error) {
    table_builder<nll_backward_family> all(launch, launch->calls[0].in[LOSS_X].dtype, error);
    enum xop_status status = loss_totals(launch, false, error);

    for (uint32_t i = 0; status == XOP_OK && i < launch->ncalls; i++) {
        struct loss_classes classes;
        loss_classes_measure(&launch->calls[i], false, &classes);
        if (launch->calls[i].out[0].data && classes.rows > 0 && classes.size.n > 0)
            all.add(loss_classes_operands(&launch->calls[i], &classes, true),
                    (uint64_t)loss_pieces(classes.rows * classes.size.n));
    }
    return status == XOP_OK ? all.finish() : status;
}

enum xop_status nll_loss_preload(struct xop_error *error) {
    enum xop_status status = table_builder<nll_forward_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<nll_backward_family>::preload(error);
    return status == XOP_OK ? table_builder<loss_finish_family>::preload(error) : status;
}
