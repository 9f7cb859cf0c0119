#include "request.h"

#include "answer.h"
#include "connection.h"
#include "dispatch.h"
#include "identity.h"
#include "input.h"
#include "memory.h"
#include "operands.h"

#include <stdlib.h>
#include <string.h>

/* Sizes are the client's word: sums of costs must not wrap, whatever it says. */
#define COST_MOST (UINT64_C(1) << 40)

struct request *request_new(struct io_thread *thread) {
    struct request *request = thread->free_requests;
    if (request)
        thread->free_requests = request->next;
    else if (!(request = malloc(sizeof *request)))
        return NULL;
    memset(request, 0, offsetof(struct request, arguments));
    request->thread = thread;
    request->cost = REQUEST_COST;
    request->op_slot = STATS_SLOTS - 1;
    return request;
}

void request_charge(struct request *request, uint64_t bytes) {
    request->cost = bytes < COST_MOST - request->cost ? request->cost + bytes : COST_MOST;
}

static void give_space(struct request *request) {
    struct io_thread *thread = request->thread;
    identity_give(request->payer, QUOTA_INBOX, request->paid);
    request->payer = NULL;
    if (request->block.bytes > 0) {
        bool shared = inbox_give(input_inbox(thread), &request->block);
        input_space_freed(thread, shared);
    }
}

void request_free(struct request *request) {
    struct io_thread *thread = request->thread;
    operands_end(request);
    free(request->long_arguments);
    request->long_arguments = NULL;
    give_space(request);
    request->next = thread->free_requests;
    thread->free_requests = request;
}

/* It is no longer one of its identity's in flight. */
static void uncount(struct request *request) {
    identity_give(request->in_flight, QUOTA_IN_FLIGHT, 1);
    request->in_flight = NULL;
}

void request_drop(struct request *request) {
    uncount(request);
    operands_end(request);
    if (request->blockers == 0) {
        request_free(request);
        return;
    }
    give_space(request);
    request->state = REQUEST_BLOCKED; /* order_run frees it */
}

/* ---- What a message says, in the form that records have ---- */

static enum xop_status put_tensor(const struct message_tensor *from, bool input,
                                  struct seam_tensor *to, struct xop_error *error) {
    *to = (struct seam_tensor){.place = SEAM_NOWHERE};
    if (from->place == PLACE_OMIT)
        return XOP_OK;
    bool stays = from->place == PLACE_MEMORY || from->place == PLACE_RESIDENT;
    to->dtype = (uint8_t)from->dtype;
    to->rank = (uint8_t)from->rank;
    memcpy(to->shape, from->shape, from->rank * sizeof *to->shape);
    switch (from->place) {
    case PLACE_NONE: to->place = input ? SEAM_NOWHERE : SEAM_OUTBOX; break;
    case PLACE_BODY:
        to->place = SEAM_INBOX;
        to->offset = from->offset;
        break;
    case PLACE_OMIT: break;
    case PLACE_MEMORY:
    case PLACE_RESIDENT: to->place = SEAM_MEMORY; break; /* the rest is for arrive.c */
    }
    if (from->access != ACCESS_DEFAULT && from->access != (input ? ACCESS_READ : ACCESS_WRITE) &&
        !(stays && from->access == ACCESS_READ_WRITE))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "an %s%s is %s", input ? "input" : "output",
                        stays ? "" : " in the body", input ? "read" : "written");
    return XOP_OK;
}

/* How many tensors a request has: a backward with a context at least what that can give, and a
 * forward that keeps something all its outputs. */
struct extent {
    uint32_t nin, nout, saved;
};

static struct extent extent_of(const struct connection *c, const struct message *m,
                               const struct context *context) {
    struct extent extent = {m->nin, m->nout, 0};
    const struct catalogue *catalogue = c->thread->catalogue;
    uint32_t index;
    if (context && context->nneeds > extent.nin)
        extent.nin = context->nneeds;
    if (m->keep && m->nout == 0 && catalogue && catalogue_find(catalogue, m->op, &index))
        extent.nout = catalogue_outputs(catalogue, index, &extent.saved);
    return extent;
}

