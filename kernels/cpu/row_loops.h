/*
 * The innermost loops of the operators over rows, on doubles in contiguous memory, compiled once
 * for each vector extension as those of loops.h and with the same bits from each. Sums are taken in
 * a fixed number of lanes. Callable from any thread.
 */
#ifndef KERNELS_CPU_ROW_LOOPS_H
#define KERNELS_CPU_ROW_LOOPS_H

#include <stdint.h>

/* A row's mean and 1 / sqrt(var + eps), or 0 and 1 / sqrt(mean square + eps). */
struct row_stats {
    double mean, scale;
};

struct row_loops {
    /* The largest of x and `most`; NaN is passed over. */
    double (*max)(const double *x, double most, int64_t n);
    /* e[i] = exp(x[i] - m), for x[i] <= m or NaN; their sum. */
    double (*exp_sum)(double *e, const double *x, double m, int64_t n);
    double (*sum)(const double *x, int64_t n);
    double (*dot)(const double *a, const double *b, int64_t n);
    /* The sum of (x[i] - mean)^2. */
    double (*squares)(const double *x, double mean, int64_t n);

    /* y may be x; gx may be y or gy. */
    void (*softmax)(double *y, const double *e, double sum, int64_t n);
    void (*log_softmax)(double *y, const double *x, double m, double log_sum, int64_t n);
    /* y[i] * (gy[i] - dot), and gy[i] - exp(y[i]) * sum */
    void (*softmax_grad)(double *gx, const double *y, const double *gy, double dot, int64_t n);
    void (*log_softmax_grad)(double *gx, const double *y, const double *gy, double sum, int64_t n);

    /* With h[i] = (x[i] - mean) * scale: y[i] = h[i] * weight[i] + bias[i] */
    void (*norm)(double *y, const double *x, struct row_stats stats, const double *weight,
                 const double *bias, int64_t n);
    /* weight_sum[i] += gy[i] * h[i]; bias_sum[i] += gy[i] */
    void (*norm_columns)(double *weight_sum, double *bias_sum, const double *x,
                         struct row_stats stats, const double *gy, int64_t n);
    /* u[i] = gy[i] * weight[i]; their sum, and in *uh that of u[i] * h[i]. */
    double (*norm_sums)(double *u, double *uh, const double *x, struct row_stats stats,
                        const double *gy, const double *weight, int64_t n);
    /* gx[i] = (u[i] - mean_u - h[i] * mean_uh) * scale */
    void (*norm_grad)(double *gx, const double *x, struct row_stats stats, const double *u,
                      double mean_u, double mean_uh, int64_t n);
};

#if defined(__x86_64__)
extern const struct row_loops row_loops_sse2, row_loops_avx2, row_loops_avx512;
#elif defined(__aarch64__)
extern const struct row_loops row_loops_neon;
#else
extern const struct row_loops row_loops_plain;
#endif

#endif
