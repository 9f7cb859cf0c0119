/*
 * sgd, adam and adamw: each thread brings in a vector of each slot, does the step of its elements
 * and puts out what changed, so that a result may take its input's place. All kinds are one kernel,
 * which looks up the kind for a tile as a whole.
 */
#include "kernels/optimizer.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/table.cuh"

#define OPTIMIZER_UNROLL 2 /* vectors of a thread */

/* The functions for each type computed in. */
#define FUNCTION static __device__
#define F(f) f
struct optimizer_math_f32 {
    using R = float;
#define SQRT(x) ::sqrtf(x)
#include "kernels/optimizer_math.h"
#undef SQRT
};
struct optimizer_math_f64 {
    using R = double;
#define SQRT(x) ::sqrt(x)
#include "kernels/optimizer_math.h"
#undef SQRT
};
#undef FUNCTION
#undef F

template <class C> struct optimizer_math_of { using type = optimizer_math_f32; };
template <> struct optimizer_math_of<double> { using type = optimizer_math_f64; };

struct optimizer_job {
    struct optimizer_step step;
    bool aligned; /* every pointer is a multiple of 16 */
    uint32_t first_tile;
};

template <class T>
constexpr int optimizer_tile_size = ELEMENT_BLOCK *OPTIMIZER_UNROLL * 16 / sizeof(T);

template <class T> struct optimizer_task {
    using V = vector<T>;
    using C = typename V::compute;
    using math = typename optimizer_math_of<C>::type;
    using numbers = typename math::optimizer;

    /* The element k of what a thread holds of every slot. */
    template <int N>
    static __device__ void update(const optimizer_job &job, const numbers &o,
                                  C (&slot)[OPTIMIZER_SLOTS][N], int k) {
        if (job.step.kind == OPTIMIZER_SGD)
            math::optimizer_sgd(&o, &slot[OPTIMIZER_PARAM][k], &slot[OPTIMIZER_FIRST][k],
                                slot[OPTIMIZER_GRAD][k]);
        else
            math::optimizer_adam(&o, &slot[OPTIMIZER_PARAM][k], &slot[OPTIMIZER_FIRST][k],
                                 &slot[OPTIMIZER_SECOND][k], &slot[OPTIMIZER_LARGEST][k],
                                 slot[OPTIMIZER_GRAD][k]);
    }

    static __device__ void one(const optimizer_job &job, const numbers &o, int64_t at) {
        C slot[OPTIMIZER_SLOTS][1];
#pragma unroll
        for (int i = 0; i < OPTIMIZER_SLOTS; i++)
            slot[i][0] = job.step.in[i] ? element<T>::load(((const T *)job.step.in[i])[at]) : C(0);
        update(job, o, slot, 0);
#pragma unroll
        for (int i = 0; i < OPTIMIZER_STATES; i++)
            if (job.step.out[i])
                ((T *)job.step.out[i])[at] = element<T>::store(slot[i][0]);
    }

    /* `at` is a multiple of a vector's size. */
    static __device__ void one_vector(const optimizer_job &job, const numbers &o, int64_t at) {
        C slot[OPTIMIZER_SLOTS][V::size];
        uint4 raw[OPTIMIZER_SLOTS];
#pragma unroll
        for (int i = 0; i < OPTIMIZER_SLOTS; i++)
            raw[i] = job.step.in[i] ? __ldcs((const uint4 *)((const T *)job.step.in[i] + at))
                                    : make_uint4(0, 0, 0, 0); /* zeros in every type */
#pragma unroll
        for (int i = 0; i < OPTIMIZER_SLOTS; i++)
            V::unpack(raw[i], slot[i]);
#pragma unroll
        for (int k = 0; k < V::size; k++)
            update(job, o, slot, k);
#pragma unroll
        for (int i = 0; i < OPTIMIZER_STATES; i++)
            if (job.step.out[i])
                __stcs((uint4 *)((T *)job.step.out[i] + at), V::pack(slot[i]));
    }

    static __device__ void run(const optimizer_job &job, uint32_t tile) {
        const int64_t begin = (int64_t)tile * optimizer_tile_size<T>, left = job.step.n - begin;
        const int size = left < optimizer_tile_size<T> ? (int)left : optimizer_tile_size<T>;
        const int count = job.aligned ? size / V::size : 0;
        const numbers o = math::optimizer_of(&job.step);

        for (int v = (int)threadIdx.x; v < count; v += ELEMENT_BLOCK)
            one_vector(job, o, begin + (int64_t)v * V::size);
        /* One by one: the end of an array, and arrays that are not aligned. */
        for (int i = count * V::size + (int)threadIdx.x; i < size; i += ELEMENT_BLOCK)
            one(job, o, begin + i);
    }
};

struct optimizer_family {
    using job = optimizer_job;
    template <class T> using task = optimizer_task<T>;
};

static bool all_aligned(const struct optimizer_step *step) {
    bool aligned = true;
    for (int i = 0; i < OPTIMIZER_SLOTS; i++)
        aligned = aligned && element_aligned(step->in[i]);
    for (int i = 0; i < OPTIMIZER_STATES; i++)
        aligned = aligned && element_aligned(step->out[i]);
    return aligned;
}

static enum xop_status run(enum optimizer_kind kind, const struct xop_launch *launch,
                           struct xop_error *error) {
    const enum xop_dtype dtype = launch->calls[0].in[OPTIMIZER_PARAM].dtype;
    const int64_t tile =
        (int64_t)ELEMENT_BLOCK * OPTIMIZER_UNROLL * 16 / (int64_t)xop_dtype_size(dtype);
    table_builder<optimizer_family> builder(launch, dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        optimizer_job job = {};
        optimizer_step_of(kind, &launch->calls[i], &job.step);
        job.aligned = all_aligned(&job.step);
        if (job.step.n > 0)
            builder.add(job, (uint64_t)((job.step.n - 1) / tile + 1));
    }
    return builder.finish();
}

enum xop_status sgd_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run(OPTIMIZER_SGD, launch, error);
}

enum xop_status adam_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run(OPTIMIZER_ADAM, launch, error);
}

enum xop_status adamw_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    return run(OPTIMIZER_ADAMW, launch, error);
}

enum xop_status optimizer_preload(struct xop_error *error) {
    return table_builder<optimizer_family>::preload(error);
}
