/*
 * template_op: y = x*x + b, forward and backward, on the CPU. A start: change the formula in
 * forward_run, backward_run and the two references, and the documentation.
 *
 *     xopctl op build template_op.c
 *     xopctl op check template_op-cpu.so
 *     xopctl op install template_op-cpu.so
 */
#include <math.h>
#include <xop/check.h>

enum { X, B, GRAD_Y };      /* inputs, in the order of forward_in and backward_in */
enum { GRAIN = 16 * 1024 }; /* elements that are worth a thread's while */

/* ---- Forward ---- */

/* Refuses what does not go together, and says what will come out. */
static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    enum xop_status status = xop_check_same("x", &call->in[X], "b", &call->in[B], error);
    if (status != XOP_OK)
        return status;
    xop_like(&plan->out[0], &call->in[X]);
    xop_plan_elementwise(call, 2, 1, 2, plan);
    return XOP_OK;
}

/* The elements from begin to end, which is what a thread gets. */
static void forward_run(void *arg, int64_t begin, int64_t end) {
    const struct xop_call *call = (const struct xop_call *)arg;
    XOP_DISPATCH(call->out[0].dtype, T, {
        const T *x = (const T *)call->in[X].data, *b = (const T *)call->in[B].data;
        T *y = (T *)call->out[0].data;
        for (int64_t i = begin; i < end; i++)
            y[i] = x[i] * x[i] + b[i];
    })
}

static enum xop_status forward_launch(const struct xop_launch *launch, struct xop_error *error) {
    (void)error;
    for (uint32_t i = 0; i < launch->ncalls; i++)
        if (launch->calls[i].out[0].data)
            launch->host->parallel(launch->host, xop_elements(&launch->calls[i].out[0]), GRAIN,
                                   forward_run, (void *)&launch->calls[i]);
    return XOP_OK;
}

/* ---- Backward ---- */

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

/* A gradient that the caller does not want has no data. */
static void backward_run(void *arg, int64_t begin, int64_t end) {
    const struct xop_call *call = (const struct xop_call *)arg;
    XOP_DISPATCH(call->out[0].dtype, T, {
        const T *x = (const T *)call->in[X].data, *grad_y = (const T *)call->in[GRAD_Y].data;
        T *grad_x = (T *)call->out[0].data, *grad_b = (T *)call->out[1].data;
        for (int64_t i = begin; grad_x && i < end; i++)
            grad_x[i] = 2 * (x[i] * grad_y[i]);
        for (int64_t i = begin; grad_b && i < end; i++)
            grad_b[i] = grad_y[i];
    })
}

static enum xop_status backward_launch(const struct xop_launch *launch, struct xop_error *error) {
    (void)error;
    for (uint32_t i = 0; i < launch->ncalls; i++)
        launch->host->parallel(launch->host, xop_elements(&launch->calls[i].out[0]), GRAIN,
                               backward_run, (void *)&launch->calls[i]);
    return XOP_OK;
}

/* ---- What xopd is told ---- */

static const struct xop_operand forward_in[] = {
    {.name = "x", .doc = "what is squared, of any shape"},
    {.name = "b", .doc = "what is added, of x's shape"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "x*x + b, of x's shape"},
};
static const struct xop_operand backward_in[] = {
    {.name = "x", .doc = "forward's x"},
    {.name = "b", .doc = "forward's b, its shape only", .flags = XOP_OPERAND_SHAPE_ONLY},
    {.name = "grad_y", .doc = "gradient of y"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_x", .doc = "gradient of x"},
    {.name = "grad_b", .doc = "gradient of b"},
};

static const struct xop_op template_op = {
    .abi = XOP_OP_ABI,
    .name = "template_op",
    .doc = "`template_op` squares its input and adds a bias: `y = x*x + b`.",
    .dtypes = XOP_DTYPE_BIT(XOP_F32) | XOP_DTYPE_BIT(XOP_F64),
    .pass = {{.in = forward_in,
              .nin = 2,
              .out = forward_out,
              .nout = 1,
              .infer = forward_infer,
              .launch = forward_launch,
              .max_group = 64,
              .index_operand = -1},
             {.in = backward_in,
              .nin = 3,
              .out = backward_out,
              .nout = 2,
              .infer = backward_infer,
              .launch = backward_launch,
              .max_group = 64,
              .index_operand = -1}},
};

XOP_LIBRARY("cpu", &template_op);

/* ---- What `xopctl op check` judges by ---- */

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
