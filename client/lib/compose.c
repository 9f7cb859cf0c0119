#include "compose.h"

#include <string.h>

void compose_plain(struct composed *to, enum message_type type, enum outcome_kind kind) {
    message_reset(&to->message, type, 0);
    to->expected = (struct expected){.kind = kind};
    to->body.bytes = 0;
    to->body.n = 0;
}

/* Nobody reads a shape beyond its rank: it is left as it was. */
static void set_place(struct message_tensor *to, enum message_place place) {
    to->dtype = XOP_DTYPE_NONE;
    to->rank = 0;
    to->place = place;
    to->access = ACCESS_DEFAULT;
    to->id = to->offset = 0;
}

static void set_type(struct message_tensor *to, const struct xop_tensor *tensor) {
    to->dtype = tensor->dtype;
    to->rank = tensor->rank;
    for (uint32_t i = 0; i < tensor->rank; i++)
        to->shape[i] = tensor->shape[i];
}

void compose_type(struct message_tensor *to, const struct xop_tensor *tensor) {
    set_place(to, PLACE_NONE);
    set_type(to, tensor);
}

/* ---- Running ---- */

static bool has_type(const struct xop_tensor *tensor) { return tensor->dtype != XOP_DTYPE_NONE; }

static enum xop_status size_of(const struct xop_tensor *tensor, const char *what, uint32_t index,
                               uint64_t *bytes, struct xop_error *error) {
    if (tensor->rank <= XOP_MAX_RANK && xop_tensor_bytes(tensor, bytes))
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "%s %u: its dtype and shape give a size that is not possible", what, index);
}

/* The next place in the body. */
static enum xop_status add_to_body(struct call_body *body, const void *data, uint64_t bytes,
                                   uint64_t *offset, struct xop_error *error) {
    *offset = body->bytes / PROTO_ALIGNMENT * PROTO_ALIGNMENT;
    if (bytes == 0)
        return XOP_OK;
    if (!message_align(body->bytes, offset) || __builtin_add_overflow(*offset, bytes, &body->bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the inputs together are too large");
    body->runs[body->n].offset = *offset;
    body->runs[body->n].bytes = bytes;
    body->runs[body->n++].data = data;
    return XOP_OK;
}

static enum xop_status place_input(struct composed *to, const struct attached *attached,
                                   const struct xop_request *request, uint32_t i,
                                   struct xop_error *error) {
    const struct xop_tensor *from = &request->in[i];
    struct message_tensor *tensor = &to->message.in[i];
    uint64_t resident = request->in_resident ? request->in_resident[i] : 0, bytes = 0;
    set_place(tensor, has_type(from) ? PLACE_NONE : PLACE_OMIT);
    if (has_type(from)) {
        if (size_of(from, "input", i, &bytes, error) != XOP_OK)
            return error->status;
        set_type(tensor, from);
    }
    if (resident) {
        tensor->place = PLACE_RESIDENT;
        tensor->id = resident;
        return XOP_OK;
    }
    if (!has_type(from) || (!from->data && bytes > 0))
        return XOP_OK;
    if (attached_find(attached, from->data, bytes, false, tensor))
        return XOP_OK;
    tensor->place = PLACE_BODY;
    return add_to_body(&to->body, from->data, bytes, &tensor->offset, error);
}

static enum xop_status place_output(struct composed *to, const struct attached *attached,
                                    const struct xop_request *request, uint32_t i,
                                    struct xop_error *error) {
    const struct xop_tensor *from = request->out ? &request->out[i] : NULL;
    struct message_tensor *tensor = &to->message.out[i];
    uint64_t resident = request->out_resident ? request->out_resident[i] : 0, bytes = 0;
    set_place(tensor, PLACE_NONE);
    if (request->omit >> i & 1) {
        tensor->place = PLACE_OMIT;
        if (resident)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "output %u is both not wanted and to be a resident tensor", i);
        return XOP_OK;
    }
    if (from && has_type(from)) {
        if (size_of(from, "output", i, &bytes, error) != XOP_OK)
            return error->status;
        set_type(tensor, from);
    }
    if (resident) {
        tensor->place = PLACE_RESIDENT;
        tensor->id = resident;
        to->expected.in_resident |= 1u << i;
    } else if (from && from->data && attached_find(attached, from->data, bytes, true, tensor)) {
        to->expected.in_memory |= 1u << i;
    }
    return XOP_OK;
}

static enum xop_status check_run(const struct xop_request *request, struct xop_error *error) {
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
    if ((request->omit || request->out_resident) && request->nout == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "nout: to omit or place an output, the number of outputs is needed");
    if (request->keep && request->pass == XOP_BACKWARD)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "keep: a backward has nothing to keep");
    if (request->context && request->pass != XOP_BACKWARD)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "context: a forward uses none");
    return XOP_OK;
}

