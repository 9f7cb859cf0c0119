/*
 * Functions of one variable, from their definitions in long double. Where a computation in f32 or
 * f64 passes through a number that it cannot hold, what it makes of that number is a matter of the
 * order in which it is done: the orders here are those that the operators document.
 */
#include "reference.h"

#include <math.h>
#include <string.h>

#define SQRT_HALF 0.70710678118654752440084436210485L
#define SQRT_2_OVER_PI 0.79788456080286535587989211986876L
#define TWO_OVER_SQRT_PI 1.12837916709551257389615890312155L
#define SQRT_1_OVER_2_PI 0.39894228040143267793994605993438L

/* An element: the argument (or the saved result), the gradient of y, and the scale of the answer,
 * which is the answer's own size where nothing else is set. */
struct point {
    const struct reference_arithmetic *how;
    long double x, g, scale;
};

typedef long double (*function)(struct point *at);

/* As the arithmetic holds it: infinite beyond its largest number, 0 up to half its smallest. */
static long double held(const struct point *at, long double value) {
    if (fabsl(value) > at->how->max)
        return copysignl(INFINITY, value);
    return fabsl(value) <= (long double)at->how->smallest / 2 ? copysignl(0, value) : value;
}

/* A factor that may be below the normal range has lost digits, which `others` multiply. */
static long double with_lost(struct point *at, long double value, long double others) {
    at->scale = fabsl(value) + at->how->least_normal * fabsl(others);
    return value;
}

static long double number(const struct point *at, const char *name, double fallback) {
    return (long double)reference_number(at->how, name, fallback);
}

static bool is_tanh_form(const struct point *at) {
    return strcmp(reference_text(at->how, "approximate", "none"), "tanh") == 0;
}

/* ---- What several share ---- */

static long double logistic(const struct point *at, long double x) {
    long double e = expl(-fabsl(x));
    return isnan(x) ? x : held(at, x < 0 ? e / (1 + e) : 1 / (1 + e));
}

static long double softplus_of(long double z) { return fmaxl(z, 0) + log1pl(expl(-fabsl(z))); }

/* A product of several factors, each of which is rounded, may be off by more than one rounding. */
#define FACTORS 2

/* How far a lost digit can reach where x is multiplied by what has vanished. */
static long double reach(const struct point *at) { return fminl(fabsl(at->x), 1000) + 1; }

/* ---- The functions and their gradients ---- */

static long double relu_forward(struct point *at) { return at->x <= 0 ? 0 : at->x; }
static long double relu_backward(struct point *at) { return at->x <= 0 ? 0 : at->g; }

static long double leaky_relu_forward(struct point *at) {
    return at->x > 0 ? at->x : at->x * number(at, "negative_slope", 0.01);
}
static long double leaky_relu_backward(struct point *at) {
    return at->x > 0 ? at->g : at->g * number(at, "negative_slope", 0.01);
}

static long double elu_forward(struct point *at) {
    return at->x > 0 ? at->x : number(at, "alpha", 1) * expm1l(at->x);
}
static long double elu_backward(struct point *at) {
    long double first = held(at, at->g * number(at, "alpha", 1));
    return at->x > 0 ? at->g : with_lost(at, first * held(at, expl(at->x)), first);
}

/* Twice the argument of the tanh. An error of the exponent is one of the result's digits. */
static long double gelu_twice(const struct point *at) {
    return 2 * SQRT_2_OVER_PI * at->x * (1 + 0.044715L * at->x * at->x);
}
static long double gelu_forward(struct point *at) {
    long double twice = gelu_twice(at), y;
    y = at->x * (is_tanh_form(at) ? logistic(at, twice) : held(at, erfcl(-at->x * SQRT_HALF) / 2));
    with_lost(at, y, reach(at));
    at->scale *= is_tanh_form(at) ? 1 + fminl(fabsl(twice), 1000) : FACTORS;
    return y;
}
static long double gelu_backward(struct point *at) {
    long double twice = gelu_twice(at), s = logistic(at, twice), bend, first, second;
    long double inner = 2 * SQRT_2_OVER_PI * (1 + 3 * 0.044715L * at->x * at->x);
    if (is_tanh_form(at)) {
        bend = held(at, s * logistic(at, -twice));
        first = s;
        second = at->x * (bend == 0 ? 0 : bend * inner);
    } else {
        first = held(at, erfcl(-at->x * SQRT_HALF) / 2);
        second = at->x * held(at, SQRT_1_OVER_2_PI * expl(-at->x * at->x / 2));
    }
    at->scale = fabsl(at->g) * (fabsl(first) + fabsl(second) + at->how->least_normal * reach(at));
    at->scale *= is_tanh_form(at) ? 1 + fminl(fabsl(twice), 1000) : FACTORS;
    return at->g * (first + second);
}

static long double silu_forward(struct point *at) {
    return with_lost(at, at->x * logistic(at, at->x), reach(at));
}
static long double silu_backward(struct point *at) {
    long double s = logistic(at, at->x), other = logistic(at, -at->x);
    at->scale = FACTORS * fabsl(at->g) *
                (s * (1 + fabsl(at->x) * other) + at->how->least_normal * reach(at));
    return at->g * (s * (1 + at->x * other));
}

