/*
 * Reductions over any dimensions, from their definitions: every element of x is taken to the output
 * that it belongs to, in long double.
 */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Shapes ---- */

static const struct xop_attr *attr_of(const struct reference_setting *setting, const char *name) {
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        if (strcmp(setting->attr[i].name, name) == 0)
            return &setting->attr[i];
    return NULL;
}

/* Whether dimension d of x is reduced: all are where none is named. */
static bool is_reduced(const struct reference_setting *setting, uint32_t rank, uint32_t d) {
    const struct xop_attr *dim = attr_of(setting, "dim");
    for (uint32_t i = 0; dim && i < dim->count; i++)
        if (dim->value.ints[i] == d || dim->value.ints[i] == (int64_t)d - rank)
            return true;
    return !dim;
}

static bool takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    const struct xop_attr *dim = attr_of(setting, "dim");
    const int64_t rank = in->rank ? in->rank : 1;
    int64_t seen = 0;
    for (uint32_t i = 0; dim && i < dim->count; i++) {
        int64_t d = dim->value.ints[i];
        if (d < -rank || d >= rank)
            return false;
        d += d < 0 ? rank : 0;
        if (seen >> d & 1)
            return false;
        seen |= INT64_C(1) << d;
    }
    return true;
}

static bool takes_some(const struct reference_setting *setting, const struct reference_tensor *in) {
    for (uint32_t d = 0; d < in->rank; d++)
        if (in->shape[d] == 0 && is_reduced(setting, in->rank, d))
            return false;
    return takes(setting, in);
}

static bool shape_for(const struct reference_setting *setting, enum xop_pass pass,
                      const struct reference_tensor *in, struct reference_tensor *out) {
    const struct xop_attr *keepdim = attr_of(setting, "keepdim");
    out->rank = 0;
    for (uint32_t d = 0; d < in->rank; d++)
        if (pass == XOP_BACKWARD || !is_reduced(setting, in->rank, d))
            out->shape[out->rank++] = in->shape[d];
        else if (keepdim && keepdim->value.i)
            out->shape[out->rank++] = 1;
    return true;
}

/* The output that element `at` of x belongs to. */
static int64_t output_of(const struct reference_setting *setting, const struct reference_tensor *x,
                         int64_t at) {
    int64_t output = 0, step = 1;
    for (uint32_t d = x->rank; d-- > 0;) {
        if (!is_reduced(setting, x->rank, d)) {
            output += at % x->shape[d] * step;
            step *= x->shape[d];
        }
        at /= x->shape[d];
    }
    return output;
}

static int64_t terms_of(const struct reference_setting *setting, const struct reference_tensor *x) {
    int64_t terms = 1;
    for (uint32_t d = 0; d < x->rank; d++)
        if (is_reduced(setting, x->rank, d))
            terms *= x->shape[d];
    return terms;
}

/* ---- What is known of an output's terms ---- */

struct sums {
    long double total, size, product, most, least, squares, exponentials, off;
    int64_t ties;
};

static struct sums *sums_of(const struct reference_setting *setting,
                            const struct reference_tensor *x, const double *y, int64_t outputs,
                            bool exponentials) {
    struct sums *all = calloc((size_t)outputs + 1, sizeof *all);
    long double n = (long double)terms_of(setting, x);
    if (!all)
        abort(); /* verify could not go on either */
    for (int64_t k = 0; k < outputs; k++) {
        all[k].product = 1;
        all[k].most = -INFINITY;
        all[k].least = INFINITY;
    }
    for (int64_t i = 0; i < x->n; i++) {
        int64_t k = output_of(setting, x, i);
        all[k].total += x->data[i];
        all[k].size += fabs(x->data[i]);
        all[k].product *= x->data[i];
        all[k].most = fmaxl(all[k].most, x->data[i]);
        all[k].least = fminl(all[k].least, x->data[i]);
        all[k].ties += y && y[k] == x->data[i];
    }
    for (int64_t i = 0; i < x->n; i++) {
        struct sums *s = &all[output_of(setting, x, i)];
        long double from_mean = x->data[i] - s->total / n, below = s->most - x->data[i];
        s->squares += from_mean * from_mean;
        if (!exponentials)
            continue;
        s->exponentials += expl(-below);
        s->off += expl(-below) * below;
    }
    return all;
}

static long double divisor_of(const struct reference_arithmetic *arithmetic, int64_t terms) {
    return fmaxl(0, (long double)terms - reference_number(arithmetic, "correction", 1));
}

/* ---- The operators ---- */

/* A result, and the size of what it was made of. */
struct answer {
    long double value, scale;
};

/* The result for an output's sums, of n terms. */
typedef struct answer (*forward_fn)(const struct reference_arithmetic *how, const struct sums *s,
                                    int64_t n);
/* The gradient of the term x. */
typedef struct answer (*backward_fn)(const struct reference_arithmetic *how, const struct sums *s,
                                     int64_t n, long double x, long double y, long double g);

static struct answer exact(long double value) { return (struct answer){value, fabsl(value)}; }

