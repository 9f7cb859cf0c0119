/* y = x w^T + b, the leading dimensions of x taken as rows; b may be missing. */
#include "reference.h"

#include <math.h>
#include <string.h>

static int64_t rows_of(const struct reference_tensor *x) {
    int64_t rows = 1;
    for (uint32_t d = 0; d + 1 < x->rank; d++)
        rows *= x->shape[d];
    return rows;
}

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    const struct reference_tensor *x = &in[0], *w = &in[1], *b = &in[2], *gy = &in[2];
    struct reference_tensor y = *x;
    if (x->rank == 0 || w->rank != 2 || x->shape[x->rank - 1] != w->shape[1])
        return false;
    y.shape[y.rank - 1] = w->shape[0];
    if (pass == XOP_FORWARD) {
        out[0].rank = y.rank;
        memcpy(out[0].shape, y.shape, sizeof y.shape);
        return b->absent || (b->rank == 1 && b->shape[0] == w->shape[0]);
    }
    for (int i = 0; i < 2; i++) {
        out[i].rank = in[i].rank;
        memcpy(out[i].shape, in[i].shape, sizeof out[i].shape);
    }
    out[2].rank = 1;
    out[2].shape[0] = w->shape[0];
    return gy->rank == y.rank && memcmp(gy->shape, y.shape, y.rank * sizeof *y.shape) == 0;
}

/* A line through a matrix: so many elements, from data on, each so far from the one before. */
struct line {
    const double *data;
    int64_t step;
};

/* The sum over k < n of a[k] * b[k], and of the products' absolute values. In long double, so that
 * the judge is more exact than what it judges in f64. */
static long double dot(const struct reference_arithmetic *arithmetic, struct line a, struct line b,
                       int64_t n, long double *scale) {
    long double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        double product = a.data[k * a.step] * b.data[k * b.step];
        if (fabs(product) > arithmetic->max)
            product = copysign(INFINITY, product);
        /* A product of doubles is not always one. */
        long double term = isfinite(product) ? (long double)a.data[k * a.step] * b.data[k * b.step]
                                             : (long double)product;
        sum += term;
        *scale += fabsl(term);
    }
    return sum;
}

static void forward(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    const struct reference_tensor *x = &in[0], *w = &in[1], *b = &in[2];
    int64_t rows = rows_of(x), columns = w->shape[0], inner = w->shape[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            long double bias = b->absent ? 0 : b->data[j], scale = fabsl(bias);
            struct line row = {x->data + i * inner, 1}, weights = {w->data + j * inner, 1};
            out->data[i * columns + j] =
                (double)(dot(arithmetic, row, weights, inner, &scale) + bias);
            out->scale[i * columns + j] = (double)scale;
        }
    out->terms = inner + 1;
}

static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    const struct reference_tensor *x = &in[0], *w = &in[1], *gy = &in[2];
    const double one = 1;
    int64_t rows = rows_of(x), n = w->shape[0], m = w->shape[1];
    for (int64_t i = 0; i < rows; i++) /* grad_x[i][k] = sum over j of gy[i][j] w[j][k] */
        for (int64_t k = 0; k < m; k++) {
            long double scale = 0;
            struct line g = {gy->data + i * n, 1}, weights = {w->data + k, m};
            out[0].data[i * m + k] = (double)dot(arithmetic, g, weights, n, &scale);
            out[0].scale[i * m + k] = (double)scale;
        }
    for (int64_t j = 0; j < n; j++) /* grad_w[j][k] = sum over i of gy[i][j] x[i][k] */
        for (int64_t k = 0; k < m; k++) {
            long double scale = 0;
            struct line g = {gy->data + j, n}, values = {x->data + k, m};
            out[1].data[j * m + k] = (double)dot(arithmetic, g, values, rows, &scale);
            out[1].scale[j * m + k] = (double)scale;
        }
    for (int64_t j = 0; j < n; j++) { /* grad_b[j] = sum over i of gy[i][j] */
        long double scale = 0;
        struct line g = {gy->data + j, n}, ones = {&one, 0};
        out[2].data[j] = (double)dot(arithmetic, g, ones, rows, &scale);
        out[2].scale[j] = (double)scale;
    }
    out[0].terms = n;
    out[1].terms = out[2].terms = rows;
}

