#include "kernels/cpu/loss.h"

#include "kernels/cpu/loops.h"

struct loss_sums loss_add_up(const double *partials, int64_t pieces) {
    struct loss_sums sums = {0, 0};
    for (int64_t i = 0; i < pieces; i++) {
        sums.loss += partials[LOSS_PARTS * i];
        sums.weight += partials[LOSS_PARTS * i + 1];
    }
    return sums;
}

double loss_element(enum xop_dtype dtype, const void *data, int64_t at) {
    double value;
    loops_load(loops_best(), dtype, &value, (const char *)data + (size_t)at * xop_dtype_size(dtype),
               1);
    return value;
}

void loss_store(enum xop_dtype dtype, void *data, int64_t at, double value) {
    loops_store(loops_best(), dtype, (char *)data + (size_t)at * xop_dtype_size(dtype), &value, 1);
}
