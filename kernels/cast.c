#include "kernels/cast.h"

#include <string.h>

#include "kernels/shape.h"

static const char doc[] =
    "`cast` is x in another dtype, as PyTorch's to(dtype).\n\n"
    "    y = x, rounded to nearest, ties to even\n"
    "    grad_x = grad_y, rounded to x's dtype\n"
    "\nFrom f64 to f16 and bf16 it is rounded to f32 first, as in PyTorch. Backward takes x for\n"
    "its shape and dtype only.\n"
    "\n| x | y |\n| --- | --- |\n"
    "| +0, -0 | +0, -0 |\n"
    "| beyond the largest number of dtype | an infinity of its sign |\n"
    "| +inf, -inf | +inf, -inf |\n"
    "| NaN | NaN |\n";

static enum xop_dtype dtype_of(const struct xop_attr *attr) {
    for (int dtype = 1; dtype < XOP_DTYPE_COUNT; dtype++)
        if (XOP_FLOATS & XOP_DTYPE_BIT(dtype) &&
            strcmp(xop_dtype_name((enum xop_dtype)dtype), attr->value.string) == 0)
            return (enum xop_dtype)dtype;
    return XOP_DTYPE_NONE;
}

static enum xop_status infer(const struct xop_call *call, const struct xop_tensor *from,
                             enum xop_dtype to, struct xop_plan *plan, struct xop_error *error) {
    uint64_t bytes = 0, more = 0;

    if (dtype_of(&call->attrs[0]) == XOP_DTYPE_NONE)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "dtype is \"%.60s\"; it must be \"f16\", \"bf16\", \"f32\" or \"f64\"",
                        call->attrs[0].value.string);
    shape_copy(&plan->out[0], from);
    plan->out[0].dtype = to;
    if (!xop_tensor_bytes(from, &bytes) || !xop_tensor_bytes(&plan->out[0], &more))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the result is too large for any memory");
    plan->write_once = 1;
    plan->bytes = bytes + more;
    return XOP_OK;
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    plan->read_once = 1;
    return infer(call, &call->in[0], dtype_of(&call->attrs[0]), plan, error);
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *x = &call->in[0], *grad_y = &call->in[1];
    enum xop_dtype dtype = dtype_of(&call->attrs[0]);
    char x_text[SHAPE_TEXT], grad_text[SHAPE_TEXT];

    if (dtype != XOP_DTYPE_NONE && grad_y->dtype != dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "grad_y is %s; y is %s, and so must it be",
                        xop_dtype_name(grad_y->dtype), xop_dtype_name(dtype));
    if (!shape_equal(x, grad_y))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "x has shape %s but grad_y has shape %s; they must be the same",
                        shape_format(x, x_text), shape_format(grad_y, grad_text));
    plan->read_once = 2;
    return infer(call, grad_y, x->dtype, plan, error);
}

static const struct xop_attr_spec attrs[] = {
    {.name = "dtype",
     .doc = "of the result: \"f16\", \"bf16\", \"f32\" or \"f64\"",
     .type = XOP_ATTR_STRING,
     .required = true},
};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "what is converted, of any shape"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "the same in dtype, of x's shape", .flags = XOP_OPERAND_OWN_DTYPE},
};
static const struct xop_operand backward_in[] = {
    {.name = "x",
     .doc = "the forward's x, its shape and dtype only",
     .flags = XOP_OPERAND_SHAPE_ONLY},
    {.name = "grad_y", .doc = "gradient of y, as y is", .flags = XOP_OPERAND_OWN_DTYPE},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, in x's dtype and shape"},
};

const struct xop_op cast_declaration = {
    .abi = XOP_OP_ABI,
    .name = "cast",
    .doc = doc,
    .dtypes = XOP_FLOATS,
    .attrs = attrs,
    .nattrs = 1,
    .pass = {{.in = forward_in,
              .out = forward_out,
              .nin = 1,
              .nout = 1,
              .infer = forward_infer,
              .index_operand = -1},
             {.in = backward_in,
              .out = backward_out,
              .nin = 2,
              .nout = 1,
              .infer = backward_infer,
              .index_operand = -1}},
};
