/*
 * attention on the CPU: tiles of scores by products of matrices, in f32 or, for f64, in f64, and
 * softmaxes of their rows in f64. A unit of work is a block of rows of a result, and as many of its
 * columns as the stack holds.
 */
#include "kernels/cpu/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/size.h"

#define BLOCK 64  /* queries, and keys, of a tile */
#define SLICE 128 /* columns of a result */
#define INNER 64  /* columns of f16 and bf16 that are converted at a time */

/* In what is computed in. */
struct tile {
    _Alignas(64) double cells[BLOCK * BLOCK];
};

struct attention {
    const struct loops *loops;
    const struct blas *blas;
    enum xop_dtype dtype, computed;
    size_t element, cell;
    struct attention_plan plan;
    const char *query, *key, *value, *grad_y;
    char *out;     /* of the pass that runs */
    double *stats; /* of each query, in backward */
};

/* Rows of one head of an operand. */
struct rows {
    const char *data;
    int64_t n, width;
};

static struct rows rows_of(const struct attention *s, const char *data, int64_t head,
                           int64_t height, int64_t width, int64_t first) {
    size_t at = (size_t)((head * height + first) * width) * s->element;
    return (struct rows){data + at, size_least(BLOCK, height - first), width};
}

static bool is_half(const struct attention *s) { return s->element == sizeof(uint16_t); }

/* Columns [from, from + n) of rows in f32. */
static struct gemm_matrix convert(const struct attention *s, const struct rows *rows, int64_t from,
                                  int64_t n, float *to) {
    for (int64_t i = 0; i < rows->n; i++) {
        const uint16_t *row = (const uint16_t *)(const void *)rows->data + i * rows->width + from;
        (s->dtype == XOP_F16 ? s->loops->f16_to_f32 : s->loops->bf16_to_f32)(to + i * n, row, n);
    }
    return (struct gemm_matrix){to, n, false};
}

/* tile = a b^T */
static void multiply(const struct attention *s, const struct rows *a, const struct rows *b,
                     struct tile *tile) {
    _Alignas(64) float left[BLOCK * INNER], right[BLOCK * INNER];
    struct gemm gemm = {.dtype = s->computed,
                        .rows = a->n,
                        .columns = b->n,
                        .inner = a->width,
                        .a = {a->data, a->width, false},
                        .b = {b->data, b->width, true},
                        .c = tile->cells,
                        .step_c = BLOCK};

    memset(tile->cells, 0, (size_t)(a->n * BLOCK) * s->cell);
    if (!is_half(s)) {
        gemm_run(s->loops, s->blas, &gemm);
        return;
    }
    for (int64_t k = 0; k < a->width; k += INNER) {
        gemm.inner = size_least(INNER, a->width - k);
        gemm.a = convert(s, a, k, gemm.inner, left);
        gemm.b = convert(s, b, k, gemm.inner, right);
        gemm.b.transposed = true;
        gemm_run(s->loops, s->blas, &gemm);
    }
}

/* Some columns of a block of a result, in what is computed in. */
struct part {
    _Alignas(64) double cells[BLOCK * SLICE];
    int64_t first, n; /* columns */
};

/* part += tile b, or tile^T b; b has a row for each that is summed over. */
static void accumulate(const struct attention *s, const struct tile *tile, bool transposed,
                       int64_t rows, const struct rows *b, struct part *part) {
    _Alignas(64) float right[BLOCK * SLICE];
    struct gemm gemm = {.dtype = s->computed,
                        .rows = rows,
                        .columns = part->n,
                        .inner = b->n,
                        .a = {tile->cells, BLOCK, transposed},
                        .b = {b->data + (size_t)part->first * s->element, b->width, false},
                        .c = part->cells,
                        .step_c = SLICE};

    if (is_half(s))
        gemm.b = convert(s, b, part->first, part->n, right);
    gemm_run(s->loops, s->blas, &gemm);
}

static void load_cells(const struct attention *s, double *to, const double *cells, int64_t at,
                       int64_t n) {
    loops_load(s->loops, s->computed, to, (const char *)cells + (size_t)at * s->cell, n);
}

static void store_cells(const struct attention *s, double *cells, int64_t at, const double *from,
                        int64_t n) {
    loops_store(s->loops, s->computed, (char *)cells + (size_t)at * s->cell, from, n);
}

