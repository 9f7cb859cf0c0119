/* The sigmoid and its two relatives, each written so that no finite x overflows on the way. */
#include "reference.h"

#include <math.h>
#include <string.h>

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    out->rank = in->rank;
    memcpy(out->shape, in->shape, sizeof out->shape);
    return pass == XOP_FORWARD ||
           (in[0].rank == in[1].rank &&
            memcmp(in[0].shape, in[1].shape, in[0].rank * sizeof *in[0].shape) == 0);
}

static void each(double (*f)(double), const struct reference_tensor *in,
                 struct reference_tensor *out) {
    for (int64_t i = 0; i < out->n; i++) {
        out->data[i] = f(in->data[i]);
        out->scale[i] = fabs(out->data[i]);
    }
    out->terms = 1;
}

/* gx = sign * gy * y * (1 + slope * y), multiplied from left to right. */
static void gradient(double sign, double slope, const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    for (int64_t i = 0; i < out->n; i++) {
        double y = in[0].data[i], gy = in[1].data[i];
        double first = gy * y;
        if (fabs(first) > arithmetic->max)
            first = copysign(INFINITY, first);
        out->data[i] = sign * first * (1 + slope * y);
        /* Where the first product has underflowed, the second may make that visible. */
        out->scale[i] = fabs(out->data[i]) + arithmetic->least_normal * fabs(1 + slope * y);
    }
    out->terms = 1;
}

/* exp of the negative magnitude never overflows: 1 / (1 + e^-x) for x >= 0, e^x / (1 + e^x) below.
 */
static double logistic(double x) {
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : x < 0 ? e / (1 + e) : x;
}

static double complement(double x) { return logistic(-x); }

/* e^-x / (1 - e^-x) = 1 / (e^x - 1); expm1 keeps the digits of small x, and 1 / +-0 its sign. For
 * x so large that e^x overflows it is e^-x, by the same formula. */
static double occupation(double x) { return x > 700 ? exp(-x) : 1 / expm1(x); }

static void sigmoid_forward(const struct reference_arithmetic *arithmetic,
                            const struct reference_tensor *in, struct reference_tensor *out) {
    (void)arithmetic;
    each(logistic, in, out);
}

static void sigmoid_backward(const struct reference_arithmetic *arithmetic,
                             const struct reference_tensor *in, struct reference_tensor *out) {
    gradient(1, -1, arithmetic, in, out);
}

static void complement_forward(const struct reference_arithmetic *arithmetic,
                               const struct reference_tensor *in, struct reference_tensor *out) {
    (void)arithmetic;
    each(complement, in, out);
}

static void complement_backward(const struct reference_arithmetic *arithmetic,
                                const struct reference_tensor *in, struct reference_tensor *out) {
    gradient(-1, -1, arithmetic, in, out);
}

static void occupation_forward(const struct reference_arithmetic *arithmetic,
                               const struct reference_tensor *in, struct reference_tensor *out) {
    (void)arithmetic;
    each(occupation, in, out);
}

static void occupation_backward(const struct reference_arithmetic *arithmetic,
                                const struct reference_tensor *in, struct reference_tensor *out) {
    gradient(-1, 1, arithmetic, in, out);
}

#define ACTIVATION(id, prefix, from, to, smooth_from, smooth_to)                                   \
    const struct reference reference_##id = {.name = #id,                                          \
                                             .nin = 1,                                             \
                                             .nout = 1,                                            \
                                             .ngrad = 1,                                           \
                                             .saved_out = 1,                                       \
                                             .low = from,                                          \
                                             .high = to,                                           \
                                             .smooth_low = smooth_from,                            \
                                             .smooth_high = smooth_to,                             \
                                             .shape = shape,                                       \
                                             .forward = prefix##_forward,                          \
                                             .backward = prefix##_backward}

ACTIVATION(sigmoid, sigmoid, -8, 8, -3, 3);
ACTIVATION(sigmoid_complement, complement, -8, 8, -3, 3);
/* Differences are taken away from the pole at 0. */
ACTIVATION(bose_einstein, occupation, -6, 6, 0.5, 3);
