#include "kernels/binary.h"

#include "kernels/binary_doc.h"
#include "kernels/size.h"

static const uint32_t flops[] = {
#define BINARY(name, saved, its_flops, ...) [BINARY_##name] = (its_flops),
#include "kernels/binary.def"
};

#define SAVES_BOTH true
#define SAVES_NONE false
static const bool saves[] = {
#define BINARY(name, saved, ...) [BINARY_##name] = SAVES_##saved,
#include "kernels/binary.def"
};

bool binary_saves(enum binary_kind op) { return saves[op]; }

static enum xop_status infer(enum binary_kind op, const struct xop_call *call,
                             struct xop_plan *plan, struct xop_error *error) {
    struct shape_map map;
    enum xop_status status = broadcast_infer(call, plan, &map, error);

    if (status != XOP_OK)
        return status;
    plan->flops = flops[op] * (uint64_t)map.elements;
    plan->group = map.ndims <= 2 ? BINARY_TWO : BINARY_ANY;
    return XOP_OK;
}

/* A gradient that is a sum, and one that is none, read grad_y in a pass each; what both need of x
 * and b is then read twice, too. */
static enum xop_status infer_backward(enum binary_kind op, const struct xop_call *call,
                                      struct xop_plan *plan, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    struct broadcast_backward back;
    uint64_t operands = broadcast_bytes(x) + broadcast_bytes(b);
    uint32_t passes;
    enum xop_status status = broadcast_infer_backward(call, plan, &back, error);

    if (status != XOP_OK)
        return status;
    passes = back.x.form == SHAPE_FULL && back.b.form == SHAPE_FULL ? 1 : 2;
    if (passes == 1)
        plan->read_once =
            1u << BROADCAST_GRAD_Y | (saves[op] ? 1u << BROADCAST_X | 1u << BROADCAST_B : 0);
    plan->bytes = passes * broadcast_bytes(grad_y) + (saves[op] ? passes + 1 : 1) * operands;
    plan->flops = (2 * flops[op] + passes) * broadcast_elements(grad_y);
    return XOP_OK;
}

void binary_terms_plan(enum binary_kind op, const struct xop_tensor *grad_y,
                       const struct broadcast_backward *back, struct binary_terms *terms) {
    uint64_t size = grad_y->dtype == XOP_F64 ? sizeof(double) : sizeof(float);
    uint64_t bytes = size_aligned(broadcast_elements(grad_y) * size);

    *terms = (struct binary_terms){.workspace_bytes = back->workspace_bytes};
    if (saves[op] && back->x.form != SHAPE_FULL) {
        terms->x_offset = terms->workspace_bytes;
        terms->workspace_bytes += bytes;
    }
    if (saves[op] && back->b.form != SHAPE_FULL) {
        terms->b_offset = terms->workspace_bytes;
        terms->workspace_bytes += bytes;
    }
}

/* Both gradients are made in one pass, which leaves the terms of sums. */
static enum xop_status infer_terms(enum binary_kind op, const struct xop_call *call,
                                   struct xop_plan *plan, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    struct broadcast_backward back;
    struct binary_terms terms;
    enum xop_status status = infer_backward(op, call, plan, error);

    if (status != XOP_OK || !saves[op])
        return status;
    broadcast_backward_plan(x, b, grad_y, &back);
    binary_terms_plan(op, grad_y, &back, &terms);
    plan->read_once = 1u << BROADCAST_GRAD_Y | (back.x.form == SHAPE_FULL ? 1u << BROADCAST_X : 0) |
                      (back.b.form == SHAPE_FULL ? 1u << BROADCAST_B : 0);
    plan->bytes = broadcast_bytes(grad_y) + 2 * (broadcast_bytes(x) + broadcast_bytes(b)) +
                  2 * (terms.workspace_bytes - back.workspace_bytes);
    plan->workspace_bytes = terms.workspace_bytes;
    return XOP_OK;
}

#define BINARY(name, ...)                                                                          \
    static enum xop_status name##_forward(const struct xop_call *call, struct xop_plan *plan,      \
                                          struct xop_error *error) {                               \
        return infer(BINARY_##name, call, plan, error);                                            \
    }                                                                                              \
    static enum xop_status name##_backward(const struct xop_call *call, struct xop_plan *plan,     \
                                           struct xop_error *error) {                              \
        return infer_backward(BINARY_##name, call, plan, error);                                   \
    }                                                                                              \
    static enum xop_status name##_terms(const struct xop_call *call, struct xop_plan *plan,        \
                                        struct xop_error *error) {                                 \
        return infer_terms(BINARY_##name, call, plan, error);                                      \
    }
#include "kernels/binary.def"

#define GRAD_Y                                                                                     \
    { .name = "grad_y", .doc = "gradient of y, of y's shape" }

static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "the first argument, of any shape"},
    {.name = "b", .doc = "the second argument, of a shape that broadcasts against x"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y",
     .doc = "the result, of the shape that x and b broadcast to",
     .flags = XOP_OPERAND_IN_PLACE},
};
static const struct xop_operand backward_in_BOTH[] = {
    {.name = "x", .doc = "the forward's x"},
    {.name = "b", .doc = "the forward's b"},
    GRAD_Y,
};
static const struct xop_operand backward_in_NONE[] = {
    {.name = "x", .doc = "the forward's x, its shape only", .flags = XOP_OPERAND_SHAPE_ONLY},
    {.name = "b", .doc = "the forward's b, its shape only", .flags = XOP_OPERAND_SHAPE_ONLY},
    GRAD_Y,
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape", .flags = XOP_OPERAND_IN_PLACE},
    {.name = "grad_b", .doc = "gradient of b, of b's shape"},
};

#define DECLARATION(its_name, saved, backward_infer)                                               \
    [BINARY_##its_name] = {.abi = XOP_OP_ABI,                                                      \
                           .name = #its_name,                                                      \
                           .doc = its_name##_doc,                                                  \
                           .dtypes = XOP_FLOATS,                                                   \
                           .pass = {{.in = forward_in,                                             \
                                     .out = forward_out,                                           \
                                     .nin = 2,                                                     \
                                     .nout = 1,                                                    \
                                     .infer = its_name##_forward,                                  \
                                     .index_operand = -1},                                         \
                                    {.in = backward_in_##saved,                                    \
                                     .out = backward_out,                                          \
                                     .nin = 3,                                                     \
                                     .nout = 2,                                                    \
                                     .infer = backward_infer,                                      \
                                     .index_operand = -1}}},

const struct xop_op binary_declarations[BINARY_OPS] = {
#define BINARY(name, saved, ...) DECLARATION(name, saved, name##_backward)
#include "kernels/binary.def"
};
const struct xop_op binary_terms_declarations[BINARY_OPS] = {
#define BINARY(name, saved, ...) DECLARATION(name, saved, name##_terms)
#include "kernels/binary.def"
};
