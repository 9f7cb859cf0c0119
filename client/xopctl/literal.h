/*
 * Tensors written on a command line: `f32:[1, 2, 3]`, `f64:[[1, nan], [-inf, 4]]`, `i64:7`.
 */
#ifndef XOPCTL_LITERAL_H
#define XOPCTL_LITERAL_H

#include "value.h"

/* Whether text begins as a literal does: a dtype and a colon. */
bool literal_is(const char *text);
enum xop_status literal_read(const char *text, struct value *value, struct xop_error *error);

#endif
