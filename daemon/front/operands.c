#include "operands.h"

#include "request.h"

#include <stdlib.h>
#include <string.h>

static void set_type(struct seam_tensor *tensor, const struct xop_tensor *type) {
    tensor->dtype = (uint8_t)type->dtype;
    tensor->rank = (uint8_t)type->rank;
    memcpy(tensor->shape, type->shape, sizeof tensor->shape);
}

static struct xop_tensor resident_shape(const struct resident *resident) {
    struct xop_tensor type = {.dtype = resident->dtype, .rank = resident->rank};
    memcpy(type.shape, resident->shape, sizeof type.shape);
    return type;
}

/* ---- Before it is submitted ---- */

static bool fail(struct request *request, const struct xop_error *error) {
    request_fail(request, error->status, "%s", error->message);
    return false;
}

/* The range of a resident that an input is. */
static enum xop_status check_input(const struct resident *resident, const struct seam_tensor *t,
                                   struct xop_error *error) {
    uint64_t begin = t->dtype ? t->offset : 0;
    uint64_t bytes = t->dtype ? operands_bytes(t) : resident->bytes;
    char name[64];
    if (resident_readable(resident, 0, 0, error) != XOP_OK && error->status == XOP_NOT_FOUND)
        return error->status;
    resident_text(resident, name, sizeof name);
    if (t->dtype && t->dtype != (uint8_t)resident->dtype)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is %s, but %s was named", name,
                        xop_dtype_name(resident->dtype), xop_dtype_name((enum xop_dtype)t->dtype));
    if (begin > resident->bytes || bytes > resident->bytes - begin)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s has %llu bytes, %llu from %llu on were named", name,
                        (unsigned long long)resident->bytes, (unsigned long long)bytes,
                        (unsigned long long)begin);
    return resident_readable(resident, begin, begin + bytes, error);
}

static enum xop_status check_inputs(struct request *request, struct xop_error *error) {
    const struct staying *staying = request->staying;
    for (uint32_t i = 0; i < request->nin; i++) {
        if (staying->from_context >> i & 1 && context_check(staying->context, i, error) != XOP_OK)
            return error->status;
        if (staying->in[i] &&
            check_input(staying->in[i], &operands_tensors(request)[i], error) != XOP_OK)
            return error->status;
    }
    return XOP_OK;
}

static enum xop_status ready_copy(struct request *request, struct xop_error *error) {
    struct staying *staying = request->staying;
    struct resident *from = staying->in[0], *to = staying->out[0];
    if (to)
        return resident_type(to, &staying->whole, error) == XOP_OK
                   ? resident_place(to, false, error)
                   : error->status;
    if (resident_readable(from, 0, 0, error) != XOP_OK && error->status == XOP_NOT_FOUND)
        return error->status;
    uint64_t size = xop_dtype_size(from->dtype);
    if (size == 0 || staying->offset % size != 0 || staying->bytes % size != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%llu bytes from %llu on are not whole elements of %s",
                        (unsigned long long)staying->bytes, (unsigned long long)staying->offset,
                        xop_dtype_name(from->dtype));
    if (staying->offset > from->bytes || staying->bytes > from->bytes - staying->offset)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "resident tensor %llu has %llu bytes, %llu from %llu on were asked for",
                        (unsigned long long)from->handle, (unsigned long long)from->bytes,
                        (unsigned long long)staying->bytes, (unsigned long long)staying->offset);
    return resident_readable(from, staying->offset, staying->offset + staying->bytes, error);
}

/* What will be known of an output: what the request says, what its resident is, or what the worker
 * told. dtype NONE: nothing yet. */
static struct xop_tensor output_type(const struct request *request, uint32_t i) {
    const struct staying *staying = request->staying;
    if (staying->knows_shapes)
        return staying->shapes[i];
    if (i < request->nout && operands_tensors(request)[request->nin + i].dtype)
        return operands_type(&operands_tensors(request)[request->nin + i]);
    if (i < request->nout && staying->out[i] && staying->out[i]->typed)
        return resident_shape(staying->out[i]);
    return (struct xop_tensor){.dtype = XOP_DTYPE_NONE};
}

/* Outputs that stay get dtype, shape and memory; where these are not known, the worker is asked. */
static enum xop_status ready_outputs(struct request *request, struct xop_error *error) {
    struct staying *staying = request->staying;
    for (uint32_t i = 0; i < request->nout; i++) {
        if (!staying->out[i])
            continue;
        struct xop_tensor type = output_type(request, i);
        if (type.dtype == XOP_DTYPE_NONE)
            staying->ask_shapes = true;
        else if (resident_type(staying->out[i], &type, error) != XOP_OK ||
                 resident_place(staying->out[i], false, error) != XOP_OK)
            return error->status;
    }
    return XOP_OK;
}

