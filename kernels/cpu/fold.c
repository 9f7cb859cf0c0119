/*
 * Reductions on the CPU, in f64 for every dtype. The work is cut into units: some neighbouring
 * outputs (a strip) times one piece of their terms. Where the innermost axis is kept, a strip is a
 * stretch of it and its outputs are folded side by side; else they are folded one after the other,
 * from runs of terms that lie together.
 */
#include "kernels/cpu/fold.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/fold_terms.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/walk.h"
#include "kernels/size.h"

#define CHUNK (FOLD_STRIP * FOLD_BLOCK) /* elements that are buffered */

struct fold {
    enum fold_kind kind;
    enum fold_summary summary;
    struct fold_plan plan;
    const struct loops *loops;
    enum xop_dtype dtype;
    size_t size;
    const char *x, *y, *grad_y;
    char *out;                /* y, or grad_x */
    double *partials, *stats; /* stats: NULL in forward */
    bool side_by_side;
    int64_t inner;  /* extent of the innermost kept axis, or outputs where it is reduced */
    int64_t strips; /* that cover inner */
    int64_t run;    /* terms that lie together */
    struct shape_dim kept[XOP_MAX_RANK], axis[XOP_MAX_RANK];
    uint32_t nkept, naxis; /* dimensions outside inner and run */
};

static void load(const struct fold *f, double *to, const char *from, int64_t at, int64_t n) {
    loops_load(f->loops, f->dtype, to, from + (size_t)at * f->size, n);
}

static void store(const struct fold *f, int64_t at, const double *from, int64_t n) {
    loops_store(f->loops, f->dtype, f->out + (size_t)at * f->size, from, n);
}

/* ---- Folding ---- */

/* Some outputs, and the terms [first, last) of each. */
struct unit {
    int64_t output, count, first, last;
    uint32_t piece;
};

static void fold_side_by_side(const struct fold *f, const struct unit *unit, const double *y,
                              struct fold_strip *strip) {
    int64_t outer = unit->output / f->inner, within = unit->output % f->inner;
    double x[CHUNK];
    struct walk kept, axis;

    walk_start(&kept, f->kept, f->nkept, outer);
    walk_start(&axis, f->axis, f->naxis, unit->first);
    for (int64_t t = unit->first; t < unit->last;) {
        int64_t terms = size_least(FOLD_BLOCK, unit->last - t);
        for (int64_t i = 0; i < terms; i++, walk_next(&axis))
            load(f, x + i * FOLD_STRIP, f->x, kept.x + within + axis.x, unit->count);
        fold_columns(f->summary, strip, x, terms, unit->count, y);
        t += terms;
    }
}

static void fold_runs(const struct fold *f, const struct unit *unit, const double *y,
                      struct fold_strip *strip) {
    double x[CHUNK];
    struct walk kept, start, axis;

    walk_start(&kept, f->kept, f->nkept, unit->output);
    walk_start(&start, f->axis, f->naxis, unit->first / f->run);
    for (int64_t k = 0; k < unit->count; k++, walk_next(&kept)) {
        int64_t within = unit->first % f->run, filled = 0;
        axis = start;
        for (int64_t t = unit->first; t < unit->last;) {
            int64_t n = size_least(size_least(f->run - within, unit->last - t), CHUNK - filled);
            load(f, x + filled, f->x, kept.x + axis.x + within, n);
            filled += n;
            within += n;
            t += n;
            if (within == f->run) {
                within = 0;
                walk_next(&axis);
            }
            if (filled == CHUNK || t == unit->last) {
                fold_run(f->summary, f->loops->rows, strip, k, x, filled, y[k]);
                filled = 0;
            }
        }
    }
}

/* Results, or what backward needs of them. */
static void finish(const struct fold *f, int64_t output, const struct fold_strip *strip,
                   int64_t count) {
    double value[FOLD_STRIP];

    for (int p = 0; f->stats && p < FOLD_PARTS; p++)
        memcpy(f->stats + p * f->plan.shape.outputs + output, strip->part[p],
               (size_t)count * sizeof(double));
    if (f->stats)
        return;
    for (int64_t k = 0; k < count; k++)
        value[k] = fold_result(f->summary, &f->plan, strip, k);
    store(f, output, value, count);
}

static double *partials_at(const struct fold *f, int part, int64_t piece, int64_t output) {
    const struct shape_reduction *shape = &f->plan.shape;
    return f->partials + ((int64_t)part * shape->partials + piece) * shape->outputs + output;
}

