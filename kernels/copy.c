#include "kernels/copy.h"

#include "kernels/shape.h"

static enum xop_status infer(const struct xop_call *call, struct xop_plan *plan,
                             struct xop_error *error) {
    uint64_t bytes = 0;

    (void)error;
    shape_copy(&plan->out[0], &call->in[0]);
    if (!xop_tensor_bytes(&call->in[0], &bytes))
        bytes = 0;
    plan->read_once = plan->write_once = 1;
    plan->bytes = 2 * bytes;
    return XOP_OK;
}

enum xop_status copy_bytes(const struct xop_call *call, uint64_t *bytes, struct xop_error *error) {
    uint64_t from = 0, to = 0;

    *bytes = 0;
    if (!xop_tensor_bytes(&call->in[0], &from) || !xop_tensor_bytes(&call->out[0], &to) ||
        from != to)
        return xop_fail(error, XOP_INTERNAL, "a copy of %llu bytes to a place of %llu",
                        (unsigned long long)from, (unsigned long long)to);
    if (call->in[0].data && call->out[0].data && call->in[0].data != call->out[0].data)
        *bytes = from;
    return XOP_OK;
}

static const struct xop_operand in[] = {
    {.name = "x", .doc = "what is copied", .flags = XOP_OPERAND_OWN_DTYPE},
};
static const struct xop_operand out[] = {
    {.name = "y", .doc = "where to", .flags = XOP_OPERAND_OWN_DTYPE},
};

const struct xop_op copy_declaration = {
    .abi = XOP_OP_ABI,
    .name = "copy",
    .doc = "`copy` copies a tensor as it is.\n",
    .dtypes = XOP_FLOATS | XOP_INTEGERS | XOP_DTYPE_BIT(XOP_BOOL),
    .pass = {{.in = in, .out = out, .nin = 1, .nout = 1, .infer = infer, .index_operand = -1},
             {.index_operand = -1}},
};
