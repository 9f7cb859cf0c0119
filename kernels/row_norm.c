#include "kernels/row.h"

#include "kernels/shape.h"

static const char layer_norm_doc[] =
    "`layer_norm` over the last dimensions, as `torch.nn.functional.layer_norm`.\n"
    "\n"
    "    y = (x - mean) / sqrt(var + eps) * weight + bias\n"
    "\n"
    "where mean and var, the mean squared distance from it, are those of a row: the elements\n"
    "of the last dimensions, which are `normalized_shape`, or the last one alone where that is\n"
    "not given. `weight` and `bias` have that shape; either or both may be left out, for 1 and\n"
    "0. All have the same dtype, and `y` has the shape of `x`.\n"
    "\n"
    "Gradients, with h = (x - mean) / sqrt(var + eps), u = grad_y weight, and mean() that of a\n"
    "row:\n"
    "\n"
    "    grad_x = (u - mean(u) - h mean(u h)) / sqrt(var + eps)\n"
    "    grad_weight = grad_y h summed over the rows\n"
    "    grad_bias = grad_y summed over the rows\n"
    "\n"
    "Backward needs `x` and `weight`, and finds mean and var anew. f16 and bf16 are computed\n"
    "in f32 and a result is rounded once. The order of sums depends on the shape alone.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| a row holds NaN or an infinity | NaN, all of the row |\n"
    "| the squares' sum exceeds the range of what is computed in | bias |\n"
    "| no rows | y is empty, grad_weight and grad_bias are 0 |\n"
    "| rows without elements | all is empty |\n";

static const char rms_norm_doc[] =
    "`rms_norm` over the last dimensions, as `torch.nn.functional.rms_norm`.\n"
    "\n"
    "    y = x / sqrt(mean(x^2) + eps) * weight\n"
    "\n"
    "where the mean is that of a row: the elements of the last dimensions, which are\n"
    "`normalized_shape`, or the last one alone where that is not given. `weight` has that\n"
    "shape and may be left out, for 1. All have the same dtype, and `y` has the shape of `x`.\n"
    "Where `eps` is negative, as by default, it is the dtype's: 2^-10 for f16, 2^-7 for bf16,\n"
    "2^-23 for f32, 2^-52 for f64.\n"
    "\n"
    "Gradients, with h = x / sqrt(mean(x^2) + eps), u = grad_y weight, and mean() that of a\n"
    "row:\n"
    "\n"
    "    grad_x = (u - h mean(u h)) / sqrt(mean(x^2) + eps)\n"
    "    grad_weight = grad_y h summed over the rows\n"
    "\n"
    "Backward needs `x` and `weight`. f16 and bf16 are computed in f32 and a result is rounded\n"
    "once. The order of sums depends on the shape alone.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| a row holds NaN | NaN, all of the row |\n"
    "| a row holds an infinity | NaN there, 0 beside it |\n"
    "| the squares' sum exceeds the range of what is computed in | 0 |\n"
    "| no rows | y is empty, grad_weight is 0 |\n"
    "| rows without elements | all is empty |\n";

enum { NORMALIZED_SHAPE = 0, EPS = 1 };

/* How many of the last dimensions a row has. */
static uint32_t row_dims(const struct xop_call *call) {
    uint32_t n = call->attrs[NORMALIZED_SHAPE].count;
    return n > 0 ? n : 1;
}

void row_norm_measure(const struct xop_call *call, struct row_size *size) {
    const struct xop_tensor *x = &call->in[ROW_NORM_X];
    struct xop_tensor row = {.rank = row_dims(call)}, outer = *x;

    /* A product that overflows is that of an empty tensor, of which the other factor is 0. */
    *size = (struct row_size){0, 0, 1};
    outer.rank -= row.rank;
    for (uint32_t i = 0; i < row.rank; i++)
        row.shape[i] = x->shape[outer.rank + i];
    if (!xop_tensor_elements(&outer, &size->outer))
        size->outer = INT64_MAX;
    if (!xop_tensor_elements(&row, &size->n))
        size->n = INT64_MAX;
}

double row_norm_eps(const struct xop_call *call) {
    static const double least[XOP_DTYPE_COUNT] = {
        [XOP_F16] = 0x1p-10, [XOP_BF16] = 0x1p-7, [XOP_F32] = 0x1p-23, [XOP_F64] = 0x1p-52};
    double eps = call->attrs[EPS].value.f;
    return eps >= 0 ? eps : least[call->in[ROW_NORM_X].dtype];
}