static long double tanh_forward(struct point *at) {
    at->scale = FACTORS * fabsl(tanhl(at->x));
    return tanhl(at->x);
}
static long double tanh_backward(struct point *at) {
    long double square = held(at, at->x * at->x);
    at->scale = fabsl(at->g) * (1 + square);
    return at->g * (1 - square);
}

static long double softplus_forward(struct point *at) {
    long double beta = number(at, "beta", 1), z = at->x * beta;
    if (z > number(at, "threshold", 20))
        return at->x;
    with_lost(at, softplus_of(z) / beta, 1 / beta);
    at->scale *= FACTORS;
    return softplus_of(z) / beta;
}
static long double softplus_backward(struct point *at) {
    long double z = at->x * number(at, "beta", 1);
    if (z > number(at, "threshold", 20))
        return at->g;
    return with_lost(at, at->g * logistic(at, z), at->g);
}

static long double exp_forward(struct point *at) { return expl(at->x); }
static long double exp_backward(struct point *at) { return at->g * at->x; }

static long double log_forward(struct point *at) { return logl(at->x); }
static long double log_backward(struct point *at) { return at->g / at->x; }

static long double sqrt_forward(struct point *at) { return sqrtl(at->x); }
static long double sqrt_backward(struct point *at) { return at->g / held(at, 2 * at->x); }

static long double rsqrt_forward(struct point *at) { return 1 / sqrtl(at->x); }
static long double rsqrt_backward(struct point *at) {
    long double first = held(at, at->g * at->x), second = held(at, first * held(at, at->x / 2));
    return with_lost(at, -second * at->x, fabsl(at->x / 2 * at->x) + fabsl(at->x));
}

static long double abs_forward(struct point *at) { return fabsl(at->x); }
static long double abs_backward(struct point *at) {
    return at->g * ((at->x > 0 ? 1 : 0) - (at->x < 0 ? 1 : 0));
}

static long double neg_forward(struct point *at) { return -at->x; }
static long double neg_backward(struct point *at) { return -at->g; }

static long double sin_forward(struct point *at) { return sinl(at->x); }
static long double sin_backward(struct point *at) { return at->g * cosl(at->x); }
static long double cos_forward(struct point *at) { return cosl(at->x); }
static long double cos_backward(struct point *at) { return at->g * -sinl(at->x); }

static long double erf_forward(struct point *at) { return erfl(at->x); }
static long double erf_backward(struct point *at) {
    long double slope = held(at, TWO_OVER_SQRT_PI * held(at, expl(-at->x * at->x)));
    with_lost(at, at->g * slope, at->g);
    at->scale *= FACTORS;
    return at->g * slope;
}

static long double clamp_forward(struct point *at) {
    long double low = number(at, "min", -INFINITY), high = number(at, "max", INFINITY);
    return isnan(at->x) ? at->x : fminl(fmaxl(at->x, low), high);
}
static long double clamp_backward(struct point *at) {
    bool inside = at->x >= number(at, "min", -INFINITY) && at->x <= number(at, "max", INFINITY);
    return inside ? at->g : 0;
}

static long double hardswish_forward(struct point *at) {
    return isnan(at->x) ? at->x : at->x * (fminl(fmaxl(at->x + 3, 0), 6) / 6);
}
static long double hardswish_backward(struct point *at) {
    if (at->x < -3 || at->x >= 3)
        return at->x < 0 ? 0 : at->g;
    at->scale = fabsl(at->g) * (fabsl(at->x) / 3 + 0.5L);
    return at->g * (at->x / 3 + 0.5L);
}

static long double mish_forward(struct point *at) {
    long double y = at->x * held(at, tanhl(softplus_of(at->x)));
    with_lost(at, y, reach(at));
    at->scale *= FACTORS;
    return y;
}
static long double mish_backward(struct point *at) {
    long double bent = softplus_of(at->x), t = held(at, tanhl(bent)), s = logistic(at, at->x);
    long double second = at->x * held(at, s / (coshl(bent) * coshl(bent)));
    at->scale = FACTORS * fabsl(at->g) * (t + fabsl(second) + at->how->least_normal * reach(at));
    return at->g * (t + second);
}

/* ---- Tensors ---- */

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    (void)pass; /* verify makes the gradient of y in y's shape */
    out->rank = in->rank;
    memcpy(out->shape, in->shape, sizeof out->shape);
    return true;
}

/* g may be NULL. */
static void each(function f, const struct reference_arithmetic *arithmetic, const double *x,
                 const double *g, struct reference_tensor *out) {
    for (int64_t i = 0; i < out->n; i++) {
        struct point at = {arithmetic, (long double)x[i], g ? (long double)g[i] : 0, -1};
        out->data[i] = (double)f(&at);
        out->scale[i] = at.scale < 0 ? fabs(out->data[i]) : (double)at.scale;
    }
    out->terms = 1;
}

