/*
 * sigmoid, sigmoid_complement and bose_einstein. The exponential and the division are CUDA's
 * accurate ones, but for bf16, where these would take longer than the memory: there the device's
 * own approximations do, whose relative errors, under 2^-19, are a small part of half a unit in
 * bf16's last place, 2^-9.
 */
#include "kernels/activation.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/launch.h"

template <class T> constexpr bool fast = false;
template <> constexpr bool fast<__nv_bfloat16> = true;

/* exp(-a) for a >= 0, or NaN. */
template <class T, class C> static __device__ C exp_minus(C a) {
    if constexpr (fast<T>)
        return __expf(-a);
    else if constexpr (sizeof(C) == 4)
        return expf(-a);
    else
        return exp(-a);
}

/* a / b for b in [1, 2]. */
template <class T, class C> static __device__ C quotient(C a, C b) {
    if constexpr (fast<T>)
        return __fdividef(a, b);
    else
        return a / b;
}

struct sigmoid_forward {
    static constexpr bool binary = false, copies = false;
    template <class T, class C> static __device__ C apply(C x, C) {
        C e = exp_minus<T, C>(fabs(x));
        return quotient<T, C>(x < 0 ? e : C(1), 1 + e);
    }
};

struct sigmoid_complement_forward {
    static constexpr bool binary = false, copies = false;
    template <class T, class C> static __device__ C apply(C x, C) {
        C e = exp_minus<T, C>(fabs(x));
        return quotient<T, C>(x > 0 ? e : C(1), 1 + e);
    }
};

/* 1 / expm1(x) has the right sign and limit everywhere, -0 included, but would end too early where
 * expm1 overflows. The -1 has ceased to matter long before, so exp(-x) does, which for bf16 is had
 * as a square without another exponential. */
struct bose_einstein_forward {
    static constexpr bool binary = false, copies = false;
    template <class T, class C> static __device__ C apply(C x, C) {
        if constexpr (fast<T>) {
            const bool far = x > 80;
            C y = fast_reciprocal(fast_expm1(far ? x / 2 : x));
            return far ? y * y : y;
        } else if constexpr (sizeof(C) == 4) {
            return x > 80 ? expf(-x) : 1 / expm1f(x);
        } else {
            return x > 700 ? exp(-x) : 1 / expm1(x);
        }
    }
};

/* a: y, b: grad_y. */
struct sigmoid_backward {
    static constexpr bool binary = true, copies = false;
    template <class T, class C> static __device__ C apply(C y, C g) { return g * y * (1 - y); }
};

struct sigmoid_complement_backward {
    static constexpr bool binary = true, copies = false;
    template <class T, class C> static __device__ C apply(C y, C g) { return -(g * y * (1 - y)); }
};

struct bose_einstein_backward {
    static constexpr bool binary = true, copies = false;
    template <class T, class C> static __device__ C apply(C y, C g) { return -(g * y * (y + 1)); }
};

template <class OP>
static enum xop_status run(const struct xop_launch *launch, struct xop_error *error) {
    elementwise_builder<OP> builder(launch, launch->calls[0].in[0].dtype, error);

    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        elementwise_job job = {};
        if (!call->out[0].data || !xop_tensor_elements(&call->in[0], &job.n))
            continue;
        job.a = call->in[0].data;
        job.b = OP::binary ? call->in[1].data : NULL;
        job.out = call->out[0].data;
        elementwise_add(&builder, job);
    }
    return builder.finish();
}

#define ACTIVATION(name)                                                                           \
    enum xop_status name##_cuda_forward(const struct xop_launch *launch,                           \
                                        struct xop_error *error) {                                 \
        return run<name##_forward>(launch, error);                                                 \
    }                                                                                              \
    enum xop_status name##_cuda_backward(const struct xop_launch *launch,                          \
                                         struct xop_error *error) {                                \
        return run<name##_backward>(launch, error);                                                \
    }

ACTIVATION(sigmoid)
ACTIVATION(sigmoid_complement)
ACTIVATION(bose_einstein)

enum xop_status activation_preload(struct xop_error *error) {
    enum xop_status (*const preload[])(struct xop_error *) = {
        elementwise_builder<sigmoid_forward>::preload,
        elementwise_builder<sigmoid_backward>::preload,
        elementwise_builder<sigmoid_complement_forward>::preload,
        elementwise_builder<sigmoid_complement_backward>::preload,
        elementwise_builder<bose_einstein_forward>::preload,
        elementwise_builder<bose_einstein_backward>::preload,
    };
    enum xop_status status = XOP_OK;
    for (auto one : preload)
        if (status == XOP_OK)
            status = one(error);
    return status;
}
