/*
 * template_op: y = x*x + b, forward and backward, on CUDA. A start: change the formula in forward,
 * backward and the two references, and the documentation.
 *
 *     xopctl op build template_op.cu
 *     xopctl op check template_op-cuda.so
 *     xopctl op install template_op-cuda.so
 */
#include <math.h>
#include <xop/elementwise.cuh>

enum { X, B, GRAD_Y }; /* inputs, in the order of forward_in and backward_in */

/* ---- Kernels: what happens to one element ---- */

struct forward {
    template <class T> __device__ void operator()(const T (&in)[2], T (&out)[1]) const {
        out[0] = in[X] * in[X] + in[B];
    }
};

struct backward {
    template <class T> __device__ void operator()(const T (&in)[3], T (&out)[2]) const {
        out[0] = 2 * (in[X] * in[GRAD_Y]);
        out[1] = in[GRAD_Y];
    }
};

static enum xop_status forward_launch(const struct xop_launch *launch, struct xop_error *error) {
    return xop_elementwise<2, 1>(launch, forward(), error);
}

static enum xop_status backward_launch(const struct xop_launch *launch, struct xop_error *error) {
    return xop_elementwise<3, 2>(launch, backward(), error);
}

/* ---- Checks: what goes together, and what will come out ---- */

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    enum xop_status status = xop_check_same("x", &call->in[X], "b", &call->in[B], error);
    if (status != XOP_OK)
        return status;
    xop_like(&plan->out[0], &call->in[X]);
    xop_plan_elementwise(call, 2, 1, 2, plan);
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    enum xop_status status = xop_check_same("x", &call->in[X], "b", &call->in[B], error);
    if (status == XOP_OK)
        status = xop_check_same("x", &call->in[X], "grad_y", &call->in[GRAD_Y], error);
    if (status != XOP_OK)
        return status;
    xop_like(&plan->out[0], &call->in[X]);
    xop_like(&plan->out[1], &call->in[B]);
    xop_plan_elementwise(call, 3, 2, 2, plan);
    return XOP_OK;
}

/* ---- What xopd is told: name, documentation, flags, dtypes (0: the operator's) ---- */

static const struct xop_operand forward_in[] = {
    {"x", "what is squared, of any shape", 0, 0},
    {"b", "what is added, of x's shape", 0, 0},
};
static const struct xop_operand forward_out[] = {
    {"y", "x*x + b, of x's shape", 0, 0},
};
static const struct xop_operand backward_in[] = {
    {"x", "forward's x", 0, 0},
    {"b", "forward's b, its shape only", XOP_OPERAND_SHAPE_ONLY, 0},
    {"grad_y", "gradient of y", 0, 0},
};
static const struct xop_operand backward_out[] = {
    {"grad_x", "gradient of x", 0, 0},
    {"grad_b", "gradient of b", 0, 0},
};

/* Signatures: inputs, outputs, how many of each, functions, calls a launch takes, index operand. */
static const struct xop_op template_op = {
    XOP_OP_ABI,
    "template_op",
    "`template_op` squares its input and adds a bias: `y = x*x + b`.",
    XOP_FLOATS,
    NULL, /* attributes */
    0,
    {{forward_in, forward_out, 2, 1, forward_infer, forward_launch, 64, -1},
     {backward_in, backward_out, 3, 2, backward_infer, backward_launch, 64, -1}},
};

XOP_LIBRARY("cuda", &template_op);

/* ---- What `xopctl op check` judges by, on the CPU ---- */

/* scale: the terms of a sum without their signs, since rounding is in proportion to these. */
static void forward_reference(const struct xop_reference_call *call) {
    struct xop_reference_tensor *y = &call->out[0];
    for (int64_t i = 0; i < y->n; i++) {
        double square = call->in[X].data[i] * call->in[X].data[i];
        if (square > call->largest) /* in f32 it is, long before it is in a double */
            square = INFINITY;
        y->data[i] = square + call->in[B].data[i];
        y->scale[i] = square + fabs(call->in[B].data[i]);
    }
    y->terms = 2;
}

static void backward_reference(const struct xop_reference_call *call) {
    for (int64_t i = 0; i < call->out[0].n; i++) {
        double product = call->in[X].data[i] * call->in[GRAD_Y].data[i];
        if (fabs(product) > call->largest)
            product = copysign(INFINITY, product);
        call->out[0].data[i] = 2 * product;
        call->out[1].data[i] = call->in[GRAD_Y].data[i];
    }
}

XOP_REFERENCES({"template_op", {forward_reference, backward_reference}, -2, 3, 0});