static bool put_attributes(struct request *request, const struct message *message,
                           const struct context *context, unsigned char *arguments, size_t capacity,
                           size_t *used) {
    request->nattrs = message->nattrs;
    if (context && message->nattrs == 0) {
        request->nattrs = context->nattrs;
        if (context->attr_bytes > capacity - *used)
            return false;
        if (context->attr_bytes > 0)
            memcpy(arguments + *used, context->attrs, context->attr_bytes);
        *used += context->attr_bytes;
        return true;
    }
    for (uint32_t i = 0; i < message->nattrs; i++)
        if (!seam_put_attr(arguments, capacity, used, &message->attrs[i]))
            return false;
    return true;
}

/* Arguments go into the request where they fit there, else into memory of their own. */
static enum xop_status put_arguments(struct request *request, const struct message *message,
                                     const struct context *context, struct extent extent,
                                     struct xop_error *error) {
    size_t tensors = (size_t)(extent.nin + extent.nout) * sizeof(struct seam_tensor);
    size_t used = tensors, capacity = SEAM_INLINE_ARGUMENTS;
    unsigned char *arguments = request->arguments;
    if (tensors > capacity ||
        !put_attributes(request, message, context, arguments, capacity, &used)) {
        used = tensors;
        capacity = tensors + PROTO_MAX_HEADER + (size_t)XOP_MAX_ATTRS * 128;
        arguments = request->long_arguments = malloc(capacity);
        if (!arguments || !put_attributes(request, message, context, arguments, capacity, &used))
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the attributes take too much memory");
    }
    request->attr_bytes = (uint32_t)(used - tensors);
    struct seam_tensor *at = (struct seam_tensor *)(void *)arguments;
    for (uint32_t i = 0; i < extent.nin; i++, at++) {
        if (i >= message->nin)
            *at = (struct seam_tensor){.place = SEAM_NOWHERE};
        else if (put_tensor(&message->in[i], true, at, error) != XOP_OK)
            return error->status;
        if (at->place != SEAM_NOWHERE) /* a shape alone moves nothing */
            request_charge(request, operands_bytes(at));
    }
    for (uint32_t i = 0; i < extent.nout; i++, at++) {
        if (i >= message->nout)
            *at = (struct seam_tensor){.place = extent.saved >> i & 1 ? SEAM_NOWHERE : SEAM_OUTBOX};
        else if (put_tensor(&message->out[i], false, at, error) != XOP_OK)
            return error->status;
        request_charge(request, operands_bytes(at));
    }
    request->nin = (uint8_t)extent.nin;
    request->nout = (uint8_t)extent.nout;
    return XOP_OK;
}

void request_begin(struct request *request, const struct message *message, uint64_t body) {
    request->id = message->id;
    request->body_bytes = body;
}

enum xop_status request_fill(struct request *request, struct connection *connection,
                             const struct message *message, struct xop_error *error) {
    struct context *context;
    if (message->device > 0)
        return xop_fail(error, XOP_NOT_FOUND, "there is no device %d: this server has one, 0",
                        message->device);
    request->pass = message->type == MESSAGE_BACKWARD ? XOP_BACKWARD : XOP_FORWARD;
    request->flags = message->check ? SEAM_CHECK : 0;
    snprintf(request->op, sizeof request->op, "%s", message->op);
    if (operands_context(connection, message, &context, error) != XOP_OK ||
        put_arguments(request, message, context, extent_of(connection, message, context), error) !=
            XOP_OK)
        return error->status;
    return operands_arrive(request, connection, message, error);
}

/* ---- At a connection ---- */

