/*
 * Which elements of x an output is made of, and which outputs have an element, for both backends.
 * Pure functions.
 */
#ifndef KERNELS_UPSAMPLE_MATH_H
#define KERNELS_UPSAMPLE_MATH_H

#include <math.h>

#include "kernels/upsample.h"

#ifdef __CUDACC__
#define UPSAMPLE_FN static inline __host__ __device__
#else
#define UPSAMPLE_FN static inline
#endif

/* The element `first` and, with weight `next`, the one behind it; next is 0 where there is none. */
struct upsample_source {
    int64_t first;
    double next;
};

UPSAMPLE_FN struct upsample_source upsample_source(const struct upsample_dim *dim, int64_t output) {
    struct upsample_source source = {output, 0};
    double at;

    if (dim->in == dim->out)
        return source;
    if (!dim->linear) /* in f32 whatever the dtype, as PyTorch, since a rounding decides */
        at = (double)floorf((float)dim->scale * (float)output);
    else if (dim->align_corners)
        at = dim->scale * (double)output;
    else
        at = fmax(dim->scale * ((double)output + 0.5) - 0.5, 0.0);
    if (at >= (double)(dim->in - 1)) {
        source.first = dim->in - 1;
        return source;
    }
    source.first = (int64_t)at;
    if (dim->linear)
        source.next = at - (double)source.first;
    return source;
}

/* The first output whose first element is at least `element`; dim->out where none is. First
 * elements never decrease, so that a guess from the scale only has to be put right. */
UPSAMPLE_FN int64_t upsample_from(const struct upsample_dim *dim, int64_t element) {
    double guess = dim->scale > 0 ? (double)element / dim->scale : 0;
    int64_t output;

    if (element <= 0)
        return 0;
    if (element >= dim->in || dim->in == dim->out)
        return element < dim->out && element < dim->in ? element : dim->out;
    if (!(dim->scale > 0))
        return dim->out;
    output = guess < (double)dim->out ? (int64_t)guess : dim->out;
    while (output > 0 && upsample_source(dim, output - 1).first >= element)
        output--;
    while (output < dim->out && upsample_source(dim, output).first < element)
        output++;
    return output;
}

/* Outputs [first, last) that may have an element. */
struct upsample_range {
    int64_t first, last;
};

UPSAMPLE_FN struct upsample_range upsample_readers(const struct upsample_dim *dim,
                                                   int64_t element) {
    struct upsample_range range;
    range.first = upsample_from(dim, dim->linear ? element - 1 : element);
    range.last = upsample_from(dim, element + 1);
    return range;
}

/* How much of an element is in an output. */
UPSAMPLE_FN double upsample_weight(const struct upsample_dim *dim, int64_t output,
                                   int64_t element) {
    struct upsample_source source = upsample_source(dim, output);
    if (source.first == element)
        return 1 - source.next;
    return source.first + 1 == element ? source.next : 0;
}

#endif
