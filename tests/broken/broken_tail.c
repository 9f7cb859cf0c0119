/*
 * Wrong: no check against the end. Whole blocks of 4 elements are written, so up to 3 elements past
 * the end of y. What is read stays within the inputs, so that the damage is to the memory behind y.
 */
#include "kernels/cpu/launch.h"
#include "tests/broken/broken.h"
#include "tests/broken/element.h"

static void forward(const struct xop_host *host, const struct xop_call *call) {
    int64_t n = element_count(call), whole = (n + 3) / 4 * 4;

    (void)host;
    for (int64_t i = 0; i < whole; i++)
        element_forward(call, i < n ? i : n - 1, i);
}

static enum xop_status launch_forward(const struct xop_launch *launch, struct xop_error *error) {
    (void)error;
    launch_each(launch, forward);
    return XOP_OK;
}

BROKEN_LIBRARY("cpu", "broken_tail", launch_forward, square_bias_cpu_backward);