/* part's rows, multiplied, as elements of the result. */
static void finish(const struct attention *s, const struct part *part, int64_t head, int64_t height,
                   int64_t width, int64_t first, const double *factor) {
    double row[SLICE];
    for (int64_t r = 0; r < size_least(BLOCK, height - first); r++) {
        int64_t at = (head * height + first + r) * width + part->first;
        load_cells(s, row, part->cells, r * SLICE, part->n);
        for (int64_t i = 0; factor && i < part->n; i++)
            row[i] *= factor[r];
        loops_store(s->loops, s->dtype, s->out + (size_t)at * s->element, row, part->n);
    }
}

/* ---- Tiles ---- */

/* A head of queries, with that of keys that it shares, and where a tile of its scores begins. */
struct place {
    int64_t head, key_head, query, key;
};

static struct rows queries_of(const struct attention *s, const struct place *at) {
    return rows_of(s, s->query, at->head, s->plan.queries, s->plan.width, at->query);
}
static struct rows keys_of(const struct attention *s, const struct place *at) {
    return rows_of(s, s->key, at->key_head, s->plan.keys, s->plan.width, at->key);
}
static struct rows values_of(const struct attention *s, const struct place *at) {
    return rows_of(s, s->value, at->key_head, s->plan.keys, s->plan.value_width, at->key);
}
static struct rows grads_of(const struct attention *s, const struct place *at) {
    return rows_of(s, s->grad_y, at->head, s->plan.queries, s->plan.value_width, at->query);
}

/* How many of the tile's keys its r-th query sees; less than 0 where none. */
static int64_t seen(const struct attention *s, const struct place *at, int64_t r) {
    int64_t n = size_least(BLOCK, s->plan.keys - at->key);
    return s->plan.causal ? size_least(n, at->query + r - at->key + 1) : n;
}

static bool sees_nothing(const struct attention *s, const struct place *at) {
    return seen(s, at, size_least(BLOCK, s->plan.queries - at->query) - 1) <= 0;
}

/* A softmax that is carried along: the largest score, the sum of exponentials, and in backward
 * that of their products with G. */
struct carried {
    double most[BLOCK], sum[BLOCK], product[BLOCK];
};

static void carry_start(struct carried *c) {
    for (int i = 0; i < BLOCK; i++) {
        c->most[i] = -INFINITY;
        c->sum[i] = c->product[i] = 0;
    }
}

/* Makes a row of scores exponentials; returns what those of the tiles before are multiplied by. */
static double carry(const struct attention *s, struct carried *c, int64_t r, double *e,
                    const double *scores, int64_t n) {
    double most = s->loops->rows->max(scores, c->most[r], n);
    double shift = most == -INFINITY ? 0 : most, factor = exp(c->most[r] - shift);
    c->most[r] = most;
    c->sum[r] = c->sum[r] * factor + s->loops->rows->exp_sum(e, scores, shift, n);
    return factor;
}

/* The scores of a row of a tile; n of them. */
static void scores_of(const struct attention *s, const struct tile *tile, int64_t r, double *to,
                      int64_t n) {
    load_cells(s, to, tile->cells, r * BLOCK, n);
    for (int64_t i = 0; i < n; i++)
        to[i] *= s->plan.scale;
}

/* ---- Forward ---- */

static void scale_row(const struct attention *s, struct part *part, int64_t r, double factor) {
    double row[SLICE];
    if (factor == 1)
        return;
    load_cells(s, row, part->cells, r * SLICE, part->n);
    for (int64_t i = 0; i < part->n; i++)
        row[i] *= factor;
    store_cells(s, part->cells, r * SLICE, row, part->n);
}

static void weigh_tile(const struct attention *s, const struct place *at, struct tile *tile,
                       struct carried *c, struct part *part) {
    double scores[BLOCK], e[BLOCK];
    for (int64_t r = 0; r < size_least(BLOCK, s->plan.queries - at->query); r++) {
        int64_t n = seen(s, at, r);
        memset(e, 0, sizeof e);
        if (n > 0) {
            scores_of(s, tile, r, scores, n);
            scale_row(s, part, r, carry(s, c, r, e, scores, n));
        }
        store_cells(s, tile->cells, r * BLOCK, e, BLOCK);
    }
}

/* A unit: some columns of a block of rows. */
static struct place unit_at(const struct attention *s, int64_t unit, int64_t height, int64_t width,
                            int64_t *first, struct part *part) {
    int64_t slices = size_ceil(width, SLICE), blocks = size_ceil(height, BLOCK);
    struct place at = {.head = unit / slices / blocks};
    *first = unit / slices % blocks * BLOCK;
    part->first = unit % slices * SLICE;
    part->n = size_least(SLICE, width - part->first);
    memset(part->cells, 0, (size_t)(BLOCK * SLICE) * s->cell);
    return at;
}

