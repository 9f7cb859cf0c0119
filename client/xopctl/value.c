#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Floating formats: bits of significand (without the leading one), exponents of normal numbers as
 * 2^e, and what follows from them. */
static const struct format {
    int fraction, min_exponent, max_exponent;
    double roundoff, smallest, least_normal, largest;
} formats[XOP_DTYPE_COUNT] = {
    [XOP_F16] = {10, -14, 15, 0x1p-11, 0x1p-24, 0x1p-14, 0x1.ffcp15},
    [XOP_BF16] = {7, -126, 127, 0x1p-8, 0x1p-133, 0x1p-126, 0x1.fep127},
    [XOP_F32] = {23, -126, 127, 0x1p-24, 0x1p-149, 0x1p-126, 0x1.fffffep127},
    [XOP_F64] = {52, -1022, 1023, 0x1p-53, 0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023},
};

enum xop_status value_new(struct value *value, enum xop_dtype dtype, uint32_t rank,
                          const int64_t *shape, struct xop_error *error) {
    memset(value, 0, sizeof *value);
    value->tensor.dtype = dtype;
    value->tensor.rank = rank;
    if (rank <= XOP_MAX_RANK && rank > 0)
        memcpy(value->tensor.shape, shape, rank * sizeof *shape);
    if (rank > XOP_MAX_RANK || !xop_tensor_elements(&value->tensor, &value->n) ||
        !xop_tensor_bytes(&value->tensor, &value->bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "a tensor of that shape is not possible");
    size_t room = (value->bytes + 63) / 64 * 64;
    if (value->bytes > SIZE_MAX - 64 ||
        posix_memalign(&value->tensor.data, 64, room ? room : 64) != 0) {
        memset(value, 0, sizeof *value);
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for a tensor");
    }
    memset(value->tensor.data, 0, room ? room : 64);
    return XOP_OK;
}

void value_free(struct value *value) {
    free(value->tensor.data);
    memset(value, 0, sizeof *value);
}

/* ---- Small floats, by arithmetic on their fields ---- */

static double from_bits16(uint16_t bits, const struct format *format) {
    int exponent_bits = 15 - format->fraction;
    int exponent = bits >> format->fraction & ((1 << exponent_bits) - 1);
    int fraction = bits & ((1 << format->fraction) - 1);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction ? copysign(NAN, sign) : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, format->min_exponent - format->fraction);
    return sign * ldexp(fraction + (1 << format->fraction),
                        format->min_exponent + exponent - 1 - format->fraction);
}

/* All values of a small format, found once. */
static double small_value(enum xop_dtype dtype, uint16_t bits) {
    static double *tables[XOP_DTYPE_COUNT];
    double *table = tables[dtype];
    if (!table && (table = malloc(65536 * sizeof *table))) {
        for (uint32_t i = 0; i < 65536; i++)
            table[i] = from_bits16((uint16_t)i, &formats[dtype]);
        tables[dtype] = table;
    }
    return table ? table[bits] : from_bits16(bits, &formats[dtype]);
}

/* x is a number of the format. */
static uint16_t to_bits16(double x, const struct format *format) {
    int exponent_bits = 15 - format->fraction;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << format->fraction);
    x = fabs(x);
    if (isnan(x))
        return (uint16_t)(sign | infinity | 1 << (format->fraction - 1));
    if (isinf(x))
        return sign | infinity;
    if (x < ldexp(1, format->min_exponent))
        return (uint16_t)(sign | (int)ldexp(x, format->fraction - format->min_exponent));
    int exponent;
    double significand = frexp(x, &exponent); /* in [0.5, 1) */
    int fraction = (int)ldexp(significand, format->fraction + 1) - (1 << format->fraction);
    int biased = exponent - 1 - format->min_exponent + 1;
    return (uint16_t)(sign | biased << format->fraction | fraction);
}

