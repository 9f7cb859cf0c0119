/*
 * group_norm and batch_norm on the CPU, in f64 for every dtype: partial sums of each piece of a
 * strand, their end, and then a pass over all elements, in chunks that stay in the first cache.
 */
#include "kernels/planes.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/planes.h"
#include "kernels/size.h"

#define CHUNK 512 /* elements */
#define STRIP 64  /* strands that lie side by side */
#define BLOCK 128 /* rows of a strip that are summed before they are added to the rest */

struct norm {
    const struct loops *loops;
    enum xop_dtype dtype;
    size_t element;
    const struct xop_call *call;
    enum xop_pass pass;
    struct planes_plan plan;
    const char *x, *grad_y;
    char *out; /* y or grad_x; NULL: not wanted */
    double *parts, *channel_parts, *stats, *sums, *parameters;
    const struct planes_strands *strands; /* of the sums that are being made */
    double *partial;
    bool weighted;
};

/* What belongs to each of some neighbouring elements; u and uh are means, for the gradient. */
struct chunk {
    double x[CHUNK], g[CHUNK], mean[CHUNK], scale[CHUNK], weight[CHUNK], bias[CHUNK], u[CHUNK],
        uh[CHUNK];
};

static void load(const struct norm *s, double *to, const char *from, int64_t at, int64_t n) {
    loops_load(s->loops, s->dtype, to, from + (size_t)at * s->element, n);
}

static double get(const struct norm *s, uint32_t operand, int64_t i, double fallback) {
    const char *data = s->call->in[operand].data;
    if (data)
        load(s, &fallback, data, i, 1);
    return fallback;
}

/* Nothing where the output is not wanted or has no elements. */
static void put(const struct norm *s, uint32_t output, int64_t i, double value) {
    char *data = s->call->out[output].data;
    if (data && i < s->call->out[output].shape[0])
        loops_store(s->loops, s->dtype, data + (size_t)i * s->element, &value, 1);
}

static void fill(double *to, double value, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

static int64_t address(const struct planes_strands *strands, int64_t strand, int64_t i) {
    return strand * strands->step + i / strands->run * strands->stride + i % strands->run;
}

/* What belongs to the n elements from `at` on; `means` as well, in backward. */
static void spread(const struct norm *s, struct chunk *c, int64_t at, int64_t n, bool means) {
    const struct planes_plan *plan = &s->plan;
    const double terms = (double)plan->together.n;
    int64_t plane = at / plan->inner, within = at % plan->inner;

    for (int64_t i = 0, m; i < n; i += m, plane++, within = 0) {
        int64_t channel = plane % plan->channels;
        int64_t strand = plan->batch ? channel : plane / plan->together_channels;
        double weight = s->parameters[2 * channel];
        m = size_least(plan->inner - within, n - i);
        fill(c->mean + i, s->stats[2 * strand], m);
        fill(c->scale + i, s->stats[2 * strand + 1], m);
        fill(c->weight + i, weight, m);
        if (!means) {
            fill(c->bias + i, s->parameters[2 * channel + 1], m);
            continue;
        }
        /* The sums of batch_norm are not weighted, and have one weight. */
        fill(c->u + i, plan->fixed ? 0 : s->sums[2 * strand] / terms * (plan->batch ? weight : 1),
             m);
        fill(c->uh + i,
             plan->fixed ? 0 : s->sums[2 * strand + 1] / terms * (plan->batch ? weight : 1), m);
    }
}

/* ---- Statistics ---- */

static int64_t units_of(const struct planes_strands *strands) {
    int64_t width = planes_side_by_side(strands) ? STRIP : 1;
    return (strands->strands + width - 1) / width * strands->pieces;
}

/* A piece of a strand, or of `count` strands side by side. */
struct unit {
    int64_t strand, count, piece, first, last;
};

static struct unit unit_at(const struct planes_strands *strands, int64_t index) {
    int64_t width = planes_side_by_side(strands) ? STRIP : 1;
    struct unit unit = {.strand = index / strands->pieces * width,
                        .piece = index % strands->pieces};
    unit.count = size_least(width, strands->strands - unit.strand);
    unit.first = unit.piece * strands->piece;
    unit.last = size_least(unit.first + strands->piece, strands->n);
    return unit;
}

static double *partial_at(const struct norm *s, int64_t strand, int64_t piece) {
    return s->partial + 2 * (strand * s->strands->pieces + piece);
}

/* The next elements of a strand that lie together. */
static int64_t segment(const struct planes_strands *strands, int64_t i, int64_t last) {
    return size_least(size_least(strands->run - i % strands->run, last - i), CHUNK);
}

static void stats_of_strand(const struct norm *s, const struct unit *unit) {
    double *to = partial_at(s, unit->strand, unit->piece), x[CHUNK], mean = 0, squares = 0;
    int64_t n = unit->last - unit->first;

    for (int64_t i = unit->first, m; i < unit->last; i += m) {
        m = segment(s->strands, i, unit->last);
        load(s, x, s->x, address(s->strands, unit->strand, i), m);
        mean += s->loops->rows->sum(x, m);
    }
    mean /= (double)n;
    for (int64_t i = unit->first, m; i < unit->last; i += m) {
        m = segment(s->strands, i, unit->last);
        if (m < n)
            load(s, x, s->x, address(s->strands, unit->strand, i), m);
        squares += s->loops->rows->squares(x, mean, m);
    }
    to[0] = mean;
    to[1] = squares;
}

static void stats_of_strip(const struct norm *s, const struct unit *unit) {
    double mean[STRIP] = {0}, squares[STRIP] = {0}, x[STRIP];
    const double n = (double)(unit->last - unit->first);

    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = unit->first; i < unit->last;) {
            double block[STRIP] = {0}, *to = pass == 0 ? mean : squares;
            for (int64_t end = size_least(i + BLOCK, unit->last); i < end; i++) {
                load(s, x, s->x, address(s->strands, unit->strand, i), unit->count);
                for (int64_t k = 0; k < unit->count; k++)
                    block[k] += pass == 0 ? x[k] : (x[k] - mean[k]) * (x[k] - mean[k]);
            }
            for (int64_t k = 0; k < unit->count; k++)
                to[k] += pass == 0 ? block[k] / n : block[k];
        }
    for (int64_t k = 0; k < unit->count; k++) {
        double *to = partial_at(s, unit->strand + k, unit->piece);
        to[0] = mean[k];
        to[1] = squares[k];
    }
}

