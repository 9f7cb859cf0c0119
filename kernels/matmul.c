#include "kernels/matmul.h"

#include "kernels/shape.h"

static const char doc[] =
    "`matmul` multiplies matrices, and batches of them, as `torch.matmul`.\n"
    "\n"
    "    y = a b\n"
    "\n"
    "The last two dimensions of `a` and `b` are matrices, (n, k) and (k, m); those before\n"
    "them broadcast against each other as in NumPy. `y` has the shape that they broadcast\n"
    "to and then (n, m). An `a` of one dimension is a row, a `b` of one dimension a column,\n"
    "and `y` lacks the dimension that this adds. With `transpose_a`, a is stored as\n"
    "(k, n); with `transpose_b`, b is stored as (m, k): nothing is copied for it.\n"
    "\n"
    "| a | b | y |\n"
    "| --- | --- | --- |\n"
    "| (k,) | (k,) | () |\n"
    "| (n, k) | (k,) | (n,) |\n"
    "| (k,) | (k, m) | (m,) |\n"
    "| (n, k) | (k, m) | (n, m) |\n"
    "| (5, 1, n, k) | (4, k, m) | (5, 4, n, m) |\n"
    "| (5, n, k) | (k,) | (5, n) |\n"
    "\n"
    "Gradients, each summed over the dimensions along which its input was repeated, in an\n"
    "order that the shapes alone fix, and of its input's shape:\n"
    "\n"
    "    grad_a = grad_y b^T\n"
    "    grad_b = a^T grad_y\n"
    "\n"
    "f16 and bf16 are multiplied and summed in f32, sums over a batch too, and a result is\n"
    "rounded once; f32 is computed in f32 throughout (unless `allow_tf32`) and f64 in f64.\n"
    "The order of a sum depends on the shapes and on the library that computes it (cuBLASLt\n"
    "on CUDA, OpenBLAS or loops of xopd's own on the CPU), so that the last digits differ\n"
    "from one to the other, within the bound for any order of n terms (see `linear`).\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| k = 0 | y is 0 |\n"
    "| n, m or a dimension of the batch is 0 | y is empty, what is summed over it is 0 |\n"
    "| NaN, or +inf beside -inf, among the terms of a sum | NaN |\n"
    "| an infinity times 0 among them | NaN |\n"
    "| an intermediate sum beyond the range of what is computed in | infinite or NaN |\n";

enum attribute { TRANSPOSE_A, TRANSPOSE_B, OPTIONS };

/* How a call's matrices lie: a as (n, k), b as (k, m), y as (n, m), but for transpositions. */
struct size {
    int64_t n, k, m;
    bool a_transposed, b_transposed;
    struct shape_map batch; /* x is a, b is b */
};

static bool asked(const struct xop_call *call, enum attribute attribute) {
    return call->attrs && call->attrs[attribute].value.i;
}

/* The dimensions before the matrices. */
static struct xop_tensor batch_of(const struct xop_tensor *tensor) {
    struct xop_tensor batch;
    shape_copy(&batch, tensor);
    batch.rank = tensor->rank > 2 ? tensor->rank - 2 : 0;
    return batch;
}

static uint64_t bytes_of(const struct xop_tensor *tensor) {
    uint64_t bytes;
    return xop_tensor_bytes(tensor, &bytes) ? bytes : 0;
}

/* Both have dimensions. false where their batches do not broadcast. */
static bool measure(const struct xop_call *call, struct size *size, struct xop_tensor *batch) {
    const struct xop_tensor *a = &call->in[MATMUL_A], *b = &call->in[MATMUL_B];
    struct xop_tensor a_batch = batch_of(a), b_batch = batch_of(b);
    const int64_t *a_last = &a->shape[a->rank - 1], *b_last = &b->shape[b->rank - 1];

    size->a_transposed = asked(call, TRANSPOSE_A) && a->rank > 1;
    size->b_transposed = asked(call, TRANSPOSE_B) && b->rank > 1;
    size->n = a->rank == 1 ? 1 : size->a_transposed ? a_last[0] : a_last[-1];
    size->k = size->a_transposed ? a_last[-1] : a_last[0];
    size->m = b->rank == 1 ? 1 : size->b_transposed ? b_last[-1] : b_last[0];
    if (shape_broadcast("a", &a_batch, "b", &b_batch, batch, NULL) != XOP_OK)
        return false;
    shape_collapse(&a_batch, &b_batch, batch, &size->batch);
    return true;
}

