/* How a connection's requests carry their tensors. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64

const char *bench_path_name(enum bench_path path) {
    static const char *const names[] = {"inline", "shm", "resident", "auto"};
    return names[path];
}

/* ---- Memory for the slots ---- */

static uint64_t padded(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static uint64_t bytes_of(const struct xop_tensor *tensor) {
    uint64_t bytes;
    return xop_tensor_bytes(tensor, &bytes) ? bytes : 0;
}

static uint64_t output_bytes(const struct bench_work *work) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->expected->nout; i++)
        bytes += padded(bytes_of(&work->expected->out[i]));
    return bytes;
}

/* Outputs of a slot lie one after the other from `at`. */
static void place_outputs(const struct bench_work *work, struct xop_tensor *out,
                          unsigned char *at) {
    for (uint32_t i = 0; i < work->expected->nout; i++) {
        out[i] = work->expected->out[i];
        out[i].data = out[i].dtype == XOP_DTYPE_NONE ? NULL : at;
        at += padded(bytes_of(&out[i]));
    }
}

static enum xop_status no_memory(struct xop_error *error) {
    return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                    "out of memory for the tensors of the requests in flight");
}

static struct xop_tensor *slot_tensors(const struct bench_client *client, uint32_t i) {
    const struct bench_work *work = client->work;
    return client->tensors + (size_t)i * (work->nin + work->expected->nout);
}

static enum xop_status open_inline(struct bench_client *client, struct xop_error *error) {
    const struct bench_work *work = client->work;
    uint64_t each = output_bytes(work), all;
    void *outputs;
    if (__builtin_mul_overflow(each, client->nslots, &all) || all > SIZE_MAX - ALIGNMENT ||
        posix_memalign(&outputs, ALIGNMENT, all + ALIGNMENT) != 0)
        return no_memory(error);
    client->outputs = outputs;
    for (uint32_t i = 0; i < client->nslots; i++) {
        struct xop_tensor *in = slot_tensors(client, i);
        memcpy(in, work->in, work->nin * sizeof *in);
        place_outputs(work, in + work->nin, client->outputs + i * each);
    }
    return XOP_OK;
}

/* Inputs and outputs of each slot have a range of their own, as those of a program that does work
 * would. */
static enum xop_status open_shm(struct bench_client *client, struct xop_error *error) {
    const struct bench_work *work = client->work;
    uint64_t each = output_bytes(work), all;
    for (uint32_t i = 0; i < work->nin; i++)
        each += work->in[i].data ? padded(work->inputs[i].bytes) : 0;
    if (__builtin_mul_overflow(each, client->nslots, &all) || all > SIZE_MAX - ALIGNMENT)
        return no_memory(error);
    if (xop_memory_create(all + ALIGNMENT, &client->memory, error) != XOP_OK ||
        xop_memory_attach(client->connection, client->memory, true, error) != XOP_OK)
        return error->status;
    unsigned char *at = xop_memory_data(client->memory);
    for (uint32_t i = 0; i < client->nslots; i++) {
        struct xop_tensor *in = slot_tensors(client, i);
        for (uint32_t k = 0; k < work->nin; k++) {
            const void *from = work->in[k].data;
            in[k] = work->in[k];
            if (!from)
                continue;
            in[k].data = memcpy(at, from, work->inputs[k].bytes);
            at += padded(work->inputs[k].bytes);
        }
        place_outputs(work, in + work->nin, at);
        at += output_bytes(work);
    }
    return XOP_OK;
}

