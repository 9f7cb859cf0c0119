#include "kernels/row.h"

#include "kernels/shape.h"

static const char softmax_doc[] =
    "`softmax` along a dimension, as `torch.nn.functional.softmax`.\n"
    "\n"
    "    y_i = exp(x_i - m) / sum_j exp(x_j - m),  m = max_j x_j\n"
    "\n"
    "where j runs over the dimension `dim`, which counts from the end where it is negative.\n"
    "`y` has the shape and dtype of `x`. A scalar is taken as a row of one element, `dim`\n"
    "being 0 or -1.\n"
    "\n"
    "Gradient, computed from the result:\n"
    "\n"
    "    grad_x_i = y_i (grad_y_i - sum_j y_j grad_y_j)\n"
    "\n"
    "f16 and bf16 are computed in f32 and a result is rounded once. The order of sums depends\n"
    "on the shape alone. The exponential of a difference d of two elements is as exact as d,\n"
    "so that y may be off by (1 + |d|) times the roundoff of what is computed in.\n"
    "\n"
    "| a row of x holds | y |\n"
    "| --- | --- |\n"
    "| -inf beside other numbers | 0 there |\n"
    "| nothing but -inf | NaN |\n"
    "| +inf or NaN | NaN, all of the row |\n"
    "| no elements | no elements |\n";

static const char log_softmax_doc[] =
    "`log_softmax` along a dimension, as `torch.nn.functional.log_softmax`.\n"
    "\n"
    "    y_i = x_i - m - log(sum_j exp(x_j - m)),  m = max_j x_j\n"
    "\n"
    "where j runs over the dimension `dim`, which counts from the end where it is negative.\n"
    "`y` has the shape and dtype of `x`. A scalar is taken as a row of one element, `dim`\n"
    "being 0 or -1.\n"
    "\n"
    "Gradient, computed from the result:\n"
    "\n"
    "    grad_x_i = grad_y_i - exp(y_i) sum_j grad_y_j\n"
    "\n"
    "f16 and bf16 are computed in f32 and a result is rounded once. The order of sums depends\n"
    "on the shape alone.\n"
    "\n"
    "| a row of x holds | y |\n"
    "| --- | --- |\n"
    "| -inf beside other numbers | -inf there |\n"
    "| nothing but -inf | NaN |\n"
    "| +inf or NaN | NaN, all of the row |\n"
    "| no elements | no elements |\n";

/* The dimension that is reduced, of a tensor of rank 1 at least. */
static int64_t dim_of(const struct xop_call *call) {
    int64_t dim = call->attrs[0].value.i, rank = call->in[0].rank ? call->in[0].rank : 1;
    return dim < 0 ? dim + rank : dim;
}

void row_softmax_measure(const struct xop_call *call, struct row_size *size) {
    const struct xop_tensor *x = &call->in[0];
    int64_t dim = dim_of(call), elements = 0;

    *size = (struct row_size){1, 1, 1};
    if (!xop_tensor_elements(x, &elements) || elements == 0) {
        *size = (struct row_size){0, 0, 1}; /* the others' product might overflow */
        return;
    }
    for (int64_t i = 0; i < x->rank; i++)
        *(i < dim ? &size->outer : i == dim ? &size->n : &size->inner) *= x->shape[i];
}

static enum xop_status check_dim(const struct xop_call *call, const char *name,
                                 struct xop_error *error) {
    const struct xop_tensor *x = &call->in[0];
    int64_t dim = call->attrs[0].value.i, rank = x->rank ? x->rank : 1;
    char text[SHAPE_TEXT];

    if (dim >= -rank && dim < rank)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "dim is %lld, but %s has shape %s: it must be from %lld to %lld",
                    (long long)dim, name, shape_format(x, text), (long long)-rank,
                    (long long)rank - 1);
}

static void plan_rows(const struct xop_call *call, uint32_t nin, uint64_t flops_each,
                      struct xop_plan *plan) {
    const struct xop_tensor *x = &call->in[0];
    struct row_size size;
    uint64_t bytes = 0;
    int64_t n = 0;

    shape_copy(&plan->out[0], x);
    if (!xop_tensor_bytes(x, &bytes) || !xop_tensor_elements(x, &n))
        return;
    row_softmax_measure(call, &size);
    plan->read_once = row_kept(&size, x->dtype) ? (1u << nin) - 1 : 0;
    plan->write_once = 1;
    plan->bytes = (nin + 1) * bytes;
    plan->flops = flops_each * (uint64_t)n;
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    enum xop_status status = check_dim(call, "x", error);
    if (status == XOP_OK)
        plan_rows(call, 1, 16, plan);
    return status;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *y = &call->in[ROW_SOFTMAX_Y];
    const struct xop_tensor *grad_y = &call->in[ROW_SOFTMAX_GRAD_Y];
    char wanted[SHAPE_TEXT], came[SHAPE_TEXT];
    enum xop_status status = check_dim(call, "y", error);

    if (status == XOP_OK && y->dtype != grad_y->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "y is %s but grad_y is %s; they must be the same", xop_dtype_name(y->dtype),
                        xop_dtype_name(grad_y->dtype));
    if (status == XOP_OK && !shape_equal(y, grad_y))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "grad_y has shape %s but y %s; they must be the same",
                        shape_format(grad_y, came), shape_format(y, wanted));
    if (status == XOP_OK)
        plan_rows(call, 2, 8, plan);
    return status;
}

static const struct xop_attr_spec attrs[] = {
    {.name = "dim",
     .doc = "the dimension along which y sums to 1; from the end where negative",
     .type = XOP_ATTR_INT,
     .fallback = {.type = XOP_ATTR_INT, .count = 1, .value.i = -1}},
};
static const struct xop_operand forward_in[] = {{.name = "x", .doc = "of any shape"}};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of x's shape", .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand backward_in[] = {
    {.name = "y", .doc = "the forward's result"},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of y's shape", .flags = XOP_OPERAND_IN_PLACE},
};

#define SOFTMAX(its_name, its_doc)                                                                 \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = its_name, .doc = its_doc, .dtypes = XOP_FLOATS, .attrs = attrs, \
        .nattrs = 1, .pass = {                                                                     \
            {.in = forward_in,                                                                     \
             .out = forward_out,                                                                   \
             .nin = 1,                                                                             \
             .nout = 1,                                                                            \
             .infer = forward_infer,                                                               \
             .index_operand = -1},                                                                 \
            {.in = backward_in,                                                                    \
             .out = backward_out,                                                                  \
             .nin = 2,                                                                             \
             .nout = 1,                                                                            \
             .infer = backward_infer,                                                              \
             .index_operand = -1}                                                                  \
        }                                                                                          \
    }

const struct xop_op softmax_declaration = SOFTMAX("softmax", softmax_doc);
const struct xop_op log_softmax_declaration = SOFTMAX("log_softmax", log_softmax_doc);
