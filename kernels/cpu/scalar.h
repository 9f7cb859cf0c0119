/*
 * What the elementwise operators do to one element, in f32 and in f64. Written without branches, so
 * that a loop over them vectorises.
 *
 * The exponential is our own, since a call to the library's would keep a loop from vectorising, and
 * is mostly needed for arguments of 0 and below: exp(-a) = 2^n * (1 + q) with n = round(-a / ln 2),
 * r = -a - n*ln 2 in two steps (the upper part of ln 2 is short enough for n times it to be exact)
 * and q = expm1(r) by Taylor's series, |r| < 0.35, cut where the next term is under half a unit in
 * the last place. expm1(-a) is then 2^n * q + (2^n - 1), which is q itself near 0 and loses nothing
 * elsewhere. 2^n is applied in two halves, so that results below the normal range come out rounded
 * once. An argument whose exponential rounds to 0 is computed as another and set to 0 at the end,
 * since processors are slow where a result underflows.
 */
#ifndef KERNELS_CPU_SCALAR_H
#define KERNELS_CPU_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/convert.h"

static inline double scalar_double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t scalar_bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

struct scalar_exp_f32 {
    float exp, expm1;
};
struct scalar_exp_f64 {
    double exp, expm1;
};

/* Adding these to a small number leaves its nearest integer in the low bits. */
#define SCALAR_ROUND_F32 0x1.8p23f
#define SCALAR_ROUND_F64 0x1.8p52

/* The exponent is moved by an even number, so that halving it rounds down whatever its sign. */
#define SCALAR_EXPONENT_F32 512u
#define SCALAR_EXPONENT_F64 4096u

/* Of -a, for a >= -104 or NaN. */
static inline struct scalar_exp_f32 scalar_exp_f32(float a) {
    float x = a > 104.0f ? -64.0f : -a;
    float shifted = x * 0x1.715476p+0f + SCALAR_ROUND_F32, n = shifted - SCALAR_ROUND_F32;
    uint32_t minus_n =
        convert_bits_of(SCALAR_ROUND_F32) + SCALAR_EXPONENT_F32 - convert_bits_of(shifted);
    uint32_t half = minus_n >> 1, rest = minus_n - half;
    float power1 = convert_float_of((127u + SCALAR_EXPONENT_F32 / 2 - half) << 23);
    float power2 = convert_float_of((127u + SCALAR_EXPONENT_F32 / 2 - rest) << 23);
    float r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    float q = 1.0f / 5040;
    q = q * r + 1.0f / 720;
    q = q * r + 1.0f / 120;
    q = q * r + 1.0f / 24;
    q = q * r + 1.0f / 6;
    q = q * r + 0.5f;
    q = r + r * r * q;
    struct scalar_exp_f32 result = {
        .exp = a > 104.0f ? 0.0f : (1.0f + q) * power1 * power2,
        .expm1 = q * power1 * power2 + (power1 * power2 - 1.0f),
    };
    return result;
}

/* Of -a, for a >= -746 or NaN. */
static inline struct scalar_exp_f64 scalar_exp_f64(double a) {
    double x = a > 746.0 ? -64.0 : -a;
    double shifted = x * 0x1.71547652b82fep+0 + SCALAR_ROUND_F64, n = shifted - SCALAR_ROUND_F64;
    uint64_t minus_n =
        scalar_bits_of(SCALAR_ROUND_F64) + SCALAR_EXPONENT_F64 - scalar_bits_of(shifted);
    uint64_t half = minus_n >> 1, rest = minus_n - half;
    double power1 = scalar_double_of((1023u + SCALAR_EXPONENT_F64 / 2 - half) << 52);
    double power2 = scalar_double_of((1023u + SCALAR_EXPONENT_F64 / 2 - rest) << 52);
    double r = x - n * 0x1.62e42fefap-1 - n * 0x1.cf79abc9e3b3ap-40;
    double q = 1.0 / 6227020800;
    q = q * r + 1.0 / 479001600;
    q = q * r + 1.0 / 39916800;
    q = q * r + 1.0 / 3628800;
    q = q * r + 1.0 / 362880;
    q = q * r + 1.0 / 40320;
    q = q * r + 1.0 / 5040;
    q = q * r + 1.0 / 720;
    q = q * r + 1.0 / 120;
    q = q * r + 1.0 / 24;
    q = q * r + 1.0 / 6;
    q = q * r + 0.5;
    q = r + r * r * q;
    struct scalar_exp_f64 result = {
        .exp = a > 746.0 ? 0.0 : (1.0 + q) * power1 * power2,
        .expm1 = q * power1 * power2 + (power1 * power2 - 1.0),
    };
    return result;
}

/* One definition for both types: F is f32 or f64, T its C type. The names of the exponential's
 * struct and function agree, as C allows. */
#define SCALAR_FUNCTIONS(F, T, FABS, COPYSIGN)                                                     \
    static inline T scalar_square_bias_##F(T x, T b) { return x * x + b; }                         \
    /* Doubled last: 2*x might overflow where the product does not. */                             \
    static inline T scalar_twice_product_##F(T x, T g) { return 2 * (x * g); }                     \
    static inline T scalar_sigmoid_##F(T x) {                                                      \
        T e = scalar_exp_##F(FABS(x)).exp;                                                         \
        return (x < 0 ? e : 1) / (1 + e);                                                          \
    }                                                                                              \
    static inline T scalar_sigmoid_complement_##F(T x) {                                           \
        T e = scalar_exp_##F(FABS(x)).exp;                                                         \
        return (x > 0 ? e : 1) / (1 + e);                                                          \
    }                                                                                              \
    /* exp(-a) / -expm1(-a) above 0, 1 / expm1(-a) below; the sign is x's, also where x is 0. */   \
    static inline T scalar_bose_einstein_##F(T x) {                                                \
        struct scalar_exp_##F e = scalar_exp_##F(FABS(x));                                         \
        return COPYSIGN((x < 0 ? 1 : e.exp) / FABS(e.expm1), x);                                   \
    }                                                                                              \
    static inline T scalar_sigmoid_grad_##F(T y, T g) { return g * y * (1 - y); }                  \
    static inline T scalar_sigmoid_compl_grad_##F(T y, T g) { return -(g * y * (1 - y)); }         \
    static inline T scalar_bose_einstein_grad_##F(T y, T g) { return -(g * y * (y + 1)); }

SCALAR_FUNCTIONS(f32, float, fabsf, copysignf)
SCALAR_FUNCTIONS(f64, double, fabs, copysign)

#endif