static struct request **bucket(const struct connection *connection, uint64_t id) {
    uint64_t h = (id ^ (uint64_t)connection->number << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return &connection->thread->by_id[h >> 52];
}

struct request *request_find(const struct connection *connection, uint64_t id) {
    struct request *request = *bucket(connection, id);
    while (request && (request->connection != connection || request->id != id))
        request = request->same_hash;
    return request;
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
    struct request *request = arg;
    (void)fd, (void)what;
    bool launched = request_launched(request);
    request_fail(request, XOP_DEADLINE_EXCEEDED, "the deadline passed %s",
                 launched ? "while it ran" : "before it was started");
}

void request_attach(struct request *request, struct connection *connection, uint64_t deadline_ms) {
    struct request **first = bucket(connection, request->id);
    request->connection = connection;
    request->client = connection->number;
    request->same_hash = *first;
    *first = request;
    request->older = connection->requests;
    if (request->older)
        request->older->newer = request;
    connection->requests = request;
    stats_add(connection->stats.in_flight, 1);
    stats_add(connection->thread->in_flight, 1);
    if (deadline_ms > 0) {
        uint64_t limit = UINT64_C(30) * 24 * 3600 * 1000; /* more than a month is no deadline */
        uint64_t ms = deadline_ms < limit ? deadline_ms : limit;
        struct timeval after = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
        request->deadline_ns = io_now() + ms * 1000000;
        request->has_timer = true;
        evtimer_assign(&request->timer, connection->thread->base, on_deadline, request);
        evtimer_add(&request->timer, &after);
    }
}

void request_detach(struct request *request) {
    struct connection *connection = request->connection;
    struct request **at = bucket(connection, request->id);
    while (*at != request)
        at = &(*at)->same_hash;
    *at = request->same_hash;
    if (request->newer)
        request->newer->older = request->older;
    else
        connection->requests = request->older;
    if (request->older)
        request->older->newer = request->newer;
    if (request->has_timer)
        evtimer_del(&request->timer);
    request->has_timer = false;
    uncount(request);
    atomic_fetch_sub_explicit(&connection->stats.in_flight, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&connection->thread->in_flight, 1, memory_order_relaxed);
    if (request->state == REQUEST_RECEIVING) {
        input_forget(connection, request);
        /* Its place in the order stays until those before it are through. */
        request->state = request->blockers > 0 ? REQUEST_BLOCKED : REQUEST_DONE;
    } else if (request->state == REQUEST_QUEUED) {
        dispatch_remove(request);
    } else if (request->state == REQUEST_WAITING) {
        memory_forget(request);
    } else if (request->state == REQUEST_SUBMITTED) {
        struct seam_request *record = &connection->thread->lane.requests[request->record];
        atomic_store_explicit(&record->dropped, 1, memory_order_relaxed);
    }
    request->connection = NULL;
    if (request->state == REQUEST_BLOCKED)
        give_space(request); /* order_run frees it */
    else if (request->state != REQUEST_SUBMITTED)
        request_free(request);
    connection_answered(connection);
}

bool request_launched(const struct request *request) {
    const struct io_thread *thread = request->thread;
    return request->state == REQUEST_SUBMITTED && thread->generation &&
           atomic_load_explicit(&thread->lane.results[request->record].launched,
                                memory_order_relaxed) != 0;
}

void request_fail(struct request *request, enum xop_status status, const char *format, ...) {
    struct xop_error error;
    struct op_stats *stats = &request->thread->ops[request->op_slot][request->pass];
    va_list args;
    va_start(args, format);
    xop_vfail(&error, status, format, args);
    va_end(args);
    stats_op_ended(stats, status);
    struct connection *connection = request->connection;
    uint64_t id = request->id;
    bool started = request->deaths > 0 || request_launched(request);
    stats_add(connection->stats.errors, 1);
    /* An attach that failed has attached nothing, whatever it failed of: its id is free again. An
     * export that was refused has no memory yet. */
    if (request->kind == SEAM_ADOPT && request->memory && request->memory->connection)
        memory_detach(request->memory);
    request_detach(request); /* first: answering may end the connection */
    answer_failure(connection, id, &error, started);
}
