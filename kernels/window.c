#include "kernels/window.h"

#include "kernels/shape.h"
#include <xop/check.h>

#define GEOMETRY                                                                                   \
    "`x` is (N, C, H, W) or (C, H, W), and y's last dimensions are\n"                              \
    "\n"                                                                                           \
    "    (H + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1\n"                          \
    "\n"                                                                                           \
    "and the same for W, rounded down, or up with `ceil_mode`, where a window that would begin\n"  \
    "behind x and its padding on the left is left out. `kernel_size`, `stride`, `padding`"

static const char max_doc[] =
    "`max_pool2d`, the largest element of each window, as `torch.nn.functional.max_pool2d`.\n"
    "\n" GEOMETRY " and\n"
    "`dilation` are one number for both or two; `stride` is kernel_size where it is not given.\n"
    "Padding is never the largest; it is at most half of kernel_size.\n"
    "\n"
    "The gradient of an output goes to its window's largest element, the first in C order where\n"
    "several are. Each element of x sums what it gets, in C order of the outputs, in f64.\n"
    "Backward needs `x` and looks for the largest anew.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| a window holds NaN | NaN, whose last has the gradient |\n"
    "| a window that lies in the padding, where dilation steps over x | -inf, no gradient |\n"
    "| N is 0 | all is empty |\n"
    "| C, H or W is 0, or y would have no elements | refused |\n";

static const char avg_doc[] =
    "`avg_pool2d`, the mean of each window, as `torch.nn.functional.avg_pool2d`.\n"
    "\n" GEOMETRY "\n"
    "are one number for both or two, dilation is 1; `stride` is kernel_size where it is not\n"
    "given. Padding is 0, and at most half of kernel_size.\n"
    "\n"
    "A window's sum is divided by the number of its elements; with `count_include_pad`, as by\n"
    "default, padding counts, but not what `ceil_mode` adds behind it. `divisor_override`, where\n"
    "not 0, is divided by instead.\n"
    "\n"
    "    grad_x = the sum of grad_y / divisor over the windows that have the element\n"
    "\n"
    "in C order of the outputs. Sums are in f64, and a result is rounded once. Backward needs the\n"
    "shape of `x` alone.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| N is 0 | all is empty |\n"
    "| C, H or W is 0, or y would have no elements | refused |\n";

/* The attributes of both, then those of each. */
enum { KERNEL_SIZE = 0, STRIDE = 1, PADDING = 2, CEIL_MODE = 3 };
enum { DILATION = 4 };
enum { COUNT_INCLUDE_PAD = 4, DIVISOR_OVERRIDE = 5 };

/* So that no sum or product of what makes a window overflows. */
#define MOST_ATTR INT32_MAX
#define MOST_EXTENT (INT64_C(1) << 40)

static int64_t attr_of(const struct xop_attr *attr, uint32_t which, int64_t fallback) {
    if (attr->count == 0)
        return fallback;
    return attr->value.ints[attr->count > 1 ? which : 0];
}

/* How many windows there are; 0 or less where none fits. */
static int64_t outputs_of(const struct window_dim *dim, bool ceil_mode) {
    int64_t room = dim->in + 2 * dim->padding - dim->dilation * (dim->kernel - 1) - 1, out;
    if (ceil_mode)
        room += dim->stride - 1;
    out = room < 0 ? 0 : room / dim->stride + 1;
    if (ceil_mode && (out - 1) * dim->stride >= dim->in + dim->padding)
        out--;
    return out;
}

static struct window_dim dim_of(const struct xop_call *call, bool max, uint32_t which) {
    const struct xop_tensor *x = &call->in[WINDOW_X];
    const struct xop_attr *attrs = call->attrs;
    struct window_dim dim = {.in = x->shape[x->rank - 2 + which],
                             .kernel = attr_of(&attrs[KERNEL_SIZE], which, 1),
                             .padding = attr_of(&attrs[PADDING], which, 0),
                             .dilation = max ? attr_of(&attrs[DILATION], which, 1) : 1};
    dim.stride = attr_of(&attrs[STRIDE], which, dim.kernel);
    dim.out = outputs_of(&dim, attrs[CEIL_MODE].value.i != 0);
    return dim;
}

