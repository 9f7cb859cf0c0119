#include "kernels/planes.h"
#include "kernels/shape.h"
#include <xop/check.h>

static const char doc[] =
    "`group_norm` over groups of channels, as `torch.nn.functional.group_norm`.\n"
    "\n"
    "    y = (x - mean) / sqrt(var + eps) * weight + bias\n"
    "\n"
    "where mean and var, the mean squared distance from it, are those of a group: `x` is\n"
    "(N, C, ...), and the C channels of each sample are `num_groups` groups of neighbours.\n"
    "`weight` and `bias` have an element for each channel; either or both may be left out, for\n"
    "1 and 0. All have the same dtype, and `y` has the shape of `x`.\n"
    "\n"
    "Gradients, with h = (x - mean) / sqrt(var + eps), u = grad_y weight, and mean() that of a\n"
    "group:\n"
    "\n"
    "    grad_x = (u - mean(u) - h mean(u h)) / sqrt(var + eps)\n"
    "    grad_weight = grad_y h summed over a channel in all samples\n"
    "    grad_bias = grad_y summed over a channel in all samples\n"
    "\n"
    "Backward needs `x` and `weight`, and finds mean and var anew. Sums are in f64, and for f16\n"
    "and bf16 the rest in f32; a result is rounded once. The order of sums depends on the shape\n"
    "alone.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| a group holds NaN or an infinity | NaN, all of the group |\n"
    "| a group of one element | bias |\n"
    "| no elements | y is empty, grad_weight and grad_bias are 0 |\n";

static enum xop_status check_groups(const struct xop_call *call, bool bias,
                                    struct xop_error *error) {
    const struct xop_tensor *x = &call->in[PLANES_X];
    int64_t groups = call->attrs[PLANES_NUM_GROUPS].value.i;
    char text[SHAPE_TEXT];
    enum xop_status status = planes_check(call, bias, error);

    if (status != XOP_OK || (groups > 0 && x->shape[1] % groups == 0))
        return status;
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "num_groups is %lld, but x, of shape %s, has %lld channels: they must be a "
                    "multiple of it, and it must be at least 1",
                    (long long)groups, shape_format(x, text), (long long)x->shape[1]);
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    struct planes_plan how;
    enum xop_status status = check_groups(call, true, error);

    if (status != XOP_OK)
        return status;
    planes_measure(XOP_FORWARD, call, false, &how);
    shape_copy(&plan->out[PLANES_Y], &call->in[PLANES_X]);
    planes_costs(call, &how, 3, 1, plan);
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    struct planes_plan how;
    enum xop_status status = check_groups(call, false, error);

    if (status == XOP_OK)
        status = xop_check_same("grad_y", &call->in[PLANES_GROUP_GRAD_Y], "x", &call->in[PLANES_X],
                                error);
    if (status != XOP_OK)
        return status;
    planes_measure(XOP_BACKWARD, call, false, &how);
    shape_copy(&plan->out[PLANES_GRAD_X], &call->in[PLANES_X]);
    planes_vector(call, &plan->out[PLANES_GRAD_WEIGHT]);
    planes_vector(call, &plan->out[PLANES_GRAD_BIAS]);
    planes_costs(call, &how, 3, 3, plan);
    return XOP_OK;
}

static const struct xop_attr_spec attrs[] = {
    {.name = "num_groups",
     .doc = "groups that the channels are separated into",
     .type = XOP_ATTR_INT,
     .required = true},
    {.name = "eps",
     .doc = "what is added to the variance",
     .type = XOP_ATTR_FLOAT,
     .fallback = {.type = XOP_ATTR_FLOAT, .count = 1, .value.f = 1e-5}},
};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "what is normalized, of shape (N, C, ...)"},
    {.name = "weight", .doc = "of shape (C,)", .flags = XOP_OPERAND_OPTIONAL},
    {.name = "bias", .doc = "of shape (C,)", .flags = XOP_OPERAND_OPTIONAL},
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
    {.name = "grad_weight", .doc = "gradient of weight, of shape (C,)"},
    {.name = "grad_bias", .doc = "gradient of bias, of shape (C,)"},
};

const struct xop_op group_norm_declaration = {
    .abi = XOP_OP_ABI,
    .name = "group_norm",
    .doc = doc,
    .dtypes = XOP_FLOATS,
    .attrs = attrs,
    .nattrs = 2,
    .pass = {{.in = forward_in,
              .out = forward_out,
              .nin = 3,
              .nout = 1,
              .infer = forward_infer,
              .index_operand = -1},
             {.in = backward_in,
              .out = backward_out,
              .nin = 3,
              .nout = 3,
              .infer = backward_infer,
              .index_operand = -1}},
};
