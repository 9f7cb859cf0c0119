/*
 * layer_norm and rms_norm on the CPU, in f64 for every dtype. A row passes through buffers a chunk
 * at a time; one that is a single chunk is loaded once. The sums for the gradients of weight and
 * bias are kept for each piece of the rows in the workspace, and added up at the end.
 */
#include "kernels/row.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/row.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/size.h"

#define CHUNK 1024 /* elements */

struct norm {
    const struct loops *loops;
    enum xop_dtype dtype;
    size_t element;
    bool centered; /* layer_norm */
    double eps;
    struct row_size size;
    struct row_columns columns;
    const char *x, *weight, *bias, *grad_y;
    char *out;    /* y or grad_x; NULL: not wanted */
    double *sums; /* NULL: neither grad_weight nor grad_bias is wanted */
    char *grad_weight, *grad_bias;
};

/* What a thread holds of a row: the chunk from `at` on; of parameters, that of every row. */
struct chunk {
    double x[CHUNK], g[CHUNK], weight[CHUNK], bias[CHUNK], out[CHUNK];
    int64_t parameters_at; /* whose chunk of the parameters is loaded; -1: none */
};

static void load(const struct norm *s, double *to, const char *from, int64_t at, int64_t n) {
    loops_load(s->loops, s->dtype, to, from + (size_t)at * s->element, n);
}

static void fill(double *to, double value, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

/* Columns [at, at + n) of weight and bias, or what stands for them. */
static void load_parameters(const struct norm *s, struct chunk *c, int64_t at, int64_t n) {
    if (c->parameters_at == at)
        return;
    c->parameters_at = at;
    if (s->weight)
        load(s, c->weight, s->weight, at, n);
    else
        fill(c->weight, 1, n);
    if (s->bias)
        load(s, c->bias, s->bias, at, n);
    else
        fill(c->bias, 0, n);
}

/* Leaves the row in c->x where it is a single chunk. */
static struct row_stats stats_of(const struct norm *s, struct chunk *c, int64_t row) {
    struct row_stats stats = {0, 0};
    const int64_t n = s->size.n;
    double squares = 0;

    for (int64_t i = 0; i < n && (s->centered || n <= CHUNK); i += CHUNK) {
        load(s, c->x, s->x, row * n + i, size_least(CHUNK, n - i));
        if (s->centered)
            stats.mean += s->loops->rows->sum(c->x, size_least(CHUNK, n - i));
    }
    stats.mean /= (double)n;
    for (int64_t i = 0; i < n; i += CHUNK) {
        if (n > CHUNK)
            load(s, c->x, s->x, row * n + i, size_least(CHUNK, n - i));
        squares += s->loops->rows->squares(c->x, stats.mean, size_least(CHUNK, n - i));
    }
    stats.scale = 1 / sqrt(squares / (double)n + s->eps);
    return stats;
}

static void forward_row(const struct norm *s, struct chunk *c, int64_t row) {
    struct row_stats stats = stats_of(s, c, row);
    const int64_t n = s->size.n;

    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        if (n > CHUNK)
            load(s, c->x, s->x, row * n + i, m);
        load_parameters(s, c, i, m);
        s->loops->rows->norm(c->out, c->x, stats, c->weight, c->bias, m);
        loops_store(s->loops, s->dtype, s->out + (size_t)(row * n + i) * s->element, c->out, m);
    }
}

static void run_forward(void *arg, int64_t begin, int64_t end) {
    struct chunk c;
    c.parameters_at = -1;
    for (int64_t row = begin; row < end; row++)
        forward_row(arg, &c, row);
}

