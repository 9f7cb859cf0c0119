#include "kernels/loss.h"

#include <string.h>

#include "kernels/size.h"

static const char *const reductions[] = {
    [LOSS_NONE] = "none", [LOSS_MEAN] = "mean", [LOSS_SUM] = "sum"};

enum loss_reduction loss_reduction(const struct xop_call *call) {
    for (int i = LOSS_NONE; i < LOSS_SUM; i++)
        if (strcmp(call->attrs[0].value.string, reductions[i]) == 0)
            return (enum loss_reduction)i;
    return LOSS_SUM;
}

enum xop_status loss_check_reduction(const struct xop_call *call, struct xop_error *error) {
    const char *given = call->attrs[0].value.string;
    if (strcmp(given, reductions[loss_reduction(call)]) == 0)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "reduction is \"%.60s\"; it must be \"none\", \"mean\" or \"sum\"", given);
}

uint64_t loss_partials_bytes(int64_t pieces) {
    return size_aligned((uint64_t)pieces * LOSS_PARTS * sizeof(double));
}

int64_t loss_pieces(int64_t elements) { return size_ceil(elements, LOSS_PIECE); }
