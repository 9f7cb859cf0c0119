/*
 * Losses of classes: cross_entropy a row at a time, through a buffer of doubles, which is filled
 * again for each look at a row that is longer; nll_loss by looking up one element of a row.
 */
#include <math.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/loss.h"
#include "kernels/size.h"
#include <xop/check.h>

#define CHUNK 1024 /* elements */

struct classes {
    struct loss_classes is;
    struct loss_cut cut;
    enum xop_dtype dtype, target_dtype;
    const void *x, *target, *weight, *grad_y;
    void *out;
    double *partials;
    double total; /* backward of a mean: what it divides by */
    struct xop_bad_index *bad_index;
};

/* ---- Operands ---- */

/* n elements of a tensor of x's shape that belong to a row, from class `first` on. */
static void load_row(const struct classes *c, const void *from, int64_t row, int64_t first,
                     int64_t n, double *to) {
    const struct row_size *size = &c->is.size;
    int64_t at = row / size->inner * size->n * size->inner + row % size->inner;
    at += first * size->inner;
    if (size->inner == 1)
        loops_load(loops_best(), c->dtype, to,
                   (const char *)from + (size_t)at * xop_dtype_size(c->dtype), n);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = loss_element(c->dtype, from, at + i * size->inner);
}

static void store_row(const struct classes *c, int64_t row, int64_t first, int64_t n,
                      const double *from) {
    const struct row_size *size = &c->is.size;
    int64_t at = row / size->inner * size->n * size->inner + row % size->inner;
    at += first * size->inner;
    if (size->inner == 1)
        loops_store(loops_best(), c->dtype, (char *)c->out + (size_t)at * xop_dtype_size(c->dtype),
                    from, n);
    else
        for (int64_t i = 0; i < n; i++)
            loss_store(c->dtype, c->out, at + i * size->inner, from[i]);
}

static void load_weights(const struct classes *c, int64_t first, int64_t n, double *to) {
    if (c->weight)
        loops_load(loops_best(), c->dtype, to,
                   (const char *)c->weight + (size_t)first * xop_dtype_size(c->dtype), n);
    for (int64_t i = 0; !c->weight && i < n; i++)
        to[i] = 1;
}

/* A row's target: its index, or -1 where it does not count; and its weight. */
struct target {
    int64_t index;
    double weight;
};

static struct target target_of(const struct classes *c, int64_t row) {
    struct target none = {-1, 0},
                  target = {xop_index(c->target_dtype, c->target, (uint64_t)row), 1};
    if (target.index == c->is.ignore_index)
        return none;
    if (target.index < 0 || target.index >= c->is.size.n) {
        xop_index_bad(c->bad_index, (uint64_t)row);
        return none;
    }
    if (c->weight)
        target.weight = loss_element(c->dtype, c->weight, target.index);
    return target;
}

/* ---- Rows of cross_entropy ---- */

/* The largest of a row and the sum of exponentials; x holds the row where it is a single chunk. */
static void measure_row(const struct classes *c, int64_t row, double *x, double *most,
                        double *sum) {
    const struct row_loops *rows = loops_best()->rows;
    const int64_t n = c->is.size.n;
    double e[CHUNK];

    *most = -INFINITY;
    *sum = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
        load_row(c, c->x, row, i, size_least(CHUNK, n - i), x);
        *most = rows->max(x, *most, size_least(CHUNK, n - i));
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        if (n > CHUNK)
            load_row(c, c->x, row, i, size_least(CHUNK, n - i), x);
        *sum += rows->exp_sum(e, x, *most, size_least(CHUNK, n - i));
    }
}

