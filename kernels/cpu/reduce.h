/*
 * Sums a full array to the shape of an operand that was broadcast to it, in double precision and in
 * an order that the shapes alone fix: the gradient of a broadcast input. Callable from any thread.
 */
#ifndef KERNELS_CPU_REDUCE_H
#define KERNELS_CPU_REDUCE_H

#include "kernels/shape.h"
#include <xop/op.h>

struct reduce {
    const struct shape_reduction *shape;
    enum xop_dtype dtype; /* of full, factor and out */
    const void *full;
    /* Instead of full, where not NULL: computes terms [at, at + n) of it, in f32 or, where dtype is
     * f64, in f64. */
    void (*make)(const void *arg, int64_t at, int64_t n, void *to);
    const void *arg;
    const void
        *factor;      /* of the result's shape; every term is multiplied by its element; or NULL */
    double scale;     /* the finished sum is multiplied by it: 1 or a power of two */
    void *out;        /* may be factor's memory */
    double *partials; /* shape_reduction_workspace bytes; not used where shape->partials is 1 */
};

void reduce_run(const struct reduce *reduce, const struct xop_host *host);

#endif
