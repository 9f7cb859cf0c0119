#include "kernels/upsample.h"

#include <math.h>
#include <string.h>

#include "kernels/shape.h"
#include <xop/check.h>

static const char doc[] =
    "`upsample` to another size, as `torch.nn.functional.interpolate`.\n"
    "\n"
    "`x` is (N, C, H, W), and y's last dimensions are `size`, or x's times `scale_factor`,\n"
    "rounded down; one of both is given, one number for both dimensions or two. With s the\n"
    "elements of x from output to output, H / size or 1 / scale_factor, output i along a\n"
    "dimension is\n"
    "\n"
    "| mode | made of |\n"
    "| --- | --- |\n"
    "| nearest | element floor(i s), found in f32 |\n"
    "| bilinear | the two elements around s (i + 0.5) - 0.5, weighted by how near they are |\n"
    "| bilinear, `align_corners` | those around i s with s = (H - 1) / (size - 1) |\n"
    "\n"
    "with what lies outside of x taken for what is at its edge. It makes smaller as well, without\n"
    "a filter. A dimension that keeps its size is copied, whatever the factor.\n"
    "\n"
    "    grad_x = the sum of grad_y by the weights, over the outputs that have the element\n"
    "\n"
    "in C order of the outputs. Backward needs the shape of `x` alone. Sums are in f64, and a\n"
    "result is rounded once.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| an element of weight 0 | has no part, though it be NaN or an infinity |\n"
    "| N is 0 | all is empty |\n"
    "| C, H, W or a size is 0 | refused |\n";

enum { SIZE = 0, SCALE_FACTOR = 1, MODE = 2, ALIGN_CORNERS = 3 };

#define MOST_EXTENT (INT64_C(1) << 40)

static bool is_linear(const struct xop_call *call) {
    return strcmp(call->attrs[MODE].value.string, "bilinear") == 0;
}

/* 0: none is given. */
static double factor_of(const struct xop_call *call, uint32_t which) {
    const struct xop_attr *factor = &call->attrs[SCALE_FACTOR];
    return factor->count == 0 ? 0 : factor->value.floats[factor->count > 1 ? which : 0];
}

/* What was asked for, which may be anything. */
static double size_of(const struct xop_call *call, uint32_t which) {
    const struct xop_attr *size = &call->attrs[SIZE];
    if (size->count > 0)
        return (double)size->value.ints[size->count > 1 ? which : 0];
    return floor((double)call->in[UPSAMPLE_X].shape[2 + which] * factor_of(call, which));
}

static struct upsample_dim dim_of(const struct xop_call *call, uint32_t which) {
    const double factor = factor_of(call, which);
    struct upsample_dim dim = {.in = call->in[UPSAMPLE_X].shape[2 + which],
                               .out = (int64_t)size_of(call, which),
                               .linear = is_linear(call),
                               .align_corners = call->attrs[ALIGN_CORNERS].value.i != 0};
    if (dim.align_corners)
        dim.scale = dim.out > 1 ? (double)(dim.in - 1) / (double)(dim.out - 1) : 0;
    else if (factor > 0)
        dim.scale = 1 / factor;
    else
        dim.scale = (double)dim.in / (double)dim.out;
    if (!dim.linear)
        dim.scale =
            factor > 0 ? (double)(float)(1 / factor) : (double)((float)dim.in / (float)dim.out);
    return dim;
}

void upsample_measure(const struct xop_call *call, struct upsample_plan *plan) {
    const struct xop_tensor *x = &call->in[UPSAMPLE_X];
    plan->planes = xop_elements(x) == 0 ? 0 : x->shape[0] * x->shape[1];
    plan->rows = dim_of(call, 0);
    plan->columns = dim_of(call, 1);
}

/* ---- Checks ---- */

static enum xop_status check_attrs(const struct xop_call *call, struct xop_error *error) {
    const struct xop_attr *attrs = call->attrs;
    const char *mode = attrs[MODE].value.string;

    if (strcmp(mode, "nearest") != 0 && strcmp(mode, "bilinear") != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "mode is \"%.100s\"; it must be \"nearest\" or \"bilinear\"", mode);
    if (attrs[ALIGN_CORNERS].value.i && !is_linear(call))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "align_corners is for mode \"bilinear\" alone");
    if ((attrs[SIZE].count > 0) == (attrs[SCALE_FACTOR].count > 0))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "one of size and scale_factor must be given, and only one");
    if (attrs[SIZE].count > 2 || attrs[SCALE_FACTOR].count > 2)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "size and scale_factor are one number for both dimensions, or two");
    return XOP_OK;
}

