/*
 * softmax and log_softmax on the CPU, in f64 for every dtype. A row that lies together passes
 * through buffers a chunk at a time; rows whose elements lie apart are computed side by side.
 */
#include "kernels/row.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/row.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/cpu/scalar.h"
#include "kernels/size.h"

#define CHUNK 1024 /* elements */
#define STRIP 64   /* rows side by side */
#define BLOCK 256  /* terms of a row that are added up before they join its total */

struct softmax {
    const struct loops *loops;
    enum xop_dtype dtype;
    size_t element;
    bool log;
    struct row_size size;
    int64_t strips; /* of the inner rows */
    const char *x;  /* or y, backward */
    const char *grad_y;
    char *out;
};

static void load(const struct softmax *s, double *to, const char *from, int64_t at, int64_t n) {
    loops_load(s->loops, s->dtype, to, from + (size_t)at * s->element, n);
}

static void store(const struct softmax *s, int64_t at, const double *from, int64_t n) {
    loops_store(s->loops, s->dtype, s->out + (size_t)at * s->element, from, n);
}

/* ---- Rows that lie together ---- */

/* The row from element `at` on. One that is a single chunk is loaded, and its exponentials are
 * taken, once. */
static void forward_row(const struct softmax *s, int64_t at) {
    double x[CHUNK], e[CHUNK], most = -INFINITY, sum = 0;
    const int64_t n = s->size.n;
    const bool many = n > CHUNK;

    for (int64_t i = 0; i < n; i += CHUNK) {
        load(s, x, s->x, at + i, size_least(CHUNK, n - i));
        most = s->loops->rows->max(x, most, size_least(CHUNK, n - i));
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        if (many)
            load(s, x, s->x, at + i, size_least(CHUNK, n - i));
        sum += s->loops->rows->exp_sum(e, x, most, size_least(CHUNK, n - i));
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        if (many)
            load(s, x, s->x, at + i, m);
        if (many && !s->log)
            s->loops->rows->exp_sum(e, x, most, m);
        if (s->log)
            s->loops->rows->log_softmax(e, x, most, log(sum), m);
        else
            s->loops->rows->softmax(e, e, sum, m);
        store(s, at + i, e, m);
    }
}

static void backward_row(const struct softmax *s, int64_t at) {
    double y[CHUNK], g[CHUNK], sum = 0;
    const int64_t n = s->size.n;
    const bool many = n > CHUNK;

    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        load(s, g, s->grad_y, at + i, m);
        load(s, y, s->x, at + i, m);
        sum += s->log ? s->loops->rows->sum(g, m) : s->loops->rows->dot(y, g, m);
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        if (many) {
            load(s, g, s->grad_y, at + i, m);
            load(s, y, s->x, at + i, m);
        }
        (s->log ? s->loops->rows->log_softmax_grad : s->loops->rows->softmax_grad)(g, y, g, sum, m);
        store(s, at + i, g, m);
    }
}

/* ---- Rows side by side ---- */

/* What is summed over a row for its results. m: the rows' largest, forward. */
typedef void (*terms_fn)(const struct softmax *s, int64_t at, int64_t width, const double *m,
                         double *sum);

static void add_exponentials(const struct softmax *s, int64_t at, int64_t width, const double *m,
                             double *sum) {
    double x[STRIP];
    load(s, x, s->x, at, width);
    for (int64_t i = 0; i < width; i++)
        sum[i] += scalar_exp_f64(m[i] - x[i]).exp;
}

static void add_gradients(const struct softmax *s, int64_t at, int64_t width, const double *m,
                          double *sum) {
    double y[STRIP], g[STRIP];
    (void)m;
    load(s, g, s->grad_y, at, width);
    load(s, y, s->x, at, width);
    for (int64_t i = 0; i < width; i++)
        sum[i] += s->log ? g[i] : y[i] * g[i];
}

