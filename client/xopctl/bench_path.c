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

static enum xop_status open_inline(struct bench_client *client, struct xop_error *error) {
    const struct bench_work *work = client->work;
    uint64_t each = output_bytes(work), all;
    void *outputs;
    if (__builtin_mul_overflow(each, client->nslots, &all) || all > SIZE_MAX - ALIGNMENT ||
        posix_memalign(&outputs, ALIGNMENT, all + ALIGNMENT) != 0)
        return no_memory(error);
    client->outputs = outputs;
    for (uint32_t i = 0; i < client->nslots; i++) {
        struct xop_tensor *in = client->tensors + i * (work->nin + work->expected->nout);
        memcpy(in, work->in, work->nin * sizeof *in);
        place_outputs(work, in + work->nin, client->outputs + i * each);
    }
    return XOP_OK;
}

/* ---- All paths ---- */

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
    for (uint32_t i = 0; i < work->expected->nout; i++) {
        const struct xop_tensor *wanted = &work->expected->out[i];
        const struct xop_tensor *got = &client->slots[0].request.out[i];
        uint64_t bytes = bytes_of(wanted);
        if (bytes > 0 && memcmp(wanted->data, got->data, bytes) != 0)
            return xop_fail(error, XOP_DATA_LOSS,
                            "output %u of %s by the path %s is not what it is inline", i, work->op,
                            bench_path_name(client->path));
    }
    return XOP_OK;
}

enum xop_status bench_path_open(struct bench_client *client, struct xop_error *error) {
    const struct bench_work *work = client->work;
    size_t each = work->nin + work->expected->nout;
    client->slots = calloc(client->nslots, sizeof *client->slots);
    client->tensors = calloc(client->nslots * each, sizeof *client->tensors);
    client->handles = calloc(client->nslots * each, sizeof *client->handles);
    if (!client->slots || !client->tensors || !client->handles)
        return no_memory(error);
    for (uint32_t i = 0; i < client->nslots; i++) {
        struct bench_slot *slot = &client->slots[i];
        slot->client = client;
        slot->request = (struct xop_request){.op = work->op,
                                             .pass = work->pass,
                                             .in = client->tensors + i * each,
                                             .nin = work->nin,
                                             .out = client->tensors + i * each + work->nin,
                                             .nout = work->expected->nout,
                                             .attrs = work->attrs.list,
                                             .nattrs = work->attrs.n};
    }
    if (open_inline(client, error) != XOP_OK)
        return error->status;
    return check_first(client, error);
}

void bench_path_close(struct bench_client *client) {
    free(client->slots);
    free(client->tensors);
    free(client->handles);
    free(client->outputs);
}