void window_measure(const struct xop_call *call, bool max, struct window_plan *plan) {
    const struct xop_tensor *x = &call->in[WINDOW_X];
    *plan = (struct window_plan){.max = max,
                                 .planes = x->shape[0],
                                 .rows = dim_of(call, max, 0),
                                 .columns = dim_of(call, max, 1)};
    if (x->rank == 4) /* an overflow is that of an empty tensor */
        plan->planes = xop_elements(x) == 0 ? 0 : x->shape[0] * x->shape[1];
    if (max)
        return;
    plan->include_pad = call->attrs[COUNT_INCLUDE_PAD].value.i != 0;
    plan->divisor = call->attrs[DIVISOR_OVERRIDE].value.i;
}

/* ---- Checks ---- */

static enum xop_status check_list(const struct xop_attr *attr, const char *name, int64_t least,
                                  bool optional, struct xop_error *error) {
    if (attr->count > 2 || (attr->count == 0 && !optional))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s has %u numbers; it must have 1 or 2", name,
                        attr->count);
    for (uint32_t i = 0; i < attr->count; i++)
        if (attr->value.ints[i] < least || attr->value.ints[i] > MOST_ATTR)
            return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is %lld; it must be %lld to %lld",
                            name, (long long)attr->value.ints[i], (long long)least,
                            (long long)MOST_ATTR);
    return XOP_OK;
}

static enum xop_status check_attrs(const struct xop_call *call, bool max, struct xop_error *error) {
    const struct xop_attr *attrs = call->attrs;
    enum xop_status status = check_list(&attrs[KERNEL_SIZE], "kernel_size", 1, false, error);

    if (status == XOP_OK)
        status = check_list(&attrs[STRIDE], "stride", 1, true, error);
    if (status == XOP_OK)
        status = check_list(&attrs[PADDING], "padding", 0, true, error);
    if (status == XOP_OK && max)
        status = check_list(&attrs[DILATION], "dilation", 1, true, error);
    return status;
}

static enum xop_status check_dim(const struct window_dim *dim, const char *name,
                                 struct xop_error *error) {
    if (dim->padding > dim->kernel / 2)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "padding is %lld, but may be at most half of kernel_size, which is %lld",
                        (long long)dim->padding, (long long)dim->kernel);
    if (dim->out < 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "x has a %s of %lld, in which no window fits: y would have no elements",
                        name, (long long)dim->in);
    return XOP_OK;
}

static enum xop_status check_x(const struct xop_tensor *x, struct xop_error *error) {
    char text[SHAPE_TEXT];
    enum xop_status status = xop_check_rank("x", x, 3, 4, error);

    for (uint32_t i = x->rank - 3; status == XOP_OK && i < x->rank; i++)
        if (x->shape[i] < 1 || x->shape[i] > MOST_EXTENT)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "x has shape %s; all but the number of samples must be at least 1 and "
                            "at most 2^40",
                            shape_format(x, text));
    return status;
}

static enum xop_status check(const struct xop_call *call, bool max, struct window_plan *how,
                             struct xop_tensor *y, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[WINDOW_X];
    enum xop_status status = check_x(x, error);

    if (status == XOP_OK)
        status = check_attrs(call, max, error);
    if (status != XOP_OK)
        return status;
    window_measure(call, max, how);
    status = check_dim(&how->rows, "height", error);
    if (status == XOP_OK)
        status = check_dim(&how->columns, "width", error);
    if (status == XOP_OK && how->rows.kernel * how->columns.kernel > MOST_ATTR)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "a window has %lld elements, and may have at most %lld",
                        (long long)(how->rows.kernel * how->columns.kernel), (long long)MOST_ATTR);
    if (status != XOP_OK)
        return status;
    shape_copy(y, x);
    y->shape[y->rank - 2] = how->rows.out;
    y->shape[y->rank - 1] = how->columns.out;
    return shape_check_bytes("y", y, error);
}

/* ---- Plans ---- */

static void costs(const struct xop_call *call, const struct window_plan *how,
                  const struct xop_tensor *y, struct xop_plan *plan) {
    uint64_t outputs = (uint64_t)xop_elements(y);
    uint64_t window = (uint64_t)(how->rows.kernel * how->columns.kernel);
    plan->write_once = 1;
    plan->bytes = xop_bytes(&call->in[WINDOW_X]) + xop_bytes(y);
    plan->flops = outputs > UINT64_MAX / window ? UINT64_MAX : outputs * window;
}

static enum xop_status forward_infer(const struct xop_call *call, bool max, struct xop_plan *plan,
                                     struct xop_error *error) {
    struct window_plan how;
    enum xop_status status = check(call, max, &how, &plan->out[0], error);
    if (status == XOP_OK)
        costs(call, &how, &plan->out[0], plan);
    return status;
}

