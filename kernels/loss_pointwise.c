#include "kernels/loss.h"
#include <xop/check.h>

static const char mse_doc[] =
    "The squared error, as `torch.nn.functional.mse_loss`.\n"
    "\n"
    "    l = (x - target)^2\n"
    "    y = l, or the mean or the sum of all l\n"
    "\n"
    "`x` and `target` have one shape: they are not broadcast, of which PyTorch warns.\n"
    "The mean of no elements is NaN, their sum 0.\n"
    "\n"
    "Gradients, with g an element of grad_y, or for a mean grad_y over the number of elements:\n"
    "\n"
    "    grad_x = 2 (x - target) g,  grad_target = -grad_x\n"
    "\n"
    "f16 and bf16 are computed in f32 and a result is rounded once. The order of sums depends\n"
    "on the shape alone.\n";

static const char bce_doc[] =
    "Binary cross entropy between sigmoid(x) and target, as\n"
    "`torch.nn.functional.binary_cross_entropy_with_logits`.\n"
    "\n"
    "    l = w ((1 - target) x + (1 + (p - 1) target) softplus(-x))\n"
    "    y = l, or the mean or the sum of all l\n"
    "\n"
    "with w of `weight` and p of `pos_weight`, which broadcast to x's shape, and are 1 where\n"
    "they are missing. softplus(-x) is log(1 + exp(-|x|)) + max(-x, 0), which does not\n"
    "overflow. `target` has x's shape, and holds probabilities, which is not checked. The mean\n"
    "of no elements is NaN, their sum 0.\n"
    "\n"
    "Gradients, with g an element of grad_y, or for a mean grad_y over the number of elements:\n"
    "\n"
    "    grad_x = g w ((1 + (p - 1) target) sigmoid(x) - p target)\n"
    "    grad_target = g w ((p - 1) softplus(-x) - x)\n"
    "\n"
    "`weight` and `pos_weight` have none. f16 and bf16 are computed in f32 and a result is\n"
    "rounded once. The order of sums depends on the shape alone.\n";

/* ---- Checks ---- */

/* x where an operand is missing: one element for all. */
static struct xop_tensor or_scalar(const struct xop_tensor *operand, const struct xop_tensor *x) {
    struct xop_tensor scalar = {.dtype = x->dtype};
    return operand->dtype == XOP_DTYPE_NONE ? scalar : *operand;
}

void loss_pointwise_weights(const struct xop_call *call, struct shape_map *map) {
    const struct xop_tensor *x = &call->in[LOSS_X];
    struct xop_tensor weight = or_scalar(&call->in[LOSS_WEIGHT], x);
    struct xop_tensor pos_weight = or_scalar(&call->in[LOSS_POS_WEIGHT], x);
    shape_collapse(&weight, &pos_weight, x, map);
}

static enum xop_status check_weight(const char *name, const struct xop_tensor *weight,
                                    const struct xop_tensor *x, struct xop_error *error) {
    char text[SHAPE_TEXT], x_text[SHAPE_TEXT];
    struct xop_tensor both;
    enum xop_status status;

    if (weight->dtype == XOP_DTYPE_NONE)
        return XOP_OK;
    status = shape_broadcast("x", x, name, weight, &both, error);
    if (status == XOP_OK && !shape_equal(&both, x))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s has shape %s, which does not broadcast to x's, %s", name,
                        shape_format(weight, text), shape_format(x, x_text));
    return status;
}

static enum xop_status check(enum loss_pointwise_kind kind, const struct xop_call *call,
                             struct xop_error *error) {
    const struct xop_tensor *x = &call->in[LOSS_X];
    enum xop_status status = loss_check_reduction(call, error);
    if (status == XOP_OK)
        status = xop_check_same("x", x, "target", &call->in[LOSS_TARGET], error);
    if (status == XOP_OK && kind == LOSS_BCE)
        status = check_weight("weight", &call->in[LOSS_WEIGHT], x, error);
    if (status == XOP_OK && kind == LOSS_BCE)
        status = check_weight("pos_weight", &call->in[LOSS_POS_WEIGHT], x, error);
    return status;
}

static enum xop_status forward_infer(enum loss_pointwise_kind kind, const struct xop_call *call,
                                     struct xop_plan *plan, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[LOSS_X];
    enum xop_status status = check(kind, call, error);
    if (status != XOP_OK)
        return status;
    shape_copy(&plan->out[0], x);
    if (loss_reduction(call) != LOSS_NONE) {
        plan->out[0].rank = 0;
        plan->workspace_bytes = loss_partials_bytes(loss_pieces(xop_elements(x)));
    }
    plan->read_once = 1u << LOSS_X | 1u << LOSS_TARGET;
    plan->write_once = 1;
    plan->bytes = 2 * xop_bytes(x) + xop_bytes(&plan->out[0]);
    plan->flops = (kind == LOSS_MSE ? 3 : 40) * (uint64_t)xop_elements(x);
    return XOP_OK;
}