static void fold_units(void *arg, int64_t begin, int64_t end) {
    const struct fold *f = arg;
    const struct shape_reduction *shape = &f->plan.shape;
    double y[FOLD_STRIP] = {0};
    struct fold_strip strip;

    for (int64_t at = begin; at < end; at++) {
        struct unit unit = {.piece = (uint32_t)(at % shape->partials)};
        int64_t s = at / shape->partials, within = s % f->strips * FOLD_STRIP;

        unit.output = s / f->strips * f->inner + within;
        unit.count = size_least(FOLD_STRIP, f->inner - within);
        unit.first = unit.piece * shape->piece;
        unit.last = unit.first + size_least(shape->piece, shape->reduced - unit.first);
        fold_start(f->summary, &strip, unit.count);
        if (f->summary == FOLD_TIES)
            load(f, y, f->y, unit.output, unit.count);
        if (unit.first < unit.last)
            (f->side_by_side ? fold_side_by_side : fold_runs)(f, &unit, y, &strip);
        if (shape->partials == 1)
            finish(f, unit.output, &strip, unit.count);
        for (int p = 0; shape->partials > 1 && p < FOLD_PARTS; p++)
            memcpy(partials_at(f, p, unit.piece, unit.output), strip.part[p],
                   (size_t)unit.count * sizeof(double));
    }
}

static void join_pieces(void *arg, int64_t begin, int64_t end) {
    const struct fold *f = arg;
    struct fold_strip strip;

    for (int64_t at = begin; at < end; at += FOLD_STRIP) {
        int64_t count = size_least(FOLD_STRIP, end - at);
        fold_start(f->summary, &strip, count);
        for (uint32_t piece = 0; piece < f->plan.shape.partials; piece++)
            for (int64_t k = 0; k < count; k++) {
                double other[FOLD_PARTS];
                for (int p = 0; p < FOLD_PARTS; p++)
                    other[p] = *partials_at(f, p, piece, at + k);
                fold_join(f->summary, &strip, k, other);
            }
        finish(f, at, &strip, count);
    }
}

static void dims_of(struct shape_dim *dim, const struct shape_axis *axis, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        dim[i] = (struct shape_dim){axis[i].size, axis[i].stride, 0};
}

static void prepare(struct fold *f) {
    const struct shape_reduction *shape = &f->plan.shape;

    dims_of(f->kept, shape->kept, shape->nkept);
    dims_of(f->axis, shape->axis, shape->nreduced);
    f->nkept = shape->nkept;
    f->naxis = shape->nreduced;
    f->inner = shape->outputs;
    f->run = 1;
    f->side_by_side = shape->nkept > 0 && shape->kept[shape->nkept - 1].stride == 1;
    if (shape->reduced == 0) /* the axes mean nothing, and nobody walks them */
        f->nkept = f->naxis = 0;
    else if (f->side_by_side)
        f->inner = shape->kept[--f->nkept].size;
    else if (shape->nreduced > 0)
        f->run = shape->axis[--f->naxis].size;
    f->strips = (f->inner - 1) / FOLD_STRIP + 1;
}

static void fold(struct fold *f, const struct xop_host *host) {
    const struct shape_reduction *shape = &f->plan.shape;
    int64_t units, terms, grain;

    if (shape->outputs == 0)
        return;
    prepare(f);
    units = shape->outputs / f->inner * f->strips * shape->partials;
    terms = shape->piece * size_least(f->inner, FOLD_STRIP);
    grain = terms < LAUNCH_GRAIN ? LAUNCH_GRAIN / terms : 1;
    host->parallel(host, units, grain, fold_units, f);
    if (shape->partials > 1)
        host->parallel(host, shape->outputs, LAUNCH_GRAIN / shape->partials, join_pieces, f);
}

/* ---- Backward: grad_y spread over x's shape ---- */

/* What is known of some neighbouring elements' outputs; each array is n long. */
struct known {
    double y[FOLD_STRIP], grad_y[FOLD_STRIP], part[FOLD_PARTS][FOLD_STRIP];
};

/* The step-th element of an output is `step` on: 0 where all n share one. */
static void known_of(const struct fold *f, struct known *known, int64_t output, int64_t step,
                     int64_t n) {
    int64_t some = step ? n : 1;
    double *all[2 + FOLD_PARTS] = {known->grad_y, known->y, known->part[0], known->part[1],
                                   known->part[2]};

    load(f, known->grad_y, f->grad_y, output, some);
    if (f->y)
        load(f, known->y, f->y, output, some);
    else
        known->y[0] = 0;
    for (int p = 0; p < FOLD_PARTS; p++)
        if (f->stats)
            memcpy(known->part[p], f->stats + p * f->plan.shape.outputs + output,
                   (size_t)some * sizeof(double));
        else
            known->part[p][0] = 0;
    for (uint32_t i = 0; step == 0 && i < 2 + FOLD_PARTS; i++)
        for (int64_t k = 1; k < n; k++)
            all[i][k] = all[i][0];
}

