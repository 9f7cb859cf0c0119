/*
 * Walks the rows of a pair of strided operands in C order without a division a row: an odometer
 * over the dimensions outside the innermost. Plain values, each owned by the function that walks.
 */
#ifndef KERNELS_CPU_WALK_H
#define KERNELS_CPU_WALK_H

#include "kernels/shape.h"

struct walk {
    const struct shape_dim *dim; /* outermost first */
    uint32_t ndims;
    int64_t index[XOP_MAX_RANK];
    int64_t x, b; /* the operands' offsets, in elements, at index */
};

/* Starts at the given position, counted in C order over dim[0..ndims). */
static inline void walk_start(struct walk *walk, const struct shape_dim *dim, uint32_t ndims,
                              int64_t position) {
    walk->dim = dim;
    walk->ndims = ndims;
    walk->x = walk->b = 0;
    for (uint32_t i = ndims; i-- > 0;) {
        walk->index[i] = position % dim[i].size;
        position /= dim[i].size;
        walk->x += walk->index[i] * dim[i].stride_x;
        walk->b += walk->index[i] * dim[i].stride_b;
    }
}

/* Goes one position on; past the last one it begins anew. */
static inline void walk_next(struct walk *walk) {
    for (uint32_t i = walk->ndims; i-- > 0;) {
        const struct shape_dim *dim = &walk->dim[i];
        walk->x += dim->stride_x;
        walk->b += dim->stride_b;
        if (++walk->index[i] < dim->size)
            return;
        walk->index[i] = 0;
        walk->x -= dim->size * dim->stride_x;
        walk->b -= dim->size * dim->stride_b;
    }
}

#endif