static struct answer sum_forward(const struct reference_arithmetic *how, const struct sums *s,
                                 int64_t n) {
    (void)how;
    (void)n;
    return (struct answer){s->total, s->size};
}
static struct answer sum_backward(const struct reference_arithmetic *how, const struct sums *s,
                                  int64_t n, long double x, long double y, long double g) {
    (void)how;
    (void)s;
    (void)n;
    (void)x;
    (void)y;
    return exact(g);
}

static struct answer mean_forward(const struct reference_arithmetic *how, const struct sums *s,
                                  int64_t n) {
    (void)how;
    return (struct answer){s->total / (long double)n, s->size / (long double)n};
}
static struct answer mean_backward(const struct reference_arithmetic *how, const struct sums *s,
                                   int64_t n, long double x, long double y, long double g) {
    (void)how;
    (void)s;
    (void)x;
    (void)y;
    return exact(g / (long double)n);
}

static struct answer max_forward(const struct reference_arithmetic *how, const struct sums *s,
                                 int64_t n) {
    (void)how;
    (void)n;
    return exact(s->most);
}
static struct answer min_forward(const struct reference_arithmetic *how, const struct sums *s,
                                 int64_t n) {
    (void)how;
    (void)n;
    return exact(s->least);
}
static struct answer ties_backward(const struct reference_arithmetic *how, const struct sums *s,
                                   int64_t n, long double x, long double y, long double g) {
    (void)how;
    (void)n;
    return exact(x == y ? g / (long double)s->ties : 0);
}

/* In any order each factor may add a rounding. */
static struct answer prod_forward(const struct reference_arithmetic *how, const struct sums *s,
                                  int64_t n) {
    (void)how;
    return (struct answer){s->product, fabsl(s->product) * (long double)n};
}
static struct answer prod_backward(const struct reference_arithmetic *how, const struct sums *s,
                                   int64_t n, long double x, long double y, long double g) {
    long double others = g * s->product / x;
    (void)how;
    (void)y;
    return (struct answer){others, fabsl(others) * (long double)n};
}

/* An exponential of d is off by |d| roundoffs, that d was rounded by. */
static struct answer logsumexp_forward(const struct reference_arithmetic *how, const struct sums *s,
                                       int64_t n) {
    long double log_sum = logl(s->exponentials);
    (void)how;
    if (n == 0)
        return exact(-INFINITY);
    return (struct answer){s->most + log_sum,
                           fabsl(s->most) + log_sum + 1 + s->off / s->exponentials};
}
static struct answer logsumexp_backward(const struct reference_arithmetic *how,
                                        const struct sums *s, int64_t n, long double x,
                                        long double y, long double g) {
    long double value = g * expl(x - y);
    (void)how;
    (void)s;
    (void)n;
    return (struct answer){value, fabsl(value) * (1 + fabsl(x - y))};
}

static struct answer var_forward(const struct reference_arithmetic *how, const struct sums *s,
                                 int64_t n) {
    long double divisor = divisor_of(how, n), mean_size = s->size / (long double)n;
    return (struct answer){s->squares / divisor, 2 * (s->squares + mean_size * s->size) / divisor};
}
static struct answer var_backward(const struct reference_arithmetic *how, const struct sums *s,
                                  int64_t n, long double x, long double y, long double g) {
    long double factor = 2 / divisor_of(how, n) * g, count = (long double)n;
    (void)y;
    return (struct answer){factor * (x - s->total / count),
                           fabsl(factor) * (fabsl(x) + s->size / count)};
}

static void forward(const struct reference_arithmetic *how, const struct reference_tensor *in,
                    struct reference_tensor *out, forward_fn result) {
    int64_t n = terms_of(how->setting, in);
    struct sums *sums = sums_of(how->setting, in, NULL, out->n, result == logsumexp_forward);
    for (int64_t k = 0; k < out->n; k++) {
        struct answer answer = result(how, &sums[k], n);
        out->data[k] = (double)answer.value;
        out->scale[k] = (double)answer.scale;
    }
    out->terms = n > 0 ? n : 1;
    free(sums);
}

/* nin: 3 where backward takes y. */
static void backward(const struct reference_arithmetic *how, uint32_t nin,
                     const struct reference_tensor *in, struct reference_tensor *out,
                     backward_fn gradient) {
    const struct reference_tensor *grad_y = &in[nin - 1];
    const double *y = nin == 3 ? in[1].data : NULL;
    int64_t n = terms_of(how->setting, in);
    struct sums *sums = sums_of(how->setting, in, y, grad_y->n, false);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t k = output_of(how->setting, in, i);
        struct answer answer =
            gradient(how, &sums[k], n, in->data[i], y ? y[k] : 0, grad_y->data[k]);
        out->data[i] = (double)answer.value;
        out->scale[i] = (double)answer.scale;
    }
    out->terms = n > 0 ? n : 1;
    free(sums);
}

/* ---- What is tried ---- */