enum xop_status compose_run(struct composed *to, const struct attached *attached,
                            const struct xop_request *request, struct xop_error *error) {
    struct message *message = &to->message;
    if (check_run(request, error) != XOP_OK)
        return error->status;
    compose_plain(to, request->pass == XOP_BACKWARD ? MESSAGE_BACKWARD : MESSAGE_FORWARD,
                  OUTCOME_RUN);
    message->op = request->op;
    message->nin = request->nin;
    for (uint32_t i = 0; i < request->nin; i++)
        if (place_input(to, attached, request, i, error) != XOP_OK)
            return error->status;
    /* Outputs of which nothing is said are all wanted. */
    if (request->out || request->omit || request->out_resident)
        message->nout = request->nout;
    for (uint32_t i = 0; i < message->nout; i++)
        if (place_output(to, attached, request, i, error) != XOP_OK)
            return error->status;
    to->expected.told = message->nout;
    to->expected.nwanted = request->out ? request->nout : 0;
    for (uint32_t i = 0; i < request->nattrs; i++)
        message->attrs[i] = request->attrs[i];
    message->nattrs = request->nattrs;
    message->keep = request->keep;
    message->context = request->context;
    message->deadline_ms = request->deadline_ms;
    message->priority = request->priority;
    message->check = request->check;
    return XOP_OK;
}

/* ---- Resident tensors ---- */

enum xop_status compose_check(const struct xop_tensor *tensor, bool data, uint64_t *bytes,
                              struct xop_error *error) {
    if (!tensor || tensor->rank > XOP_MAX_RANK || !xop_tensor_bytes(tensor, bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the tensor's dtype and shape give a size that is not possible");
    if (data && !tensor->data && *bytes > 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the tensor's data is NULL");
    return XOP_OK;
}

static void begin_copy(struct composed *to, enum message_type type, uint64_t handle,
                       const struct xop_tensor *tensor) {
    compose_plain(to, type, type == MESSAGE_PUT ? OUTCOME_PLAIN : OUTCOME_BYTES);
    to->message.handle = handle;
    if (type != MESSAGE_PUT)
        return;
    to->message.nin = 1;
    compose_type(&to->message.in[0], tensor);
}

bool compose_in_place(struct composed *to, const struct attached *attached, enum message_type type,
                      uint64_t handle, const struct xop_tensor *tensor, uint64_t bytes) {
    struct message_tensor place;
    bool get = type == MESSAGE_GET;
    compose_type(&place, tensor);
    if (!attached_find(attached, tensor->data, bytes, get, &place))
        return false;
    begin_copy(to, type, handle, tensor);
    if (get) {
        to->message.length = bytes;
        to->message.nout = 1;
    }
    *(get ? &to->message.out[0] : &to->message.in[0]) = place;
    return true;
}

void compose_piece(struct composed *to, enum message_type type, uint64_t handle,
                   const struct xop_tensor *tensor, uint64_t offset, uint64_t bytes) {
    unsigned char *at = bytes > 0 ? (unsigned char *)tensor->data + offset : NULL;
    begin_copy(to, type, handle, tensor);
    to->message.offset = offset;
    if (type == MESSAGE_GET) {
        to->message.length = bytes;
        to->expected.to = at;
        to->expected.bytes = bytes;
    } else if (bytes > 0) {
        to->body.bytes = bytes;
        to->body.n = 1;
        to->body.runs[0].offset = 0;
        to->body.runs[0].bytes = bytes;
        to->body.runs[0].data = at;
    }
}
