/* softmax and log_softmax along one dimension. */
#include "reference.h"

#include <math.h>
#include <string.h>

static uint32_t dim_of(const struct reference_setting *setting, uint32_t rank) {
    double dim = reference_number(&(struct reference_arithmetic){.setting = setting}, "dim", -1);
    return (uint32_t)(dim < 0 ? dim + (rank ? rank : 1) : dim);
}

static bool takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    uint32_t rank = in->rank ? in->rank : 1;
    double dim = reference_number(&(struct reference_arithmetic){.setting = setting}, "dim", -1);
    return dim >= -(double)rank && dim < rank;
}

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    out->rank = in->rank;
    memcpy(out->shape, in->shape, sizeof out->shape);
    return pass == XOP_FORWARD ||
           (in[0].rank == in[1].rank &&
            memcmp(in[0].shape, in[1].shape, in[0].rank * sizeof *in[0].shape) == 0);
}

/* A row: the elements at, at + step, ..., n of them. */
struct row {
    int64_t at, step, n;
};

/* The kth row of a tensor that has elements. */
static struct row row_at(const struct reference_tensor *t, uint32_t dim, int64_t k) {
    struct row row = {0, 1, t->rank ? t->shape[dim] : 1};
    for (uint32_t d = dim + 1; d < t->rank; d++)
        row.step *= t->shape[d];
    row.at = k / row.step * row.step * row.n + k % row.step;
    return row;
}

static int64_t rows_of(const struct reference_tensor *t, uint32_t dim) {
    int64_t length = t->rank ? t->shape[dim] : 1;
    return t->n > 0 ? t->n / length : 0;
}

static double limited(const struct reference_arithmetic *arithmetic, double value) {
    return fabs(value) > arithmetic->max ? copysign(INFINITY, value) : value;
}

static double largest(const double *x, struct row row) {
    double most = -INFINITY;
    for (int64_t i = 0; i < row.n; i++)
        most = fmax(most, x[row.at + i * row.step]);
    return most;
}

/* An exponential of d is off by |d| roundoffs, that d was rounded by, and so is their sum by as
 * many as it has on average. */
static void forward_row(const struct reference_arithmetic *arithmetic, bool is_log, const double *x,
                        struct row row, struct reference_tensor *out) {
    double most = largest(x, row);
    long double sum = 0, off = 0;
    for (int64_t i = 0; i < row.n; i++) {
        double d = limited(arithmetic, x[row.at + i * row.step] - most);
        long double e = expl(d);
        sum += e;
        off += e > 0 ? e * fabsl(d) : 0;
    }
    off /= sum;
    for (int64_t i = 0; i < row.n; i++) {
        int64_t at = row.at + i * row.step;
        double d = limited(arithmetic, x[at] - most);
        if (is_log) {
            out->data[at] = (double)(d - logl(sum));
            out->scale[at] = (double)(fabs(d) + logl(sum) + 1 + off);
        } else {
            out->data[at] = (double)(expl(d) / sum);
            out->scale[at] = out->data[at] * (double)(1 + (isinf(d) ? 0 : fabs(d)) + off);
        }
    }
}

static void backward_row(bool is_log, const double *y, const double *g, struct row row,
                         struct reference_tensor *out) {
    long double sum = 0, size = 0;
    for (int64_t i = 0; i < row.n; i++) {
        int64_t at = row.at + i * row.step;
        long double term = is_log ? (long double)g[at] : (long double)y[at] * g[at];
        sum += term;
        size += fabsl(term);
    }
    for (int64_t i = 0; i < row.n; i++) {
        int64_t at = row.at + i * row.step;
        long double share = is_log ? expl(y[at]) : (long double)y[at];
        out->data[at] = (double)(is_log ? g[at] - share * sum : share * (g[at] - sum));
        out->scale[at] =
            (double)(is_log ? fabs(g[at]) + share * size : fabsl(share) * (fabs(g[at]) + size));
    }
}

