/*
 * The operators in double precision on the host, and how far a result may be from them. Shares no
 * code with kernels/.
 */
#ifndef TESTS_GPU_REFERENCE_H
#define TESTS_GPU_REFERENCE_H

#include <math.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <xop/types.h>

static inline double reference_get(enum xop_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case XOP_F16: return (double)__half2float(((const __half *)data)[i]);
    case XOP_BF16: return (double)__bfloat162float(((const __nv_bfloat16 *)data)[i]);
    case XOP_F32: return (double)((const float *)data)[i];
    case XOP_I32: return (double)((const int32_t *)data)[i];
    case XOP_BOOL: return (double)((const unsigned char *)data)[i];
    default: return ((const double *)data)[i];
    }
}

static inline void reference_set(enum xop_dtype dtype, void *data, int64_t i, double value) {
    switch (dtype) {
    case XOP_F16: ((__half *)data)[i] = __float2half_rn((float)value); break;
    case XOP_BF16: ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn((float)value); break;
    case XOP_F32: ((float *)data)[i] = (float)value; break;
    case XOP_I32: ((int32_t *)data)[i] = (int32_t)value; break;
    case XOP_BOOL: ((unsigned char *)data)[i] = (unsigned char)value; break;
    default: ((double *)data)[i] = value; break;
    }
}

/* The largest finite value, and the distance between neighbours at a value. */
static inline double reference_largest(enum xop_dtype dtype) {
    return dtype == XOP_F16    ? 65504.0
           : dtype == XOP_BF16 ? 3.3895313892515355e38
           : dtype == XOP_F32  ? 3.4028234663852886e38
                               : 1.7976931348623157e308;
}

static inline double reference_ulp(enum xop_dtype dtype, double value) {
    int digits = dtype == XOP_F16 ? 11 : dtype == XOP_BF16 ? 8 : dtype == XOP_F32 ? 24 : 53;
    int least = dtype == XOP_F16 ? -13 : dtype == XOP_F64 ? -1021 : -125, exponent = least;
    if (value != 0)
        frexp(value, &exponent);
    if (exponent < least)
        exponent = least;
    return ldexp(1.0, exponent - digits);
}

/* How far `got` is from `want`, in units in the last place of `want`, after `excuse` was taken off:
 * what a sum of larger terms may lose. Infinite where the two have nothing to do with each other.
 */
static inline double reference_error(enum xop_dtype dtype, double got, double want, double excuse) {
    double limit = reference_largest(dtype);
    double edge = limit + reference_ulp(dtype, limit) / 2; /* from here on it rounds to infinity */
    double ulp = reference_ulp(dtype, want), away;
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (got == want)
        return 0;
    if (isinf(got) && !isinf(want)) /* it may overflow a little early */
        return fabs(want) >= edge - 2 * ulp && (got > 0) == (want > 0) ? 0 : INFINITY;
    if (isinf(want))
        return INFINITY;
    away = fabs(got - want) - excuse;
    return away > 0 ? away / ulp : 0;
}

/* ---- Activations: 0 sigmoid, 1 sigmoid_complement, 2 bose_einstein ---- */

static const char *const reference_activations[] = {"sigmoid", "sigmoid_complement",
                                                    "bose_einstein"};

static inline double reference_activation(int kind, double x) {
    long double value = (long double)x, e = expl(-fabsl(value));
    if (isnan(x))
        return x;
    if (kind == 2)
        return x > 0 ? (double)(e / -expm1l(-value)) : (double)(1 / expm1l(value));
    return (double)(((kind == 0) == (x < 0) ? e : 1) / (1 + e));
}

static inline double reference_activation_gradient(int kind, double y, double g) {
    long double slope = (long double)g * y * (kind == 2 ? y + 1.0L : 1.0L - y);
    return (double)(kind == 0 ? slope : -slope);
}

/* ---- square_bias ---- */

/* Where the operand holds what belongs to element i of the full array, from the definition. */
static inline int64_t reference_source(const struct xop_tensor *operand,
                                       const struct xop_tensor *full, int64_t i) {
    int64_t at = 0, step = 1;
    for (uint32_t d = 1; d <= operand->rank; d++) {
        int64_t size = operand->shape[operand->rank - d], extent = full->shape[full->rank - d];
        at += size == 1 ? 0 : i % extent * step;
        i /= extent;
        step *= size;
    }
    return at;
}

#endif
