/*
 * cross_entropy: the largest of a row and the sum of exponentials in one walk, scaled whenever the
 * largest grows, as softmax of long rows has it. What else is needed of a row, all of it where
 * labels are smoothed or targets are probabilities, and for the gradient, is a second walk, which
 * finds the row in a cache unless it is very long.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/loss.h"

#define ENTROPY_UNROLL 4 /* accesses that a thread has in flight */

/* A thread's way through a row that lies together, W elements at a time: `lanes` neighbouring
 * threads do it. */
template <class T, int W> struct entropy_together {
    int64_t row, at, first, step;
    bool active, leads;
    uint32_t lanes;

    __device__ entropy_together(const loss_classes_job &job, uint32_t tile) {
        lanes = job.lanes;
        row = (int64_t)tile * (ELEMENT_BLOCK / lanes) + threadIdx.x / lanes;
        at = row * job.n;
        first = (int64_t)(threadIdx.x % lanes) * W;
        step = (int64_t)lanes * W;
        active = row < job.rows;
        leads = active && threadIdx.x % lanes == 0;
    }
    template <class OP, class C> __device__ C reduce(C value) const {
        return row_reduce<OP>(value, lanes);
    }
};

/* Through a row whose elements lie apart: neighbouring threads do neighbouring rows. */
template <class T> struct entropy_apart {
    int64_t row, at, first, step;
    bool active, leads;
    uint32_t lanes;

    __device__ entropy_apart(const loss_classes_job &job, uint32_t tile) {
        lanes = job.lanes;
        const element_quotient split = element_divide(tile, (job.inner - 1) / lanes + 1);
        const int64_t column = split.rest * lanes + threadIdx.x % lanes;
        row = split.quotient * job.inner + column;
        at = split.quotient * job.n * job.inner + column;
        first = threadIdx.x / lanes;
        step = ELEMENT_BLOCK / lanes;
        active = column < job.inner;
        leads = active && threadIdx.x / lanes == 0;
    }
    template <class OP, class C> __device__ C reduce(C value) const {
        return row_reduce_levels<OP>(value, lanes);
    }
};

