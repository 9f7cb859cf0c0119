/* layer_norm and rms_norm over the last dimensions; weight and bias may be missing. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct xop_attr *normalized_shape(const struct reference_setting *setting) {
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        if (strcmp(setting->attr[i].name, "normalized_shape") == 0)
            return &setting->attr[i];
    return NULL;
}

/* Whether a tensor's last dimensions, or all of them, are those that are normalized. */
static bool ends_with(const struct reference_tensor *t, const struct xop_attr *given, bool all) {
    if (t->rank < given->count || (all && t->rank != given->count))
        return false;
    return memcmp(t->shape + t->rank - given->count, given->value.ints,
                  given->count * sizeof *t->shape) == 0;
}

static bool takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    const struct xop_attr *given = normalized_shape(setting);
    if (!given)
        return in[0].rank > 0 && (in[1].absent || in[1].rank == 1);
    return ends_with(&in[0], given, false) && !in[1].absent && ends_with(&in[1], given, true);
}

/* A weight says what a row is; where there is none it is the last dimension. */
static void parameter_shape(const struct reference_tensor *in, struct reference_tensor *out) {
    *out = (struct reference_tensor){.rank = in[1].absent ? 1 : in[1].rank};
    for (uint32_t d = 0; d < out->rank; d++)
        out->shape[d] = in[0].shape[in[0].rank - out->rank + d];
}

static bool same_shape(const struct reference_tensor *a, const struct reference_tensor *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static bool shape(enum xop_pass pass, uint32_t parameters, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    struct reference_tensor parameter;
    if (in[0].rank == 0 || (!in[1].absent && in[1].rank > in[0].rank))
        return false;
    parameter_shape(in, &parameter);
    out[0].rank = in[0].rank;
    memcpy(out[0].shape, in[0].shape, sizeof out[0].shape);
    if (!in[1].absent && !same_shape(&in[1], &parameter))
        return false;
    if (pass == XOP_FORWARD)
        return parameters < 2 || in[2].absent || same_shape(&in[2], &parameter);
    for (uint32_t i = 1; i <= parameters; i++)
        out[i] = parameter;
    return same_shape(&in[2], &in[0]);
}

static bool layer_shape(enum xop_pass pass, const struct reference_tensor *in,
                        struct reference_tensor *out) {
    return shape(pass, 2, in, out);
}

static bool rms_shape(enum xop_pass pass, const struct reference_tensor *in,
                      struct reference_tensor *out) {
    return shape(pass, 1, in, out);
}

static int64_t row_length(const struct reference_tensor *in) {
    struct reference_tensor parameter;
    int64_t n = 1;
    parameter_shape(in, &parameter);
    for (uint32_t d = 0; d < parameter.rank; d++)
        n *= parameter.shape[d];
    return n;
}

/* What a row is normalized by: h = (x - mean) * scale. The mean may be off in proportion to the
 * elements' mean size, and every h with it. */
struct stats {
    long double mean, scale, size;
};

static struct stats stats_of(const double *x, int64_t n, bool centered, double eps) {
    struct stats stats = {0, 0, 0};
    long double squares = 0;
    for (int64_t i = 0; centered && i < n; i++) {
        stats.mean += x[i];
        stats.size += fabs(x[i]);
    }
    stats.mean /= (long double)n;
    stats.size /= (long double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - stats.mean) * (x[i] - stats.mean);
    stats.scale = 1 / sqrtl(squares / (long double)n + eps);
    return stats;
}

/* The largest that h may have been on the way. */
static long double size_of(struct stats stats, double x) {
    return stats.scale * (fabs(x) + stats.size);
}

static void forward(const struct reference_arithmetic *arithmetic, bool centered,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    double eps = reference_number(arithmetic, "eps", 1e-5);
    int64_t n = row_length(in);
    for (int64_t row = 0; row < out->n; row += n) {
        struct stats stats = stats_of(in[0].data + row, n, centered, eps);
        for (int64_t i = 0; i < n; i++) {
            double x = in[0].data[row + i], w = in[1].absent ? 1 : in[1].data[i];
            double b = !centered || in[2].absent ? 0 : in[2].data[i];
            out->data[row + i] = (double)((x - stats.mean) * stats.scale * w + b);
            out->scale[row + i] = (double)(size_of(stats, x) * fabs(w) + fabs(b));
        }
    }
    out->terms = n;
}

static void clear(struct reference_tensor *t) {
    for (int64_t i = 0; i < t->n; i++)
        t->scale[i] = 0;
}

/* gradient is that of a parameter, which it multiplies by h, or by 1. Sums are in long double, so
 * that the judge is more exact than what it judges in f64. */
static void sum_columns(const struct reference_tensor *in, const struct stats *stats, bool times_h,
                        struct reference_tensor *gradient) {
    int64_t n = gradient->n, rows = n > 0 ? in[0].n / n : 0;
    clear(gradient);
    gradient->terms = rows > 0 ? rows : 1;
    for (int64_t i = 0; i < n; i++) {
        long double sum = 0, size = 0;
        for (int64_t row = 0; row < rows; row++) {
            double x = in[0].data[row * n + i], g = in[2].data[row * n + i];
            long double h = times_h ? (x - stats[row].mean) * stats[row].scale : 1;
            sum += g * h;
            size += fabs(g) * (times_h ? size_of(stats[row], x) : 1);
        }
        gradient->data[i] = (double)sum;
        gradient->scale[i] = (double)size;
    }
}

static void backward_row(const struct reference_tensor *in, int64_t at, int64_t n,
                         struct stats stats, bool centered, struct reference_tensor *out) {
    long double u_sum = 0, u_size = 0, uh_sum = 0, uh_size = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = in[0].data[at + i], w = in[1].absent ? 1 : in[1].data[i];
        long double u = (long double)in[2].data[at + i] * w;
        u_sum += centered ? u : 0;
        u_size += centered ? fabsl(u) : 0;
        uh_sum += u * (x - stats.mean) * stats.scale;
        uh_size += fabsl(u) * size_of(stats, x);
    }
    for (int64_t i = 0; i < n; i++) {
        double x = in[0].data[at + i], w = in[1].absent ? 1 : in[1].data[i];
        long double u = (long double)in[2].data[at + i] * w, h = (x - stats.mean) * stats.scale;
        long double size = fabsl(u) + (u_size + size_of(stats, x) * uh_size) / (long double)n;
        out->data[at + i] = (double)((u - (u_sum + h * uh_sum) / (long double)n) * stats.scale);
        /* stats.scale is off by some roundoffs of its own, and enters once directly, twice in h. */
        out->scale[at + i] = (double)(2 * size * stats.scale);
    }
}

