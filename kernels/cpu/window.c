/*
 * max_pool2d and avg_pool2d on the CPU, in f64 for every dtype. Every element of the result is
 * computed by itself.
 */
#include "kernels/cpu/window.h"

#include <math.h>

#include "kernels/cpu/launch.h"
#include "kernels/window_math.h"
#include <xop/check.h>

struct window {
    struct window_plan plan;
    const void *x, *grad_y;
    void *out;
    uint32_t *found; /* of each window: which element is the largest */
};

/* An output's window: where its elements 0 would be, and those that it has. */
struct place {
    const struct window_dim *row_dim, *column_dim;
    int64_t plane, output, output_column, row, column;
    struct window_range rows, columns;
};

static void place_row(struct place *at) {
    at->row = at->output * at->row_dim->stride - at->row_dim->padding;
    at->rows = window_inside(at->row_dim, at->output);
}

static void place_column(struct place *at) {
    at->column = at->output_column * at->column_dim->stride - at->column_dim->padding;
    at->columns = window_inside(at->column_dim, at->output_column);
}

static struct place place_of(const struct window_dim *rows, const struct window_dim *columns,
                             int64_t index) {
    struct place at = {.row_dim = rows, .column_dim = columns};
    at.output_column = index % columns->out;
    at.output = index / columns->out % rows->out;
    at.plane = index / columns->out / rows->out;
    place_row(&at);
    place_column(&at);
    return at;
}

static void place_next(struct place *at) {
    if (++at->output_column == at->column_dim->out) {
        at->output_column = 0;
        if (++at->output == at->row_dim->out) {
            at->output = 0;
            at->plane++;
        }
        place_row(at);
    }
    place_column(at);
}

/* NaN stays. */
static double larger(double most, double value) {
    return value > most || value != value ? value : most;
}

/* As in the workspace: which element of a window an element of x is. */
static uint32_t place_in(const struct window *s, int64_t output, int64_t row, int64_t output_column,
                         int64_t column) {
    int64_t j = window_place(&s->plan.rows, output, row);
    int64_t k = window_place(&s->plan.columns, output_column, column);
    return j < 0 || k < 0 ? WINDOW_NONE - 1 : (uint32_t)(j * s->plan.columns.kernel + k);
}

#define TYPED_BODY "kernels/cpu/window_body.h"
#include "kernels/cpu/typed.h"

static const typed_loop max_forward_runs[XOP_DTYPE_COUNT] = TYPED_TABLE(max_forward),
                        max_find_runs[XOP_DTYPE_COUNT] = TYPED_TABLE(max_find),
                        avg_forward_runs[XOP_DTYPE_COUNT] = TYPED_TABLE(avg_forward),
                        backward_runs[XOP_DTYPE_COUNT] = TYPED_TABLE(backward);

/* So many elements, each of `terms` others. */
static void each(const struct xop_host *host, int64_t n, int64_t terms, typed_loop run,
                 struct window *s) {
    int64_t grain = terms < LAUNCH_GRAIN ? LAUNCH_GRAIN / terms : 1;
    if (n > 0)
        host->parallel(host, n, grain, run, s);
}

static void run(const struct xop_host *host, const struct xop_call *call, enum xop_pass pass,
                bool max) {
    const enum xop_dtype dtype = call->in[WINDOW_X].dtype;
    struct window s = {
        .x = call->in[WINDOW_X].data, .out = call->out[0].data, .found = call->workspace};
    int64_t outputs, window;

    if (!s.out)
        return;
    window_measure(call, max, &s.plan);
    outputs = s.plan.planes * s.plan.rows.out * s.plan.columns.out;
    window = s.plan.rows.kernel * s.plan.columns.kernel;
    if (pass == XOP_FORWARD) {
        each(host, outputs, window, (max ? max_forward_runs : avg_forward_runs)[dtype], &s);
        return;
    }
    s.grad_y = call->in[WINDOW_GRAD_Y].data;
    if (max)
        each(host, outputs, window, max_find_runs[dtype], &s);
    each(host, xop_elements(&call->out[0]), 4, backward_runs[dtype], &s);
}

#define POOL(name, max)                                                                            \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        run(host, call, XOP_FORWARD, max);                                                         \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        run(host, call, XOP_BACKWARD, max);                                                        \
    }                                                                                              \
    LAUNCH_EACH(name, name##_forward, name##_backward)

POOL(max_pool2d, true)
POOL(avg_pool2d, false)