/* sums: those of the row's piece, or NULL. */
static void backward_row(const struct norm *s, struct chunk *c, int64_t row, double *sums) {
    struct row_stats stats = stats_of(s, c, row);
    const int64_t n = s->size.n;
    double u = 0, uh = 0;

    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        if (n > CHUNK)
            load(s, c->x, s->x, row * n + i, m);
        load(s, c->g, s->grad_y, row * n + i, m);
        load_parameters(s, c, i, m);
        u += s->loops->rows->norm_sums(c->out, &uh, c->x, stats, c->g, c->weight, m);
        if (sums)
            s->loops->rows->norm_columns(sums + i, sums + n + i, c->x, stats, c->g, m);
    }
    u = s->centered ? u / (double)n : 0;
    uh /= (double)n;
    for (int64_t i = 0; s->out && i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        if (n > CHUNK) {
            double ignored = 0;
            load(s, c->x, s->x, row * n + i, m);
            load(s, c->g, s->grad_y, row * n + i, m);
            load_parameters(s, c, i, m);
            s->loops->rows->norm_sums(c->out, &ignored, c->x, stats, c->g, c->weight, m);
        }
        s->loops->rows->norm_grad(c->out, c->x, stats, c->out, u, uh, m);
        loops_store(s->loops, s->dtype, s->out + (size_t)(row * n + i) * s->element, c->out, m);
    }
}

static void run_backward(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    struct chunk c;

    c.parameters_at = -1;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first = piece * s->columns.piece;
        int64_t last = size_least(first + s->columns.piece, s->size.outer);
        double *sums = s->sums ? s->sums + piece * 2 * s->size.n : NULL;
        if (sums)
            memset(sums, 0, 2 * (size_t)s->size.n * sizeof *sums);
        for (int64_t row = first; row < last; row++)
            backward_row(s, &c, row, sums);
    }
}

static void run_columns(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    char *const to[] = {s->grad_weight, s->grad_bias};
    double sum[CHUNK];

    for (int which = 0; which < 2; which++)
        for (int64_t at = begin; to[which] && at < end; at += CHUNK) {
            int64_t m = size_least(CHUNK, end - at);
            const double *from = s->sums + which * s->size.n + at;
            fill(sum, 0, m);
            for (int64_t piece = 0; piece < s->columns.pieces; piece++)
                for (int64_t i = 0; i < m; i++)
                    sum[i] += from[piece * 2 * s->size.n + i];
            loops_store(s->loops, s->dtype, to[which] + (size_t)at * s->element, sum, m);
        }
}

static struct norm norm_of(const struct xop_call *call, bool centered) {
    struct norm s = {.loops = loops_best(),
                     .dtype = call->in[ROW_NORM_X].dtype,
                     .element = xop_dtype_size(call->in[ROW_NORM_X].dtype),
                     .centered = centered,
                     .eps = row_norm_eps(call),
                     .x = call->in[ROW_NORM_X].data,
                     .weight = call->in[ROW_NORM_WEIGHT].data,
                     .out = call->out[0].data};
    row_norm_measure(call, &s.size);
    return s;
}

static int64_t grain_of(int64_t elements) {
    return elements < LAUNCH_GRAIN ? LAUNCH_GRAIN / elements : 1;
}

static void forward(const struct xop_host *host, const struct xop_call *call, bool centered) {
    struct norm s = norm_of(call, centered);
    if (centered)
        s.bias = call->in[ROW_NORM_BIAS].data;
    if (s.out && s.size.n > 0 && s.size.outer > 0)
        host->parallel(host, s.size.outer, grain_of(s.size.n), run_forward, &s);
}

static void backward(const struct xop_host *host, const struct xop_call *call, bool centered) {
    struct norm s = norm_of(call, centered);

    s.grad_y = call->in[ROW_NORM_GRAD_Y].data;
    s.grad_weight = call->out[ROW_NORM_GRAD_WEIGHT].data;
    s.grad_bias = centered ? call->out[ROW_NORM_GRAD_BIAS].data : NULL;
    row_norm_columns(&s.size, s.dtype, &s.columns);
    if (s.grad_weight || s.grad_bias)
        s.sums = call->workspace;
    if (s.columns.pieces > 0 && (s.out || s.sums))
        host->parallel(host, s.columns.pieces, grain_of(s.columns.piece * s.size.n), run_backward,
                       &s);
    if ((s.grad_weight || s.grad_bias) && s.size.n > 0)
        host->parallel(host, s.size.n, grain_of(s.columns.pieces + 1), run_columns, &s);
}

#define NORM(name, centered)                                                                       \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        forward(host, call, centered);                                                             \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        backward(host, call, centered);                                                            \
    }                                                                                              \
    LAUNCH_EACH(name, name##_forward, name##_backward)

NORM(layer_norm, true)
NORM(rms_norm, false)