/* What the logarithms of a chunk's probabilities are multiplied by, but for their sign. */
static void shares(const struct classes *c, int64_t row, struct target target, int64_t first,
                   int64_t n, double *u) {
    const double spread = c->is.smoothing / (double)c->is.size.n, rest = 1 - c->is.smoothing;
    double weight[CHUNK];

    load_weights(c, first, n, weight);
    if (c->is.probabilities) {
        load_row(c, c->target, row, first, n, u);
        for (int64_t i = 0; i < n; i++)
            u[i] = weight[i] * (rest * u[i] + spread);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        u[i] = spread * weight[i];
    if (target.index >= first && target.index < first + n)
        u[target.index - first] += rest * target.weight;
}

static double forward_row(const struct classes *c, int64_t row, struct target target) {
    const int64_t n = c->is.size.n;
    double x[CHUNK], u[CHUNK], most, sum, loss = 0;

    measure_row(c, row, x, &most, &sum);
    const double log_sum = log(sum);
    if (!c->is.probabilities && c->is.smoothing == 0) {
        load_row(c, c->x, row, target.index, 1, x);
        return -target.weight * (x[0] - most - log_sum);
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        if (n > CHUNK)
            load_row(c, c->x, row, i, m, x);
        shares(c, row, target, i, m, u);
        for (int64_t k = 0; k < m; k++)
            x[k] = x[k] - most - log_sum;
        loss -= loops_best()->rows->dot(u, x, m);
    }
    return loss;
}

static void backward_row(const struct classes *c, int64_t row, struct target target, double g) {
    const struct row_loops *rows = loops_best()->rows;
    const int64_t n = c->is.size.n;
    double x[CHUNK], u[CHUNK], most, sum, all = 0;

    measure_row(c, row, x, &most, &sum);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        shares(c, row, target, i, m, u);
        all += rows->sum(u, m);
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = size_least(CHUNK, n - i);
        if (n > CHUNK) {
            load_row(c, c->x, row, i, m, x);
            shares(c, row, target, i, m, u);
        }
        rows->exp_sum(x, x, most, m);
        for (int64_t k = 0; k < m; k++)
            x[k] = g * (x[k] / sum * all - u[k]);
        store_row(c, row, i, m, x);
    }
}

/* What a row's gradient is multiplied by. */
static double gradient_of(const struct classes *c, int64_t row) {
    double g = loss_element(c->dtype, c->grad_y, c->is.reduction == LOSS_NONE ? row : 0);
    return c->is.reduction == LOSS_MEAN ? g / c->total : g;
}

static void fill_row(const struct classes *c, int64_t row, struct target target, double value) {
    const int64_t n = c->is.size.n;
    for (int64_t i = 0; i < n; i += CHUNK) {
        double x[CHUNK] = {0};
        if (target.index >= i && target.index < i + CHUNK)
            x[target.index - i] = value;
        store_row(c, row, i, size_least(CHUNK, n - i), x);
    }
}

/* ---- Pieces ---- */

/* Stores a row's loss, or adds it to its piece's. */
static void put(const struct classes *c, int64_t row, double loss, double weight, double *part) {
    if (c->is.reduction == LOSS_NONE)
        loss_store(c->dtype, c->out, row, loss);
    part[0] += loss;
    part[1] += weight;
}

static void entropy_pieces(void *arg, int64_t begin, int64_t end) {
    const struct classes *c = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        double part[LOSS_PARTS] = {0};
        int64_t first, last;
        loss_cut_rows(&c->is.size, &c->cut, piece, &first, &last);
        for (int64_t row = first; row < last; row++) {
            struct target target = {0, 1};
            if (!c->is.probabilities)
                target = target_of(c, row);
            bool counts = target.index >= 0;
            if (!c->grad_y)
                put(c, row, counts ? forward_row(c, row, target) : 0, target.weight, part);
            else if (counts)
                backward_row(c, row, target, gradient_of(c, row));
            else
                fill_row(c, row, target, 0);
        }
        for (int i = 0; i < LOSS_PARTS && c->partials; i++)
            c->partials[LOSS_PARTS * piece + i] = part[i];
    }
}

