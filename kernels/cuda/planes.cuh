/*
 * group_norm and batch_norm: blocks make partial sums of pieces of strands (kernels/planes.h), a
 * thread for each strand joins them in order, and a pass over all elements uses what came out. Sums
 * are in double. Which thread sums which elements follows from the shape alone.
 */
#ifndef KERNELS_CUDA_PLANES_CUH
#define KERNELS_CUDA_PLANES_CUH

#include "kernels/cuda/row.cuh"
#include "kernels/planes.h"

enum planes_flags {
    PLANES_BATCH = 1,    /* statistics are a channel's, not those of a group */
    PLANES_FIXED = 2,    /* they are given, by `given_mean` and `given_scale` */
    PLANES_IS_SCALE = 4, /* and given_scale is invstd, not the variance */
    PLANES_WEIGHTED = 8, /* grad_y is multiplied by the weight before it is summed */
    PLANES_ALIGNED = 16  /* every 16 bytes of elements are at a multiple of 16 */
};

/* Of all kernels here; each says which members it uses. */
struct planes_job {
    const void *x, *g, *weight, *bias;    /* weight, bias: or NULL */
    const void *given_mean, *given_scale; /* or NULL */
    void *out;                            /* y or grad_x */
    /* Of each strand, or NULL: mean, invstd and the new running statistics; grad_bias and
     * grad_weight. */
    void *first, *second, *third, *fourth;
    double *partial, *stats, *sums;
    int64_t strands, n, run, step, stride, piece;
    int64_t elements, channels, inner, group; /* group: elements of one, where statistics are its */
    double eps, momentum;
    uint32_t first_tile, pieces, lanes, flags;
};

/* A thread's way through a piece of a strand: every `high`th element. Where strands lie side by
 * side a block takes `lanes` of them, else 1. */
struct planes_walk {
    int64_t strand, piece, first, last, at_run, in_run, step_runs, step_in;
    bool active;

    __device__ planes_walk(const planes_job &job, uint32_t tile) {
        const uint32_t high = ELEMENT_BLOCK / job.lanes, level = threadIdx.x / job.lanes;
        element_quotient split = element_divide(tile, job.pieces);
        strand = split.quotient * job.lanes + threadIdx.x % job.lanes;
        piece = split.rest;
        active = strand < job.strands;
        last = job.n - piece * job.piece < job.piece ? job.n : (piece + 1) * job.piece;
        first = piece * job.piece + level;
        split = element_divide(first, job.run);
        at_run = split.quotient;
        in_run = split.rest;
        split = element_divide(high, job.run);
        step_runs = split.quotient;
        step_in = split.rest;
        if (!active)
            first = last;
    }
    __device__ int64_t at(const planes_job &job) const {
        return strand * job.step + at_run * job.stride + in_run;
    }
    __device__ void next(const planes_job &job) {
        at_run += step_runs;
        in_run += step_in;
        if (in_run >= job.run) {
            in_run -= job.run;
            at_run++;
        }
    }
    __device__ int64_t count(const planes_job &job) const { return last - piece * job.piece; }
};

template <class T> static __device__ double planes_get(const void *from, int64_t i, double none) {
    return from ? (double)element<T>::load(((const T *)from)[i]) : none;
}

template <class T> static __device__ void planes_put(void *to, int64_t i, double value) {
    if (to)
        ((T *)to)[i] = element<T>::round(value);
}

/* Whose statistics are those of an element of a plane. */
static __device__ inline int64_t planes_strand(const planes_job &job, int64_t at, int64_t channel) {
    return job.flags & PLANES_BATCH ? channel : element_divide(at, job.group).quotient;
}