static void backward(const struct reference_arithmetic *arithmetic, bool centered,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    double eps = reference_number(arithmetic, "eps", 1e-5);
    int64_t n = row_length(in), rows = n > 0 ? in[0].n / n : 0;
    struct stats *stats = calloc((size_t)rows + 1, sizeof *stats);
    if (!stats)
        abort(); /* verify could not go on either */
    for (int64_t row = 0; row < rows; row++) {
        stats[row] = stats_of(in[0].data + row * n, n, centered, eps);
        backward_row(in, row * n, n, stats[row], centered, &out[0]);
    }
    out[0].terms = n > 0 ? n : 1;
    sum_columns(in, stats, true, &out[1]);
    if (centered)
        sum_columns(in, stats, false, &out[2]);
    free(stats);
}

/* x, weight, bias. The last dimensions of some are 3, 4, for normalized_shape. */
static const struct reference_case cases[] = {
    {{"1", "1", "1"}, REFERENCE_RANDOM, false},
    {{"4", "4", "4"}, REFERENCE_RANDOM, false},
    {{"3,4", "4", "4"}, REFERENCE_RANDOM, false},
    {{"3,4", "4", NULL}, REFERENCE_RANDOM, false},
    {{"3,4", NULL, "4"}, REFERENCE_RANDOM, false},
    {{"3,4", NULL, NULL}, REFERENCE_RANDOM, false},
    {{"3,4", "3,4", "3,4"}, REFERENCE_RANDOM, false},
    {{"5,3,4", "3,4", NULL}, REFERENCE_RANDOM, false},
    {{"2,9,3,4", "3,4", "3,4"}, REFERENCE_RANDOM, false},
    {{"0,3,4", "3,4", "3,4"}, REFERENCE_RANDOM, false},
    {{"0,4", "4", "4"}, REFERENCE_RANDOM, false},
    {{"3,0", "0", "0"}, REFERENCE_RANDOM, false},
    {{"2,0,3", "3", NULL}, REFERENCE_RANDOM, false},
    {{"7,1", "1", "1"}, REFERENCE_RANDOM, false},
    {{"2,1,3,1,2,1,2,3", "3", "3"}, REFERENCE_RANDOM, false},
    {{"7,11,13", "13", "13"}, REFERENCE_RANDOM, false},
    {{"65,8", "8", "8"}, REFERENCE_RANDOM, false},
    {{"5,31", "31", "31"}, REFERENCE_RANDOM, false},
    {{"33,32", "32", "32"}, REFERENCE_POSITIVE, false},
    {{"129,127", "127", "127"}, REFERENCE_RANDOM, false},
    {{"257,128", "128", "128"}, REFERENCE_RANDOM, false},
    {{"513,255", "255", NULL}, REFERENCE_RANDOM, false},
    {{"3,1000", "1000", "1000"}, REFERENCE_RANDOM, false},
    {{"17,1024", "1024", "1024"}, REFERENCE_RANDOM, false},
    {{"5,1025", NULL, NULL}, REFERENCE_RANDOM, false},
    {{"18,4096", "4096", "4096"}, REFERENCE_RANDOM, false},
    {{"5,4099", "4099", "4099"}, REFERENCE_RANDOM, false},
    {{"34,4100", "4100", "4100"}, REFERENCE_RANDOM, false},
    {{"3,8192", "8192", "8192"}, REFERENCE_RANDOM, false},
    {{"3,8200", "8200", NULL}, REFERENCE_POSITIVE, false},
    {{"2,16384", "16384", "16384"}, REFERENCE_RANDOM, false},
    {{"2,16392", "16392", "16392"}, REFERENCE_RANDOM, false},
    {{"1,50257", "50257", "50257"}, REFERENCE_RANDOM, false},
    {{"20011,3", "3", "3"}, REFERENCE_POSITIVE, false},
    {{"1031,1021", "1021", "1021"}, REFERENCE_RANDOM, true},
};