/* Sizes around vectors and pieces, and what is reduced first, last, between, and around. */
static const struct reference_case cases[] = {
    {{""}, REFERENCE_RANDOM, false},
    {{"0"}, REFERENCE_RANDOM, false},
    {{"1"}, REFERENCE_RANDOM, false},
    {{"3"}, REFERENCE_RANDOM, false},
    {{"31"}, REFERENCE_RANDOM, false},
    {{"1024"}, REFERENCE_RANDOM, false},
    {{"1025"}, REFERENCE_RANDOM, false},
    {{"3,4"}, REFERENCE_RANDOM, false},
    {{"4,1"}, REFERENCE_RANDOM, false},
    {{"0,4"}, REFERENCE_RANDOM, false},
    {{"3,0"}, REFERENCE_RANDOM, false},
    {{"2,0,3"}, REFERENCE_RANDOM, false},
    {{"1,1,1,1,1,1,1,1"}, REFERENCE_RANDOM, false},
    {{"2,3,1,3,2,1,2,3"}, REFERENCE_RANDOM, false},
    {{"7,11,13"}, REFERENCE_RANDOM, false},
    {{"65,8"}, REFERENCE_RANDOM, false},
    {{"5,31"}, REFERENCE_RANDOM, false},
    {{"33,32"}, REFERENCE_POSITIVE, false},
    {{"257,255"}, REFERENCE_RANDOM, false},
    {{"5,1025"}, REFERENCE_RANDOM, false},
    {{"17,130,9"}, REFERENCE_RANDOM, false},
    {{"3,4099"}, REFERENCE_RANDOM, false},
    {{"2,16392"}, REFERENCE_RANDOM, false},
    {{"4,70,3,129"}, REFERENCE_RANDOM, false},
    {{"50021"}, REFERENCE_POSITIVE, false},
    {{"50021,2"}, REFERENCE_RANDOM, false},
    {{"1031,1021"}, REFERENCE_RANDOM, true},
};

static const int64_t first[] = {0}, last[] = {-1}, second[] = {1}, around[] = {0, 2},
                     turned[] = {-1, 0};
#define DIM(list)                                                                                  \
    {                                                                                              \
        "dim", XOP_ATTR_INTS, sizeof(list) / sizeof *(list), { .ints = (list) }                    \
    }
#define KEEPDIM                                                                                    \
    {                                                                                              \
        "keepdim", XOP_ATTR_BOOL, 1, { .i = 1 }                                                    \
    }
#define CORRECTION                                                                                 \
    {                                                                                              \
        "correction", XOP_ATTR_INT, 1, { .i = 0 }                                                  \
    }
#define SETTINGS                                                                                   \
    {.nattrs = 0}, {{DIM(first)}, 1}, {{DIM(last), KEEPDIM}, 2}, {{DIM(second)}, 1},               \
        {{DIM(around), KEEPDIM}, 2}, {                                                             \
        {DIM(turned)}, 1                                                                           \
    }
static const struct reference_setting settings[] = {SETTINGS};
static const struct reference_setting var_settings[] = {SETTINGS, {{CORRECTION, DIM(last)}, 2}};

#define FOLD(id, its_nin, its_settings, its_takes, gradient, its_low, its_high, its_shape_only)    \
    static void id##_all(const struct reference_arithmetic *how,                                   \
                         const struct reference_tensor *in, struct reference_tensor *out) {        \
        forward(how, in, out, id##_forward);                                                       \
    }                                                                                              \
    static void id##_gradients(const struct reference_arithmetic *how,                             \
                               const struct reference_tensor *in, struct reference_tensor *out) {  \
        backward(how, its_nin, in, out, gradient);                                                 \
    }                                                                                              \
    const struct reference reference_##id = {.name = #id,                                          \
                                             .nin = 1,                                             \
                                             .nout = 1,                                            \
                                             .ngrad = 1,                                           \
                                             .saved_in = 1,                                        \
                                             .saved_out = (its_nin) == 3,                          \
                                             .shape_only = (its_shape_only),                       \
                                             .cases = cases,                                       \
                                             .ncases = sizeof cases / sizeof *cases,               \
                                             .settings = its_settings,                             \
                                             .nsettings =                                          \
                                                 sizeof its_settings / sizeof *its_settings,       \
                                             .low = (its_low),                                     \
                                             .high = (its_high),                                   \
                                             .smooth_low = (its_low),                              \
                                             .smooth_high = (its_high),                            \
                                             .takes = its_takes,                                   \
                                             .shape_for = shape_for,                               \
                                             .forward = id##_all,                                  \
                                             .backward = id##_gradients}

FOLD(sum, 2, settings, takes, sum_backward, -3, 4, 1);
FOLD(mean, 2, settings, takes, mean_backward, -3, 4, 1);
FOLD(max, 3, settings, takes_some, ties_backward, -3, 3, 0);
FOLD(min, 3, settings, takes_some, ties_backward, -3, 3, 0);
FOLD(prod, 2, settings, takes, prod_backward, 0.9, 1.1, 0);
FOLD(logsumexp, 3, settings, takes, logsumexp_backward, -8, 8, 0);
FOLD(var, 2, var_settings, takes, var_backward, -2, 3, 0);
