/*
 * The loops of row_loops.h. Included by row_loops.c, through isa.h, once for each vector extension.
 * No include guard.
 */

/* Adds the TERM(i) for i < n to total, in lanes that the compiler keeps in vector registers, a
 * block at a time, so that rounding errors grow with the number of blocks and not with that of
 * terms. */
#define ADD_UP(total, TERM)                                                                        \
    for (int64_t begin = 0, end; begin < n; begin = end) {                                         \
        double lane[SUM_LANES] = {0};                                                              \
        int64_t i = begin;                                                                         \
        end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;                                       \
        for (; i + SUM_LANES <= end; i += SUM_LANES)                                               \
            for (int j = 0; j < SUM_LANES; j++)                                                    \
                lane[j] += TERM(i + j);                                                            \
        for (int j = 0; i + j < end; j++)                                                          \
            lane[j] += TERM(i + j);                                                                \
        for (int half = SUM_LANES / 2; half > 0; half /= 2)                                        \
            for (int j = 0; j < half; j++)                                                         \
                lane[j] += lane[j + half];                                                         \
        (total) += lane[0];                                                                        \
    }

static double ISA(max)(const double *x, double most, int64_t n) {
    double lane[SUM_LANES];
    int64_t i = 0;
    for (int j = 0; j < SUM_LANES; j++)
        lane[j] = most;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int j = 0; j < SUM_LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int j = 0; j < SUM_LANES; j++)
        most = lane[j] > most ? lane[j] : most;
    return most;
}

static double ISA(sum)(const double *x, int64_t n) {
    double total = 0;
#define TERM(k) x[k]
    ADD_UP(total, TERM)
#undef TERM
    return total;
}

static double ISA(dot)(const double *a, const double *b, int64_t n) {
    double total = 0;
#define TERM(k) (a[k] * b[k])
    ADD_UP(total, TERM)
#undef TERM
    return total;
}

static double ISA(squares)(const double *x, double mean, int64_t n) {
    double total = 0;
#define TERM(k) ((x[k] - mean) * (x[k] - mean))
    ADD_UP(total, TERM)
#undef TERM
    return total;
}

static double ISA(exp_sum)(double *e, const double *x, double m, int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) e[i] = scalar_exp_f64(m - x[i]).exp;
    return ISA(sum)(e, n);
}

static void ISA(softmax)(double *y, const double *e, double sum, int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] = e[i] / sum;
}

static void ISA(log_softmax)(double *y, const double *x, double m, double log_sum, int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] = x[i] - m - log_sum;
}

static void ISA(softmax_grad)(double *gx, const double *y, const double *gy, double dot,
                              int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) gx[i] = y[i] * (gy[i] - dot);
}

static void ISA(log_softmax_grad)(double *gx, const double *y, const double *gy, double sum,
                                  int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) gx[i] = gy[i] - exp_of(y[i]) * sum;
}

static void ISA(norm)(double *y, const double *x, struct row_stats stats, const double *weight,
                      const double *bias, int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] =
        (x[i] - stats.mean) * stats.scale * weight[i] + bias[i];
}

static void ISA(norm_columns)(double *weight_sum, double *bias_sum, const double *x,
                              struct row_stats stats, const double *gy, int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) {
        weight_sum[i] += gy[i] * ((x[i] - stats.mean) * stats.scale);
        bias_sum[i] += gy[i];
    }
}

static double ISA(norm_sums)(double *u, double *uh, const double *x, struct row_stats stats,
                             const double *gy, const double *weight, int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) u[i] = gy[i] * weight[i];
#define TERM(k) (u[k] * ((x[k] - stats.mean) * stats.scale))
    ADD_UP(*uh, TERM)
#undef TERM
    return ISA(sum)(u, n);
}

static void ISA(norm_grad)(double *gx, const double *x, struct row_stats stats, const double *u,
                           double mean_u, double mean_uh, int64_t n) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) gx[i] =
        (u[i] - mean_u - (x[i] - stats.mean) * stats.scale * mean_uh) * stats.scale;
}

const struct row_loops ISA(row_loops) = {
    .max = ISA(max),
    .exp_sum = ISA(exp_sum),
    .sum = ISA(sum),
    .dot = ISA(dot),
    .squares = ISA(squares),
    .softmax = ISA(softmax),
    .log_softmax = ISA(log_softmax),
    .softmax_grad = ISA(softmax_grad),
    .log_softmax_grad = ISA(log_softmax_grad),
    .norm = ISA(norm),
    .norm_columns = ISA(norm_columns),
    .norm_sums = ISA(norm_sums),
    .norm_grad = ISA(norm_grad),
};

#undef ADD_UP
