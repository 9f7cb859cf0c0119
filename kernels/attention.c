#include "kernels/attention.h"

#include <math.h>

#include "kernels/shape.h"
#include <xop/check.h>

static const char doc[] =
    "`attention`, as `torch.nn.functional.scaled_dot_product_attention`.\n"
    "\n"
    "    y = softmax(scale query key^T) value\n"
    "\n"
    "for each of the heads of `query`, (N, Hq, L, E), `key`, (N, H, S, E), and `value`, (N, H, S,\n"
    "Ev); N may be left out of all. `y` is (N, Hq, L, Ev). Hq is a multiple of H, and Hq / H "
    "heads\n"
    "in a row share one of key and value, as with PyTorch's `enable_gqa`. With `is_causal` query\n"
    "i sees keys 0 to i alone. `scale` is 1 / sqrt(E) where it is 0, as by default. There are no\n"
    "other masks, and no dropout.\n"
    "\n"
    "Gradients, with P the softmax, G = grad_y value^T and mean() by the weights P of a row:\n"
    "\n"
    "    grad_query = P (G - mean(G)) scale key\n"
    "    grad_key = (P (G - mean(G)) scale)^T query, summed over the heads that share it\n"
    "    grad_value = P^T grad_y, summed likewise\n"
    "\n"
    "Scores are computed in tiles, in backward anew, so that memory grows with L and S and not\n"
    "with their product. f16 and bf16 are computed in f32 and a result is rounded once. The\n"
    "order of sums depends on the shape alone.\n"
    "\n"
    "| case | result |\n"
    "| --- | --- |\n"
    "| a score of a query is NaN or +inf | NaN, all of its row of y |\n"
    "| scores of -inf | weigh nothing; NaN where all are |\n"
    "| no keys | y is 0 |\n"
    "| E is 0 | all scores are 0 |\n";

enum { IS_CAUSAL = 0, SCALE = 1 };

static const int64_t *last(const struct xop_tensor *tensor) {
    return tensor->shape + tensor->rank - 3;
}

void attention_measure(const struct xop_call *call, struct attention_plan *plan) {
    const struct xop_tensor *query = &call->in[ATTENTION_QUERY];
    const int64_t *key = last(&call->in[ATTENTION_KEY]);
    double scale = call->attrs[SCALE].value.f;

    plan->batch = query->rank == 4 ? query->shape[0] : 1;
    plan->heads = last(query)[0];
    plan->queries = last(query)[1];
    plan->width = last(query)[2];
    plan->key_heads = key[0];
    plan->keys = key[1];
    plan->value_width = last(&call->in[ATTENTION_VALUE])[2];
    plan->causal = call->attrs[IS_CAUSAL].value.i != 0;
    plan->scale = scale != 0 ? scale : 1 / sqrt((double)(plan->width > 0 ? plan->width : 1));
}

/* The dimensions of b that are to be those of a. */
static bool agree(const struct xop_tensor *a, const struct xop_tensor *b, bool keys) {
    bool same = a->rank == b->rank && (a->rank == 3 || a->shape[0] == b->shape[0]);
    if (!same)
        return false;
    if (keys) /* key and value: heads and keys */
        return last(a)[0] == last(b)[0] && last(a)[1] == last(b)[1];
    return last(a)[2] == last(b)[2] &&
           (last(a)[0] == last(b)[0] || (last(b)[0] > 0 && last(a)[0] % last(b)[0] == 0));
}

static enum xop_status check(const struct xop_call *call, struct xop_tensor *y,
                             struct xop_error *error) {
    const struct xop_tensor *query = &call->in[ATTENTION_QUERY], *key = &call->in[ATTENTION_KEY],
                            *value = &call->in[ATTENTION_VALUE];
    char query_text[SHAPE_TEXT], key_text[SHAPE_TEXT], value_text[SHAPE_TEXT];
    enum xop_status status = xop_check_rank("query", query, 3, 4, error);

    if (status == XOP_OK)
        status = xop_check_dtypes("query", query, "key", key, error);
    if (status == XOP_OK)
        status = xop_check_dtypes("query", query, "value", value, error);
    if (status != XOP_OK)
        return status;
    if (!agree(query, key, false) || !agree(key, value, true))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "query has shape %s, key %s and value %s; they must be (N, Hq, L, E), "
                        "(N, H, S, E) and (N, H, S, Ev) with Hq a multiple of H",
                        shape_format(query, query_text), shape_format(key, key_text),
                        shape_format(value, value_text));
    shape_copy(y, query);
    y->shape[y->rank - 1] = last(value)[2];
    return shape_check_bytes("y", y, error);
}

