#include "kernels/binary.h"

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/walk.h"

/* A call's operands against y, and what of them is computed. */
struct job {
    const struct loops *loops;
    enum binary_kind op;
    enum binary_result result;
    enum xop_dtype dtype;
    size_t size;
    struct shape_map map;
    const char *x, *b, *g;
};

static struct job job_of(enum binary_kind op, const struct xop_tensor *x,
                         const struct xop_tensor *b, const struct xop_tensor *y) {
    struct job job = {.loops = loops_best(),
                      .op = op,
                      .result = BINARY_Y,
                      .dtype = y->dtype,
                      .size = xop_dtype_size(y->dtype),
                      .x = x->data,
                      .b = b->data};
    shape_collapse(x, b, y, &job.map);
    return job;
}

/* Elements [begin, end) of what is computed to `to`, a row of the innermost dimension at a time: of
 * the operands' dtype or, where `computed`, of the one computed in. */
static void compute(const struct job *job, int64_t begin, int64_t end, char *to, bool computed) {
    size_t step = computed && job->dtype != XOP_F64 ? sizeof(float) : job->size;
    struct walk_rows row;

    walk_rows_start(&row, &job->map, begin, end);
    while (walk_rows_next(&row)) {
        struct loops_operands in = {.x = job->x + (size_t)row.x * job->size,
                                    .b = job->b + (size_t)row.b * job->size,
                                    .g = job->g ? job->g + (size_t)row.at * job->size : NULL,
                                    .step_x = row.step_x,
                                    .step_b = row.step_b};
        loops_binary(job->loops, job->op, job->result, job->dtype,
                     to + (size_t)(row.at - begin) * step, computed, &in, row.n);
    }
}

/* ---- Forward ---- */

struct forward {
    struct job job;
    char *y;
};

static void forward_piece(void *arg, int64_t begin, int64_t end) {
    const struct forward *f = arg;
    compute(&f->job, begin, end, f->y + (size_t)begin * f->job.size, false);
}

static void run_forward(const struct xop_host *host, const struct xop_call *call,
                        enum binary_kind op) {
    const struct xop_tensor *y = &call->out[0];
    struct forward f = {job_of(op, &call->in[BROADCAST_X], &call->in[BROADCAST_B], y), y->data};
    _Alignas(64) char tile[WALK_TILE];

    if (!y->data || f.job.map.elements == 0)
        return;
    f.job.b = walk_widen_row(&f.job.map, f.job.b, f.job.size, tile);
    host->parallel(host, f.job.map.elements, LAUNCH_GRAIN, forward_piece, &f);
}

/* ---- Backward ---- */

struct elementwise {
    const struct job *x, *b;
    char *grad_x, *grad_b; /* NULL where not wanted or not elementwise */
};

/* Both gradients in one pass, so that operands come from memory once; that of x last, since it may
 * take the place of x. */
static void elementwise_piece(void *arg, int64_t begin, int64_t end) {
    const struct elementwise *e = arg;
    size_t size = e->x->size;
    for (int64_t at = begin, n; at < end; at += n) {
        n = end - at < 1024 ? end - at : 1024;
        if (e->grad_b)
            compute(e->b, at, at + n, e->grad_b + (size_t)at * size, false);
        if (e->grad_x)
            compute(e->x, at, at + n, e->grad_x + (size_t)at * size, false);
    }
}

static void make_terms(const void *arg, int64_t at, int64_t n, void *to) {
    compute(arg, at, at + n, to, true);
}

static void sum(const struct job *job, const struct shape_reduction *shape, void *out,
                char *partials, const struct xop_host *host) {
    struct reduce reduce = {.shape = shape,
                            .dtype = job->dtype,
                            .full = job->g,
                            .scale = 1,
                            .out = out,
                            .partials = (void *)partials};
    if (binary_saves(job->op)) {
        reduce.make = make_terms;
        reduce.arg = job;
    } else if (job->op == BINARY_sub && job->result == BINARY_GRAD_B) {
        reduce.scale = -1;
    }
    reduce_run(&reduce, host);
}

/* The gradient of x comes last: it may take the place of x, which that of b is made of. */
static void run_backward(const struct xop_host *host, const struct xop_call *call,
                         enum binary_kind op) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    void *grad_x = call->out[0].data, *grad_b = call->out[1].data;
    struct job of_x = job_of(op, x, b, grad_y), of_b;
    struct elementwise e = {&of_x, &of_b, NULL, NULL};
    struct broadcast_backward plan;

    broadcast_backward_plan(x, b, grad_y, &plan);
    of_x.g = grad_y->data;
    of_x.result = BINARY_GRAD_X;
    if (!binary_saves(op)) {
        /* Nothing is read of them, but they must be somewhere; repeated, so that no step leads out
         * of g. */
        of_x.x = of_x.b = of_x.g;
    }
    of_b = of_x;
    of_b.result = BINARY_GRAD_B;
    if (plan.x.form == SHAPE_FULL)
        e.grad_x = grad_x;
    if (plan.b.form == SHAPE_FULL)
        e.grad_b = grad_b;
    if (grad_b && !e.grad_b)
        sum(&of_b, &plan.b, grad_b,
            call->workspace ? (char *)call->workspace + plan.b_offset : NULL, host);
    if ((e.grad_x || e.grad_b) && of_x.map.elements > 0)
        host->parallel(host, of_x.map.elements, LAUNCH_GRAIN, elementwise_piece, &e);
    if (grad_x && !e.grad_x)
        sum(&of_x, &plan.x, grad_x, call->workspace, host);
}

#define BINARY(name, ...)                                                                          \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        run_forward(host, call, BINARY_##name);                                                    \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        run_backward(host, call, BINARY_##name);                                                   \
    }                                                                                              \
    LAUNCH_EACH(binary_##name, name##_forward, name##_backward)
#include "kernels/binary.def"
