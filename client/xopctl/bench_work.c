#include "bench.h"
#include "lookup.h"
#include "verify.h"

#include <stdlib.h>
#include <string.h>

#define SEED 1
#define DISTINCT 65521 /* a prime: numbers repeat, but neither rows nor blocks look the same */

/* ---- Tensors ---- */

static void fill(struct value *value, double low, double high, struct random *random) {
    int64_t distinct = value->n < DISTINCT ? value->n : DISTINCT;
    for (int64_t i = 0; i < distinct; i++) {
        if (value_is_integer(value->tensor.dtype))
            value_set_integer(value, i, (int64_t)(random_next(random) & 1)); /* good as an index */
        else
            value_set(value, i, random_between(random, low, high));
    }
    uint64_t have = (uint64_t)distinct * xop_dtype_size(value->tensor.dtype);
    unsigned char *data = value->tensor.data;
    while (have < value->bytes) {
        uint64_t more = value->bytes - have < have ? value->bytes - have : have;
        memcpy(data + have, data, more);
        have += more;
    }
}

/* The dtype asked for where the input can have it, else the first that it can have. */
static enum xop_dtype input_dtype(json_t *input, enum xop_dtype wanted) {
    size_t i;
    json_t *named, *list = json_object_get(input, "dtypes");
    const char *first = json_string_value(json_array_get(list, 0));
    json_array_foreach(list, i, named) {
        const char *name = json_string_value(named);
        if (name && strcmp(name, xop_dtype_name(wanted)) == 0)
            return wanted;
    }
    return first ? value_dtype_named(first, strlen(first)) : wanted;
}

/* ---- Shapes that go with each other ---- */

/* What the inputs behind the first may have, given the first one's shape; tried in this order. */
enum relation { SAME, LAST_DIMENSION, ALL_BUT_LAST, RELATIONS };

static struct bench_shape shape_of(const struct bench_options *options, uint32_t i,
                                   enum relation relation) {
    struct bench_shape shape = options->shapes[i < options->nshapes ? i : options->nshapes - 1];
    if (i == 0 || shape.rank == 0)
        return shape;
    if (relation == LAST_DIMENSION) {
        shape.n[0] = shape.n[shape.rank - 1];
        shape.rank = 1;
    } else if (relation == ALL_BUT_LAST) {
        shape.rank--;
    }
    return shape;
}

/* Forward's inputs; optional ones are left out. */
static enum xop_status make_inputs(const struct bench_options *options, json_t *inputs,
                                   enum relation relation, struct bench_work *work,
                                   struct xop_error *error) {
    struct random random = {SEED, 0};
    size_t i;
    json_t *input;
    work->nin = 0;
    json_array_foreach(inputs, i, input) {
        struct value *value = &work->inputs[i];
        struct bench_shape shape = shape_of(options, (uint32_t)i, relation);
        if (i == XOP_MAX_INPUTS)
            break;
        work->nin++;
        if (json_is_true(json_object_get(input, "optional")) && i >= options->nshapes)
            continue;
        if (value_new(value, input_dtype(input, options->dtype), shape.rank, shape.n, error) !=
            XOP_OK)
            return error->status;
        fill(value, 0.25, 1.75, &random);
        work->in[i] = value->tensor;
        if (json_is_true(json_object_get(input, "shape_only")))
            work->in[i].data = NULL;
    }
    return XOP_OK;
}

static void free_inputs(struct bench_work *work) {
    for (uint32_t i = 0; i < XOP_MAX_INPUTS; i++)
        value_free(&work->inputs[i]);
    memset(work->in, 0, sizeof work->in);
    work->nin = 0;
}

static enum xop_status run_once(struct session *session, const struct bench_work *work,
                                enum xop_pass pass, struct xop_result **result,
                                struct xop_error *error) {
    struct xop_request request = {.op = work->op,
                                  .pass = pass,
                                  .in = work->in,
                                  .nin = work->nin,
                                  .attrs = work->attrs->list,
                                  .nattrs = work->attrs->n};
    while (request.nin > 0 && request.in[request.nin - 1].dtype == XOP_DTYPE_NONE)
        request.nin--;
    if (xop_run(session->client, &request, result) == XOP_OK)
        return XOP_OK;
    if (*result)
        xop_fail(error, (*result)->error.status, "%s", (*result)->error.message);
    else
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    xop_result_free(*result);
    *result = NULL;
    return error->status;
}