/* What a weight or a bias has to be. */
static struct xop_tensor parameter_of(const struct xop_call *call) {
    const struct xop_tensor *x = &call->in[ROW_NORM_X];
    struct xop_tensor parameter = {.dtype = x->dtype, .rank = row_dims(call)};
    for (uint32_t i = 0; i < parameter.rank; i++)
        parameter.shape[i] = x->shape[x->rank - parameter.rank + i];
    return parameter;
}

static enum xop_status check_normalized_shape(const struct xop_call *call,
                                              struct xop_error *error) {
    const struct xop_tensor *x = &call->in[ROW_NORM_X];
    const struct xop_attr *given = &call->attrs[NORMALIZED_SHAPE];
    char text[SHAPE_TEXT], given_text[SHAPE_TEXT];
    struct xop_tensor last = {0};
    bool same = given->count <= x->rank;

    if (x->rank == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "x is a scalar; it must have at least one dimension, that of a row");
    for (uint32_t i = 0; same && i < given->count; i++)
        same = given->value.ints[i] == x->shape[x->rank - given->count + i];
    if (same)
        return XOP_OK;
    last.rank = given->count < XOP_MAX_RANK ? given->count : XOP_MAX_RANK;
    for (uint32_t i = 0; i < last.rank; i++)
        last.shape[i] = given->value.ints[i];
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "normalized_shape is %s, but x has shape %s: it must be x's last dimensions",
                    shape_format(&last, given_text), shape_format(x, text));
}

static enum xop_status check_parameter(const struct xop_call *call, uint32_t i, const char *name,
                                       struct xop_error *error) {
    const struct xop_tensor *tensor = &call->in[i];
    struct xop_tensor wanted = parameter_of(call);
    char came_text[SHAPE_TEXT], wanted_text[SHAPE_TEXT];

    if (tensor->dtype == XOP_DTYPE_NONE)
        return XOP_OK;
    if (tensor->dtype != wanted.dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "x is %s but %s is %s; they must be the same",
                        xop_dtype_name(wanted.dtype), name, xop_dtype_name(tensor->dtype));
    if (!shape_equal(tensor, &wanted))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s has shape %s; it must be that of a row of x, %s", name,
                        shape_format(tensor, came_text), shape_format(&wanted, wanted_text));
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

/* nin: 3 with a bias, 2 without. */
static enum xop_status infer_y(const struct xop_call *call, uint32_t nin, struct xop_plan *plan,
                               struct xop_error *error) {
    const struct xop_tensor *x = &call->in[ROW_NORM_X];
    struct row_size size;
    enum xop_status status = check_normalized_shape(call, error);

    if (status == XOP_OK)
        status = check_parameter(call, ROW_NORM_WEIGHT, "weight", error);
    if (status == XOP_OK && nin > 2)
        status = check_parameter(call, ROW_NORM_BIAS, "bias", error);
    if (status != XOP_OK)
        return status;
    row_norm_measure(call, &size);
    shape_copy(&plan->out[0], x);
    plan->read_once = row_kept(&size, x->dtype) ? 1u << ROW_NORM_X : 0;
    plan->write_once = 1;
    plan->bytes = 2 * bytes_of(x);
    for (uint32_t i = 1; i < nin; i++)
        plan->bytes += bytes_of(&call->in[i]);
    plan->flops = 8 * elements_of(x);
    return XOP_OK;
}

static enum xop_status layer_forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                           struct xop_error *error) {
    return infer_y(call, 3, plan, error);
}

static enum xop_status rms_forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                         struct xop_error *error) {
    return infer_y(call, 2, plan, error);
}