/* Any shape is an x; w has a few more rows than columns, so that none is taken for the other. */
static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    int64_t features = rank > 0 ? like[rank - 1] : 1;
    in[0] = (struct reference_shape){.rank = 1, .shape = {1}};
    if (rank > 0) {
        in[0].rank = rank;
        memcpy(in[0].shape, like, rank * sizeof *like);
    }
    in[1] = (struct reference_shape){.rank = 2, .shape = {features + 3, features}};
    in[2] = (struct reference_shape){.rank = 1, .shape = {features + 3}};
}

/* Sizes around every tile and vector width, long sums, and every way to be empty. Whole numbers
 * add up exactly in any order, so that no long sum may miss a term; others show how exact the
 * arithmetic is. */
static const struct reference_case cases[] = {
    {{"4", "3,4", "3"}, REFERENCE_RANDOM, false},
    {{"4", "3,4", NULL}, REFERENCE_RANDOM, false},
    {{"1", "1,1", "1"}, REFERENCE_RANDOM, false},
    {{"2,3,4", "5,4", "5"}, REFERENCE_RANDOM, false},
    {{"2,1,2,1,2,1,2,3", "2,3", "2"}, REFERENCE_RANDOM, false},
    {{"0,4", "3,4", "3"}, REFERENCE_RANDOM, false},
    {{"2,0,4", "3,4", NULL}, REFERENCE_RANDOM, false},
    {{"3,0", "4,0", "4"}, REFERENCE_RANDOM, false},
    {{"3,0", "4,0", NULL}, REFERENCE_RANDOM, false},
    {{"3,4", "0,4", "0"}, REFERENCE_RANDOM, false},
    {{"0,0", "0,0", "0"}, REFERENCE_RANDOM, false},
    {{"5,7", "3,7", "3"}, REFERENCE_WHOLE, false},
    {{"7,13", "11,13", "11"}, REFERENCE_RANDOM, false},
    {{"16,16", "16,16", NULL}, REFERENCE_RANDOM, false},
    {{"31,33", "17,33", "17"}, REFERENCE_RANDOM, false},
    {{"64,65", "63,65", "63"}, REFERENCE_RANDOM, false},
    {{"97,64", "64,64", "64"}, REFERENCE_WHOLE, false},
    {{"127,129", "130,129", "130"}, REFERENCE_RANDOM, false},
    {{"129,255", "128,255", NULL}, REFERENCE_WHOLE, false},
    {{"257,127", "131,127", "131"}, REFERENCE_RANDOM, false},
    {{"256,256", "256,256", "256"}, REFERENCE_WHOLE, false},
    {{"1,1025", "7,1025", "7"}, REFERENCE_RANDOM, false},
    {{"1,300", "1000,300", "1000"}, REFERENCE_WHOLE, false},
    {{"5,4099", "3,4099", "3"}, REFERENCE_RANDOM, false},
    {{"2,50021", "3,50021", "3"}, REFERENCE_RANDOM, false},
    {{"2,50021", "3,50021", "3"}, REFERENCE_POSITIVE, false},
    {{"2,50021", "3,50021", "3"}, REFERENCE_WHOLE, false},
    {{"20011,3", "2,3", "2"}, REFERENCE_WHOLE, false},
    {{"20011,2", "3,2", "3"}, REFERENCE_POSITIVE, false},
    {{"3,2", "20011,2", "20011"}, REFERENCE_WHOLE, false},
    {{"3,1", "4099,1", "4099"}, REFERENCE_RANDOM, false},
    {{"385,384", "257,384", "257"}, REFERENCE_WHOLE, true},
    {{"1024,1", "32,1", NULL}, REFERENCE_EDGES, false},
};

const struct reference reference_linear = {.name = "linear",
                                           .nin = 3,
                                           .nout = 1,
                                           .ngrad = 3,
                                           .saved_in = 3,
                                           .any_order = true,
                                           .cases = cases,
                                           .ncases = sizeof cases / sizeof *cases,
                                           .low = -2,
                                           .high = 2,
                                           .smooth_low = -2,
                                           .smooth_high = 2,
                                           .shape = shape,
                                           .fit = fit,
                                           .forward = forward,
                                           .backward = backward};
