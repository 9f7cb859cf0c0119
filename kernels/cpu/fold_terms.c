#include "kernels/cpu/fold_terms.h"

#include <math.h>

#include "kernels/cpu/scalar.h"

#define A part[0]
#define B part[1]
#define C part[2]

void fold_start(enum fold_summary summary, struct fold_strip *strip, int64_t count) {
    double a = 0;
    if (summary == FOLD_LARGEST || summary == FOLD_EXPONENTIALS)
        a = -INFINITY;
    else if (summary == FOLD_SMALLEST)
        a = INFINITY;
    else if (summary == FOLD_PRODUCT || summary == FOLD_ZEROS)
        a = 1;
    for (int64_t k = 0; k < count; k++) {
        strip->A[k] = a;
        strip->B[k] = strip->C[k] = 0;
    }
}

/* NaN wins. */
static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }
static double smaller(double a, double b) { return b < a || isnan(b) ? b : a; }

/* exp(x - m), also where both are the same infinity; x <= m or NaN. */
static double exponential(double x, double m) {
    double e = scalar_exp_f64(m - x).exp;
    return x == m ? 1 : e;
}

/* Brings a sum of exponentials relative to `from` to `to`, which is not smaller. */
static double rescaled(double sum, double from, double to) { return sum * exponential(from, to); }

/* The mean and the sum of squares of n terms join those of others (Chan, Golub and LeVeque,
 * Updating formulae and a pairwise algorithm for computing sample variances, 1979). */
static void join_squares(struct fold_strip *strip, int64_t k, double mean, double squares,
                         double n) {
    double before = strip->C[k], all = before + n, d = mean - strip->A[k];
    if (n == 0)
        return;
    if (before == 0) {
        strip->A[k] = mean;
        strip->B[k] = squares;
    } else {
        strip->A[k] += d * (n / all);
        strip->B[k] += squares + d * d * (before * n / all);
    }
    strip->C[k] = all;
}

/* ---- Outputs side by side ---- */

#define AT(t, k) x[(t)*FOLD_STRIP + (k)]

/* Of each output, what its terms make of `first` by `step`, which names them as AT(t, k). */
#define EACH(to, first, step)                                                                      \
    for (int64_t k = 0; k < count; k++)                                                            \
        (to)[k] = (first);                                                                         \
    for (int64_t t = 0; t < terms; t++)                                                            \
        for (int64_t k = 0; k < count; k++)                                                        \
            (to)[k] = (step);

static void exponentials_columns(struct fold_strip *strip, const double *x, int64_t terms,
                                 int64_t count) {
    double most[FOLD_STRIP], sum[FOLD_STRIP];
    EACH(most, strip->A[k], AT(t, k) > most[k] ? AT(t, k) : most[k])
    EACH(sum, 0, sum[k] + exponential(AT(t, k), most[k]))
    for (int64_t k = 0; k < count; k++) {
        strip->B[k] = rescaled(strip->B[k], strip->A[k], most[k]) + sum[k];
        strip->A[k] = most[k];
    }
}

static void squares_columns(struct fold_strip *strip, const double *x, int64_t terms,
                            int64_t count) {
    double mean[FOLD_STRIP], squares[FOLD_STRIP];
    EACH(mean, 0, mean[k] + AT(t, k))
    for (int64_t k = 0; k < count; k++)
        mean[k] /= (double)terms;
    EACH(squares, 0, squares[k] + (AT(t, k) - mean[k]) * (AT(t, k) - mean[k]))
    for (int64_t k = 0; k < count; k++)
        join_squares(strip, k, mean[k], squares[k], (double)terms);
}

void fold_columns(enum fold_summary summary, struct fold_strip *strip, const double *x,
                  int64_t terms, int64_t count, const double *y) {
    double sum[FOLD_STRIP];

    switch (summary) {
    case FOLD_TOTAL:
        EACH(sum, 0, sum[k] + AT(t, k))
        for (int64_t k = 0; k < count; k++)
            strip->A[k] += sum[k];
        break;
    case FOLD_LARGEST: EACH(strip->A, strip->A[k], larger(strip->A[k], AT(t, k))) break;
    case FOLD_SMALLEST: EACH(strip->A, strip->A[k], smaller(strip->A[k], AT(t, k))) break;
    case FOLD_PRODUCT: EACH(strip->A, strip->A[k], strip->A[k] * AT(t, k)) break;
    case FOLD_EXPONENTIALS: exponentials_columns(strip, x, terms, count); break;
    case FOLD_SQUARES: squares_columns(strip, x, terms, count); break;
    case FOLD_TIES: EACH(strip->A, strip->A[k], strip->A[k] + (AT(t, k) == y[k])) break;
    case FOLD_ZEROS:
        EACH(strip->A, strip->A[k], AT(t, k) == 0 ? strip->A[k] : strip->A[k] * AT(t, k))
        EACH(strip->B, strip->B[k], strip->B[k] + (AT(t, k) == 0))
        break;
    case FOLD_NOTHING: break;
    }
}

