#include "kernels/optimizer.h"

#include <math.h>

#include "kernels/shape.h"

#define IN_PLACE_DOC                                                                               \
    "Each output may take the place of the input of its name: one request then updates\n"          \
    "resident tensors where they lie. Such a request is done once or not at all: where it is\n"    \
    "not certain, because a worker ended while it ran, it answers DATA_LOSS, and so do the\n"      \
    "tensors that it was writing until they are written again.\n"                                  \
    "\n"

#define ROUNDING_DOC                                                                               \
    "All tensors have the same dtype and shape. f16 and bf16 are computed in f32, from a\n"        \
    "step's first operation to its last, and each result is rounded once. The numbers that\n"      \
    "attributes give are computed in f64, as in PyTorch. A step is the same bits on the CPU\n"     \
    "and on CUDA.\n"

static const char sgd_doc[] =
    "`sgd` is a step of stochastic gradient descent, as `torch.optim.SGD`.\n"
    "\n"
    "    g = grad, or -grad with maximize\n"
    "    g = g + weight_decay param              where weight_decay is not 0\n"
    "    where momentum is not 0:\n"
    "        momentum_buffer = momentum momentum_buffer + (1 - dampening) g\n"
    "        g = g + momentum momentum_buffer    with nesterov\n"
    "        g = momentum_buffer                 without\n"
    "    param = param - lr g\n"
    "\n"
    "On the first step there is no `momentum_buffer` yet: it is left out, and becomes g,\n"
    "without dampening. Without momentum there is none at all, and that output is of\n"
    "shape (0,).\n"
    "\n" IN_PLACE_DOC ROUNDING_DOC;

#define ADAM_DOC                                                                                   \
    "    exp_avg = beta1 exp_avg + (1 - beta1) g\n"                                                \
    "    exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g^2\n"                                        \
    "    v = exp_avg_sq\n"                                                                         \
    "    v = max_exp_avg_sq = max(max_exp_avg_sq, v)    with amsgrad\n"                            \
    "    param = param - lr / (1 - beta1^step)\n"                                                  \
    "        exp_avg / (sqrt(v) / sqrt(1 - beta2^step) + eps)\n"                                   \
    "\n"                                                                                           \
    "`step` counts from 1. It is an attribute and no tensor: what it decides is computed once\n"   \
    "for all elements, a request says all by itself which step it is, and the steps of a\n"        \
    "model's parameters, which have it in common, share launches. On step 1 the\n"                 \
    "averages may be left out, and are then 0; later that is an error. Without `amsgrad`\n"        \
    "there is no `max_exp_avg_sq`, and that output is of shape (0,).\n"                            \
    "\n"

static const char adam_doc[] =
    "`adam` is a step of Adam, as `torch.optim.Adam`.\n"
    "\n"
    "    g = grad, or -grad with maximize\n"
    "    g = g + weight_decay param                     where weight_decay is not 0\n" ADAM_DOC
        IN_PLACE_DOC ROUNDING_DOC;

static const char adamw_doc[] =
    "`adamw` is a step of Adam with decoupled weight decay, as `torch.optim.AdamW`.\n"
    "\n"
    "    g = grad, or -grad with maximize\n"
    "    param = param (1 - lr weight_decay)\n" ADAM_DOC IN_PLACE_DOC ROUNDING_DOC;

enum sgd_attribute { SGD_LR, SGD_MOMENTUM, SGD_DAMPENING, SGD_DECAY, SGD_NESTEROV, SGD_MAXIMIZE };
enum adam_attribute {
    ADAM_STEP,
    ADAM_LR,
    ADAM_BETAS,
    ADAM_EPS,
    ADAM_DECAY,
    ADAM_AMSGRAD,
    ADAM_MAXIMIZE
};
enum { SGD_GRAD = 2, ADAM_GRAD = 4 }; /* the inputs that come last */

/* ---- A call's coefficients ---- */

