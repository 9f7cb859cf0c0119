#include "kernels/linear.h"

#include "kernels/cpu/launch.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/reduce.h"

static void forward_call(const struct xop_host *host, const struct xop_call *call) {
    struct product y;

    linear_product(call, XOP_FORWARD, LINEAR_Y, &y);
    y.c = call->out[LINEAR_Y].data;
    product_run(&y, host);
}

static void backward_call(const struct xop_host *host, const struct xop_call *call) {
    const struct xop_tensor *grad_y = &call->in[LINEAR_GRAD_Y];

    for (int i = LINEAR_GRAD_X; i <= LINEAR_GRAD_W; i++) {
        struct product gradient;
        linear_product(call, XOP_BACKWARD, i, &gradient);
        gradient.c = call->out[i].data;
        product_run(&gradient, host);
    }
    if (call->out[LINEAR_GRAD_B].data) {
        struct linear_size size;
        struct shape_reduction sum;
        struct reduce reduce = {.shape = &sum,
                                .dtype = grad_y->dtype,
                                .full = grad_y->data,
                                .scale = 1,
                                .out = call->out[LINEAR_GRAD_B].data};
        reduce.partials = call->workspace;
        linear_measure(call, &size);
        linear_bias_sum(&size, grad_y->dtype, &sum);
        reduce_run(&reduce, host);
    }
}

LAUNCH_EACH(linear, forward_call, backward_call)
