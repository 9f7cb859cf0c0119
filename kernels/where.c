#include "kernels/where.h"

#include <string.h>

#include "kernels/size.h"
#include <xop/check.h>

static const char doc[] =
    "Elements of x where a condition holds, else of b, as `torch.where` and `numpy.where`.\n"
    "\n"
    "    y = condition ? x : b\n"
    "\n"
    "`condition` is bool. The three broadcast against each other as in NumPy. Elements are moved\n"
    "as they are, NaN and its payload included.\n"
    "\n"
    "Gradients, each summed over the dimensions along which its input was repeated, in an order\n"
    "that the shapes alone fix:\n"
    "\n"
    "    grad_x = condition ? grad_y : 0\n"
    "    grad_b = condition ? 0 : grad_y\n"
    "\n"
    "Backward takes x and b for their shapes only.\n";

/* ---- Shapes ---- */

void where_collapse(const struct xop_tensor *in, const struct xop_tensor *y,
                    struct where_map *map) {
    int64_t step[3] = {1, 1, 1};
    struct where_dim dims[XOP_MAX_RANK]; /* innermost first */
    uint32_t n = 0;

    memset(map, 0, sizeof *map);
    map->elements = xop_elements(y);
    for (uint32_t k = 0; map->elements > 0 && k < y->rank; k++) {
        struct where_dim dim = {.size = y->shape[y->rank - 1 - k]};
        for (int i = 0; i < 3; i++) {
            int64_t size = k < in[i].rank ? in[i].shape[in[i].rank - 1 - k] : 1;
            dim.step[i] = size == 1 ? 0 : step[i];
            step[i] *= size;
        }
        if (dim.size == 1)
            continue;
        bool joins = n > 0;
        for (int i = 0; i < 3 && joins; i++)
            joins = (dim.step[i] == 0) == (dims[n - 1].step[i] == 0);
        if (joins)
            dims[n - 1].size *= dim.size; /* the inner steps stay */
        else
            dims[n++] = dim;
    }
    map->ndims = n;
    for (uint32_t i = 0; i < n; i++)
        map->dim[i] = dims[n - 1 - i];
}

void where_backward_plan(const struct xop_call *call, struct where_backward *plan) {
    const struct xop_tensor *grad_y = &call->in[WHERE_GRAD_Y];
    const uint64_t terms = size_aligned(xop_bytes(grad_y));

    broadcast_backward_plan(&call->in[WHERE_X], &call->in[WHERE_B], grad_y, &plan->sums);
    plan->x_offset = plan->sums.workspace_bytes;
    plan->b_offset = plan->x_offset + (plan->sums.x.form == SHAPE_FULL ? 0 : terms);
    plan->workspace_bytes = plan->b_offset + (plan->sums.b.form == SHAPE_FULL ? 0 : terms);
}

/* ---- Checks ---- */

static enum xop_status broadcast(const struct xop_call *call, struct xop_tensor *y,
                                 struct xop_error *error) {
    const struct xop_tensor *x = &call->in[WHERE_X], *b = &call->in[WHERE_B];
    struct xop_tensor both;
    enum xop_status status = xop_check_dtypes("x", x, "b", b, error);

    if (status == XOP_OK)
        status = shape_broadcast("x", x, "b", b, &both, error);
    if (status == XOP_OK)
        status = shape_broadcast("what x and b broadcast to", &both, "condition",
                                 &call->in[WHERE_CONDITION], y, error);
    return status;
}

static uint32_t full(const struct xop_call *call, uint32_t i, const struct xop_tensor *y) {
    return xop_elements(&call->in[i]) == xop_elements(y) ? 1u << i : 0;
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    struct xop_tensor *y = &plan->out[0];
    enum xop_status status = broadcast(call, y, error);

    if (status != XOP_OK)
        return status;
    for (uint32_t i = WHERE_CONDITION; i <= WHERE_B; i++) {
        plan->read_once |= full(call, i, y);
        plan->bytes += xop_bytes(&call->in[i]);
    }
    plan->write_once = 1;
    plan->bytes += xop_bytes(y);
    plan->flops = (uint64_t)xop_elements(y);
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *grad_y = &call->in[WHERE_GRAD_Y];
    struct where_backward back;
    struct xop_tensor y;
    enum xop_status status = broadcast(call, &y, error);

    if (status == XOP_OK)
        status = xop_check_same("grad_y", grad_y, "the result", &y, error);
    if (status != XOP_OK)
        return status;
    where_backward_plan(call, &back);
    shape_copy(&plan->out[0], &call->in[WHERE_X]);
    shape_copy(&plan->out[1], &call->in[WHERE_B]);
    plan->workspace_bytes = back.workspace_bytes;
    plan->read_once = full(call, WHERE_CONDITION, grad_y) | 1u << WHERE_GRAD_Y;
    plan->write_once = 3;
    plan->bytes = xop_bytes(&call->in[WHERE_CONDITION]) + xop_bytes(grad_y) +
                  xop_bytes(&plan->out[0]) + xop_bytes(&plan->out[1]);
    plan->flops = 2 * (uint64_t)xop_elements(grad_y);
    return XOP_OK;
}

/* ---- Declaration ---- */

#define CONDITION                                                                                  \
    {                                                                                              \
        .name = "condition", .doc = "whether an element is x's, of any shape",                     \
        .flags = XOP_OPERAND_OWN_DTYPE, .dtypes = XOP_DTYPE_BIT(XOP_BOOL)                          \
    }
static const struct xop_operand forward_in[] = {
    CONDITION,
    {.name = "x", .doc = "of any shape that the others broadcast with"},
    {.name = "b", .doc = "of any shape that the others broadcast with"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of the shape that the inputs broadcast to"},
};
static const struct xop_operand backward_in[] = {
    CONDITION,
    {.name = "x", .doc = "the forward's x, its shape only", .flags = XOP_OPERAND_SHAPE_ONLY},
    {.name = "b", .doc = "the forward's b, its shape only", .flags = XOP_OPERAND_SHAPE_ONLY},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
    {.name = "grad_b", .doc = "gradient of b, of b's shape"},
};

const struct xop_op where_declaration = {
    .abi = XOP_OP_ABI,
    .name = "where",
    .doc = doc,
    .dtypes = XOP_FLOATS,
    .pass = {{.in = forward_in,
              .out = forward_out,
              .nin = 3,
              .nout = 1,
              .infer = forward_infer,
              .index_operand = -1},
             {.in = backward_in,
              .out = backward_out,
              .nin = 4,
              .nout = 2,
              .infer = backward_infer,
              .index_operand = -1}},
};
