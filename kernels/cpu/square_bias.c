#include "kernels/square_bias.h"

#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/walk.h"

struct forward {
    const struct loops *loops;
    struct shape_map map;
    enum xop_dtype dtype;
    size_t size;
    const char *x, *b;
    char *y;
};

/* Elements [begin, end) of y, a row of the innermost dimension at a time. */
static void forward_piece(void *arg, int64_t begin, int64_t end) {
    const struct forward *f = arg;
    struct walk_rows row;

    walk_rows_start(&row, &f->map, begin, end);
    while (walk_rows_next(&row))
        loops_run(f->loops, LOOPS_SQUARE_BIAS, f->dtype, f->y + (size_t)row.at * f->size,
                  f->x + (size_t)row.x * f->size, row.step_x, f->b + (size_t)row.b * f->size,
                  row.step_b, row.n);
}

static void forward_call(const struct xop_host *host, const struct xop_call *call) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    const struct xop_tensor *y = &call->out[0];
    struct forward f = {.loops = loops_best(),
                        .dtype = y->dtype,
                        .size = xop_dtype_size(y->dtype),
                        .x = x->data,
                        .b = b->data,
                        .y = y->data};
    _Alignas(64) char tile[WALK_TILE];

    if (!y->data)
        return;
    shape_collapse(x, b, y, &f.map);
    if (f.map.elements == 0)
        return;
    f.b = walk_widen_row(&f.map, f.b, f.size, tile);
    host->parallel(host, f.map.elements, LAUNCH_GRAIN, forward_piece, &f);
}

struct elementwise {
    const struct loops *loops;
    enum xop_dtype dtype;
    size_t size;
    const char *x, *grad_y;
    char *grad_x, *grad_b; /* NULL where not wanted or not elementwise */
};

/* Both gradients in one pass, so that grad_y comes from memory once. */
static void elementwise_piece(void *arg, int64_t begin, int64_t end) {
    const struct elementwise *e = arg;
    for (int64_t at = begin, n; at < end; at += n) {
        size_t byte = (size_t)at * e->size;
        n = end - at < 1024 ? end - at : 1024;
        if (e->grad_b)
            memmove(e->grad_b + byte, e->grad_y + byte, (size_t)n * e->size);
        if (e->grad_x)
            loops_run(e->loops, LOOPS_TWICE_PRODUCT, e->dtype, e->grad_x + byte, e->x + byte, 1,
                      e->grad_y + byte, 1, n);
    }
}

static void backward_call(const struct xop_host *host, const struct xop_call *call) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    void *grad_x = call->out[0].data, *grad_b = call->out[1].data;
    struct broadcast_backward plan;
    struct elementwise e = {loops_best(), grad_y->dtype, xop_dtype_size(grad_y->dtype),
                            x->data,      grad_y->data,  NULL,
                            NULL};
    int64_t n;

    broadcast_backward_plan(x, b, grad_y, &plan);
    if (plan.x.form == SHAPE_FULL)
        e.grad_x = grad_x;
    if (plan.b.form == SHAPE_FULL)
        e.grad_b = grad_b;
    if ((e.grad_x || e.grad_b) && xop_tensor_elements(grad_y, &n) && n > 0)
        host->parallel(host, n, LAUNCH_GRAIN, elementwise_piece, &e);
    if (grad_x && plan.x.form != SHAPE_FULL) {
        struct reduce reduce = {.shape = &plan.x,
                                .dtype = e.dtype,
                                .full = grad_y->data,
                                .factor = x->data,
                                .scale = 2,
                                .out = grad_x,
                                .partials = call->workspace};
        reduce_run(&reduce, host);
    }
    if (grad_b && plan.b.form != SHAPE_FULL) {
        struct reduce reduce = {
            .shape = &plan.b, .dtype = e.dtype, .full = grad_y->data, .scale = 1, .out = grad_b};
        if (call->workspace)
            reduce.partials = (void *)((char *)call->workspace + plan.b_offset);
        reduce_run(&reduce, host);
    }
}

LAUNCH_EACH(square_bias, forward_call, backward_call)
