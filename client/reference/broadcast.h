/*
 * What references of two inputs that broadcast against each other, as NumPy does, have in common.
 */
#ifndef REFERENCE_BROADCAST_H
#define REFERENCE_BROADCAST_H

#include "reference.h"

/* Shapes of both passes; backward takes x, b and the gradient of y. */
bool broadcast_shape(enum xop_pass pass, const struct reference_tensor *in,
                     struct reference_tensor *out);

/* The element of t that element i of a tensor of shape y meets. */
int64_t broadcast_element(const struct reference_tensor *t, const struct reference_tensor *y,
                          int64_t i);

/* Adds up terms, of y's shape and with a scale each, to out, which is of the shape of an input. */
void broadcast_add_up(const struct reference_tensor *terms, const struct reference_tensor *like,
                      const struct reference_tensor *y, struct reference_tensor *out);

#endif
