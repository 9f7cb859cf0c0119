#include "kernels/planes.h"
#include "kernels/shape.h"
#include <xop/check.h>

static const char doc[] =
    "`batch_norm` over the samples of a batch, as `torch.nn.functional.batch_norm`.\n"
    "\n"
    "    y = (x - mean) / sqrt(var + eps) * weight + bias\n"
    "\n"
    "where `x` is (N, C, ...) and each of the C channels is normalized by itself. With\n"
    "`training`, mean and var, the mean squared distance from it, are those of the channel in\n"
    "all samples; without, they are `running_mean` and `running_var`. `weight`, `bias`,\n"
    "`running_mean` and `running_var` have an element for each channel; all but x may be left\n"
    "out, weight and bias for 1 and 0, the running statistics with `training` only. All have the\n"
    "same dtype.\n"
    "\n"
    "Outputs are `y`, of x's shape, and for each channel `mean` and `invstd`, 1 / sqrt(var +\n"
    "eps), that y was made with, and the running statistics after the step, which nothing but\n"
    "the caller keeps:\n"
    "\n"
    "    running_mean = (1 - momentum) running_mean + momentum mean\n"
    "    running_var = (1 - momentum) running_var + momentum var n / (n - 1)\n"
    "\n"
    "with n elements a channel. Without `training` they are what they were. Resident running\n"
    "statistics may be outputs in their own place. Where one was left out its output has no\n"
    "elements.\n"
    "\n"
    "Gradients, with h = (x - mean) / sqrt(var + eps) and mean() that of a channel:\n"
    "\n"
    "    grad_x = (grad_y - mean(grad_y) - h mean(grad_y h)) weight / sqrt(var + eps)\n"
    "    grad_x = grad_y weight / sqrt(var + eps)                     without training\n"
    "    grad_weight = grad_y h summed over the channel\n"
    "    grad_bias = grad_y summed over the channel\n"
    "\n"
    "Backward needs `x` and `weight`. With `training` it finds mean and var anew, in full\n"
    "precision; without, it needs `mean` and `invstd` of forward's outputs. Only y has a "
    "gradient.\n"
    "Sums are in f64, and for f16 and bf16 the rest in f32; a result is rounded once. The order\n"
    "of sums depends on the shape alone.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| a channel holds NaN or an infinity | with training NaN, all of the channel |\n"
    "| one element a channel, with training | refused, since it has no variance |\n"
    "| no elements | running statistics stay; mean and invstd are NaN, gradients 0 |\n";

/* Of two inputs, the one after the other, that are needed where training is false. */
static enum xop_status check_statistics(const struct xop_call *call, uint32_t first,
                                        const char *first_name, const char *second_name,
                                        struct xop_error *error) {
    const bool training = call->attrs[PLANES_TRAINING].value.i != 0;
    enum xop_status status = planes_check_vector(call, first, first_name, error);

    if (status == XOP_OK)
        status = planes_check_vector(call, first + 1, second_name, error);
    if (status != XOP_OK || training)
        return status;
    if (call->in[first].dtype == XOP_DTYPE_NONE || call->in[first + 1].dtype == XOP_DTYPE_NONE)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s and %s are needed where training is false",
                        first_name, second_name);
    return XOP_OK;
}

/* As PyTorch has it. */
static enum xop_status check_count(const struct xop_call *call, const struct planes_plan *how,
                                   struct xop_error *error) {
    char text[SHAPE_TEXT];
    if (how->fixed || how->channel.n != 1)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "x has shape %s: training needs more than 1 element a channel",
                    shape_format(&call->in[PLANES_X], text));
}

