#include "call.h"

#include <stdlib.h>
#include <string.h>

static const unsigned char padding[PROTO_ALIGNMENT];

/* The result and what its outputs need, in one allocation; its owner frees outputs by `owned`. */
struct result_block {
    struct xop_result result;
    struct xop_tensor outputs[XOP_MAX_OUTPUTS];
    bool owned[XOP_MAX_OUTPUTS];
};

void xop_result_free(struct xop_result *result) {
    struct result_block *block = (struct result_block *)(void *)result;
    if (!result)
        return;
    for (uint32_t i = 0; i < result->nout; i++)
        if (block->owned[i])
            free(block->outputs[i].data);
    free(result->text);
    free(block);
}

/* ---- From a request to a message ---- */

static enum xop_status place_input(const struct xop_tensor *from, struct message_tensor *to,
                                   uint32_t index, uint64_t *end, struct xop_error *error) {
    uint64_t bytes;
    *to = (struct message_tensor){.place = PLACE_OMIT};
    if (from->dtype == XOP_DTYPE_NONE)
        return XOP_OK;
    if (from->rank > XOP_MAX_RANK || !xop_tensor_bytes(from, &bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "input %u: its dtype and shape give a size that is not possible", index);
    to->dtype = from->dtype;
    to->rank = from->rank;
    memcpy(to->shape, from->shape, sizeof to->shape);
    if (!from->data && bytes > 0) {
        to->place = PLACE_NONE;
        return XOP_OK;
    }
    to->place = PLACE_BODY;
    to->offset = *end / PROTO_ALIGNMENT * PROTO_ALIGNMENT;
    if (bytes == 0)
        return XOP_OK;
    if (!message_align(*end, &to->offset) || __builtin_add_overflow(to->offset, bytes, end))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the inputs together are too large");
    return XOP_OK;
}

static enum xop_status place_output(const struct xop_request *request, uint32_t i,
                                    struct message_tensor *to, struct xop_error *error) {
    const struct xop_tensor *out = request->out ? &request->out[i] : NULL;
    uint64_t bytes;
    *to = (struct message_tensor){.place = PLACE_NONE};
    if (request->omit >> i & 1) {
        to->place = PLACE_OMIT;
        return XOP_OK;
    }
    if (!out || out->dtype == XOP_DTYPE_NONE)
        return XOP_OK;
    if (out->rank > XOP_MAX_RANK || !xop_tensor_bytes(out, &bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "output %u: its dtype and shape give a size that is not possible", i);
    to->dtype = out->dtype;
    to->rank = out->rank;
    memcpy(to->shape, out->shape, sizeof to->shape);
    return XOP_OK;
}

/* Outputs that have to be told to the server: as many as are given, or up to the last omitted. */
static uint32_t outputs_to_tell(const struct xop_request *request) {
    return request->out ? request->nout : request->omit ? request->nout : 0;
}

enum xop_status call_message(const struct xop_request *request, struct message *message,
                             uint64_t *body_bytes, struct xop_error *error) {
    uint64_t end = 0;
    *message = (struct message){.device = -1};
    if (!request->op || strlen(request->op) > XOP_MAX_NAME)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the operator's name has 1 to %d bytes",
                        XOP_MAX_NAME);
    if ((request->nin > 0 && !request->in) || (request->nattrs > 0 && !request->attrs))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is NULL, but their number is not 0",
                        request->nin > 0 && !request->in ? "in" : "attrs");
    if (request->nin > XOP_MAX_INPUTS || request->nout > XOP_MAX_OUTPUTS ||
        request->nattrs > XOP_MAX_ATTRS)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "at most %d inputs, %d outputs and %d attributes are possible",
                        XOP_MAX_INPUTS, XOP_MAX_OUTPUTS, XOP_MAX_ATTRS);
    if (request->omit && request->nout == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "nout: to omit an output, the number of outputs is needed");
    message->type = request->pass == XOP_BACKWARD ? MESSAGE_BACKWARD : MESSAGE_FORWARD;
    message->op = request->op;
    message->nin = request->nin;
    for (uint32_t i = 0; i < request->nin; i++)
        if (place_input(&request->in[i], &message->in[i], i, &end, error) != XOP_OK)
            return error->status;
    message->nout = outputs_to_tell(request);
    for (uint32_t i = 0; i < message->nout; i++)
        if (place_output(request, i, &message->out[i], error) != XOP_OK)
            return error->status;
    for (uint32_t i = 0; i < request->nattrs; i++)
        message->attrs[i] = request->attrs[i];
    message->nattrs = request->nattrs;
    message->deadline_ms = request->deadline_ms;
    message->priority = request->priority;
    message->check = request->check;
    *body_bytes = end;
    return XOP_OK;
}