static void share_key_head(const struct attention *s, struct place *at) {
    at->key_head = at->head / (s->plan.heads / s->plan.key_heads);
}

static void run_forward(void *arg, int64_t begin, int64_t end) {
    const struct attention *s = arg;
    double factor[BLOCK];
    struct carried c;
    struct part part;
    struct tile tile;

    for (int64_t unit = begin; unit < end; unit++) {
        int64_t query;
        struct place at = unit_at(s, unit, s->plan.queries, s->plan.value_width, &query, &part);
        at.query = query;
        carry_start(&c);
        if (s->plan.keys > 0)
            share_key_head(s, &at);
        for (; at.key < s->plan.keys && !sees_nothing(s, &at); at.key += BLOCK) {
            struct rows queries = queries_of(s, &at), keys = keys_of(s, &at),
                        values = values_of(s, &at);
            multiply(s, &queries, &keys, &tile);
            weigh_tile(s, &at, &tile, &c, &part);
            accumulate(s, &tile, false, queries.n, &values, &part);
        }
        for (int r = 0; r < BLOCK; r++)
            factor[r] = s->plan.keys > 0 ? 1 / c.sum[r] : 0;
        finish(s, &part, at.head, s->plan.queries, s->plan.value_width, query, factor);
    }
}

/* ---- Backward ---- */

static void run_stats(void *arg, int64_t begin, int64_t end) {
    const struct attention *s = arg;
    const int64_t blocks = size_ceil(s->plan.queries, BLOCK);
    double scores[BLOCK], e[BLOCK], g[BLOCK];
    struct tile tile, grads;
    struct carried c;

    for (int64_t unit = begin; unit < end; unit++) {
        struct place at = {.head = unit / blocks, .query = unit % blocks * BLOCK};
        struct rows queries = queries_of(s, &at), grad = grads_of(s, &at);
        double *stats = s->stats + 2 * (at.head * s->plan.queries + at.query);
        share_key_head(s, &at);
        carry_start(&c);
        for (; at.key < s->plan.keys && !sees_nothing(s, &at); at.key += BLOCK) {
            struct rows keys = keys_of(s, &at), values = values_of(s, &at);
            multiply(s, &queries, &keys, &tile);
            multiply(s, &grad, &values, &grads);
            for (int64_t r = 0; r < queries.n; r++) {
                int64_t n = seen(s, &at, r);
                if (n <= 0)
                    continue;
                scores_of(s, &tile, r, scores, n);
                load_cells(s, g, grads.cells, r * BLOCK, n);
                c.product[r] *= carry(s, &c, r, e, scores, n);
                c.product[r] += s->loops->rows->dot(e, g, n);
            }
        }
        for (int64_t r = 0; r < queries.n; r++) {
            stats[2 * r] = c.most[r] + log(c.sum[r]);
            stats[2 * r + 1] = c.product[r] / c.sum[r];
        }
    }
}

/* The softmax of a tile and, unless NULL, the gradients of its scores. */
static void weights_of(const struct attention *s, const struct place *at, struct tile *weights,
                       struct tile *grads) {
    struct rows queries = queries_of(s, at), keys = keys_of(s, at), values = values_of(s, at),
                grad = grads_of(s, at);
    double scores[BLOCK], p[BLOCK], g[BLOCK];

    multiply(s, &queries, &keys, weights);
    if (grads)
        multiply(s, &grad, &values, grads);
    for (int64_t r = 0; r < queries.n; r++) {
        const double *stats = s->stats + 2 * (at->head * s->plan.queries + at->query + r);
        int64_t n = seen(s, at, r);
        memset(p, 0, sizeof p);
        memset(g, 0, sizeof g);
        if (n > 0) {
            scores_of(s, weights, r, scores, n);
            for (int64_t i = 0; i < n; i++) /* which rounding may have put above their sum */
                scores[i] = scores[i] > stats[0] ? stats[0] : scores[i];
            s->loops->rows->exp_sum(p, scores, stats[0], n);
        }
        if (n > 0 && grads) {
            load_cells(s, g, grads->cells, r * BLOCK, n);
            for (int64_t i = 0; i < n; i++)
                g[i] = p[i] * (g[i] - stats[1]) * s->plan.scale;
        }
        store_cells(s, weights->cells, r * BLOCK, p, BLOCK);
        if (grads)
            store_cells(s, grads->cells, r * BLOCK, g, BLOCK);
    }
}