static enum xop_status backward_infer(enum loss_pointwise_kind kind, const struct xop_call *call,
                                      struct xop_plan *plan, struct xop_error *error) {
    const uint32_t grad = LOSS_GRAD_Y(kind);
    const struct xop_tensor *x = &call->in[LOSS_X];
    const bool each = loss_reduction(call) == LOSS_NONE;
    struct xop_tensor y;
    enum xop_status status = check(kind, call, error);

    if (status != XOP_OK)
        return status;
    shape_copy(&y, x);
    y.rank = each ? x->rank : 0;
    status = xop_check_same("grad_y", &call->in[grad], "the result", &y, error);
    if (status != XOP_OK)
        return status;
    shape_copy(&plan->out[0], x);
    shape_copy(&plan->out[1], x);
    plan->read_once = 1u << LOSS_X | 1u << LOSS_TARGET | (each ? 1u << grad : 0);
    plan->write_once = 3;
    plan->bytes = (each ? 5 : 4) * xop_bytes(x);
    plan->flops = (kind == LOSS_MSE ? 3 : 40) * (uint64_t)xop_elements(x);
    return XOP_OK;
}

/* ---- Declarations ---- */

static const struct xop_attr_spec attrs[] = {LOSS_REDUCTION_SPEC};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "of any shape"},
    {.name = "target", .doc = "of x's shape"},
    {.name = "weight",
     .doc = "of each loss, broadcast to x's shape",
     .flags = XOP_OPERAND_OPTIONAL},
    {.name = "pos_weight",
     .doc = "of positive targets, broadcast to x's shape",
     .flags = XOP_OPERAND_OPTIONAL},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "the loss, a scalar, or of x's shape where reduction is \"none\""},
};
#define GRAD_Y                                                                                     \
    { .name = "grad_y", .doc = "gradient of y, of y's shape" }
static const struct xop_operand mse_backward_in[] = {
    {.name = "x", .doc = "the forward's"},
    {.name = "target", .doc = "the forward's"},
    GRAD_Y,
};
static const struct xop_operand bce_backward_in[] = {
    {.name = "x", .doc = "the forward's"},
    {.name = "target", .doc = "the forward's"},
    {.name = "weight", .doc = "the forward's", .flags = XOP_OPERAND_OPTIONAL},
    {.name = "pos_weight", .doc = "the forward's", .flags = XOP_OPERAND_OPTIONAL},
    GRAD_Y,
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
    {.name = "grad_target", .doc = "gradient of target, of x's shape"},
};

static enum xop_status mse_forward(const struct xop_call *call, struct xop_plan *plan,
                                   struct xop_error *error) {
    return forward_infer(LOSS_MSE, call, plan, error);
}
static enum xop_status mse_backward(const struct xop_call *call, struct xop_plan *plan,
                                    struct xop_error *error) {
    return backward_infer(LOSS_MSE, call, plan, error);
}
static enum xop_status bce_forward(const struct xop_call *call, struct xop_plan *plan,
                                   struct xop_error *error) {
    return forward_infer(LOSS_BCE, call, plan, error);
}
static enum xop_status bce_backward(const struct xop_call *call, struct xop_plan *plan,
                                    struct xop_error *error) {
    return backward_infer(LOSS_BCE, call, plan, error);
}

#define POINTWISE(its_name, id, its_nin)                                                           \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = its_name, .doc = id##_doc, .dtypes = XOP_FLOATS,                \
        .attrs = attrs, .nattrs = 1, .pass = {                                                     \
            {.in = forward_in,                                                                     \
             .out = forward_out,                                                                   \
             .nin = (its_nin),                                                                     \
             .nout = 1,                                                                            \
             .infer = id##_forward,                                                                \
             .index_operand = -1},                                                                 \
            {.in = id##_backward_in,                                                               \
             .out = backward_out,                                                                  \
             .nin = (its_nin) + 1,                                                                 \
             .nout = 2,                                                                            \
             .infer = id##_backward,                                                               \
             .index_operand = -1}                                                                  \
        }                                                                                          \
    }

const struct xop_op mse_loss_declaration = POINTWISE("mse_loss", mse, 2);
const struct xop_op binary_cross_entropy_with_logits_declaration =
    POINTWISE("binary_cross_entropy_with_logits", bce, 4);