/* ---- The products of a pass ---- */

/* An operand of a product: a matrix as it is stored, and its steps along the batch. */
struct factor {
    const void *data;
    int64_t rows, columns; /* as it is stored */
    int64_t step[XOP_MAX_RANK];
};

static struct factor factor_of(const struct size *size, const struct xop_call *call,
                               enum matmul_operand operand) {
    struct factor factor = {.data = call->in[operand].data};
    int64_t dense = 1;

    if (operand == MATMUL_A) {
        factor.rows = size->a_transposed ? size->k : size->n;
        factor.columns = size->a_transposed ? size->n : size->k;
    } else if (operand == MATMUL_B) {
        factor.rows = size->b_transposed ? size->m : size->k;
        factor.columns = size->b_transposed ? size->k : size->m;
    } else {
        factor.rows = size->n;
        factor.columns = size->m;
    }
    for (uint32_t i = size->batch.ndims; i-- > 0;) {
        const struct shape_dim *dim = &size->batch.dim[i];
        int64_t places = operand == MATMUL_A   ? dim->stride_x
                         : operand == MATMUL_B ? dim->stride_b
                                               : dense;
        factor.step[i] = places * factor.rows * factor.columns;
        dense *= dim->size;
    }
    return factor;
}

/* c, as it is stored, = first second, either of which may be stored as its transpose. */
static void multiply(const struct size *size, const struct factor *first, bool first_transposed,
                     const struct factor *second, bool second_transposed, const struct factor *c,
                     struct product *p) {
    p->rows = c->rows;
    p->columns = c->columns;
    p->inner = first_transposed ? first->rows : first->columns;
    p->a_transposed = first_transposed;
    p->b_transposed = second_transposed;
    p->a = first->data;
    p->b = second->data;
    for (int summed = 0; summed < 2; summed++)
        for (uint32_t i = 0; i < size->batch.ndims; i++) {
            if ((c->step[i] == 0) == (summed == 1))
                p->dim[p->ndims++] = (struct product_dim){size->batch.dim[i].size, first->step[i],
                                                          second->step[i], c->step[i]};
        }
    product_join(p);
}

void matmul_product(const struct xop_call *call, enum xop_pass pass, int result,
                    struct product *p) {
    const struct xop_tensor *wanted = &call->in[result];
    struct xop_tensor batch;
    struct size size;
    struct factor a, b, y;

    *p = (struct product){.dtype = call->in[MATMUL_A].dtype};
    product_options(p, call->attrs ? call->attrs + OPTIONS : NULL);
    if (!measure(call, &size, &batch))
        return; /* infer refuses it */
    if (size.batch.elements == 0 || size.n == 0 || size.k == 0 || size.m == 0) {
        /* y may have elements, where k is 0, and a gradient of what is not empty; both are 0. */
        int64_t elements = 0;
        if (pass == XOP_BACKWARD)
            xop_tensor_elements(wanted, &elements);
        else
            elements = size.batch.elements * size.n * size.m;
        p->rows = 1;
        p->columns = elements;
        return;
    }
    a = factor_of(&size, call, MATMUL_A);
    b = factor_of(&size, call, MATMUL_B);
    y = factor_of(&size, call, MATMUL_GRAD_Y);
    if (pass == XOP_FORWARD) {
        y.data = NULL; /* it is no input */
        multiply(&size, &a, size.a_transposed, &b, size.b_transposed, &y, p);
    } else if (result == MATMUL_GRAD_A && !size.a_transposed) {
        multiply(&size, &y, false, &b, !size.b_transposed, &a, p);
    } else if (result == MATMUL_GRAD_A) {
        multiply(&size, &b, size.b_transposed, &y, true, &a, p);
    } else if (!size.b_transposed) {
        multiply(&size, &a, !size.a_transposed, &y, false, &b, p);
    } else {
        multiply(&size, &y, true, &a, size.a_transposed, &b, p);
    }
}

