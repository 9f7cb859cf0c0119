/*
 * Which elements a window has, and which windows have an element, for both backends. Pure
 * functions.
 */
#ifndef KERNELS_WINDOW_MATH_H
#define KERNELS_WINDOW_MATH_H

#include "kernels/window.h"

#ifdef __CUDACC__
#define WINDOW_FN static inline __host__ __device__
#else
#define WINDOW_FN static inline
#endif

/* [first, last) */
struct window_range {
    int64_t first, last;
};

/* Elements j of the kernel that are elements of the plane. */
WINDOW_FN struct window_range window_inside(const struct window_dim *dim, int64_t output) {
    int64_t start = output * dim->stride - dim->padding, left = dim->in - start;
    struct window_range j;
    j.first = start < 0 ? (dim->dilation - 1 - start) / dim->dilation : 0;
    j.last = left > 0 ? (left - 1) / dim->dilation + 1 : 0;
    if (j.last > dim->kernel)
        j.last = dim->kernel;
    if (j.first > j.last)
        j.first = j.last;
    return j;
}

/* Windows that reach over an element; with a dilation not all of them read it. */
WINDOW_FN struct window_range window_readers(const struct window_dim *dim, int64_t element) {
    int64_t high = element + dim->padding, low = high - (dim->kernel - 1) * dim->dilation;
    struct window_range o;
    o.first = low > 0 ? (low - 1) / dim->stride + 1 : 0;
    o.last = high / dim->stride + 1;
    if (o.last > dim->out)
        o.last = dim->out;
    return o;
}

/* Which j of window `output` an element is; -1: none. */
WINDOW_FN int64_t window_place(const struct window_dim *dim, int64_t output, int64_t element) {
    int64_t away = element + dim->padding - output * dim->stride;
    return dim->dilation == 1 ? away : away % dim->dilation == 0 ? away / dim->dilation : -1;
}

/* How many elements avg_pool2d counts along a dimension: padding counts as far as it reaches. */
WINDOW_FN int64_t window_count(const struct window_dim *dim, int64_t output, bool include_pad) {
    struct window_range inside = window_inside(dim, output);
    int64_t start = output * dim->stride - dim->padding, end = dim->in + dim->padding;
    if (!include_pad)
        return inside.last - inside.first;
    return start + dim->kernel < end ? dim->kernel : end - start;
}

WINDOW_FN double window_divisor(const struct window_plan *plan, int64_t row, int64_t column) {
    if (plan->divisor != 0)
        return (double)plan->divisor;
    return (double)(window_count(&plan->rows, row, plan->include_pad) *
                    window_count(&plan->columns, column, plan->include_pad));
}

#endif
