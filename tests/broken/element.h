/*
 * square_bias an element at a time, for broken operators of the CPU that choose their elements
 * wrongly.
 */
#ifndef BROKEN_ELEMENT_H
#define BROKEN_ELEMENT_H

#include <xop/op.h>

/* The number of elements of y; 0 where y is not wanted. */
int64_t element_count(const struct xop_call *call);

/* Computes element `from` of y and writes it at `to`, wherever that is. from is within y. */
void element_forward(const struct xop_call *call, int64_t from, int64_t to);

/* The flat position in b of what element `index` of grad_y is summed into. */
int64_t element_in_b(const struct xop_call *call, int64_t index);

#endif