/* Runs forward with each relation of shapes until one suits it; the first one's refusal is told. */
static enum xop_status try_forward(struct session *session, const struct bench_options *options,
                                   json_t *inputs, struct bench_work *work,
                                   struct xop_result **result, struct xop_error *error) {
    struct xop_error other = {0};
    int relations = options->nshapes > 1 || json_array_size(inputs) < 2 ? 1 : RELATIONS;
    for (int relation = 0; relation < relations; relation++) {
        struct xop_error *into = relation == 0 ? error : &other;
        free_inputs(work);
        if (make_inputs(options, inputs, (enum relation)relation, work, into) == XOP_OK &&
            run_once(session, work, XOP_FORWARD, result, into) == XOP_OK)
            return XOP_OK;
        if (into->status != XOP_INVALID_ARGUMENT)
            return relation == 0 ? into->status
                                 : xop_fail(error, into->status, "%s", into->message);
    }
    return error->status;
}

/* ---- Backward ---- */

/* Copies a tensor whose memory is somebody else's. */
static enum xop_status copy(struct value *to, const struct xop_tensor *from,
                            struct xop_error *error) {
    if (value_new(to, from->dtype, from->rank, from->shape, error) == XOP_OK && to->bytes > 0)
        memcpy(to->tensor.data, from->data, to->bytes);
    return to->tensor.data ? XOP_OK : error->status;
}

/* Backward's inputs are forward's inputs and outputs, by their names, and gradients. */
static enum xop_status place_backward(json_t *op, struct bench_work *work,
                                      const struct xop_result *forward, struct xop_error *error) {
    json_t *ins = json_object_get(json_object_get(op, "forward"), "inputs"), *input;
    json_t *outs = json_object_get(json_object_get(op, "forward"), "outputs");
    struct random random = {SEED + 1, 0};
    struct value placed[XOP_MAX_INPUTS] = {0};
    uint32_t n = 0;
    size_t i;
    error->status = XOP_OK;
    json_array_foreach(json_object_get(json_object_get(op, "backward"), "inputs"), i, input) {
        const char *name = lookup_text(input, "name");
        int gradient = strncmp(name, "grad_", 5) == 0 ? lookup_index(outs, name + 5) : -1;
        int in = lookup_index(ins, name), out = gradient >= 0 ? gradient : lookup_index(outs, name);
        if (n == XOP_MAX_INPUTS || error->status != XOP_OK)
            break;
        if (in >= 0 && gradient < 0) {
            if (work->inputs[in].tensor.dtype != XOP_DTYPE_NONE)
                copy(&placed[n], &work->inputs[in].tensor, error);
        } else if (out >= 0 && (uint32_t)out < forward->nout) {
            if (copy(&placed[n], &forward->out[out], error) == XOP_OK && gradient >= 0)
                fill(&placed[n], -1, 1, &random);
        } else {
            xop_fail(error, XOP_UNIMPLEMENTED,
                     "backward of %s takes %s, which bench does not know how to make", work->op,
                     name);
        }
        n++;
    }
    free_inputs(work);
    memcpy(work->inputs, placed, sizeof placed);
    work->nin = n;
    json_array_foreach(json_object_get(json_object_get(op, "backward"), "inputs"), i, input) {
        if (i == n)
            break;
        work->in[i] = work->inputs[i].tensor;
        if (json_is_true(json_object_get(input, "shape_only")))
            work->in[i].data = NULL;
    }
    return error->status;
}

/* ---- All of it ---- */

static void count_bytes(struct bench_work *work) {
    uint64_t bytes;
    while (work->nin > 0 && work->in[work->nin - 1].dtype == XOP_DTYPE_NONE)
        work->nin--;
    for (uint32_t i = 0; i < work->nin; i++)
        work->bytes_in += work->in[i].data ? work->inputs[i].bytes : 0;
    for (uint32_t i = 0; i < work->expected->nout; i++)
        if (xop_tensor_bytes(&work->expected->out[i], &bytes))
            work->bytes_out += bytes;
    work->elements = work->inputs[0].n;
}

enum xop_status bench_work_make(struct session *session, const struct bench_options *options,
                                json_t *op, const struct attrs *attrs, struct bench_work *work,
                                struct xop_error *error) {
    json_t *inputs = json_object_get(json_object_get(op, "forward"), "inputs");
    struct xop_result *forward = NULL;
    memset(work, 0, sizeof *work);
    work->op = options->op;
    work->pass = options->pass;
    work->attrs = attrs;
    enum xop_status status = try_forward(session, options, inputs, work, &forward, error);
    if (status == XOP_OK && forward && options->pass == XOP_BACKWARD) {
        status = place_backward(op, work, forward, error);
        xop_result_free(forward);
        forward = NULL;
        if (status == XOP_OK)
            status = run_once(session, work, XOP_BACKWARD, &forward, error);
    }
    work->expected = forward;
    if (status == XOP_OK && forward)
        count_bytes(work);
    else
        bench_work_free(work);
    return status;
}

void bench_work_free(struct bench_work *work) {
    free_inputs(work);
    xop_result_free(work->expected);
    work->expected = NULL;
}
