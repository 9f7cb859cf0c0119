/*
 * Tensors as xopctl has them: owned memory, and elements as doubles or integers whatever the dtype.
 * Conversions round to nearest, ties to even. Single-threaded.
 */
#ifndef XOPCTL_VALUE_H
#define XOPCTL_VALUE_H

#include <xop/types.h>

/* A tensor whose data is this program's (malloc). dtype NONE: none. */
struct value {
    struct xop_tensor tensor;
    int64_t n;
    uint64_t bytes;
};

/* Allocates zeroed data for dtype and shape, aligned to 64 bytes. */
enum xop_status value_new(struct value *value, enum xop_dtype dtype, uint32_t rank,
                          const int64_t *shape, struct xop_error *error);
void value_free(struct value *value);

double value_get(const struct value *value, int64_t i);
int64_t value_get_integer(const struct value *value, int64_t i); /* of i32, i64 and bool */
void value_set(struct value *value, int64_t i, double x);
void value_set_integer(struct value *value, int64_t i, int64_t x);

/* Rounds x as storing it in a floating dtype would. */
double value_round(enum xop_dtype dtype, double x);
/* Half the distance of neighbouring numbers at 1, the smallest positive and the largest finite
 * number of a floating dtype. */
double value_roundoff(enum xop_dtype dtype);
double value_smallest(enum xop_dtype dtype);
double value_least_normal(enum xop_dtype dtype);
double value_largest(enum xop_dtype dtype);

bool value_is_integer(enum xop_dtype dtype);
enum xop_dtype value_dtype_named(const char *name, size_t length);

/* "(3, 4)", "(3,)", "()" as NumPy writes shapes. Returns buffer. */
char *value_shape_text(char *buffer, size_t capacity, uint32_t rank, const int64_t *shape);

#endif
