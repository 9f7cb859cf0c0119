#include "kernels/square_bias.h"

static const char doc[] =
    "`square_bias` squares its input and adds a bias.\n"
    "\n"
    "    y = x*x + b\n"
    "\n"
    "`x` and `b` have the same dtype and broadcast against each other as in NumPy and\n"
    "PyTorch; `y` has the shape that they broadcast to.\n"
    "\n"
    "Gradients, each summed over the dimensions along which its input was repeated:\n"
    "\n"
    "    grad_x = 2*x*grad_y\n"
    "    grad_b = grad_y\n"
    "\n"
    "`b` gives backward its shape only; its elements are not needed.\n"
    "\n"
    "f16 and bf16 are computed in f32; sums are accumulated in f32 or wider, and a result\n"
    "is rounded at the end. A square beyond the range of the dtype computed in is +inf, as\n"
    "in PyTorch; one below it is rounded to a subnormal or to 0.\n"
    "\n"
    "| x | b | y |\n"
    "| --- | --- | --- |\n"
    "| +0 or -0 | b | b, and +0 for b = -0 |\n"
    "| +inf or -inf | finite or +inf | +inf |\n"
    "| +inf or -inf | -inf | NaN |\n"
    "| finite | -inf | -inf, but NaN where x*x overflows in the dtype computed in |\n"
    "| NaN | any | NaN |\n"
    "| any | NaN | NaN |\n";

static uint64_t bytes_of(const struct xop_tensor *tensor) {
    uint64_t bytes;
    return xop_tensor_bytes(tensor, &bytes) ? bytes : 0;
}

static uint64_t elements_of(const struct xop_tensor *tensor) {
    int64_t n;
    return xop_tensor_elements(tensor, &n) ? (uint64_t)n : 0;
}

static enum xop_status same_dtype(const char *a_name, const struct xop_tensor *a,
                                  const char *b_name, const struct xop_tensor *b,
                                  struct xop_error *error) {
    if (a->dtype == b->dtype)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is %s but %s is %s; they must be the same",
                    a_name, xop_dtype_name(a->dtype), b_name, xop_dtype_name(b->dtype));
}

static bool simple(enum shape_form form) { return form != SHAPE_GENERAL; }

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    const struct xop_tensor *x = &call->in[SQUARE_BIAS_X], *b = &call->in[SQUARE_BIAS_B];
    struct shape_map map;
    enum xop_status status = same_dtype("x", x, "b", b, error);

    if (status == XOP_OK)
        status = shape_broadcast("x", x, "b", b, &plan->out[0], error);
    if (status != XOP_OK)
        return status;
    shape_collapse(x, b, &plan->out[0], &map);
    plan->read_once = (map.x_form == SHAPE_FULL ? 1u << SQUARE_BIAS_X : 0) |
                      (map.b_form == SHAPE_FULL ? 1u << SQUARE_BIAS_B : 0);
    plan->write_once = 1;
    plan->bytes = bytes_of(x) + bytes_of(b) + bytes_of(&plan->out[0]);
    plan->flops = 2 * (uint64_t)map.elements;
    plan->group = SQUARE_BIAS_GENERAL;
    if (map.x_form == SHAPE_FULL && simple(map.b_form))
        plan->group = map.b_form == SHAPE_FULL || map.b_form == SHAPE_SCALAR ? SQUARE_BIAS_FLAT
                                                                             : SQUARE_BIAS_SIMPLE;
    return XOP_OK;
}

void square_bias_backward_plan(const struct xop_tensor *x, const struct xop_tensor *b,
                               const struct xop_tensor *grad_y, struct square_bias_backward *plan) {
    shape_reduce(x, grad_y, &plan->x);
    shape_reduce(b, grad_y, &plan->b);
    plan->b_offset = shape_reduction_workspace(&plan->x);
    plan->workspace_bytes = plan->b_offset + shape_reduction_workspace(&plan->b);
}

uint64_t square_bias_workspace(const struct xop_tensor *x, const struct xop_tensor *b,
                               const struct xop_tensor *grad_y) {
    struct square_bias_backward plan;
    square_bias_backward_plan(x, b, grad_y, &plan);
    return plan.workspace_bytes;
}

static enum xop_status check_grad_y(const struct xop_tensor *x, const struct xop_tensor *b,
                                    const struct xop_tensor *grad_y, struct xop_error *error) {
    char wanted[SHAPE_TEXT], came[SHAPE_TEXT];
    struct xop_tensor y;
    enum xop_status status = same_dtype("x", x, "b", b, error);

    if (status == XOP_OK)
        status = same_dtype("x", x, "grad_y", grad_y, error);
    if (status == XOP_OK)
        status = shape_broadcast("x", x, "b", b, &y, error);
    if (status == XOP_OK && !shape_equal(&y, grad_y))
        status =
            xop_fail(error, XOP_INVALID_ARGUMENT, "grad_y has shape %s but x and b broadcast to %s",
                     shape_format(grad_y, came), shape_format(&y, wanted));
    return status;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *x = &call->in[SQUARE_BIAS_X], *b = &call->in[SQUARE_BIAS_B];
    const struct xop_tensor *grad_y = &call->in[SQUARE_BIAS_GRAD_Y];
    struct square_bias_backward back;
    bool x_full, b_full;
    enum xop_status status = check_grad_y(x, b, grad_y, error);

    if (status != XOP_OK)
        return status;
    square_bias_backward_plan(x, b, grad_y, &back);
    x_full = back.x.form == SHAPE_FULL;
    b_full = back.b.form == SHAPE_FULL;
    shape_copy(&plan->out[0], x);
    shape_copy(&plan->out[1], b);
    plan->workspace_bytes = back.workspace_bytes;
    plan->read_once = x_full ? 1u << SQUARE_BIAS_X : 0;
    if ((x_full && simple(back.b.form)) || (b_full && simple(back.x.form)))
        plan->read_once |= 1u << SQUARE_BIAS_GRAD_Y;
    plan->write_once = 3;
    plan->bytes = 2 * bytes_of(x) + bytes_of(b) + bytes_of(grad_y);
    plan->flops = (3u + !b_full) * elements_of(grad_y);
    plan->group = SQUARE_BIAS_GENERAL;
    if (x_full && simple(back.b.form))
        plan->group = b_full ? SQUARE_BIAS_FLAT : SQUARE_BIAS_SIMPLE;
    return XOP_OK;
}

static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "what is squared, of any shape"},
    {.name = "b", .doc = "what is added, of a shape that broadcasts against x"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y",
     .doc = "x*x + b, of the shape that x and b broadcast to",
     .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand backward_in[] = {
    {.name = "x", .doc = "the forward's x"},
    {.name = "b", .doc = "the forward's b, its shape only", .flags = XOP_OPERAND_SHAPE_ONLY},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape", .flags = XOP_OPERAND_IN_PLACE},
    {.name = "grad_b", .doc = "gradient of b, of b's shape"},
};

const struct xop_op square_bias_declaration = {
    .abi = XOP_OP_ABI,
    .name = "square_bias",
    .doc = doc,
    .dtypes = XOP_FLOATS,
    .pass = {{.in = forward_in,
              .out = forward_out,
              .nin = 2,
              .nout = 1,
              .infer = forward_infer,
              .index_operand = -1},
             {.in = backward_in,
              .out = backward_out,
              .nin = 3,
              .nout = 2,
              .infer = backward_infer,
              .index_operand = -1}},
};
