#include "kernels/broadcast.h"

uint64_t broadcast_bytes(const struct xop_tensor *tensor) {
    uint64_t bytes;
    return xop_tensor_bytes(tensor, &bytes) ? bytes : 0;
}

uint64_t broadcast_elements(const struct xop_tensor *tensor) {
    int64_t n;
    return xop_tensor_elements(tensor, &n) ? (uint64_t)n : 0;
}

static enum xop_status same_dtype(const char *a_name, const struct xop_tensor *a,
                                  const char *b_name, const struct xop_tensor *b,
                                  struct xop_error *error) {
    if (a->dtype == b->dtype)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is %s but %s is %s; they must be the same",
                    a_name, xop_dtype_name(a->dtype), b_name, xop_dtype_name(b->dtype));
}

enum xop_status broadcast_infer(const struct xop_call *call, struct xop_plan *plan,
                                struct shape_map *map, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    enum xop_status status = same_dtype("x", x, "b", b, error);

    if (status == XOP_OK)
        status = shape_broadcast("x", x, "b", b, &plan->out[0], error);
    if (status != XOP_OK)
        return status;
    shape_collapse(x, b, &plan->out[0], map);
    plan->read_once = (map->x_form == SHAPE_FULL ? 1u << BROADCAST_X : 0) |
                      (map->b_form == SHAPE_FULL ? 1u << BROADCAST_B : 0);
    plan->write_once = 1;
    plan->bytes = broadcast_bytes(x) + broadcast_bytes(b) + broadcast_bytes(&plan->out[0]);
    return XOP_OK;
}

void broadcast_backward_plan(const struct xop_tensor *x, const struct xop_tensor *b,
                             const struct xop_tensor *grad_y, struct broadcast_backward *plan) {
    shape_reduce(x, grad_y, &plan->x);
    shape_reduce(b, grad_y, &plan->b);
    plan->b_offset = shape_reduction_workspace(&plan->x);
    plan->workspace_bytes = plan->b_offset + shape_reduction_workspace(&plan->b);
}

static enum xop_status check_grad_y(const struct xop_tensor *x, const struct xop_tensor *b,
                                    const struct xop_tensor *grad_y, struct xop_error *error) {
    char wanted[SHAPE_TEXT], came[SHAPE_TEXT];
    struct xop_tensor y;
    enum xop_status status = same_dtype("x", x, "b", b, error);

    if (status == XOP_OK)
        status = same_dtype("x", x, "grad_y", grad_y, error);
    if (status == XOP_OK)
        status = shape_broadcast("x", x, "b", b, &y, error);
    if (status == XOP_OK && !shape_equal(&y, grad_y))
        status =
            xop_fail(error, XOP_INVALID_ARGUMENT, "grad_y has shape %s but x and b broadcast to %s",
                     shape_format(grad_y, came), shape_format(&y, wanted));
    return status;
}

enum xop_status broadcast_infer_backward(const struct xop_call *call, struct xop_plan *plan,
                                         struct broadcast_backward *back, struct xop_error *error) {
    const struct xop_tensor *x = &call->in[BROADCAST_X], *b = &call->in[BROADCAST_B];
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y];
    enum xop_status status = check_grad_y(x, b, grad_y, error);

    if (status != XOP_OK)
        return status;
    broadcast_backward_plan(x, b, grad_y, back);
    shape_copy(&plan->out[0], x);
    shape_copy(&plan->out[1], b);
    plan->workspace_bytes = back->workspace_bytes;
    plan->write_once = 3;
    return XOP_OK;
}
