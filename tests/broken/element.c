#include "tests/broken/element.h"

#include "kernels/cpu/convert.h"
#include "kernels/shape.h"
#include "kernels/square_bias.h"

int64_t element_count(const struct xop_call *call) {
    int64_t n;
    return call->out[0].data && xop_tensor_elements(&call->out[0], &n) ? n : 0;
}

static double load(const struct xop_tensor *tensor, int64_t index) {
    switch (tensor->dtype) {
    case XOP_F16: return (double)convert_f16_to_f32(((const uint16_t *)tensor->data)[index]);
    case XOP_BF16: return (double)convert_bf16_to_f32(((const uint16_t *)tensor->data)[index]);
    case XOP_F32: return (double)((const float *)tensor->data)[index];
    default: return ((const double *)tensor->data)[index];
    }
}

static void store(const struct xop_tensor *tensor, int64_t index, double value) {
    switch (tensor->dtype) {
    case XOP_F16: ((uint16_t *)tensor->data)[index] = convert_f32_to_f16((float)value); break;
    case XOP_BF16: ((uint16_t *)tensor->data)[index] = convert_f32_to_bf16((float)value); break;
    case XOP_F32: ((float *)tensor->data)[index] = (float)value; break;
    default: ((double *)tensor->data)[index] = value; break;
    }
}

/* Where the operand holds what belongs to element index of the full shape. */
static int64_t position(const struct xop_tensor *operand, const struct xop_tensor *full,
                        int64_t index) {
    int64_t at = 0, step = 1;
    for (uint32_t i = 0; i < operand->rank; i++) {
        int64_t size = operand->shape[operand->rank - 1 - i];
        int64_t extent = full->shape[full->rank - 1 - i];
        at += size == 1 ? 0 : index % extent * step;
        index /= extent;
        step *= size;
    }
    return at;
}

void element_forward(const struct xop_call *call, int64_t from, int64_t to) {
    const struct xop_tensor *y = &call->out[0];
    const struct xop_tensor *in_x = &call->in[BROADCAST_X], *in_b = &call->in[BROADCAST_B];
    double x = load(in_x, position(in_x, y, from)), b = load(in_b, position(in_b, y, from));
    store(y, to, x * x + b);
}

int64_t element_in_b(const struct xop_call *call, int64_t index) {
    return position(&call->in[BROADCAST_B], &call->in[BROADCAST_GRAD_Y], index);
}
