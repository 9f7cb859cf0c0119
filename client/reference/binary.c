/*
 * Functions of two variables that broadcast, from their definitions in long double. Where a
 * computation in f32 or f64 passes through a number that it cannot hold, what it makes of that
 * number is a matter of the order in which it is done: the orders here are those that the operators
 * document.
 */
#include "broadcast.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* An element: the arguments, the gradient of y, and the scale of the answer, which is the answer's
 * own size where nothing else is set. */
struct point {
    const struct reference_arithmetic *how;
    long double x, b, g, scale;
};

typedef long double (*function)(struct point *at);

/* As the arithmetic holds it: infinite beyond its largest number, 0 up to half its smallest. */
static long double held(const struct point *at, long double value) {
    if (fabsl(value) > at->how->max)
        return copysignl(INFINITY, value);
    return fabsl(value) <= (long double)at->how->smallest / 2 ? copysignl(0, value) : value;
}

/* To the digits that the arithmetic has. */
static long double rounded(const struct point *at, long double value) {
    return at->how->max > FLT_MAX ? (long double)(double)value : (long double)(float)value;
}

/* What is made of a number below the normal range has lost digits, which `others` multiply. */
static long double with_lost(struct point *at, long double value, long double roundings,
                             long double others) {
    at->scale = roundings * fabsl(value) + at->how->least_normal * fabsl(others);
    return value;
}

static long double plain_g(struct point *at) { return at->g; }
static long double minus_g(struct point *at) { return -at->g; }

static long double add_forward(struct point *at) {
    at->scale = fabsl(at->x) + fabsl(at->b);
    return at->x + at->b;
}
static long double sub_forward(struct point *at) {
    at->scale = fabsl(at->x) + fabsl(at->b);
    return at->x - at->b;
}

static long double mul_forward(struct point *at) { return at->x * at->b; }
static long double mul_grad_x(struct point *at) { return at->g * at->b; }
static long double mul_grad_b(struct point *at) { return at->g * at->x; }

static long double div_forward(struct point *at) { return at->x / at->b; }
static long double div_grad_x(struct point *at) { return at->g / at->b; }
static long double div_grad_b(struct point *at) {
    long double once = held(at, at->x / at->b), twice = held(at, once / at->b);
    return with_lost(at, -at->g * twice, 2, fabsl(at->g / at->b) + fabsl(at->g));
}

/* Roundoffs of a power, of which a library's may be off by some, and of its products. */
#define POWER 4

static long double power(const struct point *at, long double b) { return held(at, powl(at->x, b)); }

static long double pow_forward(struct point *at) {
    return with_lost(at, powl(at->x, at->b), POWER, 1);
}
static long double pow_grad_x(struct point *at) {
    long double below = power(at, rounded(at, at->b - 1)), slope = held(at, at->b * below);
    if (at->b == 0)
        return 0;
    return with_lost(at, at->g * slope, POWER, fabsl(at->g * at->b) + fabsl(at->g));
}
static long double pow_grad_b(struct point *at) {
    long double log = logl(at->x), slope = held(at, power(at, at->b) * log);
    if (at->x == 0 && at->b >= 0)
        return at->g * 0;
    return with_lost(at, at->g * slope, POWER, fabsl(at->g * log) + fabsl(at->g));
}

static long double maximum_forward(struct point *at) {
    if (isnan(at->x) || isnan(at->b))
        return NAN;
    return at->x > at->b ? at->x : at->b;
}
static long double minimum_forward(struct point *at) {
    if (isnan(at->x) || isnan(at->b))
        return NAN;
    return at->x < at->b ? at->x : at->b;
}
/* g for the larger, none for the smaller, half each at a tie; g for both where one is NaN. */
static long double larger(long double one, long double other, long double g) {
    if (one == other)
        return g / 2;
    return one < other ? 0 : g;
}
static long double maximum_grad_x(struct point *at) { return larger(at->x, at->b, at->g); }
static long double maximum_grad_b(struct point *at) { return larger(at->b, at->x, at->g); }
static long double minimum_grad_x(struct point *at) { return larger(-at->x, -at->b, at->g); }
static long double minimum_grad_b(struct point *at) { return larger(-at->b, -at->x, at->g); }

