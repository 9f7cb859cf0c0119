/*
 * What unary.def and unary_math.h need of one element, in f32 and in f64: logarithm, sine, cosine
 * and error function of our own, for the same reason as the exponential (scalar.h): a call to the
 * library's would keep a loop from vectorising. Written without branches, and each within about two
 * units in the last place.
 *
 * Sine and cosine hold up to UNARY_FAR; what lies beyond needs more digits of pi, and the library.
 */
#ifndef KERNELS_CPU_UNARY_SCALAR_H
#define KERNELS_CPU_UNARY_SCALAR_H

#include "kernels/cpu/scalar.h"

#define UNARY_FAR 0x1p20

static inline float unary_exp_f32(float x) { return scalar_exp_f32(x > 104.0f ? -104.0f : -x).exp; }
static inline double unary_exp_f64(double x) { return scalar_exp_f64(x > 746 ? -746 : -x).exp; }
static inline float unary_exp_minus_f32(float a) { return scalar_exp_f32(a).exp; }
static inline double unary_exp_minus_f64(double a) { return scalar_exp_f64(a).exp; }
static inline float unary_expm1_minus_f32(float a) { return scalar_exp_f32(a).expm1; }
static inline double unary_expm1_minus_f64(double a) { return scalar_exp_f64(a).expm1; }

static inline float unary_quotient_f32(float a, float b) { return a / b; }
static inline double unary_quotient_f64(double a, double b) { return a / b; }

/* The square's rest by halves of the factor that multiply exactly (Dekker, 1971). */
static inline float unary_square_rest_f32(float a, float square) {
    float high = convert_float_of(convert_bits_of(a) & 0xfffff000u), low = a - high;
    return ((high * high - square) + 2 * high * low) + low * low;
}
static inline double unary_square_rest_f64(double a, double square) {
    double high = scalar_double_of(scalar_bits_of(a) & 0xfffffffff8000000u), low = a - high;
    return ((high * high - square) + 2 * high * low) + low * low;
}

/* ---- Logarithms ----
 *
 * log(1 + f) = 2 atanh(s) with s = f / (2 + f), and atanh(s) = s + s*(s^2/3 + s^4/5 + ...), cut
 * where the next term is under half a unit in the last place for f from sqrt(1/2) - 1 to
 * sqrt(2) - 1. This is the sum in parentheses, of s^2. */

static inline float unary_atanh_f32(float z) {
    float q = 1.0f / 9;
    q = q * z + 1.0f / 7;
    q = q * z + 1.0f / 5;
    q = q * z + 1.0f / 3;
    return q * z;
}
static inline double unary_atanh_f64(double z) {
    double q = 1.0 / 21;
    q = q * z + 1.0 / 19;
    q = q * z + 1.0 / 17;
    q = q * z + 1.0 / 15;
    q = q * z + 1.0 / 13;
    q = q * z + 1.0 / 11;
    q = q * z + 1.0 / 9;
    q = q * z + 1.0 / 7;
    q = q * z + 1.0 / 5;
    q = q * z + 1.0 / 3;
    return q * z;
}

/* ln 2 in two parts, of which the upper is short enough for an exponent times it to be exact. */
#define UNARY_LN2_HIGH_F32 0x1.62e4p-1f
#define UNARY_LN2_LOW_F32 0x1.7f7d1cp-20f
#define UNARY_LN2_HIGH_F64 0x1.62e42fefap-1
#define UNARY_LN2_LOW_F64 0x1.cf79abc9e3b3ap-40

/* x = 2^k * m with m from sqrt(1/2) to sqrt(2): adding what 1 is above sqrt(1/2) to x's bits moves
 * the border of the exponent there. Adding 2^23 in the exponent's place makes k a float without a
 * conversion, which not every vector extension has for 64 bits. */
