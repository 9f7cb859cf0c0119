#include "kernels/linear.h"

static const char doc[] =
    "`linear` is a fully connected layer, as `torch.nn.functional.linear`.\n"
    "\n"
    "    y = x w^T + b\n"
    "\n"
    "`x` has shape (..., in), `w` (out, in) and `b`, which may be left out, (out,); `y` has\n"
    "shape (..., out). Nothing is broadcast but `b` over the rows of `x`. All have the same\n"
    "dtype.\n"
    "\n"
    "Gradients, with the leading dimensions of `x` and `grad_y` taken as rows:\n"
    "\n"
    "    grad_x = grad_y w\n"
    "    grad_w = grad_y^T x\n"
    "    grad_b = grad_y summed over its rows\n"
    "\n"
    "Backward needs `x` and `w`; `b` is not needed.\n"
    "\n"
    "f16 and bf16 are multiplied and summed in f32, and a result is rounded once; f32 is\n"
    "computed in f32 throughout (unless `allow_tf32`) and f64 in f64. The order of a sum\n"
    "depends on the shapes and on the library that computes it (cuBLASLt on CUDA, OpenBLAS\n"
    "or loops of xopd's own on the CPU), so that the last digits differ from one to the\n"
    "other, within the bound for any order of n terms: |error| <= n u / (1 - n u) times the\n"
    "sum of their absolute values (Higham, Accuracy and Stability of Numerical Algorithms,\n"
    "section 3.1), u being the unit roundoff of what is computed in, and one rounding to\n"
    "the dtype.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| no rows | y is empty, grad_w and grad_b are 0 |\n"
    "| in = 0 | y is b, or 0 without b |\n"
    "| out = 0 | y is empty, grad_x is 0 |\n"
    "| NaN, or +inf beside -inf, among the terms of a sum | NaN |\n"
    "| an infinity times 0 among them | NaN |\n"
    "| an intermediate sum beyond the range of what is computed in | infinite or NaN |\n";

static uint64_t bytes_of(const struct xop_tensor *tensor) {
    uint64_t bytes;
    return xop_tensor_bytes(tensor, &bytes) ? bytes : 0;
}

/* The product of all dimensions but the last. */
static bool rows_of(const struct xop_tensor *tensor, int64_t *rows) {
    struct xop_tensor leading = *tensor;
    leading.rank--;
    return xop_tensor_elements(&leading, rows);
}

void linear_measure(const struct xop_call *call, struct linear_size *size) {
    const struct xop_tensor *x = &call->in[LINEAR_X], *w = &call->in[LINEAR_W];
    size->out = w->shape[0];
    size->in = w->shape[1];
    if (!rows_of(x, &size->rows))
        size->rows = 0; /* infer refuses it */
}

void linear_bias_sum(const struct linear_size *size, enum xop_dtype dtype,
                     struct shape_reduction *sum) {
    const struct xop_tensor b = {dtype, 1, {size->out}, NULL};
    const struct xop_tensor grad_y = {dtype, 2, {size->rows, size->out}, NULL};
    shape_reduce(&b, &grad_y, sum);
}

void linear_product(const struct xop_call *call, enum xop_pass pass, int result,
                    struct product *p) {
    const struct xop_tensor *x = &call->in[LINEAR_X], *w = &call->in[LINEAR_W];
    const struct xop_tensor *third = &call->in[LINEAR_B]; /* or grad_y */
    struct linear_size size;

    linear_measure(call, &size);
    *p = (struct product){.dtype = x->dtype, .rows = size.rows};
    product_options(p, call->attrs);
    if (pass == XOP_FORWARD) { /* x w^T */
        p->columns = size.out;
        p->inner = size.in;
        p->b_transposed = true;
        p->a = x->data;
        p->b = w->data;
        p->bias = third->data;
    } else if (result == LINEAR_GRAD_X) { /* grad_y w */
        p->columns = size.in;
        p->inner = size.out;
        p->a = third->data;
        p->b = w->data;
    } else { /* grad_y^T x */
        p->rows = size.out;
        p->columns = size.in;
        p->inner = size.rows;
        p->a_transposed = true;
        p->a = third->data;
        p->b = x->data;
    }
}

