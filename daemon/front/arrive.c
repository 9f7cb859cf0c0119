#include "operands.h"

#include "request.h"
#include "shared.h"

#include <stdlib.h>
#include <string.h>

#define WHOLE UINT64_MAX /* of a resident tensor, whatever its size will be */

static struct staying *staying_of(struct request *request) {
    struct io_thread *thread = request->thread;
    struct staying *staying = request->staying;
    if (staying)
        return staying;
    staying = thread->free_stayings;
    if (staying)
        thread->free_stayings = staying->next;
    else if (!(staying = malloc(sizeof *staying)))
        return NULL;
    memset(staying, 0, sizeof *staying);
    request->staying = staying;
    return staying;
}

static enum xop_status out_of_memory(struct xop_error *error) {
    return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
}

/* ---- Arrival: client memory ---- */

static enum xop_status use_memory(struct request *request, struct connection *c, uint64_t id,
                                  uint64_t offset, uint64_t bytes, bool write,
                                  struct seam_tensor *tensor, struct xop_error *error) {
    struct memory *memory = table_find(&c->holdings.memories, id);
    if (!memory)
        return xop_fail(error, XOP_NOT_FOUND, "no memory %llu is attached", (unsigned long long)id);
    if (write && !(memory->flags & SEAM_WRITABLE))
        return xop_fail(error, XOP_PERMISSION_DENIED, "memory %llu was attached for reading alone",
                        (unsigned long long)id);
    if (offset > memory->bytes || bytes > memory->bytes - offset)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "memory %llu has %llu bytes, a tensor is to have %llu at %llu",
                        (unsigned long long)id, (unsigned long long)memory->bytes,
                        (unsigned long long)bytes, (unsigned long long)offset);
    tensor->place = SEAM_MEMORY;
    tensor->memory = memory->number;
    tensor->offset = offset;
    /* An output whose size is not known yet may reach to the memory's end. */
    uint64_t end = bytes > 0 || tensor->dtype ? offset + bytes : memory->bytes;
    /* An empty one counts too: the worker has to have the memory that its record names. */
    if (!order_access(request, &memory->object, offset, end, write))
        return out_of_memory(error);
    return XOP_OK;
}

const struct memory *operands_memory(const struct request *request, uint64_t number) {
    for (const struct access *access = request->accesses; access; access = access->next) {
        const struct memory *memory = (const struct memory *)access->object;
        if (access->object->windows && memory->number == number)
            return memory; /* windows are what clients' memories alone have */
    }
    return NULL;
}

/* ---- Arrival: what stays ---- */

/* The resident of a handle, made where a request is to write one that is not there. */
static struct resident *use_resident(struct request *request, struct connection *c, uint64_t handle,
                                     uint64_t begin, uint64_t end, bool write,
                                     struct xop_error *error) {
    struct resident *resident = resident_find(c, handle);
    if (!resident && !write)
        xop_fail(error, XOP_NOT_FOUND, "there is no resident tensor %llu",
                 (unsigned long long)handle);
    if (!resident && write)
        resident = resident_new(c, handle, error);
    /* Whoever reads any of one that nothing was written to yet is behind all that may make it. */
    if (resident && !write && resident->version == 0) {
        begin = 0;
        end = WHOLE;
    }
    if (resident && !order_access(request, &resident->object, begin, end, write)) {
        out_of_memory(error);
        resident_settle(resident);
        return NULL;
    }
    return resident;
}

static enum xop_status arrive_input(struct request *request, struct connection *c, uint32_t i,
                                    const struct message_tensor *from, struct seam_tensor *to,
                                    struct xop_error *error) {
    uint64_t bytes = operands_bytes(to);
    if (from->place == PLACE_MEMORY)
        return use_memory(request, c, from->id, from->offset, bytes,
                          from->access == ACCESS_READ_WRITE, to, error);
    if (from->place != PLACE_RESIDENT)
        return XOP_OK;
    struct staying *staying = staying_of(request);
    if (!staying)
        return out_of_memory(error);
    uint64_t begin = to->dtype ? from->offset : 0, end = to->dtype ? begin + bytes : WHOLE;
    staying->in[i] = use_resident(request, c, from->id, begin, end, false, error);
    to->place = SEAM_MEMORY;
    to->offset = begin;
    return staying->in[i] ? XOP_OK : error->status;
}