/* Each with the range that random arguments come from, and that differences are taken in. */
#define FUNCTION_SAVING(id, in_mask, out_mask, from, to, smooth_from, smooth_to, its_settings,     \
                        its_nsettings)                                                             \
    static void id##_forward_all(const struct reference_arithmetic *arithmetic,                    \
                                 const struct reference_tensor *in,                                \
                                 struct reference_tensor *out) {                                   \
        each(id##_forward, arithmetic, in[0].data, NULL, out);                                     \
    }                                                                                              \
    static void id##_backward_all(const struct reference_arithmetic *arithmetic,                   \
                                  const struct reference_tensor *in,                               \
                                  struct reference_tensor *out) {                                  \
        each(id##_backward, arithmetic, in[0].data, in[(in_mask) | (out_mask)].data, out);         \
    }                                                                                              \
    const struct reference reference_##id = {.name = #id,                                          \
                                             .nin = 1,                                             \
                                             .nout = 1,                                            \
                                             .ngrad = 1,                                           \
                                             .saved_in = (in_mask),                                \
                                             .saved_out = (out_mask),                              \
                                             .settings = (its_settings),                           \
                                             .nsettings = (its_nsettings),                         \
                                             .low = (from),                                        \
                                             .high = (to),                                         \
                                             .smooth_low = (smooth_from),                          \
                                             .smooth_high = (smooth_to),                           \
                                             .shape = shape,                                       \
                                             .forward = id##_forward_all,                          \
                                             .backward = id##_backward_all}
#define OF_X(id, from, to, smooth_from, smooth_to)                                                 \
    FUNCTION_SAVING(id, 1, 0, from, to, smooth_from, smooth_to, NULL, 0)
#define OF_Y(id, from, to, smooth_from, smooth_to)                                                 \
    FUNCTION_SAVING(id, 0, 1, from, to, smooth_from, smooth_to, NULL, 0)
#define OF_X_WITH(id, from, to, smooth_from, smooth_to, settings)                                  \
    FUNCTION_SAVING(id, 1, 0, from, to, smooth_from, smooth_to, settings,                          \
                    sizeof(settings) / sizeof *(settings))

#define NUMBER(its_name, its_value)                                                                \
    { .name = its_name, .type = XOP_ATTR_FLOAT, .count = 1, .value.f = its_value }
#define TEXT(its_name, its_value)                                                                  \
    {                                                                                              \
        .name = its_name, .type = XOP_ATTR_STRING, .count = sizeof its_value - 1,                  \
        .value.string = its_value                                                                  \
    }

/* Numbers that every dtype holds, since it is a matter of rounding on which side of another number
 * a bound falls. */
static const struct reference_setting leaky_relu_settings[] = {
    {.nattrs = 0},
    {{NUMBER("negative_slope", 0.25)}, 1},
    {{NUMBER("negative_slope", -2)}, 1},
};
static const struct reference_setting elu_settings[] = {
    {.nattrs = 0},
    {{NUMBER("alpha", 2)}, 1},
    {{NUMBER("alpha", -0.5)}, 1},
};
static const struct reference_setting gelu_settings[] = {
    {.nattrs = 0},
    {{TEXT("approximate", "tanh")}, 1},
};
static const struct reference_setting softplus_settings[] = {
    {.nattrs = 0},
    {{NUMBER("beta", 2), NUMBER("threshold", 3)}, 2},
    {{NUMBER("threshold", 1000), NUMBER("beta", 0.5)}, 2},
};
static const struct reference_setting clamp_settings[] = {
    {.nattrs = 0},
    {{NUMBER("min", -1), NUMBER("max", 0.5)}, 2},
    {{NUMBER("max", 0)}, 1},
    {{NUMBER("min", 1), NUMBER("max", -1)}, 2},
};

OF_Y(relu, -3, 3, -3, 3);
OF_X_WITH(leaky_relu, -3, 3, -3, 3, leaky_relu_settings);
OF_X_WITH(elu, -8, 8, -3, 3, elu_settings);
OF_X_WITH(gelu, -8, 8, -3, 3, gelu_settings);
OF_X(silu, -8, 8, -3, 3);
OF_Y(tanh, -8, 8, -2, 2);
/* Differences stay below the lowest threshold, where y leaps a little. */
OF_X_WITH(softplus, -25, 25, -3, 1, softplus_settings);
OF_Y(exp, -8, 8, -3, 3);
OF_X(log, 0, 8, 0.5, 3);
OF_Y(sqrt, 0, 8, 0.5, 3);
OF_Y(rsqrt, 0, 8, 0.5, 3);
OF_X(abs, -3, 3, -3, 3);
FUNCTION_SAVING(neg, 0, 0, -3, 3, -3, 3, NULL, 0);
OF_X(sin, -60, 60, -3, 3);
OF_X(cos, -60, 60, -3, 3);
OF_X(erf, -5, 5, -3, 3);
OF_X_WITH(clamp, -3, 3, -3, 3, clamp_settings);
OF_X(hardswish, -5, 5, -5, 5);
OF_X(mish, -8, 8, -3, 3);