static void run_stats(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    for (int64_t i = begin; i < end; i++) {
        struct unit unit = unit_at(s->strands, i);
        if (planes_side_by_side(s->strands))
            stats_of_strip(s, &unit);
        else
            stats_of_strand(s, &unit);
    }
}

/* The mean of a strand, and the sum of squared distances from it, from those of its pieces. */
static void join(const struct norm *s, int64_t strand, double *mean, double *squares) {
    const struct planes_strands *strands = s->strands;
    double total = 0;

    for (int64_t p = 0; p < strands->pieces; p++)
        total += partial_at(s, strand, p)[0] *
                 (double)size_least(strands->piece, strands->n - p * strands->piece);
    *mean = total / (double)strands->n;
    *squares = 0;
    for (int64_t p = 0; p < strands->pieces; p++) {
        const double *from = partial_at(s, strand, p), d = from[0] - *mean;
        *squares +=
            from[1] + d * d * (double)size_least(strands->piece, strands->n - p * strands->piece);
    }
}

/* What batch_norm's forward tells besides y. */
static void tell(const struct norm *s, int64_t channel, double mean, double squares) {
    const double momentum = s->plan.momentum, n = (double)s->plan.channel.n;
    double running_mean = get(s, PLANES_RUNNING_MEAN, channel, 0);
    double running_var = get(s, PLANES_RUNNING_VAR, channel, 0);

    if (!s->plan.fixed && n > 0) {
        running_mean = (1 - momentum) * running_mean + momentum * mean;
        running_var = (1 - momentum) * running_var + momentum * (squares / (n - 1));
    }
    put(s, PLANES_MEAN, channel, mean);
    put(s, PLANES_INVSTD, channel, s->stats[2 * channel + 1]);
    put(s, PLANES_NEW_MEAN, channel, running_mean);
    put(s, PLANES_NEW_VAR, channel, running_var);
}

