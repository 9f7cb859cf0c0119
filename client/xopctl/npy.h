/*
 * .npy, as NumPy writes it: versions 1 to 3, C or Fortran order, either byte order, f16, f32, f64,
 * i32 and i64. bf16, which the format cannot name, is `<V2` by agreement of reader and writer.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 */
#ifndef XOPCTL_NPY_H
#define XOPCTL_NPY_H

#include "value.h"

/* Reads one array from the stream. bf16: take `<V2` as bf16. INVALID_ARGUMENT for what is no such
 * file, UNAVAILABLE where reading fails. No more memory is taken on a header's word than the stream
 * has bytes. */
enum xop_status npy_read(FILE *stream, bool bf16, struct value *value, struct xop_error *error);

/* Writes version 1.0 (2.0 where the header needs it), C order, little-endian. */
enum xop_status npy_write(FILE *stream, const struct value *value, struct xop_error *error);

/* Reads `bytes` from the stream into new, aligned memory of `value`, whose dtype and shape are set;
 * for other formats too. */
enum xop_status npy_read_data(FILE *stream, struct value *value, struct xop_error *error);

/* Reverses the bytes of every element. */
void npy_swap(struct value *value);

#endif
