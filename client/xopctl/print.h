/*
 * Tensors as NumPy prints arrays: at most 8 digits behind the point, columns aligned, more than
 * 1000 elements shortened to 3 at each edge, lines of at most 75 characters.
 */
#ifndef XOPCTL_PRINT_H
#define XOPCTL_PRINT_H

#include "value.h"

#include <jansson.h>

/* Returns an allocated string without a final newline; NULL where memory runs out. */
char *print_value(const struct value *value);

/* The elements as nested lists; what is not finite, which JSON lacks, as the strings nan, inf and
 * -inf. */
json_t *print_json(const struct value *value);

#endif