static void end_stats(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    const struct planes_plan *plan = &s->plan;

    for (int64_t i = begin; i < end; i++) {
        double mean, squares = 0, scale;
        if (plan->fixed && s->pass == XOP_BACKWARD) {
            mean = get(s, PLANES_BACKWARD_MEAN, i, 0);
            scale = get(s, PLANES_BACKWARD_INVSTD, i, 0);
        } else if (plan->fixed) {
            mean = get(s, PLANES_RUNNING_MEAN, i, 0);
            scale = 1 / sqrt(get(s, PLANES_RUNNING_VAR, i, 0) + plan->eps);
        } else {
            join(s, i, &mean, &squares);
            scale = 1 / sqrt(squares / (double)plan->together.n + plan->eps);
        }
        s->stats[2 * i] = mean;
        s->stats[2 * i + 1] = scale;
        if (plan->batch && s->pass == XOP_FORWARD)
            tell(s, i, mean, squares);
    }
}

/* ---- Sums of grad_y, and of its products with h ---- */

static void sums_of_strand(const struct norm *s, const struct unit *unit, struct chunk *c) {
    double *to = partial_at(s, unit->strand, unit->piece), sum = 0, product = 0;

    for (int64_t i = unit->first, m; i < unit->last; i += m) {
        int64_t at = address(s->strands, unit->strand, i);
        m = segment(s->strands, i, unit->last);
        load(s, c->x, s->x, at, m);
        load(s, c->g, s->grad_y, at, m);
        spread(s, c, at, m, false);
        for (int64_t k = 0; k < m; k++) {
            c->x[k] = (c->x[k] - c->mean[k]) * c->scale[k];
            c->g[k] *= s->weighted ? c->weight[k] : 1;
        }
        sum += s->loops->rows->sum(c->g, m);
        product += s->loops->rows->dot(c->g, c->x, m);
    }
    to[0] = sum;
    to[1] = product;
}

static void sums_of_strip(const struct norm *s, const struct unit *unit, struct chunk *c) {
    double sum[STRIP] = {0}, product[STRIP] = {0};

    for (int64_t i = unit->first; i < unit->last;) {
        double some[STRIP] = {0}, products[STRIP] = {0};
        for (int64_t end = size_least(i + BLOCK, unit->last); i < end; i++) {
            int64_t at = address(s->strands, unit->strand, i);
            load(s, c->x, s->x, at, unit->count);
            load(s, c->g, s->grad_y, at, unit->count);
            spread(s, c, at, unit->count, false);
            for (int64_t k = 0; k < unit->count; k++) {
                some[k] += c->g[k];
                products[k] += c->g[k] * ((c->x[k] - c->mean[k]) * c->scale[k]);
            }
        }
        for (int64_t k = 0; k < unit->count; k++) {
            sum[k] += some[k];
            product[k] += products[k];
        }
    }
    for (int64_t k = 0; k < unit->count; k++) {
        double *to = partial_at(s, unit->strand + k, unit->piece);
        to[0] = sum[k];
        to[1] = product[k];
    }
}

static void run_sums(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    struct chunk c;
    for (int64_t i = begin; i < end; i++) {
        struct unit unit = unit_at(s->strands, i);
        if (planes_side_by_side(s->strands))
            sums_of_strip(s, &unit, &c);
        else
            sums_of_strand(s, &unit, &c);
    }
}

static void total(const struct norm *s, int64_t strand, double sums[2]) {
    sums[0] = sums[1] = 0;
    for (int64_t p = 0; p < s->strands->pieces; p++)
        for (int k = 0; k < 2; k++)
            sums[k] += partial_at(s, strand, p)[k];
}

/* Of groups, which their elements' gradients need. */
static void end_groups(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    for (int64_t i = begin; i < end; i++)
        total(s, i, s->sums + 2 * i);
}

/* Of channels, which are gradients themselves and, of batch_norm, what the elements' need. */
static void end_channels(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    for (int64_t i = begin; i < end; i++) {
        double sums[2];
        total(s, i, sums);
        put(s, PLANES_GRAD_BIAS, i, sums[0]);
        put(s, PLANES_GRAD_WEIGHT, i, sums[1]);
        if (s->plan.batch)
            memcpy(s->sums + 2 * i, sums, sizeof sums);
    }
}

/* ---- The pass over all elements ---- */

static void run_forward(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    struct chunk c;

    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = size_least(CHUNK, end - at);
        load(s, c.x, s->x, at, n);
        spread(s, &c, at, n, false);
        for (int64_t i = 0; i < n; i++)
            c.x[i] = (c.x[i] - c.mean[i]) * c.scale[i] * c.weight[i] + c.bias[i];
        loops_store(s->loops, s->dtype, s->out + (size_t)at * s->element, c.x, n);
    }
}