/* Products of two operations for each pair of a query and a key. */
static uint64_t flops_of(const struct xop_call *call, double products) {
    struct attention_plan how;
    double flops;
    attention_measure(call, &how);
    flops = products * (double)how.batch * (double)how.heads * (double)how.queries *
            (double)how.keys * (double)(how.width + how.value_width) * (how.causal ? 0.5 : 1);
    return flops < 0x1p63 ? (uint64_t)flops : UINT64_MAX;
}

static enum xop_status forward_infer(const struct xop_call *call, struct xop_plan *plan,
                                     struct xop_error *error) {
    enum xop_status status = check(call, &plan->out[0], error);

    if (status != XOP_OK)
        return status;
    plan->write_once = 1;
    for (uint32_t i = 0; i < 3; i++)
        plan->bytes += xop_bytes(&call->in[i]);
    plan->bytes += xop_bytes(&plan->out[0]);
    plan->flops = flops_of(call, 2);
    return XOP_OK;
}

static enum xop_status backward_infer(const struct xop_call *call, struct xop_plan *plan,
                                      struct xop_error *error) {
    const struct xop_tensor *grad_y = &call->in[ATTENTION_GRAD_Y];
    struct xop_tensor y = {0}, queries;
    enum xop_status status = check(call, &y, error);

    if (status == XOP_OK)
        status = xop_check_same("grad_y", grad_y, "y", &y, error);
    if (status != XOP_OK)
        return status;
    for (uint32_t i = 0; i < 3; i++) {
        shape_copy(&plan->out[i], &call->in[i]);
        plan->bytes += 2 * xop_bytes(&call->in[i]);
    }
    plan->bytes += xop_bytes(grad_y);
    plan->write_once = 7;
    plan->flops = flops_of(call, 9);
    /* Two for each query, whatever their width. */
    queries = y;
    queries.dtype = XOP_F64;
    queries.shape[queries.rank - 1] = 2;
    if (!xop_tensor_bytes(&queries, &plan->workspace_bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "there are more queries than memory for them");
    return XOP_OK;
}

static const struct xop_attr_spec attrs[] = {
    {.name = "is_causal",
     .doc = "whether query i sees keys 0 to i alone",
     .type = XOP_ATTR_BOOL,
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1}},
    {.name = "scale",
     .doc = "what products of query and key are multiplied by; 0: 1 / sqrt(E)",
     .type = XOP_ATTR_FLOAT,
     .fallback = {.type = XOP_ATTR_FLOAT, .count = 1}},
};
static const struct xop_operand forward_in[] = {
    {.name = "query", .doc = "of shape (N, Hq, L, E) or (Hq, L, E)"},
    {.name = "key", .doc = "of shape (N, H, S, E) or (H, S, E)"},
    {.name = "value", .doc = "of shape (N, H, S, Ev) or (H, S, Ev)"},
};
static const struct xop_operand forward_out[] = {
    {.name = "y", .doc = "of shape (N, Hq, L, Ev) or (Hq, L, Ev)"},
};
static const struct xop_operand backward_in[] = {
    {.name = "query", .doc = "the forward's query"},
    {.name = "key", .doc = "the forward's key"},
    {.name = "value", .doc = "the forward's value"},
    {.name = "grad_y", .doc = "gradient of y, of y's shape"},
};
static const struct xop_operand backward_out[] = {
    {.name = "grad_query", .doc = "gradient of query, of its shape"},
    {.name = "grad_key", .doc = "gradient of key, of its shape"},
    {.name = "grad_value", .doc = "gradient of value, of its shape"},
};

const struct xop_op attention_declaration = {
    .abi = XOP_OP_ABI,
    .name = "attention",
    .doc = doc,
    .dtypes = XOP_FLOATS,
    .attrs = attrs,
    .nattrs = 2,
    .pass = {{.in = forward_in,
              .out = forward_out,
              .nin = 3,
              .nout = 1,
              .infer = forward_infer,
              .index_operand = -1},
             {.in = backward_in,
              .out = backward_out,
              .nin = 4,
              .nout = 3,
              .infer = backward_infer,
              .index_operand = -1}},
};
