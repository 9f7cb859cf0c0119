/* Wrong: the precision of grad_b in f16, which is rounded to f16 after every addition. */
#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/launch.h"
#include "tests/broken/broken.h"
#include "tests/broken/element.h"

static void sum_in_half(const struct xop_call *call) {
    const struct xop_tensor *grad_y = &call->in[BROADCAST_GRAD_Y], *grad_b = &call->out[1];
    const uint16_t *terms = grad_y->data;
    uint16_t *sums = grad_b->data;
    uint64_t bytes;
    int64_t n;

    if (!sums || grad_b->dtype != XOP_F16 || !xop_tensor_bytes(grad_b, &bytes) ||
        !xop_tensor_elements(grad_y, &n))
        return;
    memset(sums, 0, bytes);
    for (int64_t i = 0; i < n; i++) {
        uint16_t *sum = &sums[element_in_b(call, i)];
        *sum = convert_f32_to_f16(convert_f16_to_f32(*sum) + convert_f16_to_f32(terms[i]));
    }
}

static enum xop_status launch_backward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = square_bias_cpu_backward(launch, error);
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++)
        sum_in_half(&launch->calls[i]);
    return status;
}

BROKEN_LIBRARY("cpu", "broken_half", square_bias_cpu_forward, launch_backward);
