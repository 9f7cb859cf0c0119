#include "kernels/loss.h"
#include <xop/check.h>

#include <string.h>

#define TARGETS                                                                                    \
    "`x` has shape (C), (N, C) or (N, C, d1, ...), C being the number of classes: a row is what\n" \
    "belongs to one target. "

static const char cross_entropy_doc[] =
    "Cross entropy between softmax(x) and target, as `torch.nn.functional.cross_entropy`.\n"
    "\n" TARGETS "`target` holds class indices, in i32 or i64 and x's shape without C,\n"
    "or probabilities of classes, in x's dtype and shape. With q = log_softmax(x) along C and\n"
    "w of `weight`, of shape (C), or 1, a row's loss is\n"
    "\n"
    "    l = -(1 - s) w_t q_t - s / C sum_c w_c q_c              for an index t\n"
    "    l = -sum_c w_c ((1 - s) p_c + s / C) q_c                for probabilities p\n"
    "    y = l, or the sum of all l, or for a mean\n"
    "    y = sum l / sum w_t,  for probabilities sum l / rows\n"
    "\n"
    "with s = `label_smoothing`. A row whose index is `ignore_index` has loss 0, weight 0 and\n"
    "gradient 0; any other index outside 0 to C - 1 is INVALID_ARGUMENT, with the first of them\n"
    "named. The mean of no rows is NaN.\n"
    "\n"
    "Gradient, with g an element of grad_y, or for a mean grad_y over the same divisor:\n"
    "\n"
    "    grad_x_c = g (softmax(x)_c sum_j u_j - u_c)\n"
    "\n"
    "where u_c is what -q_c is multiplied by above. `target` and `weight` have none, and\n"
    "probabilities are taken as given.\n"
    "\n"
    "f16 and bf16 are computed in f32 and a result is rounded once; sums over rows are f64. The\n"
    "order of sums depends on the shape alone.\n";

static const char nll_doc[] =
    "The negative log likelihood, as `torch.nn.functional.nll_loss`.\n"
    "\n" TARGETS "It holds logarithms of probabilities, as log_softmax gives them; `target`\n"
    "class indices, in i32 or i64 and x's shape without C. With w of `weight`, of shape (C), or\n"
    "1, the loss of a row with index t is\n"
    "\n"
    "    l = -w_t x_t\n"
    "    y = l, or the sum of all l, or for a mean sum l / sum w_t\n"
    "\n"
    "A row whose index is `ignore_index` has loss 0 and weight 0; any other index outside 0 to\n"
    "C - 1 is INVALID_ARGUMENT, with the first of them named. The mean of no rows is NaN.\n"
    "\n"
    "Gradient, with g an element of grad_y, or for a mean grad_y over the sum of all w_t:\n"
    "\n"
    "    grad_x_c = -w_t g where c is t, else 0\n"
    "\n"
    "`weight` has none. Sums over rows are f64; their order depends on the shape alone.\n";

enum { IGNORE_INDEX = 1, LABEL_SMOOTHING = 2 };

/* ---- Shapes ---- */

/* The shape of a result for each row: x's without C. */
static void rows_shape(const struct xop_tensor *x, struct xop_tensor *rows) {
    uint32_t classes = x->rank > 1;
    memset(rows, 0, sizeof *rows);
    rows->dtype = x->dtype;
    for (uint32_t i = 0; i < x->rank; i++)
        if (i != classes)
            rows->shape[rows->rank++] = x->shape[i];
}

void loss_classes_measure(const struct xop_call *call, bool entropy, struct loss_classes *classes) {
    const struct xop_tensor *x = &call->in[LOSS_X];
    struct xop_tensor rows;

    rows_shape(x, &rows);
    classes->rows = xop_elements(&rows);
    classes->size = (struct row_size){0, x->shape[x->rank > 1], 1};
    if (classes->rows > 0) {
        classes->size.outer = x->rank > 1 ? x->shape[0] : 1;
        for (uint32_t i = 2; i < x->rank; i++)
            classes->size.inner *= x->shape[i];
    }
    classes->reduction = loss_reduction(call);
    classes->ignore_index = call->attrs[IGNORE_INDEX].value.i;
    classes->probabilities = XOP_FLOATS >> call->in[LOSS_TARGET].dtype & 1;
    classes->smoothing = entropy ? call->attrs[LABEL_SMOOTHING].value.f : 0;
}

/* Threads of a row that lies together: each takes four vectors of 16 bytes and up. */
#define ROW_BYTES_A_LANE 64

static uint32_t power_of_two(int64_t at_least, uint32_t most) {
    uint32_t power = 1;
    while (power < at_least && power < most)
        power *= 2;
    return power;
}