static void forward(const struct reference_arithmetic *arithmetic, bool is_log,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    uint32_t dim = dim_of(arithmetic->setting, in->rank);
    for (int64_t k = 0; k < rows_of(in, dim); k++)
        forward_row(arithmetic, is_log, in->data, row_at(in, dim, k), out);
    out->terms = in->n > 0 ? in->n / rows_of(in, dim) : 1;
}

static void backward(const struct reference_arithmetic *arithmetic, bool is_log,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    uint32_t dim = dim_of(arithmetic->setting, in->rank);
    for (int64_t k = 0; k < rows_of(in, dim); k++)
        backward_row(is_log, in[0].data, in[1].data, row_at(in, dim, k), out);
    out->terms = in->n > 0 ? in->n / rows_of(in, dim) : 1;
}

/* Lengths around vectors, blocks and what a block keeps of a row, along each dimension. */
static const struct reference_case cases[] = {
    {{""}, REFERENCE_RANDOM, false},
    {{"0"}, REFERENCE_RANDOM, false},
    {{"1"}, REFERENCE_RANDOM, false},
    {{"3"}, REFERENCE_RANDOM, false},
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
    {{"4,127"}, REFERENCE_RANDOM, false},
    {{"9,128"}, REFERENCE_RANDOM, false},
    {{"257,255"}, REFERENCE_RANDOM, false},
    {{"3,1000"}, REFERENCE_RANDOM, false},
    {{"5,1024"}, REFERENCE_RANDOM, false},
    {{"5,1025"}, REFERENCE_RANDOM, false},
    {{"2,3,520"}, REFERENCE_RANDOM, false},
    {{"17,130,9"}, REFERENCE_RANDOM, false},
    {{"3,4096"}, REFERENCE_RANDOM, false},
    {{"3,4099"}, REFERENCE_RANDOM, false},
    {{"2,8192"}, REFERENCE_RANDOM, false},
    {{"2,8196"}, REFERENCE_RANDOM, false},
    {{"2,16384"}, REFERENCE_RANDOM, false},
    {{"2,16392"}, REFERENCE_RANDOM, false},
    {{"1,50257"}, REFERENCE_RANDOM, false},
    {{"50021,2"}, REFERENCE_POSITIVE, false},
    {{"1031,1021"}, REFERENCE_RANDOM, true},
};

#define DIM(dim)                                                                                   \
    { {{"dim", XOP_ATTR_INT, 1, {.i = (dim)}}}, 1 }
static const struct reference_setting settings[] = {{.nattrs = 0}, DIM(0), DIM(1), DIM(-2)};

#define SOFTMAX(id, is_log)                                                                        \
    static void id##_forward(const struct reference_arithmetic *arithmetic,                        \
                             const struct reference_tensor *in, struct reference_tensor *out) {    \
        forward(arithmetic, is_log, in, out);                                                      \
    }                                                                                              \
    static void id##_backward(const struct reference_arithmetic *arithmetic,                       \
                              const struct reference_tensor *in, struct reference_tensor *out) {   \
        backward(arithmetic, is_log, in, out);                                                     \
    }                                                                                              \
    const struct reference reference_##id = {.name = #id,                                          \
                                             .nin = 1,                                             \
                                             .nout = 1,                                            \
                                             .ngrad = 1,                                           \
                                             .saved_out = 1,                                       \
                                             .cases = cases,                                       \
                                             .ncases = sizeof cases / sizeof *cases,               \
                                             .settings = settings,                                 \
                                             .nsettings = sizeof settings / sizeof *settings,      \
                                             .low = -8,                                            \
                                             .high = 8,                                            \
                                             .smooth_low = -3,                                     \
                                             .smooth_high = 3,                                     \
                                             .takes = takes,                                       \
                                             .shape = shape,                                       \
                                             .forward = id##_forward,                              \
                                             .backward = id##_backward}

SOFTMAX(softmax, false);
SOFTMAX(log_softmax, true);