static inline float unary_log_f32(float x) {
    float scaled = x < 0x1p-126f ? x * 0x1p23f : x;
    uint32_t moved = convert_bits_of(scaled) + (0x3f800000u - 0x3f3504f3u);
    float m = convert_float_of((moved & 0x7fffffu) + 0x3f3504f3u);
    float k = convert_float_of(moved >> 23 | 0x4b000000u) - (0x1p23f + 127);
    float f = m - 1, s = f / (2 + f), q = 2 * s * unary_atanh_f32(s * s), result;
    k = x < 0x1p-126f ? k - 23 : k;
    result = k * UNARY_LN2_HIGH_F32 + (2 * s + (q + k * UNARY_LN2_LOW_F32));
    result = x > 0 ? result : x == 0 ? -INFINITY : NAN;
    return x < INFINITY ? result : x;
}
static inline double unary_log_f64(double x) {
    double scaled = x < 0x1p-1022 ? x * 0x1p52 : x;
    uint64_t moved = scalar_bits_of(scaled) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
    double m = scalar_double_of((moved & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
    double k = scalar_double_of(moved >> 52 | 0x4330000000000000u) - (0x1p52 + 1023);
    double f = m - 1, s = f / (2 + f), q = 2 * s * unary_atanh_f64(s * s), result;
    k = x < 0x1p-1022 ? k - 52 : k;
    result = k * UNARY_LN2_HIGH_F64 + (2 * s + (q + k * UNARY_LN2_LOW_F64));
    result = x > 0 ? result : x == 0 ? -INFINITY : (double)NAN;
    return x < INFINITY ? result : x;
}

/* Above sqrt(2) - 1, of (1 + e) / 2, and ln 2 besides. */
static inline float unary_log1p_fraction_f32(float e) {
    float s = (e > 0.41421356f ? e - 1 : e) / (e > 0.41421356f ? e + 3 : e + 2);
    float q = 2 * s * unary_atanh_f32(s * s);
    return e > 0.41421356f ? UNARY_LN2_HIGH_F32 + (2 * s + (q + UNARY_LN2_LOW_F32)) : 2 * s + q;
}
static inline double unary_log1p_fraction_f64(double e) {
    double s = (e > 0.41421356 ? e - 1 : e) / (e > 0.41421356 ? e + 3 : e + 2);
    double q = 2 * s * unary_atanh_f64(s * s);
    return e > 0.41421356 ? UNARY_LN2_HIGH_F64 + (2 * s + (q + UNARY_LN2_LOW_F64)) : 2 * s + q;
}

/* ---- Sine and cosine ----
 *
 * x = n * pi/2 + r with |r| up to pi/4, by parts of pi/2 of 33 bits, which n times is exact; then
 * Taylor's series of r, cut where the next term is under half a unit in the last place. Of f32 it
 * is all done in doubles, where one part and its rest are enough. */

struct unary_angle {
    double r;
    uint64_t quadrant; /* n, of which the last two bits count */
};

#define UNARY_PI_2_FIRST 0x1.921fb544p+0 /* upper parts of pi/2, and what is left */
#define UNARY_PI_2_SECOND 0x1.0b4611a6p-34
#define UNARY_PI_2_THIRD 0x1.3198a2ep-69
#define UNARY_PI_2_REST 0x1.b839a252049c1p-104
#define UNARY_PI_2_REST_OF_FIRST 0x1.0b4611a626331p-34

static inline struct unary_angle unary_angle_f32(float x) {
    double wide = (double)x, shifted = wide * 0x1.45f306dc9c883p-1 + SCALAR_ROUND_F64;
    double n = shifted - SCALAR_ROUND_F64;
    return (struct unary_angle){wide - n * UNARY_PI_2_FIRST - n * UNARY_PI_2_REST_OF_FIRST,
                                scalar_bits_of(shifted)};
}
static inline struct unary_angle unary_angle_f64(double x) {
    double shifted = x * 0x1.45f306dc9c883p-1 + SCALAR_ROUND_F64, n = shifted - SCALAR_ROUND_F64;
    double r = x - n * UNARY_PI_2_FIRST - n * UNARY_PI_2_SECOND;
    return (struct unary_angle){r - n * UNARY_PI_2_THIRD - n * UNARY_PI_2_REST,
                                scalar_bits_of(shifted)};
}

static inline double unary_sine_f32(double r) {
    double z = r * r, q = 1.0 / 362880;
    q = q * z - 1.0 / 5040;
    q = q * z + 1.0 / 120;
    q = q * z - 1.0 / 6;
    return r + r * (z * q);
}
static inline double unary_cosine_f32(double r) {
    double z = r * r, q = -1.0 / 3628800;
    q = q * z + 1.0 / 40320;
    q = q * z - 1.0 / 720;
    q = q * z + 1.0 / 24;
    q = q * z - 0.5;
    return 1 + z * q;
}
static inline double unary_sine_f64(double r) {
    double z = r * r, q = 1.0 / 355687428096000;
    q = q * z - 1.0 / 1307674368000;
    q = q * z + 1.0 / 6227020800;
    q = q * z - 1.0 / 39916800;
    q = q * z + 1.0 / 362880;
    q = q * z - 1.0 / 5040;
    q = q * z + 1.0 / 120;
    q = q * z - 1.0 / 6;
    return r + r * (z * q);
}
static inline double unary_cosine_f64(double r) {
    double z = r * r, q = 1.0 / 20922789888000;
    q = q * z - 1.0 / 87178291200;
    q = q * z + 1.0 / 479001600;
    q = q * z - 1.0 / 3628800;
    q = q * z + 1.0 / 40320;
    q = q * z - 1.0 / 720;
    q = q * z + 1.0 / 24;
    q = q * z - 0.5;
    return 1 + z * q;
}

/* Of sine and cosine of r the one that sin(r + quadrant * pi/2) is, with its sign. */
static inline double unary_turned(double sine, double cosine, uint64_t quadrant) {
    double value = quadrant & 1 ? cosine : sine;
    return scalar_double_of(scalar_bits_of(value) ^ (quadrant & 2) << 62);
}

static inline float unary_sin_f32(float x) {
    struct unary_angle a = unary_angle_f32(x);
    return (float)unary_turned(unary_sine_f32(a.r), unary_cosine_f32(a.r), a.quadrant);
}
static inline float unary_cos_f32(float x) {
    struct unary_angle a = unary_angle_f32(x);
    return (float)unary_turned(unary_sine_f32(a.r), unary_cosine_f32(a.r), a.quadrant + 1);
}
static inline double unary_sin_f64(double x) {
    struct unary_angle a = unary_angle_f64(x);
    return unary_turned(unary_sine_f64(a.r), unary_cosine_f64(a.r), a.quadrant);
}
static inline double unary_cos_f64(double x) {
    struct unary_angle a = unary_angle_f64(x);
    return unary_turned(unary_sine_f64(a.r), unary_cosine_f64(a.r), a.quadrant + 1);
}

/* ---- The formulas ---- */

#define FUNCTION static inline
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))