template <class T, int W, class WAY> struct entropy_row {
    using cell = reduce_cell<T, W>;
    using C = typename element<T>::compute;
    const loss_classes_job &job;
    const WAY way;
    int64_t end;    /* of the row's classes; 0 where the row does not count */
    int64_t target; /* -1 where there is none */
    C weight;       /* of the target */
    C most, sum;

    __device__ entropy_row(const loss_classes_job &its_job, uint32_t tile)
        : job(its_job), way(its_job, tile), end(0), target(-1), weight(0), most(0), sum(0) {
        if (way.active && !(job.flags & LOSS_PROBABILITIES)) {
            target = loss_target(job, way.row, way.leads);
            weight = target >= 0 ? loss_weight<T>(job, target) : C(0);
        }
        if (way.active && (target >= 0 || job.flags & LOSS_PROBABILITIES))
            end = job.n;
    }

    /* Unlike vectors elsewhere, they are read again. */
    static __device__ typename cell::raw raw_load(const T *from, int count, bool aligned) {
        if constexpr (W > 1)
            return aligned && count == W ? *(const uint4 *)from : vector<T>::gather(from, count);
        else
            return *from;
    }

    __device__ int count(int64_t i) const { return end - i < W ? (int)(end - i) : W; }
    /* Of a tensor of x's shape, from class i on; `fill` for what is not there. */
    __device__ void load(const void *from, int64_t i, C fill, C (&to)[W]) const {
        const T *at = (const T *)from + way.at + i * job.inner;
        cell::unpack(raw_load(at, count(i), job.flags & LOSS_ALIGNED), to);
#pragma unroll
        for (int k = 1; k < W; k++)
            to[k] = k < count(i) ? to[k] : fill;
    }
    __device__ void store(int64_t i, const C (&value)[W]) const {
        int64_t left = job.n - i;
        cell::store((T *)job.out + way.at + i * job.inner, left < W ? (int)left : W,
                    job.flags & LOSS_ALIGNED, cell::pack(value));
    }

    /* What exponentials are relative to: the largest, but a number where there is only -inf. */
    static __device__ C reference(C largest) { return largest == -(C)INFINITY ? C(0) : largest; }

    /* Finds most and sum. All threads of the block call it. */
    __device__ void measure() {
        C mine = -(C)INFINITY, total = 0;
        for (int64_t i = way.first; i < end; i += ENTROPY_UNROLL * way.step) {
            C value[ENTROPY_UNROLL][W], larger = mine;
#pragma unroll
            for (int u = 0; u < ENTROPY_UNROLL; u++) {
                if (i + u * way.step < end)
                    load(job.x, i + u * way.step, -(C)INFINITY, value[u]);
                else
#pragma unroll
                    for (int k = 0; k < W; k++)
                        value[u][k] = -(C)INFINITY;
            }
#pragma unroll
            for (int u = 0; u < ENTROPY_UNROLL; u++)
#pragma unroll
                for (int k = 0; k < W; k++)
                    larger = row_max::join(larger, value[u][k]);
            total *= row_exp<T>(mine - reference(larger));
            mine = larger;
#pragma unroll
            for (int u = 0; u < ENTROPY_UNROLL; u++) {
#pragma unroll
                for (int k = 0; k < W; k++)
                    value[u][k] = row_exp<T>(value[u][k] - reference(mine));
                total += row_add_up(value[u]);
            }
        }
        most = way.template reduce<row_max>(mine);
        total *= row_exp<T>(mine - reference(most));
        sum = way.template reduce<row_add>(total);
    }

    /* What the logarithms of the probabilities of classes from i on are multiplied by, but for
     * their sign. */
    __device__ void shares(int64_t i, C (&u)[W]) const {
        const C spread = (C)(job.smoothing / (double)job.n), rest = (C)(1 - job.smoothing);
        if (job.flags & LOSS_PROBABILITIES) {
            load(job.target, i, C(0), u);
#pragma unroll
            for (int k = 0; k < W; k++)
                u[k] = rest * u[k] + spread;
        } else {
#pragma unroll
            for (int k = 0; k < W; k++)
                u[k] = i + k == target ? rest + spread : spread;
        }
#pragma unroll
        for (int k = 0; k < W; k++)
            u[k] = k < count(i) ? u[k] * loss_weight<T>(job, i + k) : C(0);
    }

    __device__ bool is_plain() const {
        return !(job.flags & LOSS_PROBABILITIES) && job.smoothing == 0;
    }

    /* In the thread that leads. All threads of the block call it. */
    __device__ C loss() const {
        const C log_sum = row_log(sum);
        C mine = 0;
        if (is_plain()) { /* which it is for all threads alike */
            if (way.leads && target >= 0)
                mine =
                    -weight * (element<T>::load(((const T *)job.x)[way.at + target * job.inner]) -
                               most - log_sum);
            return mine;
        }
        for (int64_t i = way.first; i < end; i += way.step) {
            C x[W], u[W];
            load(job.x, i, C(0), x);
            shares(i, u);
#pragma unroll
            for (int k = 0; k < W; k++)
                if (k < count(i))
                    mine -= u[k] * (x[k] - most - log_sum);
        }
        return way.template reduce<row_add>(mine);
    }

    /* All threads of the block call it. */
    __device__ void gradient() const {
        const C g = end > 0 ? loss_gradient<T>(job, way.row) : C(0), scale = 1 / sum;
        C all = weight;
        if (!is_plain()) {
            all = 0;
            for (int64_t i = way.first; i < end; i += way.step) {
                C u[W];
                shares(i, u);
                all += row_add_up(u);
            }
            all = way.template reduce<row_add>(all);
        }
#pragma unroll 2
        for (int64_t i = way.first; way.active && i < job.n; i += way.step) {
            C x[W], u[W];
            if (end > 0) {
                load(job.x, i, C(0), x);
                shares(i, u);
            }
#pragma unroll
            for (int k = 0; k < W; k++)
                x[k] = end > 0 ? g * (row_exp<T>(x[k] - most) * scale * all - u[k]) : C(0);
            store(i, x);
        }
    }
};