static void sgd_numbers(const struct xop_call *call, struct optimizer_step *step) {
    const struct xop_attr *attrs = call->attrs;
    step->number = (struct optimizer_numbers){.lr = attrs[SGD_LR].value.f,
                                              .weight_decay = attrs[SGD_DECAY].value.f,
                                              .momentum = attrs[SGD_MOMENTUM].value.f,
                                              .undamped = 1 - attrs[SGD_DAMPENING].value.f};
    step->flags = (attrs[SGD_MAXIMIZE].value.i ? OPTIMIZER_MAXIMIZE : 0) |
                  (attrs[SGD_NESTEROV].value.i ? OPTIMIZER_NESTEROV : 0) |
                  (call->in[OPTIMIZER_FIRST].dtype == XOP_DTYPE_NONE ? OPTIMIZER_BEGINS : 0);
}

static void adam_numbers(const struct xop_call *call, struct optimizer_step *step) {
    const struct xop_attr *attrs = call->attrs;
    double lr = attrs[ADAM_LR].value.f, decay = attrs[ADAM_DECAY].value.f;
    double beta1 = attrs[ADAM_BETAS].value.floats[0], beta2 = attrs[ADAM_BETAS].value.floats[1];
    double count = (double)attrs[ADAM_STEP].value.i;
    step->number = (struct optimizer_numbers){.lr = lr,
                                              .weight_decay = decay,
                                              .beta1 = beta1,
                                              .beta2 = beta2,
                                              .eps = attrs[ADAM_EPS].value.f,
                                              .rest1 = 1 - beta1,
                                              .rest2 = 1 - beta2,
                                              .kept = 1 - lr * decay,
                                              .step_size = lr / (1 - pow(beta1, count)),
                                              .correction_root = sqrt(1 - pow(beta2, count))};
    step->flags = (attrs[ADAM_MAXIMIZE].value.i ? OPTIMIZER_MAXIMIZE : 0) |
                  (attrs[ADAM_AMSGRAD].value.i ? OPTIMIZER_AMSGRAD : 0);
}

void optimizer_step_of(enum optimizer_kind kind, const struct xop_call *call,
                       struct optimizer_step *step) {
    uint32_t states = kind == OPTIMIZER_SGD ? SGD_GRAD : ADAM_GRAD;

    *step = (struct optimizer_step){.kind = kind};
    if (kind == OPTIMIZER_SGD)
        sgd_numbers(call, step);
    else
        adam_numbers(call, step);
    for (uint32_t i = 0; i < states; i++) {
        step->in[i] = call->in[i].data;
        step->out[i] = call->out[i].data;
    }
    step->in[OPTIMIZER_GRAD] = call->in[states].data;
    /* Of states that are not used there is an empty output, which may have an address. */
    if (kind == OPTIMIZER_SGD && step->number.momentum == 0)
        step->out[OPTIMIZER_FIRST] = NULL;
    if (!(step->flags & OPTIMIZER_AMSGRAD))
        step->out[OPTIMIZER_LARGEST] = NULL;
    if (!xop_tensor_elements(&call->in[OPTIMIZER_PARAM], &step->n))
        step->n = 0; /* infer refuses it */
}

/* ---- Checks ---- */

/* A number that has to be in [low, high), or from low on where high is infinite. NaN is not. */
static enum xop_status in_range(const char *name, double value, double low, double high,
                                struct xop_error *error) {
    if (value >= low && value < high)
        return XOP_OK;
    if (isinf(high))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s is %g; it must be a finite number, %g or above", name, value, low);
    return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is %g; it must be at least %g and below %g",
                    name, value, low, high);
}

