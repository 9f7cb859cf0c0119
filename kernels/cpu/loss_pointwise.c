/* Losses of single elements: a piece at a time, through buffers of doubles. */
#include <math.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/scalar.h"
#include "kernels/size.h"

#define CHUNK 512 /* elements; a piece is a multiple of it */

struct pointwise {
    enum loss_pointwise_kind kind;
    enum loss_reduction reduction;
    enum xop_dtype dtype;
    int64_t n;
    const void *x, *target, *weight, *pos_weight, *grad_y; /* or NULL */
    void *out[2];
    struct shape_map weights;
    double *partials;
    double scale; /* backward: what grad_y is multiplied by */
};

/* A chunk's operands, and what comes of it. */
struct chunk {
    double x[CHUNK], target[CHUNK], weight[CHUNK], pos_weight[CHUNK], grad_y[CHUNK];
    double out[2][CHUNK];
};

static void *at_element(const struct pointwise *p, const void *data, int64_t at) {
    return (char *)data + (size_t)at * xop_dtype_size(p->dtype);
}

/* The weights of elements [at, at + n), which lie in some dimensions of theirs. */
static void load_weights(const struct pointwise *p, int64_t at, int64_t n, struct chunk *c) {
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = at + i, weight = 0, pos_weight = 0;
        for (uint32_t d = p->weights.ndims; d-- > 0;) {
            const struct shape_dim *dim = &p->weights.dim[d];
            int64_t k = rest % dim->size;
            rest /= dim->size;
            weight += k * dim->stride_x;
            pos_weight += k * dim->stride_b;
        }
        c->weight[i] = p->weight ? loss_element(p->dtype, p->weight, weight) : 1;
        c->pos_weight[i] = p->pos_weight ? loss_element(p->dtype, p->pos_weight, pos_weight) : 1;
    }
}

static void load(const struct pointwise *p, int64_t at, int64_t n, struct chunk *c) {
    const struct loops *loops = loops_best();
    loops_load(loops, p->dtype, c->x, at_element(p, p->x, at), n);
    loops_load(loops, p->dtype, c->target, at_element(p, p->target, at), n);
    if (p->kind == LOSS_BCE)
        load_weights(p, at, n, c);
    if (!p->grad_y)
        return;
    if (p->reduction == LOSS_NONE)
        loops_load(loops, p->dtype, c->grad_y, at_element(p, p->grad_y, at), n);
    else
        loops_load(loops, p->dtype, c->grad_y, p->grad_y, 1);
    for (int64_t i = n; i-- > 0;)
        c->grad_y[i] = c->grad_y[p->reduction == LOSS_NONE ? i : 0] * p->scale;
}

/* log(1 + exp(-x)) */
static double softplus_of_minus(double x) {
    return log1p(scalar_exp_f64(fabs(x)).exp) + (x < 0 ? -x : 0);
}

static void losses(const struct pointwise *p, int64_t n, struct chunk *c) {
    if (p->kind == LOSS_MSE) {
        for (int64_t i = 0; i < n; i++)
            c->out[0][i] = (c->x[i] - c->target[i]) * (c->x[i] - c->target[i]);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = c->x[i], t = c->target[i], log_weight = 1 + (c->pos_weight[i] - 1) * t;
        c->out[0][i] = c->weight[i] * ((1 - t) * x + log_weight * softplus_of_minus(x));
    }
}

static void gradients(const struct pointwise *p, int64_t n, struct chunk *c) {
    if (p->kind == LOSS_MSE) {
        for (int64_t i = 0; i < n; i++) {
            c->out[0][i] = 2 * ((c->x[i] - c->target[i]) * c->grad_y[i]);
            c->out[1][i] = -c->out[0][i];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = c->x[i], t = c->target[i], pos = c->pos_weight[i];
        double g = c->grad_y[i] * c->weight[i];
        c->out[0][i] = g * ((1 + (pos - 1) * t) * scalar_sigmoid_f64(x) - pos * t);
        c->out[1][i] = g * ((pos - 1) * softplus_of_minus(x) - x);
    }
}

static void run_pieces(void *arg, int64_t begin, int64_t end) {
    const struct pointwise *p = arg;
    const struct loops *loops = loops_best();
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t stop = size_least((piece + 1) * LOSS_PIECE, p->n);
        double sum = 0;
        for (int64_t at = piece * LOSS_PIECE; at < stop; at += CHUNK) {
            struct chunk c;
            int64_t n = size_least(CHUNK, stop - at);
            load(p, at, n, &c);
            (p->grad_y ? gradients : losses)(p, n, &c);
            if (p->partials)
                sum += loops->rows->sum(c.out[0], n);
            for (int i = 0; i < 2 && !p->partials; i++)
                if (p->out[i])
                    loops_store(loops, p->dtype, at_element(p, p->out[i], at), c.out[i], n);
        }
        if (p->partials) {
            p->partials[LOSS_PARTS * piece] = sum;
            p->partials[LOSS_PARTS * piece + 1] = 0;
        }
    }
}

static void run(const struct xop_host *host, const struct xop_call *call,
                enum loss_pointwise_kind kind, bool backward) {
    struct pointwise p = {.kind = kind,
                          .reduction = loss_reduction(call),
                          .dtype = call->in[LOSS_X].dtype,
                          .x = call->in[LOSS_X].data,
                          .target = call->in[LOSS_TARGET].data,
                          .grad_y = backward ? call->in[LOSS_GRAD_Y(kind)].data : NULL,
                          .out = {call->out[0].data, backward ? call->out[1].data : NULL},
                          .scale = 1};

    if ((!p.out[0] && !p.out[1]) || !xop_tensor_elements(&call->in[LOSS_X], &p.n))
        return;
    if (kind == LOSS_BCE) {
        p.weight = call->in[LOSS_WEIGHT].data;
        p.pos_weight = call->in[LOSS_POS_WEIGHT].data;
        loss_pointwise_weights(call, &p.weights);
    }
    if (p.reduction == LOSS_MEAN)
        p.scale = 1 / (double)p.n;
    if (p.reduction != LOSS_NONE && !backward)
        p.partials = call->workspace;
    host->parallel(host, loss_pieces(p.n), LAUNCH_GRAIN / LOSS_PIECE, run_pieces, &p);
    if (p.reduction != LOSS_NONE && !backward)
        loss_store(p.dtype, p.out[0], 0,
                   loss_add_up(p.partials, loss_pieces(p.n)).loss /
                       (p.reduction == LOSS_MEAN ? (double)p.n : 1));
}

#define POINTWISE(name, kind)                                                                      \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        run(host, call, kind, false);                                                              \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        run(host, call, kind, true);                                                               \
    }                                                                                              \
    LAUNCH_EACH(name, name##_forward, name##_backward)

POINTWISE(mse_loss, LOSS_MSE)
POINTWISE(binary_cross_entropy_with_logits, LOSS_BCE)