/* Pieces of LOSS_PIECE rows: the losses of nll_loss, or the weights alone where there is no x. */
static void nll_pieces(void *arg, int64_t begin, int64_t end) {
    const struct classes *c = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        double part[LOSS_PARTS] = {0};
        for (int64_t row = piece * LOSS_PIECE;
             row < size_least((piece + 1) * LOSS_PIECE, c->is.rows); row++) {
            struct target target = target_of(c, row);
            double x = 0;
            if (c->x && target.index >= 0)
                load_row(c, c->x, row, target.index, 1, &x);
            if (c->x)
                put(c, row, target.index >= 0 ? -target.weight * x : 0, target.weight, part);
            else
                part[1] += target.weight;
        }
        for (int i = 0; i < LOSS_PARTS && c->partials; i++)
            c->partials[LOSS_PARTS * piece + i] = part[i];
    }
}

static void nll_gradients(void *arg, int64_t begin, int64_t end) {
    const struct classes *c = arg;
    for (int64_t row = begin; row < end; row++) {
        struct target target = target_of(c, row);
        fill_row(c, row, target, target.index >= 0 ? -target.weight * gradient_of(c, row) : 0);
    }
}

/* ---- Launches ---- */

static struct classes classes_of(const struct xop_call *call, bool entropy, bool backward) {
    struct classes c = {.dtype = call->in[LOSS_X].dtype,
                        .target_dtype = call->in[LOSS_TARGET].dtype,
                        .x = call->in[LOSS_X].data,
                        .target = call->in[LOSS_TARGET].data,
                        .weight = call->in[LOSS_WEIGHT].data,
                        .grad_y = backward ? call->in[LOSS_CLASSES_GRAD_Y].data : NULL,
                        .out = call->out[0].data,
                        .total = 1,
                        .bad_index = call->bad_index};
    loss_classes_measure(call, entropy, &c.is);
    loss_classes_cut(&c.is.size, c.dtype, &c.cut);
    if (!entropy)
        c.cut.pieces = loss_pieces(c.is.rows);
    return c;
}

/* Rows that are worth handing to another thread. */
static int64_t grain(int64_t rows_each, int64_t n) {
    int64_t each = rows_each * (n > 0 ? n : 1);
    return each < LAUNCH_GRAIN ? LAUNCH_GRAIN / each : 1;
}

static void forward(const struct xop_host *host, const struct xop_call *call, bool entropy) {
    struct classes c = classes_of(call, entropy, false);
    struct loss_sums sums;

    if (!c.out)
        return;
    if (c.is.reduction != LOSS_NONE)
        c.partials = call->workspace;
    if (entropy)
        host->parallel(host, c.cut.pieces, grain(LOSS_BLOCK / c.cut.lanes, c.is.size.n),
                       entropy_pieces, &c);
    else
        host->parallel(host, c.cut.pieces, 1, nll_pieces, &c);
    if (c.is.reduction == LOSS_NONE)
        return;
    sums = loss_add_up(c.partials, c.cut.pieces);
    if (c.is.reduction == LOSS_MEAN)
        sums.loss /= c.is.probabilities ? (double)c.is.rows : sums.weight;
    loss_store(c.dtype, c.out, 0, sums.loss);
}

static void backward(const struct xop_host *host, const struct xop_call *call, bool entropy) {
    struct classes c = classes_of(call, entropy, true);

    if (!c.out)
        return;
    if (loss_classes_total(&c.is)) {
        struct classes weights = c;
        weights.x = NULL;
        weights.partials = (double *)call->workspace + LOSS_TOTAL_BYTES / sizeof(double);
        host->parallel(host, loss_pieces(c.is.rows), 1, nll_pieces, &weights);
        c.total = loss_add_up(weights.partials, loss_pieces(c.is.rows)).weight;
    } else if (c.is.reduction == LOSS_MEAN) {
        c.total = (double)c.is.rows;
    }
    if (entropy)
        host->parallel(host, c.cut.pieces, grain(LOSS_BLOCK / c.cut.lanes, c.is.size.n),
                       entropy_pieces, &c);
    else
        host->parallel(host, c.is.rows, grain(1, c.is.size.n), nll_gradients, &c);
}

#define CLASSES(name, entropy)                                                                     \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        forward(host, call, entropy);                                                              \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        backward(host, call, entropy);                                                             \
    }                                                                                              \
    LAUNCH_EACH(name, name##_forward, name##_backward)

CLASSES(cross_entropy, true)
CLASSES(nll_loss, false)