/* What is kept gets its dtype and shape, and copies their memory. */
static enum xop_status ready_keep(struct request *request, struct xop_error *error) {
    struct staying *staying = request->staying;
    struct context *keep = staying->keep;
    for (uint32_t j = 0; keep && j < keep->nneeds; j++) {
        const struct catalogue_need *need = &keep->needs[j];
        struct context_tensor *tensor = &keep->tensors[j];
        if (!tensor->given)
            continue;
        if (need->source == CATALOGUE_OUTPUT && !staying->knows_shapes)
            continue; /* its turn comes when the shapes are known */
        if (need->source == CATALOGUE_OUTPUT)
            tensor->type = staying->shapes[need->index];
        else if (operands_tensors(request)[need->index].dtype)
            tensor->type = operands_type(&operands_tensors(request)[need->index]);
        else
            tensor->type = resident_shape(staying->in[need->index]);
        if (tensor->copy && (resident_type(tensor->resident, &tensor->type, error) != XOP_OK ||
                             resident_place(tensor->resident, false, error) != XOP_OK))
            return error->status;
    }
    return XOP_OK;
}

static bool ready_memory(struct resident *resident, struct request *request) {
    return !resident || !resident->memory || memory_ready(resident->memory, request);
}

/* Whether the worker can use all memories; else the request waits or has failed. */
static bool ready_memories(struct request *request) {
    const struct staying *staying = request->staying;
    for (const struct access *access = request->accesses; access; access = access->next)
        if (access->object->windows && !memory_ready((struct memory *)access->object, request))
            return false;
    for (uint32_t i = 0; staying && i < XOP_MAX_INPUTS; i++)
        if (!ready_memory(staying->in[i], request) || !ready_memory(staying->out[i], request))
            return false;
    for (uint32_t j = 0; staying && staying->keep && j < staying->keep->nneeds; j++)
        if (!ready_memory(staying->keep->tensors[j].resident, request))
            return false;
    return true;
}

static bool ready_export(struct request *request) {
    struct resident *resident = request->staying->out[0];
    struct xop_error error;
    if (resident_type(resident, &request->staying->whole, &error) != XOP_OK)
        return fail(request, &error);
    if (resident->bytes == 0) {
        request_fail(request, XOP_INVALID_ARGUMENT, "an empty tensor has no memory to export");
        return false;
    }
    if (resident_place(resident, true, &error) != XOP_OK)
        return fail(request, &error);
    if (!memory_ready(resident->memory, request))
        return false;
    if (resident->memory->exported >= 0)
        return true;
    memory_wait(resident->memory, request); /* its descriptor is still on its way */
    return false;
}

bool operands_ready(struct request *request) {
    struct staying *staying = request->staying;
    struct xop_error error;
    if (request->is_export)
        return ready_export(request);
    if (request->kind == SEAM_RELEASE) {
        if (request->memory->state != MEMORY_ASKED)
            return true;
        memory_wait(request->memory, request);
        return false;
    }
    if (!staying)
        return ready_memories(request);
    staying->ask_shapes &= !staying->knows_shapes;
    if (request->kind == SEAM_COPY) {
        if (ready_copy(request, &error) != XOP_OK)
            return fail(request, &error);
    } else if (check_inputs(request, &error) != XOP_OK ||
               ready_outputs(request, &error) != XOP_OK || ready_keep(request, &error) != XOP_OK) {
        return fail(request, &error);
    }
    return ready_memories(request);
}

/* ---- The record ---- */

static void place_in(const struct resident *resident, uint64_t offset, struct seam_tensor *to) {
    uint64_t bytes = operands_bytes(to);
    /* Nothing lies anywhere of what is empty. */
    to->place = resident->memory && bytes > 0 ? SEAM_MEMORY : SEAM_NOWHERE;
    to->memory = resident->memory ? resident->memory->number : 0;
    to->offset = resident->offset + offset;
}

static void fill_keeps(const struct request *request, struct seam_tensor *to) {
    const struct context *keep = request->staying->keep;
    for (uint32_t j = 0; j < keep->nneeds; j++) {
        const struct catalogue_need *need = &keep->needs[j];
        const struct context_tensor *tensor = &keep->tensors[j];
        uint32_t at = need->source == CATALOGUE_INPUT ? need->index : request->nin + need->index;
        if (!tensor->copy || !tensor->resident->memory || at >= request->nin + request->nout)
            continue;
        to[at].keep_memory = tensor->resident->memory->number;
        to[at].keep_offset = tensor->resident->offset;
    }
}

