/*
 * y[i] = OP(x[.], b[.]) for a vector of elements at once, OP::each<T>(kind, x, b), which leaves
 * them in x; one or both operands are broadcast to y: each is walked with the strides of a
 * shape_map. A thread computes vectors of neighbouring elements of y. Where they lie in one run of
 * the innermost dimension, which is nearly always, an operand that is repeated along it is loaded
 * once, and one that walks it in one access if it is aligned.
 *
 * DIMS is the most dimensions that a job can have: 2 for the common forms, whose jobs are smaller.
 */
#ifndef KERNELS_CUDA_BROADCAST_CUH
#define KERNELS_CUDA_BROADCAST_CUH

#include "kernels/cuda/table.cuh"
#include "kernels/shape.h"

#define BROADCAST_UNROLL 2 /* vectors of a thread */

enum broadcast_flags {
    BROADCAST_ALIGNED = 1, /* y, and each operand that is not repeated, is a multiple of 16 */
    BROADCAST_X_FULL = 2,  /* x has an element for each of y, and its index is y's */
    BROADCAST_B_FULL = 4
};

template <int DIMS> struct broadcast_job {
    const void *x, *b;
    void *y;
    int64_t n;
    uint32_t first_tile, flags, ndims; /* ndims > 0 */
    uint32_t kind;                     /* for OP, where it is several */
    struct shape_dim dim[DIMS];
};

/* Finds the operands of elements. JOB has x, b, flags, ndims and dim as a broadcast_job has. */
template <class JOB, int DIMS, class T> struct broadcast_walk {
    using V = vector<T>;
    using C = typename V::compute;
    using job_type = JOB;

    struct place {
        int64_t x, b, inner; /* the operands' offsets; the index in the innermost dimension */
    };

    static __device__ place locate(const job_type &job, int64_t i) {
        place at = {0, 0, 0};
#pragma unroll
        for (int d = DIMS - 1; d >= 0; d--) {
            if (d >= (int)job.ndims)
                continue;
            int64_t index = i;
            if (d > 0) {
                element_quotient split = element_divide(i, job.dim[d].size);
                index = split.rest;
                i = split.quotient;
            }
            if (d == (int)job.ndims - 1)
                at.inner = index;
            at.x += index * job.dim[d].stride_x;
            at.b += index * job.dim[d].stride_b;
        }
        return at;
    }

    /* A vector's worth of an operand along the innermost dimension. */
    static __device__ void run_of(const T *from, int64_t stride, C (&value)[V::size]) {
        if (stride == 1 && ((uintptr_t)from & 15) == 0) {
            V::unpack(*(const uint4 *)from, value);
        } else if (stride == 0) {
            C same = element<T>::load(*from);
#pragma unroll
            for (int i = 0; i < V::size; i++)
                value[i] = same;
        } else {
#pragma unroll
            for (int i = 0; i < V::size; i++)
                value[i] = element<T>::load(from[i * stride]);
        }
    }

    /* The operands of the `count` elements from i on, where they are not FULL. */
    static __device__ void operands(const job_type &job, int64_t i, int count, C (&x)[V::size],
                                    C (&b)[V::size]) {
        const T *from_x = (const T *)job.x, *from_b = (const T *)job.b;
        const bool x_full = job.flags & BROADCAST_X_FULL, b_full = job.flags & BROADCAST_B_FULL;
        const shape_dim &inner = job.dim[job.ndims - 1];
        place at = locate(job, i);

        if (count == V::size && inner.size - at.inner >= V::size) {
            if (!x_full)
                run_of(from_x + at.x, inner.stride_x, x);
            if (!b_full)
                run_of(from_b + at.b, inner.stride_b, b);
            return;
        }
#pragma unroll
        for (int k = 0; k < V::size; k++) {
            if (k >= count)
                break;
            if (k > 0) {
                if (at.inner + 1 < inner.size) {
                    at.inner++;
                    at.x += inner.stride_x;
                    at.b += inner.stride_b;
                } else {
                    at = locate(job, i + k);
                }
            }
            if (!x_full)
                x[k] = element<T>::load(from_x[at.x]);
            if (!b_full)
                b[k] = element<T>::load(from_b[at.b]);
        }
    }
};

template <class OP, int DIMS, class T> struct broadcast {
    using V = vector<T>;
    using C = typename V::compute;
    using job_type = broadcast_job<DIMS>;
    static constexpr int tile_size = ELEMENT_BLOCK * BROADCAST_UNROLL * V::size;

    static __device__ void run(const job_type &job, uint32_t tile) {
        const bool aligned = job.flags & BROADCAST_ALIGNED;
        const bool x_full = job.flags & BROADCAST_X_FULL, b_full = job.flags & BROADCAST_B_FULL;
        int64_t begin = (int64_t)tile * tile_size + (int64_t)threadIdx.x * V::size;
        uint4 raw_x[BROADCAST_UNROLL], raw_b[BROADCAST_UNROLL];

#pragma unroll
        for (int u = 0; u < BROADCAST_UNROLL; u++) {
            int64_t i = begin + u * ELEMENT_BLOCK * V::size, left = job.n - i;
            int count = left < V::size ? (int)left : V::size;
            if (count <= 0)
                break;
            if (x_full)
                raw_x[u] = V::load((const T *)job.x + i, count, aligned);
            if (b_full)
                raw_b[u] = V::load((const T *)job.b + i, count, aligned);
        }
#pragma unroll
        for (int u = 0; u < BROADCAST_UNROLL; u++) {
            int64_t i = begin + u * ELEMENT_BLOCK * V::size, left = job.n - i;
            int count = left < V::size ? (int)left : V::size;
            C x[V::size] = {}, b[V::size] = {};
            if (count <= 0)
                break;
            if (x_full)
                V::unpack(raw_x[u], x);
            if (b_full)
                V::unpack(raw_b[u], b);
            broadcast_walk<job_type, DIMS, T>::operands(job, i, count, x, b);
            OP::template each<T>(job.kind, x, b);
            V::store((T *)job.y + i, count, aligned, V::pack(x));
        }
    }
};

template <class OP, int DIMS> struct broadcast_family {
    using job = broadcast_job<DIMS>;
    template <class T> using task = broadcast<OP, DIMS, T>;
};
template <class OP, int DIMS> using broadcast_builder = table_builder<broadcast_family<OP, DIMS>>;

/* Adds a job for operands and a result with data, where map is theirs and has 1 to DIMS dimensions.
 */
template <class OP, int DIMS>
void broadcast_add(table_builder<broadcast_family<OP, DIMS>> *builder, const struct shape_map *map,
                   const void *x, const void *b, void *y, uint32_t kind = 0) {
    int64_t tile =
        (int64_t)ELEMENT_BLOCK * BROADCAST_UNROLL * 16 / (int64_t)xop_dtype_size(builder->dtype);
    broadcast_job<DIMS> job = {x, b, y, map->elements, 0, 0, map->ndims, kind, {}};

    if (map->elements == 0)
        return;
    for (uint32_t i = 0; i < map->ndims; i++)
        job.dim[i] = map->dim[i];
    if (map->x_form == SHAPE_FULL)
        job.flags |= BROADCAST_X_FULL;
    if (map->b_form == SHAPE_FULL)
        job.flags |= BROADCAST_B_FULL;
    if (element_aligned(y) && (map->x_form != SHAPE_FULL || element_aligned(x)) &&
        (map->b_form != SHAPE_FULL || element_aligned(b)))
        job.flags |= BROADCAST_ALIGNED;
    builder->add(job, (uint64_t)((map->elements - 1) / tile + 1));
}

#endif
