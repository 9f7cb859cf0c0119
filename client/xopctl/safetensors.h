/*
 * .safetensors: an 8-byte little-endian length, a JSON header, then raw data. One tensor of a file
 * is read, by name where there are several. https://github.com/huggingface/safetensors
 */
#ifndef XOPCTL_SAFETENSORS_H
#define XOPCTL_SAFETENSORS_H

#include "value.h"

/* name NULL: the only tensor of the file. Errors as npy_read. */
enum xop_status safetensors_read(FILE *stream, const char *name, struct value *value,
                                 struct xop_error *error);
/* A file of one tensor. */
enum xop_status safetensors_write(FILE *stream, const char *name, const struct value *value,
                                  struct xop_error *error);

#endif