/* The product of all terms but x, of which `product` are those that are not 0. */
static double other_factors(double x, double product, double zeros) {
    if (zeros == 0)
        return product / x;
    return zeros == 1 && x == 0 ? product : 0;
}

static void gradients(const struct fold *f, double *x, const struct known *known, int64_t n) {
    const double divisor = f->plan.divisor;
    const double *g = known->grad_y, *a = known->part[0], *b = known->part[1];

    for (int64_t i = 0; i < n; i++)
        switch (f->kind) {
        case FOLD_MAX:
        case FOLD_MIN: x[i] = (x[i] == known->y[i] ? g[i] : g[i] * 0) / a[i]; break;
        case FOLD_PROD: x[i] = g[i] * other_factors(x[i], a[i], b[i]); break;
        case FOLD_LOGSUMEXP: x[i] = g[i] * exp(x[i] - known->y[i]); break;
        case FOLD_VAR: x[i] = 2 / divisor * g[i] * (x[i] - a[i]); break;
        case FOLD_SUM:
        case FOLD_MEAN:
        case FOLD_KINDS: x[i] = g[i] / divisor; break;
        }
}

static void spread_piece(void *arg, int64_t begin, int64_t end) {
    const struct fold *f = arg;
    const struct shape_map *map = &f->plan.spread;
    const uint32_t outer = map->ndims > 0 ? map->ndims - 1 : 0;
    const int64_t row = map->ndims > 0 ? map->dim[outer].size : 1;
    const int64_t step = map->ndims > 0 ? map->dim[outer].stride_b : 0;
    int64_t within = begin % row;
    struct known known;
    double x[FOLD_STRIP];
    struct walk walk;

    walk_start(&walk, map->dim, outer, begin / row);
    for (int64_t at = begin; at < end;) {
        int64_t n = size_least(size_least(FOLD_STRIP, row - within), end - at);
        known_of(f, &known, walk.b + within * step, step, n);
        if (fold_traits[f->kind].reads_x)
            load(f, x, f->x, at, n);
        else
            memset(x, 0, (size_t)n * sizeof *x); /* which is not looked at */
        gradients(f, x, &known, n);
        store(f, at, x, n);
        at += n;
        within += n;
        if (within == row) {
            within = 0;
            walk_next(&walk);
        }
    }
}

/* ---- Launches ---- */

static void run(const struct xop_host *host, const struct xop_call *call, enum fold_kind kind,
                enum xop_pass pass) {
    const struct fold_traits *traits = &fold_traits[kind];
    struct fold f = {.kind = kind,
                     .summary = pass == XOP_FORWARD ? traits->forward : traits->backward,
                     .loops = loops_best(),
                     .dtype = call->in[FOLD_X].dtype,
                     .size = xop_dtype_size(call->in[FOLD_X].dtype),
                     .x = call->in[FOLD_X].data,
                     .out = call->out[0].data,
                     .partials = call->workspace};

    if (!f.out)
        return;
    fold_measure(kind, pass, call, &f.plan);
    if (pass == XOP_FORWARD) {
        fold(&f, host);
        return;
    }
    if (f.plan.spread.elements == 0)
        return;
    f.y = traits->saved_y ? call->in[FOLD_Y].data : NULL;
    f.grad_y = call->in[1 + traits->saved_y].data;
    if (f.summary != FOLD_NOTHING) {
        f.stats = (void *)((char *)call->workspace + f.plan.stats_offset);
        fold(&f, host);
    }
    host->parallel(host, f.plan.spread.elements, LAUNCH_GRAIN, spread_piece, &f);
}

#define FOLD(name, kind)                                                                           \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        run(host, call, kind, XOP_FORWARD);                                                        \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        run(host, call, kind, XOP_BACKWARD);                                                       \
    }                                                                                              \
    LAUNCH_EACH(name, name##_forward, name##_backward)

FOLD(sum, FOLD_SUM)
FOLD(mean, FOLD_MEAN)
FOLD(max, FOLD_MAX)
FOLD(min, FOLD_MIN)
FOLD(prod, FOLD_PROD)
FOLD(logsumexp, FOLD_LOGSUMEXP)
FOLD(var, FOLD_VAR)