static uint64_t product_bytes(const struct xop_call *call, enum xop_pass pass, int result) {
    struct product product;
    struct product_cut cut;
    linear_product(call, pass, result, &product);
    product_cut_of(&product, &cut);
    return cut.library_bytes;
}

void linear_workspace_plan(const struct xop_call *call, enum xop_pass pass,
                           struct linear_workspace *workspace) {
    struct linear_size size;
    struct shape_reduction sum;
    uint64_t x, w;

    if (pass == XOP_FORWARD) {
        workspace->sum_bytes = 0;
        workspace->product_bytes = product_bytes(call, pass, LINEAR_Y);
        return;
    }
    x = product_bytes(call, pass, LINEAR_GRAD_X);
    w = product_bytes(call, pass, LINEAR_GRAD_W);
    linear_measure(call, &size);
    linear_bias_sum(&size, call->in[LINEAR_X].dtype, &sum);
    workspace->sum_bytes = shape_reduction_workspace(&sum);
    workspace->product_bytes = x > w ? x : w;
}

static enum xop_status same_dtype(const char *name, const struct xop_tensor *tensor,
                                  const struct xop_tensor *x, struct xop_error *error) {
    if (tensor->dtype == x->dtype)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT, "x is %s but %s is %s; they must be the same",
                    xop_dtype_name(x->dtype), name, xop_dtype_name(tensor->dtype));
}

/* Checks x and w, and says what y is. */
static enum xop_status infer_y(const struct xop_tensor *x, const struct xop_tensor *w,
                               struct xop_tensor *y, struct xop_error *error) {
    char x_text[SHAPE_TEXT], w_text[SHAPE_TEXT];
    int64_t rows;
    uint64_t bytes;
    enum xop_status status = same_dtype("w", w, x, error);

    if (status != XOP_OK)
        return status;
    if (x->rank == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "x is a scalar; it must have at least one dimension, that of the features");
    if (w->rank != 2)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "w has shape %s; it must have two dimensions, (out, in)",
                        shape_format(w, w_text));
    if (x->shape[x->rank - 1] != w->shape[1])
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "x has shape %s and w %s; their last dimensions must be the same",
                        shape_format(x, x_text), shape_format(w, w_text));
    shape_copy(y, x);
    y->shape[y->rank - 1] = w->shape[0];
    if (!rows_of(x, &rows) || !xop_tensor_bytes(y, &bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "x has shape %s and w %s; their product would exceed 2^63-1 bytes",
                        shape_format(x, x_text), shape_format(w, w_text));
    return XOP_OK;
}