void operands_fill(const struct request *request, struct seam_tensor *to) {
    const struct staying *staying = request->staying;
    for (uint32_t i = 0; i < request->nin; i++) {
        const struct resident *resident = staying->in[i];
        if (request->kind == SEAM_RUN && staying->from_context >> i & 1)
            set_type(&to[i], &staying->context->tensors[i].type);
        else if (resident && !to[i].dtype) {
            struct xop_tensor type = resident_shape(resident);
            set_type(&to[i], &type);
        }
        if (resident)
            place_in(resident, to[i].offset, &to[i]);
    }
    for (uint32_t i = 0; i < request->nout; i++) {
        struct seam_tensor *out = &to[request->nin + i];
        const struct resident *resident = staying->out[i];
        if (staying->ask_shapes) {
            out->place = out->place == SEAM_MEMORY ? SEAM_OUTBOX : out->place;
            continue;
        }
        if (request->kind == SEAM_RUN && (resident || out->place == SEAM_MEMORY)) {
            struct xop_tensor type = output_type(request, i);
            set_type(out, &type);
        }
        if (!resident)
            continue;
        place_in(resident, out->offset, out);
        if (out->place == SEAM_NOWHERE)
            out->place = SEAM_OUTBOX; /* empty: it has no bytes there either */
    }
    if (staying->keep && !staying->ask_shapes)
        fill_keeps(request, to);
}

void operands_learn(struct request *request, const struct seam_result *result) {
    struct staying *staying = request->staying;
    for (uint32_t i = 0; i < result->nout; i++)
        staying->shapes[i] = operands_type(&result->out[i]);
    staying->ask_shapes = false;
    staying->knows_shapes = true;
}

/* ---- When it is through ---- */

static void put_range(const struct request *request, const struct resident *resident,
                      uint64_t *begin, uint64_t *end) {
    bool piece = request->kind == SEAM_COPY;
    *begin = piece ? request->staying->offset : 0;
    *end = piece ? *begin + request->staying->bytes : resident->bytes;
}

void operands_done(struct request *request, bool ok, bool launched) {
    struct staying *staying = request->staying;
    uint64_t begin, end;
    request->succeeded = ok;
    if (!staying || (!ok && !launched))
        return;
    for (uint32_t i = 0; i < request->nout || (request->is_export && i == 0); i++) {
        struct resident *resident = staying->out[i];
        if (!resident)
            continue;
        put_range(request, resident, &begin, &end);
        if (ok)
            resident_wrote(resident, begin, end);
        else
            resident_spoilt(resident, begin, end, false);
    }
    for (uint32_t j = 0; ok && staying->keep && j < staying->keep->nneeds; j++)
        if (staying->keep->tensors[j].copy)
            resident_wrote(staying->keep->tensors[j].resident, 0,
                           staying->keep->tensors[j].resident->bytes);
    if (ok && staying->keep)
        context_made(staying->keep);
}

void operands_lost(struct request *request) {
    struct staying *staying = request->staying;
    uint64_t begin, end;
    for (uint32_t i = 0; staying && i < request->nout; i++)
        if (staying->out[i]) {
            put_range(request, staying->out[i], &begin, &end);
            resident_spoilt(staying->out[i], begin, end, true);
        }
}

bool operands_repeatable(const struct request *request) {
    for (const struct access *w = request->accesses; w; w = w->next)
        for (const struct access *r = request->accesses; w->write && r; r = r->next)
            if (!r->write && r->object == w->object && r->begin < w->end && w->begin < r->end)
                return false;
    return true;
}

/* Those a request named; what nobody ever wrote is nothing once the last of its users has failed.
 */
static void each_resident(const struct staying *staying, void (*act)(struct resident *)) {
    for (uint32_t i = 0; i < XOP_MAX_INPUTS; i++)
        if (staying->in[i])
            act(staying->in[i]);
    for (uint32_t i = 0; i < XOP_MAX_OUTPUTS; i++)
        if (staying->out[i])
            act(staying->out[i]);
}

static void hold(struct resident *resident) { object_hold(&resident->object); }

static void settle(struct resident *resident) {
    resident_settle(resident);
    object_drop(&resident->object);
}

void operands_end(struct request *request) {
    struct io_thread *thread = request->thread;
    struct staying *staying = request->staying;
    bool failed = !request->succeeded;
    if (staying && failed)
        each_resident(staying, hold);
    if (staying && staying->keep && !staying->keep->made)
        context_unname(staying->keep);
    order_release(request, failed);
    if (!staying)
        return;
    if (failed)
        each_resident(staying, settle);
    request->staying = NULL;
    staying->next = thread->free_stayings;
    thread->free_stayings = staying;
}

void operands_close(struct io_thread *thread) {
    for (struct staying *staying = thread->free_stayings, *next; staying; staying = next) {
        next = staying->next;
        free(staying);
    }
}
