/*
 * upsample on the CPU, in f64 for every dtype. Every element of the result is computed by itself.
 */
#include "kernels/cpu/upsample.h"

#include "kernels/cpu/launch.h"
#include "kernels/upsample_math.h"
#include <xop/check.h>

struct upsample {
    struct upsample_plan plan;
    const void *x, *grad_y;
    void *out;
};

#define TYPED_BODY "kernels/cpu/upsample_body.h"
#include "kernels/cpu/typed.h"

static const typed_loop forward_runs[XOP_DTYPE_COUNT] = TYPED_TABLE(forward),
                        backward_runs[XOP_DTYPE_COUNT] = TYPED_TABLE(backward);

static void run(const struct xop_host *host, const struct xop_call *call, const typed_loop *runs) {
    const enum xop_dtype dtype = call->in[UPSAMPLE_X].dtype;
    struct upsample s = {.x = call->in[UPSAMPLE_X].data, .out = call->out[0].data};
    const int64_t n = xop_elements(&call->out[0]);

    if (!s.out || n == 0)
        return;
    upsample_measure(call, &s.plan);
    if (runs == backward_runs)
        s.grad_y = call->in[UPSAMPLE_GRAD_Y].data;
    host->parallel(host, n, LAUNCH_GRAIN / 4, runs[dtype], &s);
}

static void forward_call(const struct xop_host *host, const struct xop_call *call) {
    run(host, call, forward_runs);
}
static void backward_call(const struct xop_host *host, const struct xop_call *call) {
    run(host, call, backward_runs);
}
LAUNCH_EACH(upsample, forward_call, backward_call)