#define UNARY_BITS 32
#define R float
#define F(f) unary_##f##_f32
#define M(name) name##f
#define K(c) ((float)(c))
#include "kernels/unary_math.h"
#undef R
#undef F
#undef M
#undef K

#define UNARY_BITS 64
#define R double
#define F(f) unary_##f##_f64
#define M(f) f
#define K(c) ((double)(c))
#include "kernels/unary_math.h"
#undef R
#undef F
#undef M
#undef K
#undef FUNCTION
#undef MULTIPLY_ADD

/* Up to 1, erf(x) / x as a polynomial in x^2 that interpolates it at Chebyshev's points, to a
 * relative error of 2^-29 and 2^-62; beyond, from the tail of the normal distribution. */
static inline float unary_erf_f32(float x) {
    float a = fabsf(x), near = a < 1 ? a : 1, z = near * near, root = a * 1.41421356f;
    float tail = 2 * unary_exp_square_f32(root, 0.5f) * unary_normal_tail_f32(root);
    float q = 0x1.4a569p-14f;
    q = q * z - 0x1.a45088p-11f;
    q = q * z + 0x1.54127p-8f;
    q = q * z - 0x1.b7fabap-6f;
    q = q * z + 0x1.ce2d1p-4f;
    q = q * z - 0x1.81273ep-2f;
    q = q * z + 0x1.20dd74p+0f;
    return copysignf(a <= 1 ? q * near : 1 - tail, x);
}
static inline double unary_erf_f64(double x) {
    double a = fabs(x), near = a < 1 ? a : 1, z = near * near, root = a * 1.41421356237309504880;
    double tail = 2 * unary_exp_square_f64(root, 0.5) * unary_normal_tail_f64(root);
    double q = 0x1.05ffd737fb32ep-34;
    q = q * z - 0x1.389d4f2641625p-30;
    q = q * z + 0x1.f7b4bf3b13964p-27;
    q = q * z - 0x1.5f1ecb6f0764cp-23;
    q = q * z + 0x1.b9df224ca4b97p-20;
    q = q * z - 0x1.f4d1e3183f7aep-17;
    q = q * z + 0x1.f9a321d5b8e1ep-14;
    q = q * z - 0x1.c02db3dac435fp-11;
    q = q * z + 0x1.565bcd0dbaa38p-8;
    q = q * z - 0x1.b82ce31284ep-6;
    q = q * z + 0x1.ce2f21a042b3p-4;
    q = q * z - 0x1.812746b0379e6p-2;
    q = q * z + 0x1.20dd750429b6dp+0;
    return copysign(a <= 1 ? q * near : 1 - tail, x);
}

#endif