/* Of the tensor that comes, or one of no elements. */
static void like_running(const struct xop_call *call, uint32_t operand, struct xop_tensor *out) {
    planes_vector(call, out);
    if (call->in[operand].dtype == XOP_DTYPE_NONE)
        out->shape[0] = 0;
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    struct planes_plan how;
    enum xop_status status = planes_check(call, true, error);

    if (status == XOP_OK)
        status = check_statistics(call, PLANES_RUNNING_MEAN, "running_mean", "running_var", error);
    if (status != XOP_OK)
        return status;
    planes_measure(XOP_FORWARD, call, true, &how);
    shape_copy(&plan->out[PLANES_Y], &call->in[PLANES_X]);
    planes_vector(call, &plan->out[PLANES_MEAN]);
    planes_vector(call, &plan->out[PLANES_INVSTD]);
    like_running(call, PLANES_RUNNING_MEAN, &plan->out[PLANES_NEW_MEAN]);
    like_running(call, PLANES_RUNNING_VAR, &plan->out[PLANES_NEW_VAR]);
    planes_costs(call, &how, 5, 5, plan);
    return check_count(call, &how, error);
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    struct planes_plan how;
    enum xop_status status = planes_check(call, false, error);

    if (status == XOP_OK)
        status = check_statistics(call, PLANES_BACKWARD_MEAN, "mean", "invstd", error);
    if (status == XOP_OK)
        status = xop_check_same("grad_y", &call->in[PLANES_BATCH_GRAD_Y], "x", &call->in[PLANES_X],
                                error);
    if (status != XOP_OK)
        return status;
    planes_measure(XOP_BACKWARD, call, true, &how);
    shape_copy(&plan->out[PLANES_GRAD_X], &call->in[PLANES_X]);
    planes_vector(call, &plan->out[PLANES_GRAD_WEIGHT]);
    planes_vector(call, &plan->out[PLANES_GRAD_BIAS]);
    planes_costs(call, &how, 5, 3, plan);
    return check_count(call, &how, error);
}

static const struct xop_attr_spec attrs[] = {
    {.name = "training",
     .doc = "whether the batch's statistics are taken, not the running ones",
     .type = XOP_ATTR_BOOL,
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1, .value.i = 0}},
    {.name = "momentum",
     .doc = "how much of the batch's statistics goes into the running ones",
     .type = XOP_ATTR_FLOAT,
     .fallback = {.type = XOP_ATTR_FLOAT, .count = 1, .value.f = 0.1}},
    {.name = "eps",
     .doc = "what is added to the variance",
     .type = XOP_ATTR_FLOAT,
     .fallback = {.type = XOP_ATTR_FLOAT, .count = 1, .value.f = 1e-5}},
};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "what is normalized, of shape (N, C, ...)"},
    {.name = "weight", .doc = "of shape (C,)", .flags = XOP_OPERAND_OPTIONAL},
    {.name = "bias", .doc = "of shape (C,)", .flags = XOP_OPERAND_OPTIONAL},
    {.name = "running_mean", .doc = "of shape (C,)", .flags = XOP_OPERAND_OPTIONAL},
    {.name = "running_var", .doc = "of shape (C,)", .flags = XOP_OPERAND_OPTIONAL},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of x's shape", .flags = XOP_OPERAND_IN_PLACE},
    {.name = "mean", .doc = "by which x was normalized, of shape (C,)"},
    {.name = "invstd", .doc = "1 / sqrt(var + eps), of shape (C,)"},
    {.name = "running_mean",
     .doc = "after the step, of the input's shape",
     .flags = XOP_OPERAND_IN_PLACE},
    {.name = "running_var",
     .doc = "after the step, of the input's shape",
     .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand backward_in[] = {
    {.name = "x", .doc = "the forward's x"},
    {.name = "weight", .doc = "the forward's weight", .flags = XOP_OPERAND_OPTIONAL},
    {.name = "mean",
     .doc = "the forward's mean, needed without training",
     .flags = XOP_OPERAND_OPTIONAL},
    {.name = "invstd",
     .doc = "the forward's invstd, needed without training",
     .flags = XOP_OPERAND_OPTIONAL},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
    {.name = "grad_weight", .doc = "gradient of weight, of shape (C,)"},
    {.name = "grad_bias", .doc = "gradient of bias, of shape (C,)"},
};

const struct xop_op batch_norm_declaration = {
    .abi = XOP_OP_ABI,
    .name = "batch_norm",
    .doc = doc,
    .dtypes = XOP_FLOATS,
    .attrs = attrs,
    .nattrs = 3,
    .pass = {{.in = forward_in,
              .out = forward_out,
              .nin = 5,
              .nout = 5,
              .infer = forward_infer,
              .index_operand = -1},
             {.in = backward_in,
              .out = backward_out,
              .nin = 5,
              .nout = 3,
              .infer = backward_infer,
              .index_operand = -1}},
};