template <class T> struct entropy_forward {
    template <int W, class WAY>
    static __device__ void walk(const loss_classes_job &job, uint32_t tile) {
        entropy_row<T, W, WAY> row(job, tile);
        row.measure();
        const auto loss = row.loss();
        const bool leads = row.way.leads;
        if (leads && job.flags & LOSS_EACH)
            ((T *)job.out)[row.way.row] = element<T>::store(row.end > 0 ? loss : 0);
        if (job.partials)
            loss_partial(job.partials, tile, leads && row.end > 0 ? (double)loss : 0.0,
                         leads ? (double)row.weight : 0.0);
    }

    static __device__ void run(const loss_classes_job &job, uint32_t tile) {
        if (job.inner == 1)
            walk<vector<T>::size, entropy_together<T, vector<T>::size>>(job, tile);
        else
            walk<1, entropy_apart<T>>(job, tile);
    }
};

template <class T> struct entropy_backward {
    template <int W, class WAY>
    static __device__ void walk(const loss_classes_job &job, uint32_t tile) {
        entropy_row<T, W, WAY> row(job, tile);
        row.measure();
        row.gradient();
    }

    static __device__ void run(const loss_classes_job &job, uint32_t tile) {
        if (job.inner == 1)
            walk<vector<T>::size, entropy_together<T, vector<T>::size>>(job, tile);
        else
            walk<1, entropy_apart<T>>(job, tile);
    }
};

struct entropy_forward_family {
    using job = loss_classes_job;
    template <class T> using task = entropy_forward<T>;
};
struct entropy_backward_family {
    using job = loss_classes_job;
    template <class T> using task = entropy_backward<T>;
};

/* ---- Launches ---- */

template <class FAMILY>
static enum xop_status run(const struct xop_launch *launch, bool backward,
                           struct xop_error *error) {
    const enum xop_dtype dtype = launch->calls[0].in[LOSS_X].dtype;
    table_builder<FAMILY> all(launch, dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        struct loss_classes classes;
        struct loss_cut cut;
        loss_classes_measure(call, true, &classes);
        if (!call->out[0].data || classes.rows == 0)
            continue;
        loss_classes_cut(&classes.size, dtype, &cut);
        loss_classes_job job = loss_classes_operands(call, &classes, backward);
        job.lanes = cut.lanes;
        bool aligned = job.n * (int64_t)xop_dtype_size(dtype) % 16 == 0 && element_aligned(job.x);
        if (classes.probabilities)
            aligned = aligned && element_aligned(job.target);
        if (backward)
            aligned = aligned && element_aligned(job.out);
        job.flags |= aligned ? LOSS_ALIGNED : 0;
        all.add(job, (uint64_t)cut.pieces);
    }
    return all.finish();
}

enum xop_status cross_entropy_cuda_forward(const struct xop_launch *launch,
                                           struct xop_error *error) {
    enum xop_status status = run<entropy_forward_family>(launch, false, error);
    return status == XOP_OK ? loss_finish_forward(launch, true, error) : status;
}

enum xop_status cross_entropy_cuda_backward(const struct xop_launch *launch,
                                            struct xop_error *error) {
    enum xop_status status = loss_totals(launch, true, error);
    return status == XOP_OK ? run<entropy_backward_family>(launch, true, error) : status;
}

enum xop_status cross_entropy_preload(struct xop_error *error) {
    enum xop_status status = table_builder<entropy_forward_family>::preload(error);
    return status == XOP_OK ? table_builder<entropy_backward_family>::preload(error) : status;
}