static void sum_strip(const struct softmax *s, terms_fn add, int64_t at, int64_t width,
                      const double *m, double *sum) {
    memset(sum, 0, STRIP * sizeof *sum);
    for (int64_t k = 0; k < s->size.n; k += BLOCK) {
        double block[STRIP] = {0};
        for (int64_t j = k; j < k + BLOCK && j < s->size.n; j++)
            add(s, at + j * s->size.inner, width, m, block);
        for (int64_t i = 0; i < width; i++)
            sum[i] += block[i];
    }
}

/* `width` rows, whose first elements lie together from `at` on. */
static void forward_strip(const struct softmax *s, int64_t at, int64_t width) {
    double x[STRIP], most[STRIP], sum[STRIP];
    const int64_t end = at + s->size.n * s->size.inner;

    for (int64_t i = 0; i < width; i++)
        most[i] = -INFINITY;
    for (int64_t k = at; k < end; k += s->size.inner) {
        load(s, x, s->x, k, width);
        for (int64_t i = 0; i < width; i++)
            most[i] = x[i] > most[i] ? x[i] : most[i];
    }
    sum_strip(s, add_exponentials, at, width, most, sum);
    for (int64_t i = 0; s->log && i < width; i++)
        sum[i] = log(sum[i]);
    for (int64_t k = at; k < end; k += s->size.inner) {
        load(s, x, s->x, k, width);
        if (s->log)
            for (int64_t i = 0; i < width; i++)
                x[i] = x[i] - most[i] - sum[i];
        else
            for (int64_t i = 0; i < width; i++)
                x[i] = scalar_exp_f64(most[i] - x[i]).exp / sum[i];
        store(s, k, x, width);
    }
}

static void backward_strip(const struct softmax *s, int64_t at, int64_t width) {
    double y[STRIP], g[STRIP], sum[STRIP];
    const int64_t end = at + s->size.n * s->size.inner;

    sum_strip(s, add_gradients, at, width, NULL, sum);
    for (int64_t k = at; k < end; k += s->size.inner) {
        load(s, g, s->grad_y, k, width);
        load(s, y, s->x, k, width);
        for (int64_t i = 0; i < width; i++)
            g[i] = s->log ? g[i] - exp(y[i]) * sum[i] : y[i] * (g[i] - sum[i]);
        store(s, k, g, width);
    }
}

/* ---- Launches ---- */

static void run_units(void *arg, int64_t begin, int64_t end) {
    const struct softmax *s = arg;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t outer = unit / s->strips, within = unit % s->strips * STRIP;
        int64_t at = outer * s->size.n * s->size.inner + within;
        int64_t width = size_least(STRIP, s->size.inner - within);
        if (s->size.inner == 1)
            (s->grad_y ? backward_row : forward_row)(s, at);
        else
            (s->grad_y ? backward_strip : forward_strip)(s, at, width);
    }
}

static void run(const struct xop_host *host, const struct xop_call *call, bool is_log,
                bool backward) {
    struct softmax s = {.loops = loops_best(),
                        .dtype = call->in[0].dtype,
                        .element = xop_dtype_size(call->in[0].dtype),
                        .log = is_log,
                        .x = call->in[0].data,
                        .grad_y = backward ? call->in[ROW_SOFTMAX_GRAD_Y].data : NULL,
                        .out = call->out[0].data};
    int64_t unit;

    row_softmax_measure(call, &s.size);
    if (!s.out || s.size.n == 0)
        return;
    s.strips = (s.size.inner - 1) / STRIP + 1;
    unit = s.size.n * size_least(STRIP, s.size.inner);
    host->parallel(host, s.size.outer * s.strips, unit < LAUNCH_GRAIN ? LAUNCH_GRAIN / unit : 1,
                   run_units, &s);
}

#define SOFTMAX(name, is_log)                                                                      \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        run(host, call, is_log, false);                                                            \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        run(host, call, is_log, true);                                                             \
    }                                                                                              \
    LAUNCH_EACH(name, name##_forward, name##_backward)

SOFTMAX(softmax, false)
SOFTMAX(log_softmax, true)