/* partial: of each piece its mean, and the sum of squared distances from it. */
template <class T> struct planes_stats {
    static __device__ void run(const planes_job &job, uint32_t tile) {
        const planes_walk start(job, tile);
        const int64_t high = ELEMENT_BLOCK / job.lanes;
        const double n = (double)start.count(job);
        const T *x = (const T *)job.x;
        double sum = 0, squares = 0, mean;

        planes_walk walk = start;
        for (int64_t i = walk.first; i < walk.last; i += high, walk.next(job))
            sum += (double)element<T>::load(x[walk.at(job)]);
        mean = row_reduce_levels<row_add>(sum, job.lanes) / n;
        walk = start;
        for (int64_t i = walk.first; i < walk.last; i += high, walk.next(job)) {
            double d = (double)element<T>::load(x[walk.at(job)]) - mean;
            squares = fma(d, d, squares);
        }
        squares = row_reduce_levels<row_add>(squares, job.lanes);
        if (start.active && threadIdx.x < job.lanes) {
            double *to = job.partial + 2 * (start.strand * job.pieces + start.piece);
            to[0] = mean;
            to[1] = squares;
        }
    }
};

/* stats: of each strand its mean and 1 / sqrt(var + eps); and what batch_norm tells of them. */
template <class T> struct planes_end_stats {
    static __device__ int64_t count(const planes_job &job, uint32_t piece) {
        int64_t left = job.n - piece * job.piece;
        return left < job.piece ? left : job.piece;
    }

    static __device__ void join(const planes_job &job, int64_t strand, double *mean,
                                double *squares) {
        const double *from = job.partial + 2 * strand * job.pieces;
        double total = 0;
        for (uint32_t p = 0; p < job.pieces; p++)
            total += from[2 * p] * (double)count(job, p);
        *mean = total / (double)job.n;
        *squares = 0;
        for (uint32_t p = 0; p < job.pieces; p++) {
            double d = from[2 * p] - *mean;
            *squares += from[2 * p + 1] + d * d * (double)count(job, p);
        }
    }

    static __device__ void run(const planes_job &job, uint32_t tile) {
        const int64_t i = (int64_t)tile * ELEMENT_BLOCK + threadIdx.x;
        const bool fixed = job.flags & PLANES_FIXED;
        double mean, squares = 0, scale;

        if (i >= job.strands)
            return;
        if (fixed) {
            mean = planes_get<T>(job.given_mean, i, 0);
            scale = planes_get<T>(job.given_scale, i, 0);
            if (!(job.flags & PLANES_IS_SCALE))
                scale = 1 / sqrt(scale + job.eps);
        } else {
            join(job, i, &mean, &squares);
            scale = 1 / sqrt(squares / (double)job.n + job.eps);
        }
        job.stats[2 * i] = mean;
        job.stats[2 * i + 1] = scale;
        planes_put<T>(job.first, i, mean);
        planes_put<T>(job.second, i, scale);
        double running_mean = planes_get<T>(job.given_mean, i, 0);
        double running_var = planes_get<T>(job.given_scale, i, 0);
        if (!fixed && job.n > 0) {
            running_mean = (1 - job.momentum) * running_mean + job.momentum * mean;
            running_var =
                (1 - job.momentum) * running_var + job.momentum * (squares / (double)(job.n - 1));
        }
        planes_put<T>(job.third, i, running_mean);
        planes_put<T>(job.fourth, i, running_var);
    }
};

/* partial: of each piece the sums of u and u h, u being grad_y, weighted or not. */
template <class T> struct planes_sums {
    static __device__ void run(const planes_job &job, uint32_t tile) {
        planes_walk walk(job, tile);
        const int64_t high = ELEMENT_BLOCK / job.lanes;
        const bool weighted = job.flags & PLANES_WEIGHTED && job.weight;
        double sum = 0, product = 0;

        for (int64_t i = walk.first; i < walk.last; i += high, walk.next(job)) {
            const int64_t at = walk.at(job);
            int64_t channel = walk.strand;
            if (weighted) {
                element_quotient plane = element_divide(at, job.inner);
                channel = element_divide(plane.quotient, job.channels).rest;
            }
            const double *stats = job.stats + 2 * planes_strand(job, at, channel);
            double u = (double)element<T>::load(((const T *)job.g)[at]);
            double h = ((double)element<T>::load(((const T *)job.x)[at]) - stats[0]) * stats[1];
            if (weighted)
                u *= planes_get<T>(job.weight, channel, 1);
            sum += u;
            product = fma(u, h, product);
        }
        sum = row_reduce_levels<row_add>(sum, job.lanes);
        product = row_reduce_levels<row_add>(product, job.lanes);
        if (walk.active && threadIdx.x < job.lanes) {
            double *to = job.partial + 2 * (walk.strand * job.pieces + walk.piece);
            to[0] = sum;
            to[1] = product;
        }
    }
};