/* ---- Checks ---- */

static enum xop_status check_transposition(const struct xop_call *call, enum attribute attribute,
                                           const char *name, const struct xop_tensor *tensor,
                                           struct xop_error *error) {
    if (tensor->rank == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s is a scalar; it must have at least one dimension", name);
    if (tensor->rank == 1 && asked(call, attribute))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "transpose_%s is true but %s has one dimension, which has no transpose",
                        name, name);
    return XOP_OK;
}

/* Checks a and b, and says what y is. */
static enum xop_status infer_y(const struct xop_call *call, struct xop_tensor *y,
                               struct xop_error *error) {
    const struct xop_tensor *a = &call->in[MATMUL_A], *b = &call->in[MATMUL_B];
    char a_text[SHAPE_TEXT], b_text[SHAPE_TEXT];
    struct size size;
    int64_t b_k;
    uint64_t bytes;
    enum xop_status status = check_transposition(call, TRANSPOSE_A, "a", a, error);

    if (status == XOP_OK)
        status = check_transposition(call, TRANSPOSE_B, "b", b, error);
    if (status != XOP_OK)
        return status;
    shape_format(a, a_text);
    shape_format(b, b_text);
    if (a->dtype != b->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "a is %s but b is %s; they must be the same",
                        xop_dtype_name(a->dtype), xop_dtype_name(b->dtype));
    if (!measure(call, &size, y))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "a has shape %s and b %s; what comes before their last two dimensions does "
                        "not broadcast",
                        a_text, b_text);
    b_k = b->shape[b->rank - (b->rank == 1 || size.b_transposed ? 1 : 2)];
    if (size.k != b_k)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "a has shape %s%s and b %s%s; the products would sum over %lld elements of "
                        "a and %lld of b",
                        a_text, size.a_transposed ? " (transposed)" : "", b_text,
                        size.b_transposed ? " (transposed)" : "", (long long)size.k,
                        (long long)b_k);
    if (a->rank > 1)
        y->shape[y->rank++] = size.n;
    if (b->rank > 1)
        y->shape[y->rank++] = size.m;
    if (!xop_tensor_bytes(y, &bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "a has shape %s and b %s; their product would exceed 2^63-1 bytes", a_text,
                        b_text);
    return XOP_OK;
}

static uint64_t flops_of(const struct xop_call *call, enum xop_pass pass, int result) {
    struct product product;
    matmul_product(call, pass, result, &product);
    return product_flops(&product);
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    enum xop_status status = infer_y(call, &plan->out[MATMUL_Y], error);
    if (status != XOP_OK)
        return status;
    plan->bytes = bytes_of(&call->in[MATMUL_A]) + bytes_of(&call->in[MATMUL_B]) +
                  bytes_of(&plan->out[MATMUL_Y]);
    plan->flops = flops_of(call, XOP_FORWARD, MATMUL_Y);
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *a = &call->in[MATMUL_A], *b = &call->in[MATMUL_B];
    const struct xop_tensor *grad_y = &call->in[MATMUL_GRAD_Y];
    char wanted[SHAPE_TEXT], came[SHAPE_TEXT];
    struct xop_tensor y;
    enum xop_status status = infer_y(call, &y, error);

    if (status != XOP_OK)
        return status;
    if (grad_y->dtype != a->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "a is %s but grad_y is %s; they must be the same", xop_dtype_name(a->dtype),
                        xop_dtype_name(grad_y->dtype));
    if (!shape_equal(&y, grad_y))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "grad_y has shape %s but a and b give y shape %s",
                        shape_format(grad_y, came), shape_format(&y, wanted));
    shape_copy(&plan->out[MATMUL_GRAD_A], a);
    shape_copy(&plan->out[MATMUL_GRAD_B], b);
    plan->bytes = 2 * (bytes_of(a) + bytes_of(b)) + bytes_of(grad_y);
    plan->flops =
        flops_of(call, XOP_BACKWARD, MATMUL_GRAD_A) + flops_of(call, XOP_BACKWARD, MATMUL_GRAD_B);
    return XOP_OK;
}