/* ---- Tensors ---- */

/* Of each element of y; g may be NULL. */
static void each(function f, const struct reference_arithmetic *arithmetic,
                 const struct reference_tensor *in, const double *g, struct reference_tensor *y) {
    for (int64_t i = 0; i < y->n; i++) {
        struct point at = {.how = arithmetic, .g = g ? (long double)g[i] : 0, .scale = -1};
        long double value;
        at.x = (long double)in[0].data[broadcast_element(&in[0], y, i)];
        at.b = (long double)in[1].data[broadcast_element(&in[1], y, i)];
        value = f(&at);
        y->data[i] = (double)(g ? held(&at, value) : value);
        y->scale[i] = at.scale < 0 ? fabs(y->data[i]) : (double)at.scale;
    }
    y->terms = 1;
}

static void gradient(function f, const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, uint32_t of, struct reference_tensor *out) {
    const struct reference_tensor *grad_y = &in[2];
    struct reference_tensor terms = *grad_y;
    size_t bytes = (size_t)(grad_y->n ? grad_y->n : 1) * sizeof *terms.data;
    terms.data = malloc(bytes);
    terms.scale = malloc(bytes);
    if (!terms.data || !terms.scale)
        abort(); /* verify could not go on either */
    each(f, arithmetic, in, grad_y->data, &terms);
    broadcast_add_up(&terms, &in[of], grad_y, out);
    free(terms.data);
    free(terms.scale);
}

/* Each with the range that random arguments come from, and that differences are taken in. */
#define FUNCTION(id, its_grad_x, its_grad_b, its_shape_only, from, to, smooth_from, smooth_to)     \
    static void id##_forward_all(const struct reference_arithmetic *arithmetic,                    \
                                 const struct reference_tensor *in,                                \
                                 struct reference_tensor *out) {                                   \
        each(id##_forward, arithmetic, in, NULL, out);                                             \
    }                                                                                              \
    static void id##_backward_all(const struct reference_arithmetic *arithmetic,                   \
                                  const struct reference_tensor *in,                               \
                                  struct reference_tensor *out) {                                  \
        gradient(its_grad_x, arithmetic, in, 0, &out[0]);                                          \
        gradient(its_grad_b, arithmetic, in, 1, &out[1]);                                          \
    }                                                                                              \
    const struct reference reference_##id = {.name = #id,                                          \
                                             .nin = 2,                                             \
                                             .nout = 1,                                            \
                                             .ngrad = 2,                                           \
                                             .saved_in = 3,                                        \
                                             .shape_only = (its_shape_only),                       \
                                             .broadcasts = true,                                   \
                                             .low = (from),                                        \
                                             .high = (to),                                         \
                                             .smooth_low = (smooth_from),                          \
                                             .smooth_high = (smooth_to),                           \
                                             .shape = broadcast_shape,                             \
                                             .forward = id##_forward_all,                          \
                                             .backward = id##_backward_all}

FUNCTION(add, plain_g, plain_g, 3, -3, 3, -3, 3);
FUNCTION(sub, plain_g, minus_g, 3, -3, 3, -3, 3);
FUNCTION(mul, mul_grad_x, mul_grad_b, 0, -3, 3, -3, 3);
FUNCTION(div, div_grad_x, div_grad_b, 0, -3, 3, 0.5, 3);
FUNCTION(pow, pow_grad_x, pow_grad_b, 0, 0, 3, 0.5, 3);
FUNCTION(maximum, maximum_grad_x, maximum_grad_b, 0, -3, 3, -3, 3);
FUNCTION(minimum, minimum_grad_x, minimum_grad_b, 0, -3, 3, -3, 3);