static enum xop_status check_extents(const struct xop_call *call, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[UPSAMPLE_X];
    char text[SHAPE_TEXT];
    enum xop_status status = xop_check_rank("x", x, 4, 4, error);

    for (uint32_t i = 1; status == XOP_OK && i < 4; i++)
        if (x->shape[i] < 1 || x->shape[i] > MOST_EXTENT)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "x has shape %s; all but the number of samples must be at least 1 and "
                            "at most 2^40",
                            shape_format(x, text));
    if (status == XOP_OK)
        status = check_attrs(call, error);
    for (uint32_t i = 0; status == XOP_OK && i < 2; i++)
        if (!(size_of(call, i) >= 1 && size_of(call, i) <= (double)MOST_EXTENT))
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "y's %s would be %g; it must be at least 1 and at most 2^40",
                            i == 0 ? "height" : "width", size_of(call, i));
    return status;
}

static enum xop_status check(const struct xop_call *call, struct upsample_plan *how,
                             struct xop_tensor *y, struct xop_error *error) {
    enum xop_status status = check_extents(call, error);

    if (status != XOP_OK)
        return status;
    upsample_measure(call, how);
    shape_copy(y, &call->in[UPSAMPLE_X]);
    y->shape[2] = how->rows.out;
    y->shape[3] = how->columns.out;
    return shape_check_bytes("y", y, error);
}

static void costs(const struct xop_call *call, const struct xop_tensor *y, struct xop_plan *plan) {
    plan->write_once = 1;
    plan->bytes = xop_bytes(&call->in[UPSAMPLE_X]) + xop_bytes(y);
    plan->flops = 8 * (uint64_t)xop_elements(y);
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    struct upsample_plan how;
    enum xop_status status = check(call, &how, &plan->out[0], error);
    if (status == XOP_OK)
        costs(call, &plan->out[0], plan);
    return status;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    struct upsample_plan how;
    struct xop_tensor y;
    enum xop_status status = check(call, &how, &y, error);

    if (status == XOP_OK)
        status = xop_check_same("grad_y", &call->in[UPSAMPLE_GRAD_Y], "y", &y, error);
    if (status != XOP_OK)
        return status;
    shape_copy(&plan->out[0], &call->in[UPSAMPLE_X]);
    costs(call, &y, plan);
    return XOP_OK;
}

/* ---- Declaration ---- */

static const struct xop_attr_spec attrs[] = {
    {.name = "size",
     .doc = "rows and columns of y, or one number for both",
     .type = XOP_ATTR_INTS,
     .fallback = {.type = XOP_ATTR_INTS}},
    {.name = "scale_factor",
     .doc = "how many times as many rows and columns as x has, or one number for both",
     .type = XOP_ATTR_FLOATS,
     .fallback = {.type = XOP_ATTR_FLOATS}},
    {.name = "mode",
     .doc = "nearest or bilinear",
     .type = XOP_ATTR_STRING,
     .fallback = {.type = XOP_ATTR_STRING, .count = 7, .value.string = "nearest"}},
    {.name = "align_corners",
     .doc = "whether corners stay corners; for bilinear",
     .type = XOP_ATTR_BOOL,
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1}},
};
static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "of shape (N, C, H, W)"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of x's shape but for the last two dimensions"},
};
static const struct xop_operand backward_in[] = {
    {.name = "x", .doc = "the forward's x", .flags = XOP_OPERAND_SHAPE_ONLY},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x, of x's shape"},
};

const struct xop_op upsample_declaration = {
    .abi = XOP_OP_ABI,
    .name = "upsample",
    .doc = doc,
    .dtypes = XOP_FLOATS,
    .attrs = attrs,
    .nattrs = 4,
    .pass = {{.in = forward_in,
              .out = forward_out,
              .nin = 1,
              .nout = 1,
              .infer = forward_infer,
              .index_operand = -1},
             {.in = backward_in,
              .out = backward_out,
              .nin = 2,
              .nout = 1,
              .infer = backward_infer,
              .index_operand = -1}},
};