/* An input has to be like param, all but its elements. */
static enum xop_status check_like(const char *name, const struct xop_tensor *tensor,
                                  const struct xop_tensor *param, struct xop_error *error) {
    char came[SHAPE_TEXT], wanted[SHAPE_TEXT];
    if (tensor->dtype != param->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "param is %s but %s is %s; they must be the "
                        "same",
                        xop_dtype_name(param->dtype), name, xop_dtype_name(tensor->dtype));
    if (!shape_equal(tensor, param))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "param has shape %s but %s %s; they must be the same",
                        shape_format(param, wanted), name, shape_format(tensor, came));
    return XOP_OK;
}

/* A state is like param where it is used and given. `missing` says why it must be given, or is
 * NULL. */
static enum xop_status check_state(const struct xop_op *op, const struct xop_call *call, uint32_t i,
                                   bool used, const char *unused, const char *missing,
                                   struct xop_error *error) {
    const char *name = op->pass[XOP_FORWARD].in[i].name;
    const struct xop_tensor *state = &call->in[i];
    bool given = state->dtype != XOP_DTYPE_NONE;

    if (!used && given)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is given, but %s", name, unused);
    if (used && !given && missing)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is missing, but %s", name, missing);
    return given ? check_like(name, state, &call->in[OPTIMIZER_PARAM], error) : XOP_OK;
}

/* The outputs, each like param where `used` has its bit, and what the step takes. */
static void make_plan(const struct xop_call *call, uint32_t states, uint32_t used,
                      struct xop_plan *plan) {
    const struct xop_tensor *param = &call->in[OPTIMIZER_PARAM];
    uint64_t bytes = 0;
    int64_t n = 0;

    xop_tensor_bytes(param, &bytes);
    xop_tensor_elements(param, &n);
    for (uint32_t i = 0; i < states; i++) {
        if (used >> i & 1) {
            shape_copy(&plan->out[i], param);
            plan->bytes += bytes;
        } else {
            plan->out[i] = (struct xop_tensor){param->dtype, 1, {0}, NULL};
        }
    }
    for (uint32_t i = 0; i <= states; i++)
        if (call->in[i].dtype != XOP_DTYPE_NONE)
            plan->bytes += bytes;
    plan->flops = (states == SGD_GRAD ? 6u : 16u) * (uint64_t)n;
    plan->read_once = (2u << states) - 1;
    plan->write_once = (1u << states) - 1;
}

static enum xop_status check_sgd(const struct xop_call *call, struct xop_error *error) {
    const struct xop_attr *attrs = call->attrs;
    double momentum = attrs[SGD_MOMENTUM].value.f;
    enum xop_status status = in_range("lr", attrs[SGD_LR].value.f, 0, INFINITY, error);

    if (status == XOP_OK)
        status = in_range("momentum", momentum, 0, INFINITY, error);
    if (status == XOP_OK)
        status = in_range("weight_decay", attrs[SGD_DECAY].value.f, 0, INFINITY, error);
    if (status == XOP_OK && attrs[SGD_NESTEROV].value.i &&
        (momentum <= 0 || attrs[SGD_DAMPENING].value.f != 0))
        status = xop_fail(error, XOP_INVALID_ARGUMENT,
                          "nesterov requires a momentum above 0 and no dampening; momentum is %g "
                          "and dampening %g",
                          momentum, attrs[SGD_DAMPENING].value.f);
    if (status == XOP_OK)
        status = check_state(&sgd_declaration, call, OPTIMIZER_FIRST, momentum != 0,
                             "momentum is 0: then there is none", NULL, error);
    if (status == XOP_OK)
        status = check_like("grad", &call->in[SGD_GRAD], &call->in[OPTIMIZER_PARAM], error);
    return status;
}

static enum xop_status sgd_infer(const struct xop_call *call, struct xop_plan *plan,
                                 struct xop_error *error) {
    enum xop_status status = check_sgd(call, error);
    if (status == XOP_OK)
        make_plan(call, SGD_GRAD, call->attrs[SGD_MOMENTUM].value.f != 0 ? 3 : 1, plan);
    return status;
}

