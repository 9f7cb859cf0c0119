/*
 * Walks the rows of a pair of strided operands in C order without a division a row: an odometer
 * over the dimensions outside the innermost. Plain values, each owned by the function that walks.
 * walk_rows does so for a stretch of the array that two operands are broadcast to.
 */
#ifndef KERNELS_CPU_WALK_H
#define KERNELS_CPU_WALK_H

#include <string.h>

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

/* n elements from `at` on, along the innermost dimension; the operands' offsets and steps there. */
struct walk_rows {
    int64_t at, n, x, b;
    int step_x, step_b;
    struct shape_dim inner;
    int64_t within, end;
    struct walk walk;
};

/* Starts at element `begin` of the array, to end before `end`; walk_rows_next comes first. */
static inline void walk_rows_start(struct walk_rows *rows, const struct shape_map *map,
                                   int64_t begin, int64_t end) {
    static const struct shape_dim one = {1, 1, 1};
    uint32_t outer = map->ndims ? map->ndims - 1 : 0;
    rows->inner = map->ndims ? map->dim[outer] : one;
    rows->step_x = (int)rows->inner.stride_x;
    rows->step_b = (int)rows->inner.stride_b;
    rows->within = begin % rows->inner.size;
    rows->at = begin;
    rows->n = 0;
    rows->end = end;
    walk_start(&rows->walk, map->dim, outer, begin / rows->inner.size);
}

/* Goes to the next row; false past the last one. */
static inline bool walk_rows_next(struct walk_rows *rows) {
    int64_t left;
    if (rows->n > 0) {
        rows->within = 0;
        walk_next(&rows->walk);
    }
    rows->at += rows->n;
    left = rows->end - rows->at;
    rows->n = rows->inner.size - rows->within < left ? rows->inner.size - rows->within : left;
    rows->x = rows->walk.x + rows->within * rows->inner.stride_x;
    rows->b = rows->walk.b + rows->within * rows->inner.stride_b;
    return left > 0;
}

#define WALK_TILE 1024 /* bytes */

/* Where b is a short row, it is repeated in a tile and taken for a longer one, so that fewer and
 * longer loops do. The last row of the longer kind may be cut off by the end of the array. Gives
 * what b is then. */
static inline const char *walk_widen_row(struct shape_map *map, const char *b, size_t size,
                                         char tile[WALK_TILE]) {
    struct shape_dim *outer = &map->dim[0], *inner = &map->dim[1];
    size_t row;
    int64_t times;

    if (map->x_form != SHAPE_FULL || map->b_form != SHAPE_ROW)
        return b;
    row = (size_t)inner->size * size;
    times = (int64_t)(WALK_TILE / row);
    if (times < 2)
        return b;
    for (int64_t i = 0; i < times; i++)
        memcpy(tile + (size_t)i * row, b, row);
    inner->size *= times;
    outer->size = (outer->size - 1) / times + 1;
    outer->stride_x = inner->size;
    return tile;
}

#endif
