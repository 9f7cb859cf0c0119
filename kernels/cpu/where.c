#include "kernels/cpu/where.h"

#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/reduce.h"
#include "kernels/where.h"
#include <xop/check.h>

/* One choice: of each element of y's shape, from x or from b. Backward chooses between grad_y and a
 * single 0. */
struct choice {
    enum xop_dtype dtype;
    size_t size;
    struct where_map map;
    const unsigned char *condition;
    const char *x, *b;
    char *y;
};

/* n elements of a row of the innermost dimension, of T's size. */
#define CHOOSE(T)                                                                                  \
    do {                                                                                           \
        const T *from_x = (const void *)(c->x + (size_t)at[1] * c->size);                          \
        const T *from_b = (const void *)(c->b + (size_t)at[2] * c->size);                          \
        T *out = (void *)to;                                                                       \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i] = condition[i * step[0]] ? from_x[i * step[1]] : from_b[i * step[2]];           \
    } while (0)

static void choose_row(const struct choice *c, const int64_t at[3], const int64_t step[3],
                       int64_t n, char *to) {
    const unsigned char *condition = c->condition + at[0];
    if (c->size == 2)
        CHOOSE(uint16_t);
    else if (c->size == 4)
        CHOOSE(uint32_t);
    else
        CHOOSE(uint64_t);
}

/* Elements [begin, end) of y's shape to `to`. */
static void choose(const struct choice *c, int64_t begin, int64_t end, char *to) {
    static const struct where_dim one = {1, {0, 0, 0}};
    const struct where_dim *last = c->map.ndims ? &c->map.dim[c->map.ndims - 1] : &one;
    for (int64_t i = begin, n; i < end; i += n, to += (size_t)n * c->size) {
        int64_t rest = i, at[3] = {0, 0, 0}, within = i % last->size;
        for (uint32_t d = c->map.ndims; d-- > 0;) {
            const struct where_dim *dim = &c->map.dim[d];
            for (int k = 0; k < 3; k++)
                at[k] += rest % dim->size * dim->step[k];
            rest /= dim->size;
        }
        n = last->size - within < end - i ? last->size - within : end - i;
        choose_row(c, at, last->step, n, to);
    }
}

static void piece(void *arg, int64_t begin, int64_t end) {
    const struct choice *c = arg;
    choose(c, begin, end, c->y + (size_t)begin * c->size);
}

static void forward(const struct xop_host *host, const struct xop_call *call) {
    const struct xop_tensor *y = &call->out[0];
    struct choice c = {.dtype = y->dtype,
                       .size = xop_dtype_size(y->dtype),
                       .condition = call->in[WHERE_CONDITION].data,
                       .x = call->in[WHERE_X].data,
                       .b = call->in[WHERE_B].data,
                       .y = y->data};

    where_collapse(call->in, y, &c.map);
    if (c.y && c.map.elements > 0)
        host->parallel(host, c.map.elements, LAUNCH_GRAIN, piece, &c);
}

/* ---- Backward ---- */

#define CHUNK 512 /* elements */

/* Terms of a sum, in f32 or, where that is their dtype, in f64. */
static void make_terms(const void *arg, int64_t at, int64_t n, void *to) {
    const struct choice *c = arg;
    const enum xop_dtype computed = c->dtype == XOP_F64 ? XOP_F64 : XOP_F32;
    for (int64_t i = 0; i < n; i += CHUNK) {
        _Alignas(8) char chosen[CHUNK * sizeof(double)];
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        choose(c, at + i, at + i + m, chosen);
        loops_cast(loops_best(), computed, (char *)to + (size_t)i * xop_dtype_size(computed),
                   c->dtype, chosen, m);
    }
}

/* One of the gradients: that of x where it takes what the condition chooses, else that of b. */
static void gradient(const struct xop_host *host, const struct xop_call *call, bool of_x,
                     const struct shape_reduction *shape, char *partials) {
    static const uint64_t zero = 0;
    const struct xop_tensor *grad_y = &call->in[WHERE_GRAD_Y], *out = &call->out[of_x ? 0 : 1];
    const struct xop_tensor nothing = {.dtype = grad_y->dtype};
    const struct xop_tensor in[3] = {call->in[WHERE_CONDITION], of_x ? *grad_y : nothing,
                                     of_x ? nothing : *grad_y};
    struct choice c = {.dtype = grad_y->dtype,
                       .size = xop_dtype_size(grad_y->dtype),
                       .condition = call->in[WHERE_CONDITION].data,
                       .x = of_x ? grad_y->data : (const void *)&zero,
                       .b = of_x ? (const void *)&zero : grad_y->data,
                       .y = out->data};

    if (!c.y)
        return;
    where_collapse(in, grad_y, &c.map);
    if (shape->form != SHAPE_FULL) {
        struct reduce reduce = {.shape = shape,
                                .dtype = c.dtype,
                                .full = grad_y->data,
                                .make = make_terms,
                                .arg = &c,
                                .scale = 1,
                                .out = out->data,
                                .partials = (void *)partials};
        reduce_run(&reduce, host);
    } else if (c.map.elements > 0) {
        host->parallel(host, c.map.elements, LAUNCH_GRAIN, piece, &c);
    }
}

static void backward(const struct xop_host *host, const struct xop_call *call) {
    struct where_backward plan;
    char *workspace = call->workspace;

    where_backward_plan(call, &plan);
    gradient(host, call, true, &plan.sums.x, workspace);
    gradient(host, call, false, &plan.sums.b, workspace ? workspace + plan.sums.b_offset : NULL);
}

LAUNCH_EACH(where, forward, backward)
