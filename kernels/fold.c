#include "kernels/fold.h"

#include <string.h>

#include "kernels/fold_doc.h"
#include "kernels/size.h"

const struct fold_traits fold_traits[FOLD_KINDS] = {
    [FOLD_SUM] = {FOLD_TOTAL, FOLD_NOTHING, false, false, true},
    [FOLD_MEAN] = {FOLD_TOTAL, FOLD_NOTHING, false, false, true},
    [FOLD_MAX] = {FOLD_LARGEST, FOLD_TIES, true, true, false},
    [FOLD_MIN] = {FOLD_SMALLEST, FOLD_TIES, true, true, false},
    [FOLD_PROD] = {FOLD_PRODUCT, FOLD_ZEROS, false, true, true},
    [FOLD_LOGSUMEXP] = {FOLD_EXPONENTIALS, FOLD_NOTHING, true, true, true},
    [FOLD_VAR] = {FOLD_SQUARES, FOLD_SQUARES, false, true, true},
};

enum { DIM = 0, KEEPDIM = 1, CORRECTION = 2 };

/* ---- Shapes ---- */

/* The dimensions that are reduced, bit by bit; those of `dim` were checked. */
static uint32_t reduced_dims(const struct xop_call *call) {
    const struct xop_attr *dim = &call->attrs[DIM];
    const uint32_t rank = call->in[FOLD_X].rank;
    uint32_t dims = 0;

    if (dim->count == 0)
        return (1u << rank) - 1;
    for (uint32_t i = 0; i < dim->count && rank > 0; i++) {
        int64_t d = dim->value.ints[i];
        dims |= 1u << (d < 0 ? d + rank : d);
    }
    return dims;
}

/* x's shape with extents of 1 where it is reduced, or without them. */
static void folded_shape(const struct xop_call *call, bool keep, struct xop_tensor *y) {
    const struct xop_tensor *x = &call->in[FOLD_X];
    const uint32_t dims = reduced_dims(call);

    memset(y, 0, sizeof *y);
    y->dtype = x->dtype;
    for (uint32_t i = 0; i < x->rank; i++)
        if (!(dims >> i & 1))
            y->shape[y->rank++] = x->shape[i];
        else if (keep)
            y->shape[y->rank++] = 1;
}

void fold_measure(enum fold_kind kind, enum xop_pass pass, const struct xop_call *call,
                  struct fold_plan *plan) {
    const struct xop_tensor *x = &call->in[FOLD_X];
    const bool folds = pass == XOP_FORWARD || fold_traits[kind].backward != FOLD_NOTHING;
    struct xop_tensor y;

    memset(plan, 0, sizeof *plan);
    folded_shape(call, true, &y);
    shape_reduce(&y, x, &plan->shape);
    shape_collapse(x, &y, x, &plan->spread);
    plan->terms = (double)plan->shape.reduced;
    plan->divisor = kind == FOLD_MEAN ? plan->terms : 1;
    if (kind == FOLD_VAR) {
        plan->divisor = plan->terms - (double)call->attrs[CORRECTION].value.i;
        if (plan->divisor < 0 || plan->terms == 0)
            plan->divisor = 0;
    }
    if (folds)
        plan->stats_offset = FOLD_PARTS * shape_reduction_workspace(&plan->shape);
    plan->workspace_bytes = plan->stats_offset;
    /* No more outputs than elements of x, which fit, so nothing overflows. */
    if (folds && pass == XOP_BACKWARD && plan->spread.elements > 0)
        plan->workspace_bytes +=
            size_aligned((uint64_t)plan->shape.outputs * FOLD_PARTS * sizeof(double));
}

/* ---- Checks ---- */