/* The slots share the inputs, which are put once; each has outputs of its own. */
static enum xop_status open_resident(struct bench_client *client, struct xop_error *error) {
    const struct bench_work *work = client->work;
    uint32_t n = work->nin + work->expected->nout;
    client->handles = calloc((size_t)client->nslots * n, sizeof *client->handles);
    if (!client->handles)
        return no_memory(error);
    for (uint32_t i = 0; i < client->nslots; i++) {
        struct xop_tensor *in = slot_tensors(client, i);
        uint64_t *handles = client->handles + (size_t)i * n;
        for (uint32_t k = 0; k < work->nin; k++) {
            bool is_whole = work->in[k].data != NULL;
            if (!is_whole)
                in[k] = work->in[k];
            else
                handles[k] = i > 0 ? client->handles[k] : xop_handle(client->connection);
            if (is_whole && i == 0 &&
                xop_put(client->connection, handles[k], &work->in[k], error) != XOP_OK)
                return error->status;
        }
        for (uint32_t k = work->nin; k < n; k++)
            handles[k] = xop_handle(client->connection);
        client->slots[i].request.in_resident = handles;
        client->slots[i].request.out_resident = handles + work->nin;
    }
    return XOP_OK;
}

static enum xop_status (*const openers[BENCH_PATHS])(struct bench_client *, struct xop_error *) = {
    [BENCH_INLINE] = open_inline, [BENCH_SHM] = open_shm, [BENCH_RESIDENT] = open_resident};

/* ---- All paths ---- */

/* Compares an output of the first slot with the expected one. */
static enum xop_status check_output(struct bench_client *client, uint32_t i,
                                    struct xop_error *error) {
    const struct bench_work *work = client->work;
    const struct xop_request *request = &client->slots[0].request;
    struct xop_tensor got = work->expected->out[i];
    void *fetched = NULL;
    uint64_t bytes = bytes_of(&got);
    error->status = XOP_OK;
    if (bytes == 0)
        return XOP_OK;
    got.data = request->out[i].data;
    if (request->out_resident) {
        got.data = fetched = malloc(bytes);
        if (!fetched)
            return no_memory(error);
        xop_get(client->connection, request->out_resident[i], &got, error);
    }
    if (error->status == XOP_OK && memcmp(work->expected->out[i].data, got.data, bytes) != 0)
        xop_fail(error, XOP_DATA_LOSS, "output %u of %s by the path %s is not what it is inline", i,
                 work->op, bench_path_name(client->path));
    free(fetched);
    return error->status;
}

static enum xop_status check_first(struct bench_client *client, struct xop_error *error) {
    const struct bench_work *work = client->work;
    struct xop_result *result;
    if (xop_run(client->connection, &client->slots[0].request, &result) != XOP_OK) {
        if (result)
            xop_fail(error, result->error.status, "%s", result->error.message);
        else
            xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
        xop_result_free(result);
        return error->status;
    }
    xop_result_free(result);
    for (uint32_t i = 0; i < work->expected->nout; i++)
        if (check_output(client, i, error) != XOP_OK)
            return error->status;
    return XOP_OK;
}

enum xop_status bench_path_open(struct bench_client *client, struct xop_error *error) {
    const struct bench_work *work = client->work;
    client->slots = calloc(client->nslots, sizeof *client->slots);
    client->tensors = calloc((size_t)client->nslots * (work->nin + work->expected->nout),
                             sizeof *client->tensors);
    if (!client->slots || !client->tensors)
        return no_memory(error);
    for (uint32_t i = 0; i < client->nslots; i++) {
        client->slots[i].client = client;
        client->slots[i].request = (struct xop_request){.op = work->op,
                                                        .pass = work->pass,
                                                        .in = slot_tensors(client, i),
                                                        .nin = work->nin,
                                                        .out = slot_tensors(client, i) + work->nin,
                                                        .nout = work->expected->nout,
                                                        .attrs = work->attrs->list,
                                                        .nattrs = work->attrs->n};
    }
    if (openers[client->path](client, error) != XOP_OK)
        return error->status;
    return check_first(client, error);
}

void bench_path_close(struct bench_client *client) {
    xop_memory_free(client->memory);
    free(client->slots);
    free(client->tensors);
    free(client->handles);
    free(client->outputs);
}