static void add_part(struct call *call, const void *bytes, uint64_t length) {
    if (length > 0)
        call->parts[call->nparts++] = (struct iovec){(void *)(uintptr_t)bytes, length};
}

static bool encode(struct call *call, const struct message *message, uint64_t body_bytes) {
    unsigned char small[2048], *large = NULL;
    size_t bytes = message_encode(message, body_bytes, small, sizeof small);
    if (bytes == 0) {
        large = malloc(FRAME_PREFIX + PROTO_MAX_HEADER);
        bytes =
            large ? message_encode(message, body_bytes, large, FRAME_PREFIX + PROTO_MAX_HEADER) : 0;
    }
    if (bytes > 0 && (call->header = malloc(bytes)))
        memcpy(call->header, large ? large : small, bytes);
    free(large);
    call->parts[0] = (struct iovec){call->header, bytes};
    call->nparts = 1;
    return call->header != NULL;
}

struct call *call_new(const struct message *message, const struct xop_tensor *in, uint32_t nin,
                      uint64_t body_bytes, struct xop_error *error) {
    struct call *call = calloc(1, sizeof *call);
    struct result_block *block = calloc(1, sizeof *block);
    uint64_t end = 0;
    if (!call || !block) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
        free(block);
        free(call);
        return NULL;
    }
    call->id = message->id;
    call->result = &block->result;
    block->result.out = block->outputs;
    if (!encode(call, message, body_bytes)) {
        xop_fail(error, XOP_INVALID_ARGUMENT,
                 "the request's names, attributes and text exceed a frame's header of %u bytes",
                 PROTO_MAX_HEADER);
        call_free(call);
        return NULL;
    }
    for (uint32_t i = 0; i < nin; i++) {
        uint64_t bytes = 0;
        if (message->in[i].place != PLACE_BODY || !xop_tensor_bytes(&in[i], &bytes) || bytes == 0)
            continue;
        add_part(call, padding, message->in[i].offset - end);
        add_part(call, in[i].data, bytes);
        end = message->in[i].offset + bytes;
    }
    return call;
}

void call_free(struct call *call) {
    xop_result_free(call->result);
    free(call->header);
    free(call->copy);
    free(call);
}

bool call_detach_memory(struct call *call) {
    size_t bytes = 0, at = 0;
    for (uint32_t i = call->part; i < call->nparts; i++)
        bytes += call->parts[i].iov_len;
    unsigned char *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        return false;
    for (uint32_t i = call->part; i < call->nparts; i++) {
        memcpy(copy + at, call->parts[i].iov_base, call->parts[i].iov_len);
        at += call->parts[i].iov_len;
    }
    free(call->copy);
    call->copy = copy;
    call->parts[0] = (struct iovec){copy, bytes};
    call->part = 0;
    call->nparts = 1;
    return true;
}

/* ---- From a message to the result ---- */

void call_fail(struct call *call, enum xop_status status, const char *text) {
    if (call->result)
        xop_fail(&call->result->error, status, "%s", text);
}