static void run_query(void *arg, int64_t begin, int64_t end) {
    const struct attention *s = arg;
    struct tile weights, grads;
    struct part part;

    for (int64_t unit = begin; unit < end; unit++) {
        int64_t query;
        struct place at = unit_at(s, unit, s->plan.queries, s->plan.width, &query, &part);
        at.query = query;
        if (s->plan.keys > 0)
            share_key_head(s, &at);
        for (; at.key < s->plan.keys && !sees_nothing(s, &at); at.key += BLOCK) {
            struct rows keys = keys_of(s, &at);
            weights_of(s, &at, &weights, &grads);
            accumulate(s, &grads, false, size_least(BLOCK, s->plan.queries - query), &keys, &part);
        }
        finish(s, &part, at.head, s->plan.queries, s->plan.width, query, NULL);
    }
}

/* grad_key, or grad_value: sums over the queries of all heads that share a head of keys. */
static void run_shared(const struct attention *s, int64_t begin, int64_t end, bool value) {
    const int64_t width = value ? s->plan.value_width : s->plan.width;
    struct tile weights, grads;
    struct part part;

    for (int64_t unit = begin; unit < end; unit++) {
        int64_t key, group = s->plan.heads / s->plan.key_heads;
        struct place at = unit_at(s, unit, s->plan.keys, width, &key, &part);
        at.key_head = at.head;
        at.key = key;
        for (at.head = at.key_head * group; at.head < (at.key_head + 1) * group; at.head++)
            for (at.query = 0; at.query < s->plan.queries; at.query += BLOCK) {
                struct rows from = value ? grads_of(s, &at) : queries_of(s, &at);
                if (sees_nothing(s, &at))
                    continue;
                weights_of(s, &at, &weights, value ? NULL : &grads);
                accumulate(s, value ? &weights : &grads, true,
                           size_least(BLOCK, s->plan.keys - key), &from, &part);
            }
        finish(s, &part, at.key_head, s->plan.keys, width, key, NULL);
    }
}

static void run_key(void *arg, int64_t begin, int64_t end) { run_shared(arg, begin, end, false); }
static void run_value(void *arg, int64_t begin, int64_t end) { run_shared(arg, begin, end, true); }

/* ---- Calls ---- */

static struct attention attention_of(const struct xop_call *call) {
    const enum xop_dtype dtype = call->in[ATTENTION_QUERY].dtype;
    struct attention s = {.loops = loops_best(),
                          .blas = blas_best(),
                          .dtype = dtype,
                          .computed = dtype == XOP_F64 ? XOP_F64 : XOP_F32,
                          .element = xop_dtype_size(dtype),
                          .query = call->in[ATTENTION_QUERY].data,
                          .key = call->in[ATTENTION_KEY].data,
                          .value = call->in[ATTENTION_VALUE].data,
                          .stats = call->workspace};
    s.cell = xop_dtype_size(s.computed);
    attention_measure(call, &s.plan);
    return s;
}

/* Blocks of rows of a result, if it is wanted. */
static void each(const struct xop_host *host, struct attention *s, const struct xop_tensor *out,
                 int64_t heads, int64_t height, int64_t width,
                 void (*run)(void *, int64_t, int64_t)) {
    int64_t units = heads * size_ceil(height, BLOCK) * size_ceil(width, SLICE);
    s->out = out->data;
    if (s->out && s->plan.batch > 0 && units > 0)
        host->parallel(host, s->plan.batch * units, 1, run, s);
}

static void forward_call(const struct xop_host *host, const struct xop_call *call) {
    struct attention s = attention_of(call);
    each(host, &s, &call->out[0], s.plan.heads, s.plan.queries, s.plan.value_width, run_forward);
}

static void backward_call(const struct xop_host *host, const struct xop_call *call) {
    struct attention s = attention_of(call);
    const struct attention_plan *plan = &s.plan;
    int64_t blocks = plan->batch * plan->heads * size_ceil(plan->queries, BLOCK);

    s.grad_y = call->in[ATTENTION_GRAD_Y].data;
    if (blocks > 0 && plan->keys > 0)
        host->parallel(host, blocks, 1, run_stats, &s);
    each(host, &s, &call->out[ATTENTION_GRAD_QUERY], plan->heads, plan->queries, plan->width,
         run_query);
    each(host, &s, &call->out[ATTENTION_GRAD_KEY], plan->key_heads, plan->keys, plan->width,
         run_key);
    each(host, &s, &call->out[ATTENTION_GRAD_VALUE], plan->key_heads, plan->keys, plan->value_width,
         run_value);
}
LAUNCH_EACH(attention, forward_call, backward_call)
