#include "kernels/activation.h"

#include "kernels/shape.h"

#define COMPUTED                                                                                   \
    "\n"                                                                                           \
    "f16 and bf16 are computed in f32 and rounded once. For a finite `x` nothing\n"                \
    "overflows on the way.\n"                                                                      \
    "\n"                                                                                           \
    "| x | y |\n"                                                                                  \
    "| --- | --- |\n"
#define TUTORIAL                                                                                   \
    "\n"                                                                                           \
    "A known tutorial on C++ and CUDA extensions gives the name \"Sigmoid\" to the\n"              \
    "formulas of both `sigmoid_complement` and `bose_einstein`. Neither is the logistic\n"         \
    "function, which is `sigmoid`.\n"

static const char sigmoid_doc[] =
    "`sigmoid` is the logistic function.\n"
    "\n"
    "    y = 1 / (1 + exp(-x))\n"
    "    grad_x = grad_y * y * (1 - y)\n" COMPUTED "| +0, -0 | 0.5 |\n"
    "| +inf | 1 |\n"
    "| -inf | +0 |\n"
    "| NaN | NaN |\n"
    "\n"
    "For large x the result rounds to 1 (from about 17 in f32, 37 in f64). For large\n"
    "-x it is exp(x) and ends in subnormals and +0 (below about -104 in f32, -746 in\n"
    "f64). The gradient is taken from the rounded y, so it is 0 where y is 0 or 1.\n" TUTORIAL;

static const char sigmoid_complement_doc[] =
    "`sigmoid_complement` is 1 - sigmoid(x), which is sigmoid(-x).\n"
    "\n"
    "    y = exp(-x) / (1 + exp(-x))\n"
    "    grad_x = -grad_y * y * (1 - y)\n" COMPUTED "| +0, -0 | 0.5 |\n"
    "| +inf | +0 |\n"
    "| -inf | 1 |\n"
    "| NaN | NaN |\n"
    "\n"
    "For large x it is exp(-x) and ends in subnormals and +0 (above about 104 in f32,\n"
    "746 in f64). For large -x it rounds to 1: sigmoid_complement(-1000) is 1, where\n"
    "the formula as written would give NaN. The gradient is taken from the rounded y,\n"
    "so it is 0 where y is 0 or 1.\n" TUTORIAL;

static const char bose_einstein_doc[] =
    "`bose_einstein` is the Bose-Einstein occupation, 1 / (exp(x) - 1).\n"
    "\n"
    "    y = exp(-x) / (1 - exp(-x))\n"
    "    grad_x = -grad_y * y * (y + 1)\n" COMPUTED "| +0 | +inf |\n"
    "| -0 | -inf |\n"
    "| +inf | +0 |\n"
    "| -inf | -1 |\n"
    "| NaN | NaN |\n"
    "\n"
    "Small |x| keeps full precision, y being about 1/x - 1/2 there; it overflows to an\n"
    "infinity where 1/x does. For large x it is exp(-x) and ends in subnormals and +0;\n"
    "for large -x it rounds to -1. The gradient is taken from the rounded y: 0 where y\n"
    "is 0 or -1, and infinite or NaN at the pole.\n" TUTORIAL;

static void plan_elementwise(const struct xop_call *call, uint32_t nin, uint64_t flops_each,
                             struct xop_plan *plan) {
    int64_t n = 0;
    uint64_t bytes = 0;

    shape_copy(&plan->out[0], &call->in[0]);
    if (!xop_tensor_elements(&call->in[0], &n) || !xop_tensor_bytes(&call->in[0], &bytes))
        n = 0;
    plan->read_once = (1u << nin) - 1;
    plan->write_once = 1;
    plan->bytes = (nin + 1) * bytes;
    plan->flops = flops_each * (uint64_t)n;
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    (void)error;
    plan_elementwise(call, 1, 10, plan);
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *y = &call->in[0], *grad_y = &call->in[1];
    char y_text[SHAPE_TEXT], grad_text[SHAPE_TEXT];

    if (y->dtype != grad_y->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "y is %s but grad_y is %s; they must be the same", xop_dtype_name(y->dtype),
                        xop_dtype_name(grad_y->dtype));
    if (!shape_equal(y, grad_y))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "y has shape %s but grad_y has shape %s; they must be the same",
                        shape_format(y, y_text), shape_format(grad_y, grad_text));
    plan_elementwise(call, 2, 3, plan);
    return XOP_OK;
}

static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "the argument, of any shape"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "the result, of x's shape", .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand backward_in[] = {
    {.name = "y", .doc = "the forward's result"},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of y's shape", .flags = XOP_OPERAND_IN_PLACE},
};

#define ACTIVATION(its_name, its_doc)                                                              \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = its_name, .doc = its_doc, .dtypes = XOP_FLOATS, .pass = {       \
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

const struct xop_op sigmoid_declaration = ACTIVATION("sigmoid", sigmoid_doc);
const struct xop_op sigmoid_complement_declaration =
    ACTIVATION("sigmoid_complement", sigmoid_complement_doc);
const struct xop_op bose_einstein_declaration = ACTIVATION("bose_einstein", bose_einstein_doc);