/* Of each product: all have the same factors. */
static uint64_t flops_of(const struct xop_call *call, enum xop_pass pass) {
    struct product product;
    linear_product(call, pass, LINEAR_Y, &product);
    return product_flops(&product);
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    const struct xop_tensor *x = &call->in[LINEAR_X], *w = &call->in[LINEAR_W];
    const struct xop_tensor *b = &call->in[LINEAR_B];
    char b_text[SHAPE_TEXT], w_text[SHAPE_TEXT];
    enum xop_status status = infer_y(x, w, &plan->out[0], error);

    if (status == XOP_OK && b->dtype != XOP_DTYPE_NONE) {
        status = same_dtype("b", b, x, error);
        if (status == XOP_OK && (b->rank != 1 || b->shape[0] != w->shape[0]))
            status = xop_fail(error, XOP_INVALID_ARGUMENT,
                              "b has shape %s but w %s; b must have one dimension, w's first",
                              shape_format(b, b_text), shape_format(w, w_text));
    }
    if (status != XOP_OK)
        return status;
    plan->bytes = bytes_of(x) + bytes_of(w) + bytes_of(b) + bytes_of(&plan->out[0]);
    plan->flops = flops_of(call, XOP_FORWARD);
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *x = &call->in[LINEAR_X], *w = &call->in[LINEAR_W];
    const struct xop_tensor *grad_y = &call->in[LINEAR_GRAD_Y];
    char wanted[SHAPE_TEXT], came[SHAPE_TEXT];
    struct linear_workspace workspace;
    struct linear_size size;
    struct xop_tensor y;
    enum xop_status status = infer_y(x, w, &y, error);

    if (status == XOP_OK)
        status = same_dtype("grad_y", grad_y, x, error);
    if (status == XOP_OK && !shape_equal(&y, grad_y))
        status =
            xop_fail(error, XOP_INVALID_ARGUMENT, "grad_y has shape %s but x and w give y shape %s",
                     shape_format(grad_y, came), shape_format(&y, wanted));
    if (status != XOP_OK)
        return status;
    linear_measure(call, &size);
    linear_workspace_plan(call, XOP_BACKWARD, &workspace);
    shape_copy(&plan->out[LINEAR_GRAD_X], x);
    shape_copy(&plan->out[LINEAR_GRAD_W], w);
    plan->out[LINEAR_GRAD_B] = (struct xop_tensor){x->dtype, 1, {size.out}, NULL};
    plan->workspace_bytes = workspace.sum_bytes;
    plan->bytes = 2 * (bytes_of(x) + bytes_of(w)) + bytes_of(grad_y);
    plan->flops = 2 * flops_of(call, XOP_BACKWARD);
    return XOP_OK;
}

/* The same with workspace for the products. */
static enum xop_status forward_workspace_infer(const struct xop_call *call, struct xop_plan *plan,
                                               struct xop_error *error) {
    struct linear_workspace workspace;
    enum xop_status status = forward_infer(call, plan, error);
    if (status != XOP_OK)
        return status;
    linear_workspace_plan(call, XOP_FORWARD, &workspace);
    plan->workspace_bytes = workspace.product_bytes;
    return XOP_OK;
}

static enum xop_status backward_workspace_infer(const struct xop_call *call, struct xop_plan *plan,
                                                struct xop_error *error) {
    struct linear_workspace workspace;
    enum xop_status status = backward_infer(call, plan, error);
    if (status != XOP_OK)
        return status;
    linear_workspace_plan(call, XOP_BACKWARD, &workspace);
    plan->workspace_bytes = workspace.sum_bytes + workspace.product_bytes;
    return XOP_OK;
}

static const struct xop_attr_spec attrs[] = {PRODUCT_ATTRS};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "what is multiplied, of shape (..., in)"},
    {.name = "w", .doc = "the weight, of shape (out, in)"},
    {.name = "b", .doc = "the bias, of shape (out,)", .flags = XOP_OPERAND_OPTIONAL},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "x w^T + b, of shape (..., out)"},
};
static const struct xop_operand backward_in[] = {
    {.name = "x", .doc = "the forward's x"},
    {.name = "w", .doc = "the forward's w"},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
    {.name = "grad_w", .doc = "gradient of w, of w's shape"},
    {.name = "grad_b", .doc = "gradient of b, of shape (out,)"},
};

#define LINEAR(its_forward_infer, its_backward_infer)                                              \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = "linear", .doc = doc, .dtypes = XOP_FLOATS, .attrs = attrs,     \
        .nattrs = PRODUCT_NATTRS, .pass = {                                                        \
            {.in = forward_in,                                                                     \
             .out = forward_out,                                                                   \
             .nin = 3,                                                                             \
             .nout = 1,                                                                            \
             .infer = its_forward_infer,                                                           \
             .index_operand = -1},                                                                 \
            {.in = backward_in,                                                                    \
             .out = backward_out,                                                                  \
             .nin = 3,                                                                             \
             .nout = 3,                                                                            \
             .infer = its_backward_infer,                                                          \
             .index_operand = -1}                                                                  \
        }                                                                                          \
    }

const struct xop_op linear_declaration = LINEAR(forward_infer, backward_infer);
const struct xop_op linear_workspace_declaration =
    LINEAR(forward_workspace_infer, backward_workspace_infer);
