/* Wrong: the sign of grad_x. */
#include "kernels/cpu/launch.h"
#include "tests/broken/broken.h"

/* The sign is the highest bit of every floating dtype, and elements are little-endian. */
static void negate(const struct xop_tensor *tensor) {
    size_t size = xop_dtype_size(tensor->dtype);
    uint64_t bytes;

    if (tensor->data && xop_tensor_bytes(tensor, &bytes))
        for (uint64_t i = size - 1; i < bytes; i += size)
            ((unsigned char *)tensor->data)[i] ^= 0x80;
}

static enum xop_status launch_backward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = square_bias_cpu_backward(launch, error);
    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++)
        negate(&launch->calls[i].out[0]);
    return status;
}

BROKEN_LIBRARY("cpu", "broken_gradient", square_bias_cpu_forward, launch_backward);
