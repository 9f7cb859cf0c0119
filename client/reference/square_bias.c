/* y = x*x + b, the inputs broadcast as NumPy does. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The dimension of a tensor that stands under dimension d of an output of that rank; 1 where it has
 * none. */
static int64_t dimension(const struct reference_tensor *t, uint32_t d, uint32_t rank) {
    uint32_t missing = rank - t->rank;
    return d < missing ? 1 : t->shape[d - missing];
}

static bool broadcast(const struct reference_tensor *x, const struct reference_tensor *b,
                      struct reference_tensor *y) {
    y->rank = x->rank > b->rank ? x->rank : b->rank;
    for (uint32_t d = 0; d < y->rank; d++) {
        int64_t m = dimension(x, d, y->rank), n = dimension(b, d, y->rank);
        if (m != n && m != 1 && n != 1)
            return false;
        y->shape[d] = m == 1 ? n : m;
    }
    return true;
}

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    if (pass == XOP_FORWARD)
        return broadcast(&in[0], &in[1], &out[0]);
    struct reference_tensor y;
    for (int i = 0; i < 2; i++) {
        out[i].rank = in[i].rank;
        memcpy(out[i].shape, in[i].shape, sizeof out[i].shape);
    }
    return broadcast(&in[0], &in[1], &y) && y.rank == in[2].rank &&
           memcmp(y.shape, in[2].shape, y.rank * sizeof *y.shape) == 0;
}

/* The element of t that element i of a tensor of shape y meets. */
static int64_t element(const struct reference_tensor *t, const struct reference_tensor *y,
                       int64_t i) {
    int64_t at = 0, stride = 1;
    for (uint32_t k = y->rank; k-- > 0;) {
        int64_t position = i % y->shape[k], n = dimension(t, k, y->rank);
        i /= y->shape[k];
        if (n != 1)
            at += position * stride;
        stride *= n;
    }
    return at;
}

static double limited(const struct reference_arithmetic *arithmetic, double value) {
    return fabs(value) > arithmetic->max ? copysign(INFINITY, value) : value;
}

static void forward(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    for (int64_t i = 0; i < out->n; i++) {
        double x = in[0].data[element(&in[0], out, i)], b = in[1].data[element(&in[1], out, i)];
        double square = limited(arithmetic, x * x);
        out->data[i] = square + b;
        out->scale[i] = square + fabs(b);
    }
    out->terms = 2;
}

/* Sums are in long double, so that the judge is more exact than what it judges in f64. */
static void add_up(const struct reference_tensor *terms, const struct reference_tensor *like,
                   const struct reference_tensor *y, struct reference_tensor *out) {
    long double *sums = calloc((size_t)(out->n ? out->n : 1), sizeof *sums);
    if (!sums)
        abort(); /* verify could not go on either */
    memset(out->scale, 0, (size_t)out->n * sizeof *out->scale);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t at = element(like, y, i);
        sums[at] += terms->data[i];
        out->scale[at] += fabs(terms->data[i]);
    }
    for (int64_t i = 0; i < out->n; i++)
        out->data[i] = (double)sums[i];
    out->terms = out->n > 0 ? y->n / out->n : 1;
    free(sums);
}

static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    const struct reference_tensor *gy = &in[2];
    struct reference_tensor gx = *gy;
    gx.data = malloc((size_t)(gy->n ? gy->n : 1) * sizeof *gx.data);
    if (!gx.data)
        abort();
    for (int64_t i = 0; i < gy->n; i++) {
        double product = in[0].data[element(&in[0], gy, i)] * gy->data[i];
        gx.data[i] = 2 * limited(arithmetic, product);
    }
    add_up(&gx, &in[0], gy, &out[0]);
    add_up(gy, &in[1], gy, &out[1]);
    free(gx.data);
}

const struct reference reference_square_bias = {.name = "square_bias",
                                                .nin = 2,
                                                .nout = 1,
                                                .ngrad = 2,
                                                .saved_in = 3,
                                                .shape_only = 2,
                                                .broadcasts = true,
                                                .low = -2,
                                                .high = 3,
                                                .smooth_low = -2,
                                                .smooth_high = 2,
                                                .shape = shape,
                                                .forward = forward,
                                                .backward = backward};
