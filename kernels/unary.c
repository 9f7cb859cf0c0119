#include "kernels/unary.h"

#include <math.h>
#include <string.h>

#include "kernels/shape.h"
#include "kernels/unary_doc.h"

/* ---- Attributes, with PyTorch's names and defaults ---- */

#define NUMBER(its_name, its_fallback, its_doc)                                                    \
    {                                                                                              \
        .name = its_name, .doc = its_doc, .type = XOP_ATTR_FLOAT, .fallback = {                    \
            .type = XOP_ATTR_FLOAT,                                                                \
            .count = 1,                                                                            \
            .value.f = its_fallback                                                                \
        }                                                                                          \
    }
#define TEXT(its_name, its_fallback, its_doc)                                                      \
    {                                                                                              \
        .name = its_name, .doc = its_doc, .type = XOP_ATTR_STRING, .fallback = {                   \
            .type = XOP_ATTR_STRING,                                                               \
            .count = sizeof its_fallback - 1,                                                      \
            .value.string = its_fallback                                                           \
        }                                                                                          \
    }

/* Each ends in an empty one, so that there may be none. */
static const struct xop_attr_spec none_attrs[] = {{.name = NULL}};
static const struct xop_attr_spec leaky_relu_attrs[] = {
    NUMBER("negative_slope", 0.01, "what x below 0 is multiplied by"),
    {.name = NULL},
};
static const struct xop_attr_spec elu_attrs[] = {
    NUMBER("alpha", 1, "the result at -inf, with its sign turned"),
    {.name = NULL},
};
static const struct xop_attr_spec gelu_attrs[] = {
    TEXT("approximate", "none", "\"none\" by the error function, \"tanh\" by a tanh"),
    {.name = NULL},
};
static const struct xop_attr_spec softplus_attrs[] = {
    NUMBER("beta", 1, "how sharp the bend is"),
    NUMBER("threshold", 20, "above it, beta * x being compared, y is x"),
    {.name = NULL},
};
static const struct xop_attr_spec clamp_attrs[] = {
    NUMBER("min", -INFINITY, "what is below becomes this"),
    NUMBER("max", INFINITY, "what is above becomes this, also where it is under min"),
    {.name = NULL},
};

enum unary_kind unary_parameters(enum unary_kind op, const struct xop_attr *attrs,
                                 double p[UNARY_PARAMETERS]) {
    uint32_t n = 0;

    p[0] = p[1] = 0;
    for (uint32_t i = 0; i < unary_declarations[op].nattrs; i++)
        if (attrs[i].type == XOP_ATTR_FLOAT)
            p[n++] = attrs[i].value.f;
    if (op == UNARY_gelu && strcmp(attrs[0].value.string, "tanh") == 0)
        return UNARY_gelu_tanh;
    return op;
}

static enum xop_status check_attrs(enum unary_kind op, const struct xop_attr *attrs,
                                   struct xop_error *error) {
    const char *form = op == UNARY_gelu ? attrs[0].value.string : "none";

    if (strcmp(form, "none") != 0 && strcmp(form, "tanh") != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "approximate is \"%.60s\"; it must be \"none\" or \"tanh\"", form);
    for (uint32_t i = 0; i < unary_declarations[op].nattrs; i++)
        if (attrs[i].type == XOP_ATTR_FLOAT && isnan(attrs[i].value.f))
            return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is NaN; it must be a number",
                            unary_declarations[op].attrs[i].name);
    return XOP_OK;
}

/* ---- Shapes ---- */

static const uint32_t flops[] = {
#define UNARY(name, saved, attributes, its_flops, ...) [UNARY_##name] = (its_flops),
#include "kernels/unary.def"
};

static enum xop_status infer(enum unary_kind op, enum xop_pass pass, const struct xop_call *call,
                             struct xop_plan *plan, struct xop_error *error) {
    const struct xop_signature *signature = &unary_declarations[op].pass[pass];
    const struct xop_tensor *a = &call->in[0], *b = &call->in[signature->nin - 1];
    char a_text[SHAPE_TEXT], b_text[SHAPE_TEXT];
    uint64_t bytes = 0;
    int64_t n = 0;

    if (a->dtype != b->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is %s but %s is %s; they must be the same",
                        signature->in[0].name, xop_dtype_name(a->dtype), signature->in[1].name,
                        xop_dtype_name(b->dtype));
    if (!shape_equal(a, b))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s has shape %s but %s has shape %s; they must be the same",
                        signature->in[0].name, shape_format(a, a_text), signature->in[1].name,
                        shape_format(b, b_text));
    shape_copy(&plan->out[0], a);
    if (!xop_tensor_elements(a, &n) || !xop_tensor_bytes(a, &bytes))
        n = 0;
    plan->read_once = (1u << signature->nin) - 1;
    plan->write_once = 1;
    plan->bytes = (signature->nin + 1) * bytes;
    plan->flops = flops[op] * (uint64_t)n;
    return check_attrs(op, call->attrs, error);
}

#define UNARY(name, ...)                                                                           \
    static enum xop_status name##_forward(const struct xop_call *call, struct xop_plan *plan,      \
                                          struct xop_error *error) {                               \
        return infer(UNARY_##name, XOP_FORWARD, call, plan, error);                                \
    }                                                                                              \
    static enum xop_status name##_backward(const struct xop_call *call, struct xop_plan *plan,     \
                                           struct xop_error *error) {                              \
        return infer(UNARY_##name, XOP_BACKWARD, call, plan, error);                               \
    }
#include "kernels/unary.def"

/* ---- Declarations ---- */

#define GRAD_Y                                                                                     \
    { .name = "grad_y", .doc = "gradient of y, of y's shape" }

static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "the argument, of any shape"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "the result, of x's shape", .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand backward_in_X[] = {
    {.name = "x", .doc = "the forward's argument"},
    GRAD_Y,
};
static const struct xop_operand backward_in_Y[] = {
    {.name = "y", .doc = "the forward's result"},
    GRAD_Y,
};
static const struct xop_operand backward_in_NONE[] = {GRAD_Y};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape", .flags = XOP_OPERAND_IN_PLACE},
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

const struct xop_op unary_declarations[UNARY_OPS] = {
#define UNARY(its_name, saved, attributes, ...)                                                    \
    [UNARY_##its_name] = {.abi = XOP_OP_ABI,                                                       \
                          .name = #its_name,                                                       \
                          .doc = its_name##_doc,                                                   \
                          .dtypes = XOP_FLOATS,                                                    \
                          .attrs = attributes##_attrs,                                             \
                          .nattrs = COUNT(attributes##_attrs) - 1,                                 \
                          .pass = {{.in = forward_in,                                              \
                                    .out = forward_out,                                            \
                                    .nin = 1,                                                      \
                                    .nout = 1,                                                     \
                                    .infer = its_name##_forward,                                   \
                                    .index_operand = -1},                                          \
                                   {.in = backward_in_##saved,                                     \
                                    .out = backward_out,                                           \
                                    .nin = COUNT(backward_in_##saved),                             \
                                    .nout = 1,                                                     \
                                    .infer = its_name##_backward,                                  \
                                    .index_operand = -1}}},
#include "kernels/unary.def"
};