/* The same with workspace for the products, which are computed one after the other. */
static uint64_t workspace_of(const struct xop_call *call, enum xop_pass pass, int result) {
    struct product product;
    struct product_cut cut;
    matmul_product(call, pass, result, &product);
    product_cut_of(&product, &cut);
    return cut.sum_bytes + cut.library_bytes;
}

static enum xop_status forward_workspace_infer(const struct xop_call *call, struct xop_plan *plan,
                                               struct xop_error *error) {
    enum xop_status status = forward_infer(call, plan, error);
    if (status == XOP_OK)
        plan->workspace_bytes = workspace_of(call, XOP_FORWARD, MATMUL_Y);
    return status;
}

static enum xop_status backward_workspace_infer(const struct xop_call *call, struct xop_plan *plan,
                                                struct xop_error *error) {
    enum xop_status status = backward_infer(call, plan, error);
    uint64_t a, b;
    if (status != XOP_OK)
        return status;
    a = workspace_of(call, XOP_BACKWARD, MATMUL_GRAD_A);
    b = workspace_of(call, XOP_BACKWARD, MATMUL_GRAD_B);
    plan->workspace_bytes = a > b ? a : b;
    return XOP_OK;
}

static const struct xop_attr_spec attrs[] = {
    {.name = "transpose_a",
     .doc = "whether a is stored as (..., k, n)",
     .type = XOP_ATTR_BOOL,
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1, .value.i = 0}},
    {.name = "transpose_b",
     .doc = "whether b is stored as (..., m, k)",
     .type = XOP_ATTR_BOOL,
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1, .value.i = 0}},
    PRODUCT_ATTRS,
};
static const struct xop_operand forward_in[] = {
    {.name = "a", .doc = "matrices of shape (..., n, k), or (k,)"},
    {.name = "b", .doc = "matrices of shape (..., k, m), or (k,)"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "a b, of shape (..., n, m)"},
};
static const struct xop_operand backward_in[] = {
    {.name = "a", .doc = "the forward's a"},
    {.name = "b", .doc = "the forward's b"},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_a", .doc = "gradient of a, of a's shape"},
    {.name = "grad_b", .doc = "gradient of b, of b's shape"},
};

#define MATMUL(its_forward_infer, its_backward_infer)                                              \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = "matmul", .doc = doc, .dtypes = XOP_FLOATS, .attrs = attrs,     \
        .nattrs = OPTIONS + PRODUCT_NATTRS, .pass = {                                              \
            {.in = forward_in,                                                                     \
             .out = forward_out,                                                                   \
             .nin = 2,                                                                             \
             .nout = 1,                                                                            \
             .infer = its_forward_infer,                                                           \
             .index_operand = -1},                                                                 \
            {.in = backward_in,                                                                    \
             .out = backward_out,                                                                  \
             .nin = 3,                                                                             \
             .nout = 2,                                                                            \
             .infer = its_backward_infer,                                                          \
             .index_operand = -1}                                                                  \
        }                                                                                          \
    }

const struct xop_op matmul_declaration = MATMUL(forward_infer, backward_infer);
const struct xop_op matmul_workspace_declaration =
    MATMUL(forward_workspace_infer, backward_workspace_infer);
