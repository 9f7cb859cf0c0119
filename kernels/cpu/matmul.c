#include "kernels/matmul.h"

#include "kernels/cpu/launch.h"
#include "kernels/cpu/product.h"

static void run(const struct xop_host *host, const struct xop_call *call, enum xop_pass pass,
                int result) {
    struct product product;

    if (!call->out[result].data)
        return;
    matmul_product(call, pass, result, &product);
    product.c = call->out[result].data;
    product_run(&product, host);
}

static void forward_call(const struct xop_host *host, const struct xop_call *call) {
    run(host, call, XOP_FORWARD, MATMUL_Y);
}

static void backward_call(const struct xop_host *host, const struct xop_call *call) {
    run(host, call, XOP_BACKWARD, MATMUL_GRAD_A);
    run(host, call, XOP_BACKWARD, MATMUL_GRAD_B);
}

LAUNCH_EACH(matmul, forward_call, backward_call)