static enum xop_status backward_infer(const struct xop_call *call, bool max, struct xop_plan *plan,
                                      struct xop_error *error) {
    struct window_plan how;
    struct xop_tensor y = {0};
    enum xop_status status = check(call, max, &how, &y, error);

    if (status == XOP_OK)
        status = xop_check_same("grad_y", &call->in[WINDOW_GRAD_Y], "y", &y, error);
    if (status != XOP_OK)
        return status;
    shape_copy(&plan->out[0], &call->in[WINDOW_X]);
    costs(call, &how, &y, plan);
    if (max)
        plan->workspace_bytes = (uint64_t)xop_elements(&y) * sizeof(uint32_t);
    return XOP_OK;
}

static enum xop_status max_forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                         struct xop_error *error) {
    return forward_infer(call, true, plan, error);
}
static enum xop_status max_backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                          struct xop_error *error) {
    return backward_infer(call, true, plan, error);
}
static enum xop_status avg_forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                         struct xop_error *error) {
    return forward_infer(call, false, plan, error);
}
static enum xop_status avg_backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                          struct xop_error *error) {
    return backward_infer(call, false, plan, error);
}

/* ---- Declarations ---- */

static const int64_t zero[] = {0}, one[] = {1};
#define COMMON_ATTRS                                                                               \
    {.name = "kernel_size",                                                                        \
     .doc = "rows and columns of a window, or one number for both",                                \
     .type = XOP_ATTR_INTS,                                                                        \
     .required = true},                                                                            \
        {.name = "stride",                                                                         \
         .doc = "from window to window; not given: kernel_size",                                   \
         .type = XOP_ATTR_INTS,                                                                    \
         .fallback = {.type = XOP_ATTR_INTS}},                                                     \
        {.name = "padding",                                                                        \
         .doc = "on each side of x, at most half of kernel_size",                                  \
         .type = XOP_ATTR_INTS,                                                                    \
         .fallback = {.type = XOP_ATTR_INTS, .count = 1, .value.ints = zero}},                     \
    {                                                                                              \
        .name = "ceil_mode", .doc = "whether y's size is rounded up", .type = XOP_ATTR_BOOL,       \
        .fallback = {                                                                              \
            .type = XOP_ATTR_BOOL,                                                                 \
            .count = 1                                                                             \
        }                                                                                          \
    }
static const struct xop_attr_spec max_attrs[] = {
    COMMON_ATTRS,
    {.name = "dilation",
     .doc = "from element to element of a window",
     .type = XOP_ATTR_INTS,
     .fallback = {.type = XOP_ATTR_INTS, .count = 1, .value.ints = one}},
};
static const struct xop_attr_spec avg_attrs[] = {
    COMMON_ATTRS,
    {.name = "count_include_pad",
     .doc = "whether padding counts where a mean is taken",
     .type = XOP_ATTR_BOOL,
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1, .value.i = 1}},
    {.name = "divisor_override",
     .doc = "what sums are divided by; 0: the number of elements",
     .type = XOP_ATTR_INT,
     .fallback = {.type = XOP_ATTR_INT, .count = 1}},
};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "of shape (N, C, H, W) or (C, H, W)"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of x's shape but for the last two dimensions"},
};
static const struct xop_operand max_backward_in[] = {
    {.name = "x", .doc = "the forward's x"},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand avg_backward_in[] = {
    {.name = "x", .doc = "the forward's x", .flags = XOP_OPERAND_SHAPE_ONLY},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
};

#define POOL(its_name, kind)                                                                       \
    {                                                                                              \
        .abi = XOP_OP_ABI, .name = its_name, .doc = kind##_doc, .dtypes = XOP_FLOATS,              \
        .attrs = kind##_attrs, .nattrs = sizeof kind##_attrs / sizeof *kind##_attrs, .pass = {     \
            {.in = forward_in,                                                                     \
             .out = forward_out,                                                                   \
             .nin = 1,                                                                             \
             .nout = 1,                                                                            \
             .infer = kind##_forward_infer,                                                        \
             .index_operand = -1},                                                                 \
            {.in = kind##_backward_in,                                                             \
             .out = backward_out,                                                                  \
             .nin = 2,                                                                             \
             .nout = 1,                                                                            \
             .infer = kind##_backward_infer,                                                       \
             .index_operand = -1}                                                                  \
        }                                                                                          \
    }

const struct xop_op max_pool2d_declaration = POOL("max_pool2d", max);
const struct xop_op avg_pool2d_declaration = POOL("avg_pool2d", avg);