static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    int64_t last = rank > 0 ? like[rank - 1] : 1;
    in[0] = (struct reference_shape){.rank = 1, .shape = {1}};
    if (rank > 0) {
        in[0].rank = rank;
        memcpy(in[0].shape, like, rank * sizeof *like);
    }
    in[1] = in[2] = (struct reference_shape){.rank = 1, .shape = {last}};
}

static const int64_t two_dims[] = {3, 4};
#define EPS(eps)                                                                                   \
    {                                                                                              \
        "eps", XOP_ATTR_FLOAT, 1, { .f = (eps) }                                                   \
    }
/* rms_norm's own default depends on the dtype, so that its eps is always named. */
static const struct reference_setting settings[] = {
    {{EPS(1e-5)}, 1},
    {{EPS(0.25)}, 1},
    {{{"normalized_shape", XOP_ATTR_INTS, 2, {.ints = two_dims}}, EPS(1e-3)}, 2},
};

#define NORM(id, prefix, centered, parameters)                                                     \
    static void prefix##_forward(const struct reference_arithmetic *arithmetic,                    \
                                 const struct reference_tensor *in,                                \
                                 struct reference_tensor *out) {                                   \
        forward(arithmetic, centered, in, out);                                                    \
    }                                                                                              \
    static void prefix##_backward(const struct reference_arithmetic *arithmetic,                   \
                                  const struct reference_tensor *in,                               \
                                  struct reference_tensor *out) {                                  \
        backward(arithmetic, centered, in, out);                                                   \
    }                                                                                              \
    const struct reference reference_##id = {.name = #id,                                          \
                                             .nin = 1 + (parameters),                              \
                                             .nout = 1,                                            \
                                             .ngrad = 1 + (parameters),                            \
                                             .saved_in = 3,                                        \
                                             .cases = cases,                                       \
                                             .ncases = sizeof cases / sizeof *cases,               \
                                             .settings = settings,                                 \
                                             .nsettings = sizeof settings / sizeof *settings,      \
                                             .low = -2,                                            \
                                             .high = 3,                                            \
                                             .smooth_low = -2,                                     \
                                             .smooth_high = 2,                                     \
                                             .takes = takes,                                       \
                                             .shape = prefix##_shape,                              \
                                             .fit = fit,                                           \
                                             .forward = prefix##_forward,                          \
                                             .backward = prefix##_backward}

NORM(layer_norm, layer, true, 2);
NORM(rms_norm, rms, false, 1);