/* sums, where there are: of each strand; grad_bias and grad_weight are the same. */
template <class T> struct planes_end_sums {
    static __device__ void run(const planes_job &job, uint32_t tile) {
        const int64_t i = (int64_t)tile * ELEMENT_BLOCK + threadIdx.x;
        const double *from = job.partial + 2 * i * job.pieces;
        double sum = 0, product = 0;

        if (i >= job.strands)
            return;
        for (uint32_t p = 0; p < job.pieces; p++) {
            sum += from[2 * p];
            product += from[2 * p + 1];
        }
        if (job.sums) {
            job.sums[2 * i] = sum;
            job.sums[2 * i + 1] = product;
        }
        planes_put<T>(job.first, i, sum);
        planes_put<T>(job.second, i, product);
    }
};

/* The elements of one thread's vector, whose plane is found once and then counted on. */
template <class T> struct planes_place {
    using C = typename element<T>::compute;
    int64_t channel, within, strand;
    C mean, scale, weight, bias, u, uh;

    __device__ planes_place(const planes_job &job, int64_t at) {
        element_quotient plane = element_divide(at, job.inner);
        within = plane.rest;
        channel = element_divide(plane.quotient, job.channels).rest;
        look(job, at);
    }
    __device__ void look(const planes_job &job, int64_t at) {
        const bool batch = job.flags & PLANES_BATCH;
        strand = planes_strand(job, at, channel);
        double factor = planes_get<T>(job.weight, channel, 1), n = (double)job.n;
        mean = (C)job.stats[2 * strand];
        scale = (C)job.stats[2 * strand + 1];
        weight = (C)factor;
        bias = (C)planes_get<T>(job.bias, channel, 0);
        u = uh = 0;
        if (job.sums) { /* those of batch_norm are not weighted, and have one weight */
            u = (C)(job.sums[2 * strand] / n * (batch ? factor : 1));
            uh = (C)(job.sums[2 * strand + 1] / n * (batch ? factor : 1));
        }
    }
    __device__ void next(const planes_job &job, int64_t at) {
        if (++within < job.inner)
            return;
        within = 0;
        if (++channel == job.channels)
            channel = 0;
        if (at < job.elements)
            look(job, at);
    }
};

/* out: y, or grad_x where g is given. */
template <class T> struct planes_apply {
    static __device__ void run(const planes_job &job, uint32_t tile) {
        using V = vector<T>;
        using C = typename V::compute;
        const int64_t at = ((int64_t)tile * ELEMENT_BLOCK + threadIdx.x) * V::size;
        const bool aligned = job.flags & PLANES_ALIGNED;
        C x[V::size], g[V::size];

        if (at >= job.elements)
            return;
        const int count = job.elements - at < V::size ? (int)(job.elements - at) : V::size;
        V::unpack(V::load((const T *)job.x + at, count, aligned), x);
        if (job.g)
            V::unpack(V::load((const T *)job.g + at, count, aligned), g);
        planes_place<T> place(job, at);
#pragma unroll
        for (int k = 0; k < V::size; k++) {
            C h = (x[k] - place.mean) * place.scale;
            if (!job.g)
                x[k] = h * place.weight + place.bias;
            else if (job.sums)
                x[k] = (g[k] * place.weight - (place.u + h * place.uh)) * place.scale;
            else
                x[k] = g[k] * place.weight * place.scale;
            if (k + 1 < V::size)
                place.next(job, at + k + 1);
        }
        V::store((T *)job.out + at, count, aligned, V::pack(x));
    }
};

#endif
