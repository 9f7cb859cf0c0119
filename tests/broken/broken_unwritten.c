/* Wrong: the middle element of y is never written. */
#include "kernels/cpu/launch.h"
#include "tests/broken/broken.h"
#include "tests/broken/element.h"

static void forward(const struct xop_host *host, const struct xop_call *call) {
    int64_t n = element_count(call);

    (void)host;
    for (int64_t i = 0; i < n; i++)
        if (i != n / 2)
            element_forward(call, i, i);
}

static enum xop_status launch_forward(const struct xop_launch *launch, struct xop_error *error) {
    (void)error;
    launch_each(launch, forward);
    return XOP_OK;
}

BROKEN_LIBRARY("cpu", "broken_unwritten", launch_forward, square_bias_cpu_backward);