void loss_classes_cut(const struct row_size *size, enum xop_dtype dtype, struct loss_cut *cut) {
    int64_t most = LOSS_BLOCK * ROW_BYTES_A_LANE;
    int64_t bytes = size->n < most ? size->n * (int64_t)xop_dtype_size(dtype) : most;

    *cut = (struct loss_cut){1, 0};
    if (size->outer == 0)
        return;
    if (size->inner == 1) {
        cut->lanes = power_of_two((bytes + ROW_BYTES_A_LANE - 1) / ROW_BYTES_A_LANE, LOSS_BLOCK);
        cut->pieces = (size->outer - 1) / (LOSS_BLOCK / cut->lanes) + 1;
    } else {
        cut->lanes = power_of_two(size->inner, 32);
        cut->pieces = size->outer * ((size->inner - 1) / cut->lanes + 1);
    }
}

/* ---- Checks ---- */

static enum xop_status check_target(const struct xop_call *call, const struct loss_classes *classes,
                                    const struct xop_tensor *rows, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[LOSS_X], *target = &call->in[LOSS_TARGET];
    char text[SHAPE_TEXT], wanted[SHAPE_TEXT], x_text[SHAPE_TEXT];

    if (classes->probabilities && classes->ignore_index >= 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "ignore_index is %lld, but target holds probabilities, of which none can "
                        "be ignored",
                        (long long)classes->ignore_index);
    if (classes->probabilities)
        return xop_check_same("target, which holds probabilities,", target, "x", x, error);
    if (shape_equal(target, rows))
        return XOP_OK;
    return xop_fail(
        error, XOP_INVALID_ARGUMENT, "target has shape %s; for x of shape %s it must be %s",
        shape_format(target, text), shape_format(x, x_text), shape_format(rows, wanted));
}

static enum xop_status check(const struct xop_call *call, bool entropy,
                             struct loss_classes *classes, struct xop_tensor *y,
                             struct xop_error *error) {
    const struct xop_tensor *x = &call->in[LOSS_X], *weight = &call->in[LOSS_WEIGHT];
    char text[SHAPE_TEXT];
    uint64_t bytes;
    enum xop_status status = loss_check_reduction(call, error);

    memset(classes, 0, sizeof *classes);
    if (status == XOP_OK)
        status = xop_check_rank("x", x, 1, XOP_MAX_RANK, error);
    if (status != XOP_OK)
        return status;
    rows_shape(x, y);
    if (!xop_tensor_bytes(y, &bytes) || bytes > INT64_MAX / 16)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "x has shape %s, with too many rows",
                        shape_format(x, text));
    loss_classes_measure(call, entropy, classes);
    if (!(classes->smoothing >= 0 && classes->smoothing <= 1))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "label_smoothing is %g; it must be from 0 to 1", classes->smoothing);
    status = check_target(call, classes, y, error);
    if (status == XOP_OK && weight->dtype != XOP_DTYPE_NONE &&
        (weight->rank != 1 || weight->shape[0] != classes->size.n))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "weight has shape %s; it must be (%lld,), the number of classes",
                        shape_format(weight, text), (long long)classes->size.n);
    if (status == XOP_OK && weight->dtype != XOP_DTYPE_NONE)
        status = xop_check_dtypes("weight", weight, "x", x, error);
    if (classes->reduction != LOSS_NONE)
        y->rank = 0;
    return status;
}

/* ---- Plans ---- */

static enum xop_status forward_infer(const struct xop_call *call, bool entropy,
                                     struct xop_plan *plan, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[LOSS_X];
    struct loss_classes classes;
    struct loss_cut cut;
    enum xop_status status = check(call, entropy, &classes, &plan->out[0], error);

    if (status != XOP_OK)
        return status;
    loss_classes_cut(&classes.size, x->dtype, &cut);
    if (!entropy)
        cut.pieces = loss_pieces(classes.rows);
    if (classes.reduction != LOSS_NONE)
        plan->workspace_bytes = loss_partials_bytes(cut.pieces);
    if (!classes.probabilities)
        plan->index_limit = (uint64_t)classes.size.n;
    /* nll_loss looks at one element of a row, and most of x stays where it is. */
    plan->read_once = entropy ? 0 : 1u << LOSS_X;
    plan->read_once |= 1u << LOSS_TARGET;
    plan->write_once = 1;
    plan->bytes = xop_bytes(&call->in[LOSS_TARGET]) + xop_bytes(&plan->out[0]) +
                  (entropy ? xop_bytes(x) : (uint64_t)classes.rows * xop_dtype_size(x->dtype));
    plan->flops = (entropy ? 16 * (uint64_t)xop_elements(x) : 2 * (uint64_t)classes.rows);
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, bool entropy,
                                      struct xop_plan *plan, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[LOSS_X];
    struct loss_classes classes;
    struct xop_tensor y;
    enum xop_status status = check(call, entropy, &classes, &y, error);

    if (status == XOP_OK)
        status = xop_check_same("grad_y", &call->in[LOSS_CLASSES_GRAD_Y], "the result", &y, error);
    if (status != XOP_OK)
        return status;
    shape_copy(&plan->out[0], x);
    if (loss_classes_total(&classes))
        plan->workspace_bytes = LOSS_TOTAL_BYTES + loss_partials_bytes(loss_pieces(classes.rows));
    if (!classes.probabilities)
        plan->index_limit = (uint64_t)classes.size.n;
    plan->write_once = 1;
    plan->bytes = xop_bytes(&call->in[LOSS_TARGET]) + (entropy ? 2 : 1) * xop_bytes(x);
    plan->flops = (entropy ? 20 : 1) * (uint64_t)xop_elements(x);
    return XOP_OK;
}