static enum xop_status arrive_output(struct request *request, struct connection *c, uint32_t i,
                                     const struct message_tensor *from, struct seam_tensor *to,
                                     struct xop_error *error) {
    if (from->place != PLACE_MEMORY && from->place != PLACE_RESIDENT)
        return XOP_OK;
    if (from->place == PLACE_MEMORY && to->dtype)
        return use_memory(request, c, from->id, from->offset, operands_bytes(to), true, to, error);
    struct staying *staying = staying_of(request);
    if (!staying)
        return out_of_memory(error);
    if (from->place == PLACE_MEMORY) {
        staying->ask_shapes = true;
        return use_memory(request, c, from->id, from->offset, 0, true, to, error);
    }
    if (from->offset != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "out[%u].offset: an output is the whole of a resident tensor", i);
    staying->out[i] = use_resident(request, c, from->id, 0, WHOLE, true, error);
    to->place = SEAM_MEMORY;
    to->offset = 0;
    return staying->out[i] ? XOP_OK : error->status;
}

/* Where a kept tensor of the context comes from: a resident as it is, or a copy to be made. */
static enum xop_status keep_one(struct request *request, struct connection *c, uint32_t j,
                                uint32_t nout, struct xop_error *error) {
    struct staying *staying = request->staying;
    const struct catalogue_need *need = &staying->keep->needs[j];
    struct context_tensor *tensor = &staying->keep->tensors[j];
    bool input = need->source == CATALOGUE_INPUT;
    if (need->source == CATALOGUE_GIVEN || (input && need->index >= request->nin))
        return XOP_OK;
    const struct seam_tensor *from =
        &operands_tensors(request)[input ? need->index : request->nin + need->index];
    struct resident *resident = input                ? staying->in[need->index]
                                : need->index < nout ? staying->out[need->index]
                                                     : NULL;
    tensor->given = !input || from->dtype || resident;
    if (!tensor->given)
        return XOP_OK;
    if (!input)
        staying->ask_shapes = true;
    if (need->shape_only)
        return XOP_OK;
    tensor->copy = !resident;
    tensor->resident = resident ? resident : resident_new(c, 0, error);
    if (!tensor->resident)
        return error->status;
    if (resident)
        object_hold(&resident->object);
    return XOP_OK;
}

static enum xop_status arrive_keep(struct request *request, struct connection *c,
                                   const struct message *m, struct xop_error *error) {
    const struct catalogue *catalogue = c->thread->catalogue;
    struct staying *staying = staying_of(request);
    uint32_t index;
    if (!staying)
        return out_of_memory(error);
    if (!catalogue)
        return xop_fail(error, XOP_UNAVAILABLE, "no worker was ready yet: nothing can be kept");
    if (!catalogue_find(catalogue, request->op, &index))
        return XOP_OK; /* it fails for that reason */
    struct context *keep = context_new(c, m->keep, request->op, catalogue, index, error);
    if (!keep)
        return error->status;
    if (!order_access(request, &keep->object, 0, 1, true)) {
        context_unname(keep);
        return out_of_memory(error);
    }
    staying->keep = keep;
    for (uint32_t j = 0; j < keep->nneeds; j++)
        if (keep_one(request, c, j, request->nout, error) != XOP_OK)
            return error->status;
    if (request->attr_bytes > 0) {
        const unsigned char *attrs =
            (const unsigned char *)(operands_tensors(request) + request->nin + request->nout);
        keep->attrs = malloc(request->attr_bytes);
        if (!keep->attrs)
            return out_of_memory(error);
        memcpy(keep->attrs, attrs, request->attr_bytes);
        keep->nattrs = request->nattrs;
        keep->attr_bytes = request->attr_bytes;
    }
    return XOP_OK;
}

enum xop_status operands_context(struct connection *c, const struct message *m,
                                 struct context **context, struct xop_error *error) {
    *context = NULL;
    if (!m->context)
        return XOP_OK;
    *context = context_find(c, m->context);
    if (!*context)
        return xop_fail(error, XOP_NOT_FOUND, "there is no context %llu",
                        (unsigned long long)m->context);
    if (strcmp((*context)->op, m->op) != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "context %llu was kept by %s, not by %s",
                        (unsigned long long)m->context, (*context)->op, m->op);
    return XOP_OK;
}

/* What backward leaves out comes from the context. */
static enum xop_status arrive_context(struct request *request, struct connection *c,
                                      const struct message *m, struct xop_error *error) {
    struct context *context = context_find(c, m->context);
    struct staying *staying = staying_of(request);
    if (!staying || !order_access(request, &context->object, 0, 1, false))
        return out_of_memory(error);
    staying->context = context;
    for (uint32_t j = 0; j < context->nneeds && j < request->nin; j++) {
        const struct context_tensor *tensor = &context->tensors[j];
        if (!tensor->given || (j < m->nin && m->in[j].place != PLACE_OMIT))
            continue;
        staying->from_context |= 1u << j;
        staying->in[j] = tensor->resident;
        if (tensor->resident && !tensor->copy &&
            !order_access(request, &tensor->resident->object, 0, WHOLE, false))
            return out_of_memory(error);
    }
    return XOP_OK;
}

