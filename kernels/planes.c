#include "kernels/planes.h"

#include "kernels/shape.h"
#include "kernels/size.h"
#include <xop/check.h>

/* Elements under which a piece is not worth sums of its own; pieces of a strand at most; and of all
 * strands, at most, where there is more than one. */
#define PIECE_ELEMENTS 8192
#define MAX_PIECES 256
#define MAX_PIECES_ALL 4096

static void cut(struct planes_strands *strands) {
    int64_t wanted = size_ceil(strands->n, PIECE_ELEMENTS), most = MAX_PIECES;

    strands->piece = strands->n;
    strands->pieces = 0;
    if (strands->n == 0 || strands->strands == 0)
        return;
    if (most > MAX_PIECES_ALL / strands->strands)
        most = MAX_PIECES_ALL / strands->strands;
    if (wanted > most)
        wanted = most > 0 ? most : 1;
    strands->piece = size_ceil(strands->n, wanted);
    strands->pieces = (uint32_t)size_ceil(strands->n, strands->piece);
}

/* Takes so many pairs of doubles off the workspace; where they begin. */
static uint64_t pairs(uint64_t *bytes, int64_t strands, uint32_t each) {
    uint64_t at = *bytes;
    *bytes += size_aligned((uint64_t)strands * each * 2 * sizeof(double));
    return at;
}

void planes_measure(enum xop_pass pass, const struct xop_call *call, bool batch,
                    struct planes_plan *plan) {
    const struct xop_tensor *x = &call->in[PLANES_X];
    const struct xop_attr *attrs = call->attrs;
    struct xop_tensor plane = {.rank = x->rank - 2};
    int64_t samples = x->shape[0], channels = x->shape[1], groups;

    *plan = (struct planes_plan){.batch = batch, .elements = xop_elements(x)};
    for (uint32_t i = 0; i < plane.rank; i++)
        plane.shape[i] = x->shape[i + 2];
    /* A product that overflows is that of an empty tensor, and then nobody walks planes. */
    plan->inner = plan->elements == 0 ? 0 : xop_elements(&plane);
    plan->channels = channels;
    plan->channel = (struct planes_strands){
        .strands = channels,
        .n = plan->elements == 0 ? 0 : samples * plan->inner,
        .run = plan->inner,
        .step = plan->inner,
        .stride = plan->inner * channels,
    };
    if (plan->elements == 0)
        plan->channel.stride = 0;
    cut(&plan->channel);
    if (batch) {
        plan->fixed = !attrs[PLANES_TRAINING].value.i;
        plan->momentum = attrs[PLANES_MOMENTUM].value.f;
        plan->eps = attrs[PLANES_BATCH_EPS].value.f;
        plan->together = plan->channel;
        plan->together_channels = 1;
    } else {
        groups = attrs[PLANES_NUM_GROUPS].value.i;
        plan->eps = attrs[PLANES_GROUP_EPS].value.f;
        plan->together_channels = channels / groups;
        plan->together.n = plan->together_channels * plan->inner;
        plan->together.run = plan->together.step = plan->together.n;
        plan->together.strands = plan->elements == 0 ? 0 : samples * groups;
        cut(&plan->together);
    }
    plan->parts = pairs(&plan->workspace_bytes, plan->together.strands, plan->together.pieces);
    plan->stats = pairs(&plan->workspace_bytes, plan->together.strands, 1);
    plan->parameters = pairs(&plan->workspace_bytes, channels, 1);
    if (pass == XOP_FORWARD)
        return;
    plan->sums = pairs(&plan->workspace_bytes, plan->together.strands, 1);
    if (!batch)
        plan->channel_parts =
            pairs(&plan->workspace_bytes, plan->channel.strands, plan->channel.pieces);
}

/* ---- For the declarations ---- */

void planes_vector(const struct xop_call *call, struct xop_tensor *out) {
    const struct xop_tensor *x = &call->in[PLANES_X];
    *out = (struct xop_tensor){.dtype = x->dtype, .rank = 1, .shape = {x->shape[1]}};
}

enum xop_status planes_check_vector(const struct xop_call *call, uint32_t operand, const char *name,
                                    struct xop_error *error) {
    const struct xop_tensor *tensor = &call->in[operand];
    struct xop_tensor wanted;
    char came_text[SHAPE_TEXT], x_text[SHAPE_TEXT];

    if (tensor->dtype == XOP_DTYPE_NONE)
        return XOP_OK;
    planes_vector(call, &wanted);
    if (!shape_equal(tensor, &wanted))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s has shape %s, but needs one element for each of the %lld channels of "
                        "x, of shape %s",
                        name, shape_format(tensor, came_text), (long long)wanted.shape[0],
                        shape_format(&call->in[PLANES_X], x_text));
    return xop_check_dtypes("x", &wanted, name, tensor, error);
}

enum xop_status planes_check(const struct xop_call *call, bool bias, struct xop_error *error) {
    enum xop_status status = xop_check_rank("x", &call->in[PLANES_X], 2, XOP_MAX_RANK, error);
    if (status == XOP_OK)
        status = planes_check_vector(call, PLANES_WEIGHT, "weight", error);
    if (status == XOP_OK && bias)
        status = planes_check_vector(call, PLANES_BIAS, "bias", error);
    return status;
}

void planes_costs(const struct xop_call *call, const struct planes_plan *how, uint32_t nin,
                  uint32_t nout, struct xop_plan *plan) {
    plan->workspace_bytes = how->workspace_bytes;
    plan->write_once = (1u << nout) - 1;
    for (uint32_t i = 0; i < nin; i++)
        plan->bytes += xop_bytes(&call->in[i]);
    for (uint32_t i = 0; i < nout; i++)
        plan->bytes += xop_bytes(&plan->out[i]);
    plan->flops = 10 * (uint64_t)how->elements * (nout > 1 ? 2 : 1);
}
