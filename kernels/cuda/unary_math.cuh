/*
 * The functions of unary.def for the device: a struct for each arithmetic, which holds what
 * unary_math.h needs and then that itself. Exponentials, logarithms and the like are CUDA's
 * accurate ones, but where bf16 has no use for their digits.
 */
#ifndef KERNELS_CUDA_UNARY_MATH_CUH
#define KERNELS_CUDA_UNARY_MATH_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/fast.cuh"
#include "kernels/unary.h"

#define FUNCTION static __device__
#define F(f) f
#define K(c) R(c)

struct unary_math_f32 {
    using R = float;
    FUNCTION R fabs(R x) { return ::fabsf(x); }
    FUNCTION R copysign(R x, R sign) { return ::copysignf(x, sign); }
    FUNCTION R sqrt(R x) { return ::sqrtf(x); }
    FUNCTION R exp(R x) { return ::expf(x); }
    FUNCTION R exp_minus(R a) { return ::expf(-a); }
    FUNCTION R expm1_minus(R a) { return ::expm1f(-a); }
    FUNCTION R log(R x) { return ::logf(x); }
    FUNCTION R log1p_fraction(R e) { return ::log1pf(e); }
    FUNCTION R erf(R x) { return ::erff(x); }
    FUNCTION R sin(R x) { return ::sinf(x); }
    FUNCTION R cos(R x) { return ::cosf(x); }
    FUNCTION R square_rest(R a, R square) { return ::fmaf(a, a, -square); }
    FUNCTION R quotient(R a, R b) { return a / b; }
#define MULTIPLY_ADD(a, b, c) ::fmaf(a, b, c)
#define M(f) f
#define UNARY_BITS 32
#include "kernels/unary_math.h"
};

/* For bf16. Errors are a small part of half a unit in its last place, 2^-9. */
struct unary_math_fast {
    using R = float;
    FUNCTION R fabs(R x) { return ::fabsf(x); }
    FUNCTION R copysign(R x, R sign) { return ::copysignf(x, sign); }
    FUNCTION R sqrt(R x) { return ::sqrtf(x); }
    FUNCTION R exp(R x) { return ::expf(x); }
    FUNCTION R exp_minus(R a) { return __expf(-a); }
    FUNCTION R expm1_minus(R a) { return fast_expm1(-a); }
    FUNCTION R log(R x) { return ::logf(x); }
    FUNCTION R log1p_fraction(R e) { return ::log1pf(e); }
    FUNCTION R erf(R x) { return ::erff(x); }
    FUNCTION R sin(R x) { return ::sinf(x); }
    FUNCTION R cos(R x) { return ::cosf(x); }
    FUNCTION R square_rest(R a, R square) { return ::fmaf(a, a, -square); }
    FUNCTION R quotient(R a, R b) { return __fdividef(a, b); }
#define UNARY_BITS 32
#include "kernels/unary_math.h"
#undef MULTIPLY_ADD
};

struct unary_math_f64 {
    using R = double;
    FUNCTION R fabs(R x) { return ::fabs(x); }
    FUNCTION R copysign(R x, R sign) { return ::copysign(x, sign); }
    FUNCTION R sqrt(R x) { return ::sqrt(x); }
    FUNCTION R exp(R x) { return ::exp(x); }
    FUNCTION R exp_minus(R a) { return ::exp(-a); }
    FUNCTION R expm1_minus(R a) { return ::expm1(-a); }
    FUNCTION R log(R x) { return ::log(x); }
    FUNCTION R log1p_fraction(R e) { return ::log1p(e); }
    FUNCTION R erf(R x) { return ::erf(x); }
    FUNCTION R sin(R x) { return ::sin(x); }
    FUNCTION R cos(R x) { return ::cos(x); }
    FUNCTION R square_rest(R a, R square) { return ::fma(a, a, -square); }
    FUNCTION R quotient(R a, R b) { return a / b; }
#define MULTIPLY_ADD(a, b, c) ::fma(a, b, c)
#define UNARY_BITS 64
#include "kernels/unary_math.h"
#undef MULTIPLY_ADD
};

#undef FUNCTION
#undef F
#undef K
#undef M

/* The arithmetic of an element type. */
template <class T> struct unary_math_of { using type = unary_math_f32; };
template <> struct unary_math_of<__nv_bfloat16> { using type = unary_math_fast; };
template <> struct unary_math_of<double> { using type = unary_math_f64; };

/* For each line of the table what a pass makes of an element: apply(a, b, p), a being x, y or,
 * where backward needs neither, grad_y; b is grad_y where a is not. */
template <enum unary_kind KIND, enum xop_pass PASS, class MATH> struct unary_formula;

#define F(f) MATH::f
#define M(f) MATH::f
#define K(c) R(c)
#define BINARY_X true
#define BINARY_Y true
#define BINARY_NONE false
#define ARGUMENTS_X R x, R g
#define ARGUMENTS_Y R y, R g
#define ARGUMENTS_NONE R g, R
#define UNARY_KIND(name, saved, flops, forward, backward)                                          \
    template <class MATH> struct unary_formula<UNARY_##name, XOP_FORWARD, MATH> {                  \
        using R = typename MATH::R;                                                                \
        static constexpr bool binary = false;                                                      \
        static __device__ R apply(R x, R, const R (&p)[UNARY_PARAMETERS]) { return forward; }      \
    };                                                                                             \
    template <class MATH> struct unary_formula<UNARY_##name, XOP_BACKWARD, MATH> {                 \
        using R = typename MATH::R;                                                                \
        static constexpr bool binary = BINARY_##saved;                                             \
        static __device__ R apply(ARGUMENTS_##saved, const R (&p)[UNARY_PARAMETERS]) {             \
            return backward;                                                                       \
        }                                                                                          \
    };
#include "kernels/unary.def"
#undef UNARY_KIND
#undef F
#undef M
#undef K
#undef BINARY_X
#undef BINARY_Y
#undef BINARY_NONE
#undef ARGUMENTS_X
#undef ARGUMENTS_Y
#undef ARGUMENTS_NONE

#endif
