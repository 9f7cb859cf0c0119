/*
 * Elementwise operators: out[i] = OP(a[i], b[i]), for a group of calls in one launch. OP has
 *
 *     static constexpr bool binary;    whether it takes b
 *     static constexpr bool copies;    whether b may be copied to `copy` on the way
 *     template <class T, class C> static __device__ C apply(C a, C b);
 *
 * where T is the dtype and C the type it is computed in. A thread starts all its loads before it
 * uses the first, so that enough are in flight to cover the latency of the bus or the memory.
 */
#ifndef KERNELS_CUDA_ELEMENTWISE_CUH
#define KERNELS_CUDA_ELEMENTWISE_CUH

#include "kernels/cuda/table.cuh"

#define ELEMENTWISE_UNROLL 4 /* vectors of a thread */

enum elementwise_flags {
    ELEMENTWISE_ALIGNED = 1, /* every pointer is a multiple of 16 */
    ELEMENTWISE_B_SCALAR = 2 /* b has one element, for all of a */
};

struct elementwise_job {
    const void *a, *b;
    void *out;  /* NULL where only the copy is wanted */
    void *copy; /* of b, or NULL */
    int64_t n;
    uint32_t first_tile, flags;
};

template <class OP, class T> struct elementwise {
    using V = vector<T>;
    using C = typename V::compute;
    static constexpr int vectors = ELEMENT_BLOCK * ELEMENTWISE_UNROLL;
    static constexpr int tile_size = vectors * V::size;

    /* Elements one by one: the end of an array, and arrays that are not aligned. */
    static __device__ void one_by_one(const elementwise_job &job, int64_t begin, int count) {
        const bool b_scalar = job.flags & ELEMENTWISE_B_SCALAR;
        for (int k = (int)threadIdx.x; k < count; k += ELEMENT_BLOCK) {
            int64_t i = begin + k;
            T b = T(0.0f);
            if constexpr (OP::binary)
                b = ((const T *)job.b)[b_scalar ? 0 : i];
            if (!OP::copies || job.out) {
                C a = element<T>::load(((const T *)job.a)[i]);
                ((T *)job.out)[i] =
                    element<T>::store(OP::template apply<T, C>(a, element<T>::load(b)));
            }
            if constexpr (OP::copies)
                if (job.copy)
                    ((T *)job.copy)[i] = b;
        }
    }

    /* WHOLE: the tile is, so that no bounds need be checked. Else it has `count` vectors. */
    template <bool WHOLE>
    static __device__ void by_vectors(const elementwise_job &job, int64_t begin, int count) {
        const bool wanted = !OP::copies || job.out;
        const bool b_scalar = job.flags & ELEMENTWISE_B_SCALAR;
        const uint4 *from_a = (const uint4 *)((const T *)job.a + begin);
        const uint4 *from_b = (const uint4 *)((const T *)job.b + (b_scalar ? 0 : begin));
        uint4 *to = (uint4 *)((T *)job.out + begin);
        uint4 raw_a[ELEMENTWISE_UNROLL], raw_b[ELEMENTWISE_UNROLL];
        C scalar = 0;

#pragma unroll
        for (int u = 0; u < ELEMENTWISE_UNROLL; u++) {
            int v = (int)threadIdx.x + u * ELEMENT_BLOCK;
            if (!WHOLE && v >= count)
                break;
            if (wanted)
                raw_a[u] = __ldcs(from_a + v);
            if (OP::binary && !b_scalar)
                raw_b[u] = __ldcs(from_b + v);
        }
        if (OP::binary && b_scalar)
            scalar = element<T>::load(*(const T *)job.b);
#pragma unroll
        for (int u = 0; u < ELEMENTWISE_UNROLL; u++) {
            int v = (int)threadIdx.x + u * ELEMENT_BLOCK;
            C a[V::size], b[V::size];
            if (!WHOLE && v >= count)
                break;
            if (wanted) {
                V::unpack(raw_a[u], a);
                if (OP::binary && !b_scalar)
                    V::unpack(raw_b[u], b);
#pragma unroll
                for (int i = 0; i < V::size; i++)
                    a[i] = OP::template apply<T, C>(a[i], b_scalar || !OP::binary ? scalar : b[i]);
                __stcs(to + v, V::pack(a));
            }
            if (OP::copies && job.copy)
                __stcs((uint4 *)((T *)job.copy + begin) + v, raw_b[u]);
        }
    }

    static __device__ void run(const elementwise_job &job, uint32_t tile) {
        int64_t begin = (int64_t)tile * tile_size, left = job.n - begin;
        int size = left < tile_size ? (int)left : tile_size, count = size / V::size;

        if (!(job.flags & ELEMENTWISE_ALIGNED)) {
            one_by_one(job, begin, size);
            return;
        }
        if (count == vectors)
            by_vectors<true>(job, begin, count);
        else
            by_vectors<false>(job, begin, count);
        one_by_one(job, begin + (int64_t)count * V::size, size - count * V::size);
    }
};

/* Jobs of one operator and dtype on their way into launches. */
template <class OP> struct elementwise_family {
    using job = elementwise_job;
    template <class T> using task = elementwise<OP, T>;
};
template <class OP> using elementwise_builder = table_builder<elementwise_family<OP>>;

/* Adds a job; sets its flag for alignment. n may be 0. */
template <class OP>
void elementwise_add(table_builder<elementwise_family<OP>> *builder, elementwise_job job) {
    int64_t tile =
        (int64_t)ELEMENT_BLOCK * ELEMENTWISE_UNROLL * 16 / (int64_t)xop_dtype_size(builder->dtype);
    bool b_aligned = !OP::binary || job.flags & ELEMENTWISE_B_SCALAR || element_aligned(job.b);
    if (job.n == 0 || (!job.out && !job.copy))
        return;
    if (element_aligned(job.a) && b_aligned && element_aligned(job.out) &&
        element_aligned(job.copy))
        job.flags |= ELEMENTWISE_ALIGNED;
    builder->add(job, (uint64_t)((job.n - 1) / tile + 1));
}

#endif