static enum xop_status check_dims(enum fold_kind kind, const struct xop_call *call,
                                  struct xop_error *error) {
    const struct xop_tensor *x = &call->in[FOLD_X];
    const struct xop_attr *dim = &call->attrs[DIM];
    const int64_t rank = x->rank ? x->rank : 1;
    uint32_t seen = 0;
    char text[SHAPE_TEXT];

    for (uint32_t i = 0; i < dim->count; i++) {
        int64_t d = dim->value.ints[i];
        if (d < -rank || d >= rank)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "dim has %lld, but x has shape %s: it must be from %lld to %lld",
                            (long long)d, shape_format(x, text), (long long)-rank,
                            (long long)rank - 1);
        d += d < 0 ? rank : 0;
        if (seen >> d & 1)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "dim names dimension %lld twice; each may be there once", (long long)d);
        seen |= 1u << d;
    }
    for (uint32_t i = 0; i < x->rank && !fold_traits[kind].has_empty; i++)
        if (x->shape[i] == 0 && reduced_dims(call) >> i & 1)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "x has shape %s, and over dimension %u, of extent 0, there is nothing "
                            "to choose from",
                            shape_format(x, text), i);
    return XOP_OK;
}

static uint64_t bytes_of(const struct xop_tensor *tensor) {
    uint64_t bytes;
    return xop_tensor_bytes(tensor, &bytes) ? bytes : 0;
}

static uint64_t elements_of(const struct xop_tensor *tensor) {
    int64_t n;
    return xop_tensor_elements(tensor, &n) ? (uint64_t)n : 0;
}

static enum xop_status forward_infer(enum fold_kind kind, const struct xop_call *call,
                                     struct xop_plan *plan, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[FOLD_X];
    enum xop_status status = check_dims(kind, call, error);
    char text[SHAPE_TEXT];
    struct fold_plan fold;
    uint64_t bytes;

    if (status != XOP_OK)
        return status;
    folded_shape(call, call->attrs[KEEPDIM].value.i != 0, &plan->out[0]);
    if (!xop_tensor_bytes(&plan->out[0], &bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "y would have shape %s, which is too large",
                        shape_format(&plan->out[0], text));
    fold_measure(kind, XOP_FORWARD, call, &fold);
    plan->workspace_bytes = fold.workspace_bytes;
    plan->read_once = 1u << FOLD_X;
    plan->write_once = 1;
    plan->bytes = bytes_of(x) + bytes;
    plan->flops = (kind == FOLD_LOGSUMEXP ? 16 : kind == FOLD_VAR ? 4 : 1) * elements_of(x);
    return XOP_OK;
}

static enum xop_status check_like_y(const struct xop_call *call, const struct xop_tensor *given,
                                    const char *name, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[FOLD_X];
    char came_text[SHAPE_TEXT], wanted_text[SHAPE_TEXT];
    struct xop_tensor wanted;

    if (given->dtype != x->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "x is %s but %s is %s; they must be the same",
                        xop_dtype_name(x->dtype), name, xop_dtype_name(given->dtype));
    folded_shape(call, call->attrs[KEEPDIM].value.i != 0, &wanted);
    if (!shape_equal(given, &wanted))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s has shape %s; it must be the result's, %s",
                        name, shape_format(given, came_text), shape_format(&wanted, wanted_text));
    return XOP_OK;
}

static enum xop_status backward_infer(enum fold_kind kind, const struct xop_call *call,
                                      struct xop_plan *plan, struct xop_error *error) {
    const struct fold_traits *traits = &fold_traits[kind];
    const struct xop_tensor *x = &call->in[FOLD_X], *grad_y = &call->in[1 + traits->saved_y];
    enum xop_status status = check_dims(kind, call, error);
    struct fold_plan fold;

    if (status == XOP_OK && traits->saved_y)
        status = check_like_y(call, &call->in[FOLD_Y], "y", error);
    if (status == XOP_OK)
        status = check_like_y(call, grad_y, "grad_y", error);
    if (status != XOP_OK)
        return status;
    fold_measure(kind, XOP_BACKWARD, call, &fold);
    shape_copy(&plan->out[0], x);
    plan->workspace_bytes = fold.workspace_bytes;
    if (traits->backward == FOLD_NOTHING)
        plan->read_once = 1u << FOLD_X;
    plan->write_once = 1;
    plan->bytes = (traits->reads_x ? 2 : 1) * bytes_of(x) + bytes_of(grad_y);
    plan->flops = (kind == FOLD_LOGSUMEXP ? 16 : 4) * elements_of(x);
    return XOP_OK;
}