static enum xop_status check_adam_numbers(const struct xop_call *call, struct xop_error *error) {
    const struct xop_attr *attrs = call->attrs, *betas = &attrs[ADAM_BETAS];
    enum xop_status status = XOP_OK;

    if (attrs[ADAM_STEP].value.i < 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "step is %lld; the first step is 1",
                        (long long)attrs[ADAM_STEP].value.i);
    if (betas->count != 2)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "betas has %u numbers; it must have two",
                        betas->count);
    status = in_range("lr", attrs[ADAM_LR].value.f, 0, INFINITY, error);
    if (status == XOP_OK)
        status = in_range("betas[0]", betas->value.floats[0], 0, 1, error);
    if (status == XOP_OK)
        status = in_range("betas[1]", betas->value.floats[1], 0, 1, error);
    if (status == XOP_OK)
        status = in_range("eps", attrs[ADAM_EPS].value.f, 0, INFINITY, error);
    if (status == XOP_OK)
        status = in_range("weight_decay", attrs[ADAM_DECAY].value.f, 0, INFINITY, error);
    return status;
}

static enum xop_status adam_infer(const struct xop_call *call, struct xop_plan *plan,
                                  struct xop_error *error) {
    enum xop_status status = check_adam_numbers(call, error);
    char missing[96];

    if (status != XOP_OK)
        return status;
    snprintf(missing, sizeof missing, "step is %lld: it can be left out on step 1 alone",
             (long long)call->attrs[ADAM_STEP].value.i);
    for (uint32_t i = OPTIMIZER_FIRST; i < OPTIMIZER_STATES && status == XOP_OK; i++)
        status = check_state(&adam_declaration, call, i,
                             i != OPTIMIZER_LARGEST || call->attrs[ADAM_AMSGRAD].value.i,
                             "amsgrad is false: then there is none",
                             call->attrs[ADAM_STEP].value.i > 1 ? missing : NULL, error);
    if (status == XOP_OK)
        status = check_like("grad", &call->in[ADAM_GRAD], &call->in[OPTIMIZER_PARAM], error);
    if (status == XOP_OK)
        make_plan(call, OPTIMIZER_STATES, call->attrs[ADAM_AMSGRAD].value.i ? 15 : 7, plan);
    return status;
}

/* ---- Declarations ---- */

#define NUMBER(its_name, its_doc, its_default)                                                     \
    {                                                                                              \
        .name = its_name, .doc = its_doc, .type = XOP_ATTR_FLOAT, .fallback = {                    \
            .type = XOP_ATTR_FLOAT,                                                                \
            .count = 1,                                                                            \
            .value.f = its_default                                                                 \
        }                                                                                          \
    }
#define SWITCH(its_name, its_doc)                                                                  \
    {                                                                                              \
        .name = its_name, .doc = its_doc, .type = XOP_ATTR_BOOL, .fallback = {                     \
            .type = XOP_ATTR_BOOL,                                                                 \
            .count = 1,                                                                            \
            .value.i = 0                                                                           \
        }                                                                                          \
    }

static const struct xop_attr_spec sgd_attrs[] = {
    NUMBER("lr", "the learning rate", 1e-3),
    NUMBER("momentum", "how much of momentum_buffer stays", 0),
    NUMBER("dampening", "how much of the gradient does not come to it", 0),
    NUMBER("weight_decay", "how much of param is added to the gradient", 0),
    SWITCH("nesterov", "whether the momentum is Nesterov's"),
    SWITCH("maximize", "whether param goes up the gradient"),
};