static bool same(const struct xop_tensor *a, const struct xop_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* The memory for one output: the caller's where it gave some, else new. */
static bool provide(struct call *call, uint32_t i, const struct message_tensor *from,
                    struct xop_error *error) {
    struct result_block *block = (struct result_block *)(void *)call->result;
    struct xop_tensor *to = &block->outputs[i];
    uint64_t bytes = 0;
    *to = (struct xop_tensor){.dtype = from->dtype, .rank = from->rank};
    memcpy(to->shape, from->shape, sizeof to->shape);
    if (i < call->nwanted && call->wanted[i].data) {
        if (!same(&call->wanted[i], to)) {
            char got[128], wanted[128];
            message_tensor_text(got, sizeof got, to);
            message_tensor_text(wanted, sizeof wanted, &call->wanted[i]);
            xop_fail(error, XOP_INVALID_ARGUMENT, "output %u is %s, but memory for %s was given", i,
                     got, wanted);
            return false;
        }
        to->data = call->wanted[i].data;
        return true;
    }
    if (!xop_tensor_bytes(to, &bytes) ||
        posix_memalign(&to->data, PROTO_ALIGNMENT, bytes ? bytes : 1) != 0) {
        to->data = NULL;
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for output %u of %llu bytes", i,
                 (unsigned long long)bytes);
        return false;
    }
    block->owned[i] = true;
    return true;
}

/* A failure has no outputs. */
static void drop_outputs(struct xop_result *result) {
    struct result_block *block = (struct result_block *)(void *)result;
    for (uint32_t i = 0; i < result->nout; i++) {
        if (block->owned[i])
            free(block->outputs[i].data);
        block->owned[i] = false;
    }
    result->nout = 0;
}

static void receive_tensors(struct call *call, const struct message *message,
                            struct reader_segment *segments, uint32_t *nsegments) {
    struct xop_result *result = call->result;
    uint32_t n = 0;
    if (call->nwanted > 0 && message->nout != call->nwanted) {
        xop_fail(&result->error, XOP_INTERNAL, "%u outputs came, memory for %u was given",
                 message->nout, call->nwanted);
        return;
    }
    result->nout = message->nout;
    for (uint32_t i = 0; i < message->nout; i++) {
        const struct message_tensor *from = &message->out[i];
        uint64_t bytes = 0;
        if (from->place != PLACE_BODY) {
            result->out[i] = (struct xop_tensor){.dtype = XOP_DTYPE_NONE};
            continue;
        }
        if (!provide(call, i, from, &result->error)) {
            drop_outputs(result);
            return;
        }
        xop_tensor_bytes(&result->out[i], &bytes);
        if (bytes == 0)
            continue;
        /* In the order of the body, which need not be that of the outputs. */
        uint32_t at = n++;
        for (; at > 0 && segments[at - 1].offset > from->offset; at--)
            segments[at] = segments[at - 1];
        segments[at] = (struct reader_segment){from->offset, bytes, result->out[i].data};
    }
    *nsegments = n;
}

void call_receive(struct call *call, const struct message *message, uint64_t body_bytes,
                  struct reader_segment *segments, uint32_t *nsegments) {
    struct xop_result *result = call->result;
    *nsegments = 0;
    if (!result)
        return; /* given away: the body is dropped */
    result->started = message->started;
    result->queue_ns = message->queue_ns;
    result->copy_ns = message->copy_ns;
    result->run_ns = message->run_ns;
    result->batch = message->batch;
    result->error = (struct xop_error){.status = message->status};
    if (message->status != XOP_OK) {
        snprintf(result->error.message, sizeof result->error.message, "%s",
                 message->error ? message->error : xop_status_name(message->status));
        return;
    }
    if (call->is_run != (message->nout > 0)) {
        call_fail(call, XOP_INTERNAL,
                  call->is_run ? "the server's result has no outputs"
                               : "the server's result is no document");
    } else if (message->nout > 0) {
        receive_tensors(call, message, segments, nsegments);
    } else if (body_bytes > 0) {
        result->text = malloc(body_bytes + 1);
        if (!result->text) {
            call_fail(call, XOP_RESOURCE_EXHAUSTED, "out of memory for the document");
            return;
        }
        result->text[body_bytes] = 0;
        result->text_bytes = body_bytes;
        segments[0] = (struct reader_segment){0, body_bytes, (unsigned char *)result->text};
        *nsegments = 1;
    }
}
