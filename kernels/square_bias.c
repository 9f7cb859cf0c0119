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

static bool simple(enum shape_form form) { return form != SHAPE_GENERAL; }

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    struct shape_map map;
    enum xop_status status = broadcast_infer(call, plan, &map, error);

    if (status != XOP_OK)
        return status;
    plan->flops = 2 * (uint64_t)map.elements;
    plan->group = SQUARE_BIAS_GENERAL;
    if (map.x_form == SHAPE_FULL && simple(map.b_form))
        plan->group = map.b_form == SHAPE_FULL || map.b_form == SHAPE_SCALAR ? SQUARE_BIAS_FLAT
                                                                             : SQUARE_BIAS_SIMPLE;
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    struct broadcast_backward back;
    bool x_full, b_full;
    enum xop_status status = broadcast_infer_backward(call, plan, &back, error);

    if (status != XOP_OK)
        return status;
    x_full = back.x.form == SHAPE_FULL;
    b_full = back.b.form == SHAPE_FULL;
    plan->read_once = x_full ? 1u << BROADCAST_X : 0;
    if ((x_full && simple(back.b.form)) || (b_full && simple(back.x.form)))
        plan->read_once |= 1u << BROADCAST_GRAD_Y;
    plan->bytes = 2 * broadcast_bytes(x) + broadcast_bytes(b) + broadcast_bytes(grad_y);
    plan->flops = (3u + !b_full) * broadcast_elements(grad_y);
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
