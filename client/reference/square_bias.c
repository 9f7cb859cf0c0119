/* y = x*x + b, the inputs broadcast as NumPy does. */
#include "reference.h"

#include <math.h>
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

static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    const struct reference_tensor *gy = &in[2];
    (void)arithmetic;
    for (int k = 0; k < 2; k++) {
        memset(out[k].data, 0, (size_t)out[k].n * sizeof(double));
        memset(out[k].scale, 0, (size_t)out[k].n * sizeof(double));
        out[k].terms = out[k].n > 0 ? gy->n / out[k].n : 1;
    }
    for (int64_t i = 0; i < gy->n; i++) {
        int64_t at_x = element(&in[0], gy, i), at_b = element(&in[1], gy, i);
        double gx = 2 * in[0].data[at_x] * gy->data[i];
        out[0].data[at_x] += gx;
        out[0].scale[at_x] += fabs(gx);
        out[1].data[at_b] += gy->data[i];
        out[1].scale[at_b] += fabs(gy->data[i]);
    }
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
