/* Wrong: a long sum of linear's forward, which lacks its last term. That is less than rounding may
 * make of so many, so it shows only where sums are exact. */
#include "kernels/cpu/launch.h"
#include "kernels/linear.h"
#include "tests/broken/broken.h"

#define LONG 50000

static void take_last_away(const struct xop_call *call) {
    const float *x = call->in[LINEAR_X].data, *w = call->in[LINEAR_W].data;
    float *y = call->out[0].data;
    struct linear_size size;

    linear_measure(call, &size);
    if (!y || call->in[LINEAR_X].dtype != XOP_F32 || size.in < LONG)
        return;
    for (int64_t i = 0; i < size.rows; i++)
        for (int64_t j = 0; j < size.out; j++)
            y[i * size.out + j] -= x[(i + 1) * size.in - 1] * w[(j + 1) * size.in - 1];
}

static enum xop_status launch_forward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = linear_cpu_forward(launch, error);
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++)
        take_last_away(&launch->calls[i]);
    return status;
}

BROKEN_LIBRARY_OF(linear_declaration, "cpu", "broken_product", launch_forward, linear_cpu_backward);