#define INFER(id, entropy)                                                                         \
    static enum xop_status id##_forward(const struct xop_call *call, struct xop_plan *plan,        \
                                        struct xop_error *error) {                                 \
        return forward_infer(call, entropy, plan, error);                                          \
    }                                                                                              \
    static enum xop_status id##_backward(const struct xop_call *call, struct xop_plan *plan,       \
                                         struct xop_error *error) {                                \
        return backward_infer(call, entropy, plan, error);                                         \
    }
INFER(cross_entropy, true)
INFER(nll, false)

/* ---- Declarations ---- */

static const struct xop_attr_spec attrs[] = {
    LOSS_REDUCTION_SPEC,
    {.name = "ignore_index",
     .doc = "an index whose rows do not count",
     .type = XOP_ATTR_INT,
     .fallback = {.type = XOP_ATTR_INT, .count = 1, .value.i = -100}},
    {.name = "label_smoothing",
     .doc = "from 0 to 1: how much of a target is spread over all classes alike",
     .type = XOP_ATTR_FLOAT,
     .fallback = {.type = XOP_ATTR_FLOAT, .count = 1, .value.f = 0}},
};

#define X                                                                                          \
    { .name = "x", .doc = "of shape (C), (N, C) or (N, C, d1, ...)" }
#define INDICES                                                                                    \
    {                                                                                              \
        .name = "target", .doc = "class indices, of x's shape without C",                          \
        .flags = XOP_OPERAND_OWN_DTYPE, .dtypes = XOP_INTEGERS                                     \
    }
#define TARGET                                                                                     \
    {                                                                                              \
        .name = "target",                                                                          \
        .doc = "class indices, of x's shape without C, or probabilities, of x's",                  \
        .flags = XOP_OPERAND_OWN_DTYPE, .dtypes = XOP_INTEGERS | XOP_FLOATS                        \
    }
#define WEIGHT                                                                                     \
    { .name = "weight", .doc = "of classes, of shape (C,)", .flags = XOP_OPERAND_OPTIONAL }
#define GRAD_Y                                                                                     \
    { .name = "grad_y", .doc = "gradient of y, of y's shape" }
static const struct xop_operand cross_entropy_in[] = {X, TARGET, WEIGHT, GRAD_Y};
static const struct xop_operand nll_in[] = {X, INDICES, WEIGHT};
static const struct xop_operand nll_backward_in[] = {
    {.name = "x", .doc = "the forward's x, its shape only", .flags = XOP_OPERAND_SHAPE_ONLY},
    INDICES,
    WEIGHT,
    GRAD_Y};
static const struct xop_operand forward_out[] = {
    {.name = "y",
     .doc = "the loss, a scalar, or of x's shape without C where reduction is "
            "\"none\""},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
};

#define CLASSES(its_name, id, its_nattrs, forward_in, backward_in)                                 \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = its_name, .doc = id##_doc, .dtypes = XOP_FLOATS,                \
        .attrs = attrs, .nattrs = (its_nattrs), .pass = {                                          \
            {.in = forward_in,                                                                     \
             .out = forward_out,                                                                   \
             .nin = 3,                                                                             \
             .nout = 1,                                                                            \
             .infer = id##_forward,                                                                \
             .index_operand = LOSS_TARGET},                                                        \
            {.in = backward_in,                                                                    \
             .out = backward_out,                                                                  \
             .nin = 4,                                                                             \
             .nout = 1,                                                                            \
             .infer = id##_backward,                                                               \
             .index_operand = LOSS_TARGET}                                                         \
        }                                                                                          \
    }

const struct xop_op cross_entropy_declaration =
    CLASSES("cross_entropy", cross_entropy, 3, cross_entropy_in, cross_entropy_in);
const struct xop_op nll_loss_declaration = CLASSES("nll_loss", nll, 2, nll_in, nll_backward_in);