enum xop_status operands_arrive(struct request *request, struct connection *c,
                                const struct message *m, struct xop_error *error) {
    struct seam_tensor *tensors = operands_tensors(request);
    for (uint32_t i = 0; i < m->nin; i++)
        if (arrive_input(request, c, i, &m->in[i], &tensors[i], error) != XOP_OK)
            return error->status;
    for (uint32_t i = 0; i < m->nout; i++)
        if (arrive_output(request, c, i, &m->out[i], &tensors[request->nin + i], error) != XOP_OK)
            return error->status;
    if (m->context && arrive_context(request, c, m, error) != XOP_OK)
        return error->status;
    return m->keep ? arrive_keep(request, c, m, error) : XOP_OK;
}

/* ---- Arrival: put, get, export ---- */

/* A row of elements: what a copy moves. */
static struct seam_tensor row(enum xop_dtype dtype, uint64_t bytes, enum seam_place place) {
    size_t size = xop_dtype_size(dtype);
    return (struct seam_tensor){.dtype = (uint8_t)dtype,
                                .rank = 1,
                                .place = (uint8_t)place,
                                .shape = {size ? (int64_t)(bytes / size) : 0}};
}

static struct xop_tensor whole_of(const struct message_tensor *from) {
    struct xop_tensor type = {.dtype = from->dtype, .rank = from->rank};
    memcpy(type.shape, from->shape, sizeof type.shape);
    return type;
}

enum xop_status operands_put(struct request *request, struct connection *c, const struct message *m,
                             uint64_t body, struct xop_error *error) {
    struct staying *staying = staying_of(request);
    struct seam_tensor *tensors = operands_tensors(request);
    const struct message_tensor *from = &m->in[0];
    if (!staying)
        return out_of_memory(error);
    staying->whole = whole_of(from);
    staying->offset = m->offset;
    staying->bytes = body;
    if (from->place == PLACE_MEMORY)
        xop_tensor_bytes(&staying->whole, &staying->bytes);
    request->kind = SEAM_COPY;
    request->nin = request->nout = 1;
    tensors[0] = row(from->dtype, staying->bytes, staying->bytes ? SEAM_INBOX : SEAM_NOWHERE);
    tensors[1] = row(from->dtype, staying->bytes, staying->bytes ? SEAM_MEMORY : SEAM_NOWHERE);
    tensors[1].offset = m->offset;
    request_charge(request, staying->bytes);
    if (from->place == PLACE_MEMORY && staying->bytes > 0 &&
        use_memory(request, c, from->id, from->offset, staying->bytes, false, &tensors[0], error) !=
            XOP_OK)
        return error->status;
    staying->out[0] =
        use_resident(request, c, m->handle, m->offset, m->offset + staying->bytes, true, error);
    return staying->out[0] ? XOP_OK : error->status;
}

enum xop_status operands_get(struct request *request, struct connection *c, const struct message *m,
                             struct xop_error *error) {
    struct staying *staying = staying_of(request);
    struct seam_tensor *tensors = operands_tensors(request);
    uint64_t end;
    if (!staying)
        return out_of_memory(error);
    if (__builtin_add_overflow(m->offset, m->length, &end))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "offset and length: no tensor is so large");
    staying->offset = m->offset;
    staying->bytes = m->length;
    request->kind = SEAM_COPY;
    request->nin = request->nout = 1;
    /* The dtype is the tensor's, known when it is this request's turn: in 16-bit units till then.
     */
    tensors[0] = row(XOP_F16, m->length, m->length ? SEAM_MEMORY : SEAM_NOWHERE);
    tensors[1] = row(XOP_F16, m->length, SEAM_OUTBOX);
    tensors[0].offset = m->offset;
    request_charge(request, m->length);
    if (m->nout > 0 && m->length > 0 &&
        use_memory(request, c, m->out[0].id, m->out[0].offset, m->length, true, &tensors[1],
                   error) != XOP_OK)
        return error->status;
    staying->in[0] = use_resident(request, c, m->handle, m->offset, end, false, error);
    return staying->in[0] ? XOP_OK : error->status;
}

enum xop_status operands_export(struct request *request, struct connection *c,
                                const struct message *m, struct xop_error *error) {
    struct staying *staying = staying_of(request);
    if (!staying)
        return out_of_memory(error);
    if (resident_find(c, m->handle))
        return xop_fail(error, XOP_ALREADY_EXISTS, "there is a resident tensor %llu already",
                        (unsigned long long)m->handle);
    staying->whole = whole_of(&m->in[0]);
    request->kind = SEAM_ADOPT;
    request->is_export = true;
    staying->out[0] = use_resident(request, c, m->handle, 0, WHOLE, true, error);
    return staying->out[0] ? XOP_OK : error->status;
}
