/*
 * Tensor files: .npy, or .safetensors by their name's ending; "-" is standard input or output in
 * .npy. Files appear whole: they are written beside their place and then renamed.
 */
#ifndef XOPCTL_FILE_H
#define XOPCTL_FILE_H

#include "value.h"

/* From a file, "-", FILE.safetensors:NAME, or a literal. bf16: take `<V2` as bf16. *exit_status
 * says which of sysexits a failure is. */
enum xop_status file_read(const char *name, bool bf16, struct value *value, int *exit_status,
                          struct xop_error *error);
/* tensor_name is for formats that name what they hold. */
enum xop_status file_write(const char *name, const char *tensor_name, const struct value *value,
                           int *exit_status, struct xop_error *error);

#endif