/* ---- One output ---- */

#define LANES 8

/* The same over a run, in lanes that stay in vector registers. `step` names a lane's value as v
 * and a term as e. */
#define RUN(to, first, step, join)                                                                 \
    do {                                                                                           \
        double lane[LANES], v, e;                                                                  \
        for (int j = 0; j < LANES; j++)                                                            \
            lane[j] = (first);                                                                     \
        for (int64_t i = 0; i < n; i += LANES)                                                     \
            for (int j = 0; j < LANES && i + j < n; j++) {                                         \
                v = lane[j];                                                                       \
                e = x[i + j];                                                                      \
                lane[j] = (step);                                                                  \
            }                                                                                      \
        for (int j = 0; j < LANES; j++) {                                                          \
            v = (to);                                                                              \
            e = lane[j];                                                                           \
            (to) = (join);                                                                         \
        }                                                                                          \
    } while (0)

static void exponentials_run(const struct row_loops *loops, struct fold_strip *strip, int64_t k,
                             const double *x, int64_t n) {
    double most = loops->max(x, strip->A[k], n), sum = 0, e[FOLD_BLOCK * FOLD_STRIP];

    if (isfinite(most))
        sum = loops->exp_sum(e, x, most, n);
    else
        for (int64_t i = 0; i < n; i++)
            sum += exponential(x[i], most);
    strip->B[k] = rescaled(strip->B[k], strip->A[k], most) + sum;
    strip->A[k] = most;
}

void fold_run(enum fold_summary summary, const struct row_loops *loops, struct fold_strip *strip,
              int64_t k, const double *x, int64_t n, double y) {
    double *a = &strip->A[k], *b = &strip->B[k], mean;

    switch (summary) {
    case FOLD_TOTAL: *a += loops->sum(x, n); break;
    case FOLD_LARGEST: RUN(*a, -INFINITY, larger(v, e), larger(v, e)); break;
    case FOLD_SMALLEST: RUN(*a, INFINITY, smaller(v, e), smaller(v, e)); break;
    case FOLD_PRODUCT: RUN(*a, 1, v * e, v * e); break;
    case FOLD_EXPONENTIALS: exponentials_run(loops, strip, k, x, n); break;
    case FOLD_SQUARES:
        mean = loops->sum(x, n) / (double)n;
        join_squares(strip, k, mean, loops->squares(x, mean, n), (double)n);
        break;
    case FOLD_TIES: RUN(*a, 0, v + (e == y), v + e); break;
    case FOLD_ZEROS:
        RUN(*a, 1, e == 0 ? v : v * e, v * e);
        RUN(*b, 0, v + (e == 0), v + e);
        break;
    case FOLD_NOTHING: break;
    }
}

/* ---- Pieces and results ---- */

void fold_join(enum fold_summary summary, struct fold_strip *strip, int64_t k,
               const double other[FOLD_PARTS]) {
    double *a = &strip->A[k], *b = &strip->B[k], most;

    switch (summary) {
    case FOLD_TOTAL:
    case FOLD_TIES: *a += other[0]; break;
    case FOLD_LARGEST: *a = larger(*a, other[0]); break;
    case FOLD_SMALLEST: *a = smaller(*a, other[0]); break;
    case FOLD_PRODUCT: *a *= other[0]; break;
    case FOLD_EXPONENTIALS:
        most = other[0] > *a ? other[0] : *a;
        *b = rescaled(*b, *a, most) + rescaled(other[1], other[0], most);
        *a = most;
        break;
    case FOLD_SQUARES: join_squares(strip, k, other[0], other[1], other[2]); break;
    case FOLD_ZEROS:
        *a *= other[0];
        *b += other[1];
        break;
    case FOLD_NOTHING: break;
    }
}

double fold_result(enum fold_summary summary, const struct fold_plan *plan,
                   const struct fold_strip *strip, int64_t k) {
    if (summary == FOLD_EXPONENTIALS)
        return strip->A[k] + log(strip->B[k]);
    return (summary == FOLD_SQUARES ? strip->B[k] : strip->A[k]) / plan->divisor;
}