static void run_backward(void *arg, int64_t begin, int64_t end) {
    const struct norm *s = arg;
    struct chunk c;

    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = size_least(CHUNK, end - at);
        load(s, c.x, s->x, at, n);
        load(s, c.g, s->grad_y, at, n);
        spread(s, &c, at, n, true);
        for (int64_t i = 0; i < n; i++) {
            double h = (c.x[i] - c.mean[i]) * c.scale[i];
            double away = s->plan.fixed ? 0 : c.u[i] + h * c.uh[i]; /* h may be no number */
            c.x[i] = (c.g[i] * c.weight[i] - away) * c.scale[i];
        }
        loops_store(s->loops, s->dtype, s->out + (size_t)at * s->element, c.x, n);
    }
}

/* ---- Calls ---- */

static int64_t grain_of(int64_t elements) {
    return elements < LAUNCH_GRAIN ? LAUNCH_GRAIN / (elements + 1) + 1 : 1;
}

/* Parts of each piece, and then their end for each strand. */
static void sum_up(struct norm *s, const struct xop_host *host,
                   const struct planes_strands *strands, double *partial,
                   void (*run)(void *, int64_t, int64_t), void (*end)(void *, int64_t, int64_t)) {
    int64_t width = planes_side_by_side(strands) ? STRIP : 1;
    s->strands = strands;
    s->partial = partial;
    if (run && units_of(strands) > 0)
        host->parallel(host, units_of(strands), grain_of(strands->piece * width), run, s);
    if (strands->strands > 0)
        host->parallel(host, strands->strands, grain_of(strands->pieces), end, s);
}

static struct norm norm_of(const struct xop_call *call, bool batch, enum xop_pass pass) {
    struct norm s = {.loops = loops_best(),
                     .dtype = call->in[PLANES_X].dtype,
                     .element = xop_dtype_size(call->in[PLANES_X].dtype),
                     .call = call,
                     .pass = pass,
                     .x = call->in[PLANES_X].data,
                     .out = call->out[0].data};
    char *workspace = call->workspace;

    planes_measure(pass, call, batch, &s.plan);
    s.parts = (void *)(workspace + s.plan.parts);
    s.channel_parts = (void *)(workspace + s.plan.channel_parts);
    s.stats = (void *)(workspace + s.plan.stats);
    s.sums = (void *)(workspace + s.plan.sums);
    s.parameters = (void *)(workspace + s.plan.parameters);
    for (int64_t i = 0; s.plan.elements > 0 && i < s.plan.channels; i++) {
        s.parameters[2 * i] = get(&s, PLANES_WEIGHT, i, 1);
        s.parameters[2 * i + 1] = pass == XOP_FORWARD ? get(&s, PLANES_BIAS, i, 0) : 0;
    }
    return s;
}

static void forward(const struct xop_host *host, const struct xop_call *call, bool batch) {
    struct norm s = norm_of(call, batch, XOP_FORWARD);

    sum_up(&s, host, &s.plan.together, s.parts, s.plan.fixed ? NULL : run_stats, end_stats);
    if (s.out && s.plan.elements > 0)
        host->parallel(host, s.plan.elements, LAUNCH_GRAIN, run_forward, &s);
}

static void backward(const struct xop_host *host, const struct xop_call *call, bool batch) {
    struct norm s = norm_of(call, batch, XOP_BACKWARD);
    const bool parameters = call->out[PLANES_GRAD_WEIGHT].data || call->out[PLANES_GRAD_BIAS].data;

    s.grad_y = call->in[batch ? PLANES_BATCH_GRAD_Y : PLANES_GROUP_GRAD_Y].data;
    sum_up(&s, host, &s.plan.together, s.parts, s.plan.fixed ? NULL : run_stats, end_stats);
    s.weighted = true;
    if (s.out && !batch)
        sum_up(&s, host, &s.plan.together, s.parts, run_sums, end_groups);
    s.weighted = false;
    if (parameters || (s.out && batch && !s.plan.fixed))
        sum_up(&s, host, &s.plan.channel, batch ? s.parts : s.channel_parts, run_sums,
               end_channels);
    if (s.out && s.plan.elements > 0)
        host->parallel(host, s.plan.elements, LAUNCH_GRAIN, run_backward, &s);
}

#define NORM(name, batch)                                                                          \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        forward(host, call, batch);                                                                \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        backward(host, call, batch);                                                               \
    }                                                                                              \
    LAUNCH_EACH(name, name##_forward, name##_backward)

NORM(group_norm, false)
NORM(batch_norm, true)