/* ---- Declarations ---- */

static const struct xop_attr_spec attrs[] = {
    {.name = "dim",
     .doc = "the dimensions that are reduced; none given: all",
     .type = XOP_ATTR_INTS,
     .fallback = {.type = XOP_ATTR_INTS}},
    {.name = "keepdim",
     .doc = "whether y keeps them, with extent 1",
     .type = XOP_ATTR_BOOL,
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1, .value.i = 0}},
    {.name = "correction",
     .doc = "what is taken from the number of terms before it divides",
     .type = XOP_ATTR_INT,
     .fallback = {.type = XOP_ATTR_INT, .count = 1, .value.i = 1}},
};
static const struct xop_operand forward_in[] = {{.name = "x", .doc = "of any shape"}};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of x's shape without the dimensions that are reduced"},
};

#define X_SHAPE                                                                                    \
    { .name = "x", .doc = "the forward's input", .flags = XOP_OPERAND_SHAPE_ONLY }
#define X_READ                                                                                     \
    { .name = "x", .doc = "the forward's input" }
#define Y_READ                                                                                     \
    { .name = "y", .doc = "the forward's result" }
#define GRAD_Y                                                                                     \
    { .name = "grad_y", .doc = "gradient of y, of y's shape" }
static const struct xop_operand shape_in[] = {X_SHAPE, GRAD_Y};
static const struct xop_operand x_in[] = {X_READ, GRAD_Y};
static const struct xop_operand x_y_in[] = {X_READ, Y_READ, GRAD_Y};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
};

#define FOLD_INFER(name, kind)                                                                     \
    static enum xop_status name##_forward_infer(const struct xop_call *call,                       \
                                                struct xop_plan *plan, struct xop_error *error) {  \
        return forward_infer(kind, call, plan, error);                                             \
    }                                                                                              \
    static enum xop_status name##_backward_infer(const struct xop_call *call,                      \
                                                 struct xop_plan *plan, struct xop_error *error) { \
        return backward_infer(kind, call, plan, error);                                            \
    }
FOLD_INFER(sum, FOLD_SUM)
FOLD_INFER(mean, FOLD_MEAN)
FOLD_INFER(max, FOLD_MAX)
FOLD_INFER(min, FOLD_MIN)
FOLD_INFER(prod, FOLD_PROD)
FOLD_INFER(logsumexp, FOLD_LOGSUMEXP)
FOLD_INFER(var, FOLD_VAR)

#define FOLD(id, its_nattrs, backward_in)                                                          \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = #id, .doc = id##_doc, .dtypes = XOP_FLOATS, .attrs = attrs,     \
        .nattrs = (its_nattrs), .pass = {                                                          \
            {.in = forward_in,                                                                     \
             .out = forward_out,                                                                   \
             .nin = 1,                                                                             \
             .nout = 1,                                                                            \
             .infer = id##_forward_infer,                                                          \
             .index_operand = -1},                                                                 \
            {.in = backward_in,                                                                    \
             .out = backward_out,                                                                  \
             .nin = sizeof backward_in / sizeof *backward_in,                                      \
             .nout = 1,                                                                            \
             .infer = id##_backward_infer,                                                         \
             .index_operand = -1}                                                                  \
        }                                                                                          \
    }

const struct xop_op fold_declarations[FOLD_KINDS] = {
    [FOLD_SUM] = FOLD(sum, 2, shape_in), [FOLD_MEAN] = FOLD(mean, 2, shape_in),
    [FOLD_MAX] = FOLD(max, 2, x_y_in),   [FOLD_MIN] = FOLD(min, 2, x_y_in),
    [FOLD_PROD] = FOLD(prod, 2, x_in),   [FOLD_LOGSUMEXP] = FOLD(logsumexp, 2, x_y_in),
    [FOLD_VAR] = FOLD(var, 3, x_in),
};
