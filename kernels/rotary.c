#include "kernels/rotary.h"

#include "kernels/shape.h"
#include <xop/check.h>

static const char doc[] =
    "`rotary_embedding` rotates pairs of elements by the angle of their position, as ONNX's\n"
    "`RotaryEmbedding` of cos and sin that belong to the positions in order.\n"
    "\n"
    "    y[i] = x[i] cos[i] - x[j] sin[i]\n"
    "    y[j] = x[i] sin[i] + x[j] cos[i]\n"
    "\n"
    "where `x` is (..., S, D), S positions of D elements, and `cos` and `sin` are (S, R / 2), or\n"
    "(N, S, R / 2) where the N samples of x, its first dimension, have angles of their own. R is\n"
    "at most D; what is behind it is copied. Element i has j = i + R / 2 for its partner, or, "
    "with\n"
    "`interleaved`, element 2i has 2i + 1. Rows of any angles will do: for base b they are\n"
    "position b^(-2i / R). All have the same dtype.\n"
    "\n"
    "The gradient of x is grad_y rotated back. cos and sin have none. f16 and bf16 are computed\n"
    "in f32 at least and a result is rounded once.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| no elements | all is empty |\n"
    "| NaN or an infinity | as by the formula, in both elements of the pair |\n";

enum { INTERLEAVED = 0 };

void rotary_measure(enum xop_pass pass, const struct xop_call *call, struct rotary_plan *plan) {
    const struct xop_tensor *x = &call->in[pass == XOP_FORWARD ? ROTARY_X : ROTARY_GRAD_Y];
    const struct xop_tensor *cosine =
        &call->in[pass == XOP_FORWARD ? ROTARY_COS : ROTARY_BACKWARD_COS];
    int64_t n = xop_elements(x);

    *plan = (struct rotary_plan){.width = x->shape[x->rank - 1],
                                 .half = cosine->shape[cosine->rank - 1],
                                 .positions = x->shape[x->rank - 2],
                                 .interleaved = call->attrs[INTERLEAVED].value.i != 0};
    if (n == 0)
        return;
    plan->rows = plan->rows_of_sample = n / plan->width;
    if (cosine->rank == 3) {
        plan->rows_of_sample /= x->shape[0];
        plan->angles_of_sample = plan->positions * plan->half;
    }
}

static enum xop_status check(const struct xop_call *call, const char *x_name, uint32_t x_index,
                             uint32_t cosine, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[x_index], *cos = &call->in[cosine];
    char x_text[SHAPE_TEXT], cos_text[SHAPE_TEXT];
    enum xop_status status = xop_check_rank(x_name, x, 2, XOP_MAX_RANK, error);
    bool fits;

    if (status == XOP_OK)
        status = xop_check_rank("cos", cos, 2, 3, error);
    if (status == XOP_OK)
        status = xop_check_same("sin", &call->in[cosine + 1], "cos", cos, error);
    if (status == XOP_OK)
        status = xop_check_dtypes(x_name, x, "cos", cos, error);
    if (status != XOP_OK)
        return status;
    fits = cos->shape[cos->rank - 2] == x->shape[x->rank - 2] &&
           cos->shape[cos->rank - 1] <= x->shape[x->rank - 1] / 2;
    if (cos->rank == 3)
        fits = fits && x->rank > 2 && cos->shape[0] == x->shape[0];
    if (fits)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "cos has shape %s, but %s, of shape %s, needs (S, R / 2) or (N, S, R / 2) of "
                    "its first dimension N, its last but one S and R up to its last",
                    shape_format(cos, cos_text), x_name, shape_format(x, x_text));
}

static enum xop_status plan_of(const struct xop_call *call, uint32_t x, struct xop_plan *plan) {
    shape_copy(&plan->out[0], &call->in[x]);
    plan->read_once = 1u << x;
    plan->write_once = 1;
    for (uint32_t i = 0; i < 3; i++)
        plan->bytes += xop_bytes(&call->in[i]);
    plan->bytes += xop_bytes(&plan->out[0]);
    plan->flops = 3 * (uint64_t)xop_elements(&plan->out[0]);
    return XOP_OK;
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    enum xop_status status = check(call, "x", ROTARY_X, ROTARY_COS, error);
    return status == XOP_OK ? plan_of(call, ROTARY_X, plan) : status;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    enum xop_status status = check(call, "grad_y", ROTARY_GRAD_Y, ROTARY_BACKWARD_COS, error);
    return status == XOP_OK ? plan_of(call, ROTARY_GRAD_Y, plan) : status;
}

static const struct xop_attr_spec attrs[] = {
    {.name = "interleaved",
     .doc = "whether the elements of a pair are neighbours",
     .type = XOP_ATTR_BOOL,
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1}},
};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "of shape (..., S, D)"},
    {.name = "cos", .doc = "of the angles, of shape (S, R / 2) or (N, S, R / 2)"},
    {.name = "sin", .doc = "of the angles, of cos's shape"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of x's shape", .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand backward_in[] = {
    {.name = "cos", .doc = "the forward's cos"},
    {.name = "sin", .doc = "the forward's sin"},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
};

const struct xop_op rotary_embedding_declaration = {
    .abi = XOP_OP_ABI,
    .name = "rotary_embedding",
    .doc = doc,
    .dtypes = XOP_FLOATS,
    .attrs = attrs,
    .nattrs = 1,
    .pass = {{.in = forward_in,
              .out = forward_out,
              .nin = 3,
              .nout = 1,
              .infer = forward_infer,
              .index_operand = -1},
             {.in = backward_in,
              .out = backward_out,
              .nin = 3,
              .nout = 1,
              .infer = backward_infer,
              .index_operand = -1}},
};