/* layer_norm's third output is grad_bias; rms_norm has none, and nothing reads it. */
static enum xop_status backward_infer(const struct xop_call *call, uint32_t nout,
                                      struct xop_plan *plan, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[ROW_NORM_X], *grad_y = &call->in[ROW_NORM_GRAD_Y];
    char wanted[SHAPE_TEXT], came[SHAPE_TEXT];
    struct row_columns columns;
    struct row_size size;
    enum xop_status status = check_normalized_shape(call, error);

    if (status == XOP_OK)
        status = check_parameter(call, ROW_NORM_WEIGHT, "weight", error);
    if (status == XOP_OK && grad_y->dtype != x->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "x is %s but grad_y is %s; they must be the same", xop_dtype_name(x->dtype),
                        xop_dtype_name(grad_y->dtype));
    if (status == XOP_OK && !shape_equal(x, grad_y))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "grad_y has shape %s but x %s; they must be the same",
                        shape_format(grad_y, came), shape_format(x, wanted));
    if (status != XOP_OK)
        return status;
    row_norm_measure(call, &size);
    row_norm_columns(&size, x->dtype, &columns);
    shape_copy(&plan->out[ROW_NORM_GRAD_X], x);
    for (uint32_t i = ROW_NORM_GRAD_WEIGHT; i < nout; i++)
        plan->out[i] = parameter_of(call);
    plan->workspace_bytes = columns.workspace_bytes;
    if (row_kept_backward(&size, x->dtype))
        plan->read_once = 1u << ROW_NORM_X | 1u << ROW_NORM_GRAD_Y;
    plan->write_once = (1u << nout) - 1;
    plan->bytes = 3 * bytes_of(x) + nout * bytes_of(&plan->out[ROW_NORM_GRAD_WEIGHT]);
    plan->flops = 20 * elements_of(x);
    return XOP_OK;
}

static enum xop_status layer_backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                            struct xop_error *error) {
    return backward_infer(call, 3, plan, error);
}

static enum xop_status rms_backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                          struct xop_error *error) {
    return backward_infer(call, 2, plan, error);
}

#define NORMALIZED_SHAPE_SPEC                                                                      \
    {                                                                                              \
        .name = "normalized_shape",                                                                \
        .doc = "the last dimensions of x, which make a row; not given: the last one",              \
        .type = XOP_ATTR_INTS, .fallback = {                                                       \
            .type = XOP_ATTR_INTS                                                                  \
        }                                                                                          \
    }
static const struct xop_attr_spec layer_attrs[] = {
    NORMALIZED_SHAPE_SPEC,
    {.name = "eps",
     .doc = "what is added to the variance",
     .type = XOP_ATTR_FLOAT,
     .fallback = {.type = XOP_ATTR_FLOAT, .count = 1, .value.f = 1e-5}},
};
static const struct xop_attr_spec rms_attrs[] = {
    NORMALIZED_SHAPE_SPEC,
    {.name = "eps",
     .doc = "what is added to the mean square; negative: the dtype's",
     .type = XOP_ATTR_FLOAT,
     .fallback = {.type = XOP_ATTR_FLOAT, .count = 1, .value.f = -1}},
};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "what is normalized, of shape (..., normalized_shape)"},
    {.name = "weight", .doc = "of shape normalized_shape", .flags = XOP_OPERAND_OPTIONAL},
    {.name = "bias", .doc = "of shape normalized_shape", .flags = XOP_OPERAND_OPTIONAL},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of x's shape", .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand backward_in[] = {
    {.name = "x", .doc = "the forward's x"},
    {.name = "weight", .doc = "the forward's weight", .flags = XOP_OPERAND_OPTIONAL},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
    {.name = "grad_weight", .doc = "gradient of weight, of shape normalized_shape"},
    {.name = "grad_bias", .doc = "gradient of bias, of shape normalized_shape"},
};

#define NORM(its_name, its_doc, its_attrs, parameters, its_forward_infer, its_backward_infer)      \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = its_name, .doc = its_doc, .dtypes = XOP_FLOATS,                 \
        .attrs = its_attrs, .nattrs = 2, .pass = {                                                 \
            {.in = forward_in,                                                                     \
             .out = forward_out,                                                                   \
             .nin = 1 + (parameters),                                                              \
             .nout = 1,                                                                            \
             .infer = its_forward_infer,                                                           \
             .index_operand = -1},                                                                 \
            {.in = backward_in,                                                                    \
             .out = backward_out,                                                                  \
             .nin = 3,                                                                             \
             .nout = 1 + (parameters),                                                             \
             .infer = its_backward_infer,                                                          \
             .index_operand = -1}                                                                  \
        }                                                                                          \
    }

const struct xop_op layer_norm_declaration =
    NORM("layer_norm", layer_norm_doc, layer_attrs, 2, layer_forward_infer, layer_backward_infer);
const struct xop_op rms_norm_declaration =
    NORM("rms_norm", rms_norm_doc, rms_attrs, 1, rms_forward_infer, rms_backward_infer);