static const double betas[] = {0.9, 0.999};
#define ADAM_ATTRS(decay, decay_doc)                                                               \
    {.name = "step",                                                                               \
     .doc = "the number of this step, from 1",                                                     \
     .type = XOP_ATTR_INT,                                                                         \
     .required = true},                                                                            \
        NUMBER("lr", "the learning rate", 1e-3),                                                   \
        {.name = "betas",                                                                          \
         .doc = "how much of exp_avg and of exp_avg_sq stays",                                     \
         .type = XOP_ATTR_FLOATS,                                                                  \
         .fallback = {.type = XOP_ATTR_FLOATS, .count = 2, .value.floats = betas}},                \
        NUMBER("eps", "what is added to the root", 1e-8),                                          \
        NUMBER("weight_decay", decay_doc, decay),                                                  \
        SWITCH("amsgrad", "whether the largest exp_avg_sq that ever was is taken"),                \
        SWITCH("maximize", "whether param goes up the gradient")
static const struct xop_attr_spec adam_attrs[] = {
    ADAM_ATTRS(0, "how much of param is added to the gradient")};
static const struct xop_attr_spec adamw_attrs[] = {
    ADAM_ATTRS(1e-2, "how much of param, times lr, is taken from it")};

/* An output has the index of the input whose place it may take. */
static const struct xop_operand sgd_in[] = {
    {.name = "param", .doc = "what is optimised, of any shape"},
    {.name = "momentum_buffer",
     .doc = "of param's shape; left out on the first step, and without momentum",
     .flags = XOP_OPERAND_OPTIONAL},
    {.name = "grad", .doc = "param's gradient, of its shape"},
};
static const struct xop_operand sgd_out[] = {
    {.name = "param", .doc = "after the step", .flags = XOP_OPERAND_IN_PLACE},
    {.name = "momentum_buffer",
     .doc = "after the step; of shape (0,) without momentum",
     .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand adam_in[] = {
    {.name = "param", .doc = "what is optimised, of any shape"},
    {.name = "exp_avg",
     .doc = "of param's shape; may be left out on step 1",
     .flags = XOP_OPERAND_OPTIONAL},
    {.name = "exp_avg_sq",
     .doc = "of param's shape; may be left out on step 1",
     .flags = XOP_OPERAND_OPTIONAL},
    {.name = "max_exp_avg_sq",
     .doc = "of param's shape, with amsgrad; may be left out on step 1",
     .flags = XOP_OPERAND_OPTIONAL},
    {.name = "grad", .doc = "param's gradient, of its shape"},
};
static const struct xop_operand adam_out[] = {
    {.name = "param", .doc = "after the step", .flags = XOP_OPERAND_IN_PLACE},
    {.name = "exp_avg", .doc = "after the step", .flags = XOP_OPERAND_IN_PLACE},
    {.name = "exp_avg_sq", .doc = "after the step", .flags = XOP_OPERAND_IN_PLACE},
    {.name = "max_exp_avg_sq",
     .doc = "after the step; of shape (0,) without amsgrad",
     .flags = XOP_OPERAND_IN_PLACE},
};

#define OPTIMIZER(its_name, its_doc, its_attrs, its_in, its_out, its_infer)                        \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = its_name, .doc = its_doc, .dtypes = XOP_FLOATS,                 \
        .attrs = its_attrs, .nattrs = sizeof(its_attrs) / sizeof *(its_attrs), .pass = {           \
            {.in = its_in,                                                                         \
             .out = its_out,                                                                       \
             .nin = sizeof(its_in) / sizeof *(its_in),                                             \
             .nout = sizeof(its_out) / sizeof *(its_out),                                          \
             .infer = its_infer,                                                                   \
             .index_operand = -1},                                                                 \
            {.index_operand = -1}                                                                  \
        }                                                                                          \
    }

const struct xop_op sgd_declaration =
    OPTIMIZER("sgd", sgd_doc, sgd_attrs, sgd_in, sgd_out, sgd_infer);
const struct xop_op adam_declaration =
    OPTIMIZER("adam", adam_doc, adam_attrs, adam_in, adam_out, adam_infer);
const struct xop_op adamw_declaration =
    OPTIMIZER("adamw", adamw_doc, adamw_attrs, adam_in, adam_out, adam_infer);