double value_round(enum xop_dtype dtype, double x) {
    const struct format *format = &formats[dtype];
    if (dtype == XOP_F64 || !isfinite(x) || x == 0)
        return x;
    if (dtype == XOP_F32)
        return (double)(float)x;
    if (fabs(x) < format->least_normal) {
        /* nearbyint rounds ties to even in the default mode, and scaling by powers of two is exact.
         */
        double unit = value_smallest(dtype);
        return copysign(nearbyint(x / unit) * unit, x);
    }
    /* The significand's lower bits are rounded away, ties to even; a carry goes into the exponent.
     */
    uint64_t bits, drop = UINT64_C(1) << (52 - format->fraction);
    memcpy(&bits, &x, sizeof bits);
    bits += drop / 2 - 1 + (bits / drop & 1);
    bits &= ~(drop - 1);
    memcpy(&x, &bits, sizeof x);
    return fabs(x) > value_largest(dtype) ? copysign(INFINITY, x) : x;
}

double value_roundoff(enum xop_dtype dtype) { return formats[dtype].roundoff; }

double value_smallest(enum xop_dtype dtype) { return formats[dtype].smallest; }

double value_least_normal(enum xop_dtype dtype) { return formats[dtype].least_normal; }

double value_largest(enum xop_dtype dtype) { return formats[dtype].largest; }

/* ---- Elements ---- */

bool value_is_integer(enum xop_dtype dtype) {
    return dtype == XOP_I32 || dtype == XOP_I64 || dtype == XOP_BOOL;
}

int64_t value_get_integer(const struct value *value, int64_t i) {
    if (value->tensor.dtype == XOP_BOOL)
        return ((const uint8_t *)value->tensor.data)[i];
    return value->tensor.dtype == XOP_I32 ? ((const int32_t *)value->tensor.data)[i]
                                          : ((const int64_t *)value->tensor.data)[i];
}

double value_get(const struct value *value, int64_t i) {
    const void *data = value->tensor.data;
    switch (value->tensor.dtype) {
    case XOP_F16:
    case XOP_BF16: return small_value(value->tensor.dtype, ((const uint16_t *)data)[i]);
    case XOP_F32: return (double)((const float *)data)[i];
    case XOP_F64: return ((const double *)data)[i];
    case XOP_I32:
    case XOP_I64:
    case XOP_BOOL: return (double)value_get_integer(value, i);
    case XOP_DTYPE_NONE: break;
    }
    return NAN;
}

void value_set_integer(struct value *value, int64_t i, int64_t x) {
    if (value->tensor.dtype == XOP_I32)
        ((int32_t *)value->tensor.data)[i] = (int32_t)x;
    else if (value->tensor.dtype == XOP_BOOL)
        ((uint8_t *)value->tensor.data)[i] = (uint8_t)x;
    else if (value->tensor.dtype == XOP_I64)
        ((int64_t *)value->tensor.data)[i] = x;
    else
        value_set(value, i, (double)x);
}

void value_set(struct value *value, int64_t i, double x) {
    enum xop_dtype dtype = value->tensor.dtype;
    void *data = value->tensor.data;
    switch (dtype) {
    case XOP_F16:
    case XOP_BF16: ((uint16_t *)data)[i] = to_bits16(value_round(dtype, x), &formats[dtype]); break;
    case XOP_F32: ((float *)data)[i] = (float)x; break;
    case XOP_F64: ((double *)data)[i] = x; break;
    case XOP_I32:
    case XOP_I64: value_set_integer(value, i, (int64_t)x); break;
    case XOP_BOOL: value_set_integer(value, i, x != 0); break;
    case XOP_DTYPE_NONE: break;
    }
}

enum xop_dtype value_dtype_named(const char *name, size_t length) {
    for (int dtype = 1; dtype < XOP_DTYPE_COUNT; dtype++) {
        const char *known = xop_dtype_name((enum xop_dtype)dtype);
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return (enum xop_dtype)dtype;
    }
    return XOP_DTYPE_NONE;
}

char *value_shape_text(char *buffer, size_t capacity, uint32_t rank, const int64_t *shape) {
    size_t used = (size_t)snprintf(buffer, capacity, "(");
    for (uint32_t i = 0; i < rank && used < capacity; i++)
        used += (size_t)snprintf(buffer + used, capacity - used, "%s%lld", i ? ", " : "",
                                 (long long)shape[i]);
    if (used < capacity)
        snprintf(buffer + used, capacity - used, rank == 1 ? ",)" : ")");
    return buffer;
}
