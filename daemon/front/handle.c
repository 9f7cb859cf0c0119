#include "handle.h"

#include "admit.h"
#include "answer.h"
#include "connection.h"
#include "document.h"
#include "identity.h"
#include "input.h"
#include "operands.h"
#include "request.h"
#include "shared.h"

#include <string.h>
#include <unistd.h>

/* ---- Rows ---- */

static struct request *on_hello(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    (void)body;
    if (m->version_min > PROTO_VERSION || m->version_max < PROTO_VERSION) {
        xop_fail(&error, XOP_FAILED_PRECONDITION,
                 "this server speaks version %d of the protocol, the client %llu to %llu",
                 PROTO_VERSION, (unsigned long long)m->version_min,
                 (unsigned long long)m->version_max);
        connection_close(c, &error);
        return NULL;
    }
    if (admit_connection(c, m->token, &error) != XOP_OK) {
        connection_log(c, 0, LOG_LEVEL_INFO, "refused: %s", error.message);
        connection_refuse(c, &error);
        return NULL;
    }
    c->greeted = true;
    if (m->agent) { /* others read it, for stats */
        pthread_mutex_lock(&c->thread->lock);
        message_quote(c->agent, sizeof c->agent, m->agent, strlen(m->agent));
        pthread_mutex_unlock(&c->thread->lock);
    }
    connection_log(c, 0, LOG_LEVEL_DEBUG, "it is %s, %s by policy %s", c->agent, c->identity->name,
                   c->identity->policy);
    answer_hello(c);
    if (c->thread->draining)
        answer_goaway(c);
    return NULL;
}

static void count_refused(struct connection *c, enum stats_refused why) {
    stats_add(c->stats.errors, 1);
    stats_add(c->thread->stats.refused[why], 1);
}

static enum xop_status refused_now(struct connection *c, enum stats_refused *why,
                                   struct xop_error *error) {
    struct front *front = c->thread->front;
    struct worker_info info;
    *why = REFUSED_DRAINING;
    if (c->thread->draining)
        return xop_fail(error, XOP_UNAVAILABLE, "this server is about to stop");
    if (!atomic_load(&front->unavailable))
        return XOP_OK;
    *why = REFUSED_NO_WORKER;
    shared_info(front, &info);
    return xop_fail(error, XOP_UNAVAILABLE, "there is no worker: %.400s", info.reason);
}

/* A request for a message, counted; NULL having answered where it cannot be taken now. */
static struct request *begin(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    struct request *request = NULL;
    enum stats_refused why;
    struct identity *counted = NULL;
    stats_add(c->stats.requests, 1);
    if (refused_now(c, &why, &error) == XOP_OK) {
        why = REFUSED_QUOTA;
        if (identity_take(c->identity, QUOTA_IN_FLIGHT, 1, &counted, &error) == XOP_OK)
            request = request_new(c->thread);
    }
    if (!request && counted) {
        why = REFUSED_EXHAUSTED;
        identity_give(counted, QUOTA_IN_FLIGHT, 1);
        xop_fail(&error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
    }
    if (request) {
        request_begin(request, m, body);
        request->in_flight = counted;
        request->priority = admit_priority(c, m->priority);
    } else {
        count_refused(c, why);
        answer_failure(c, m->id, &error, false);
    }
    return request;
}

static struct request *refuse_for(struct connection *c, struct request *request,
                                  enum stats_refused why, const struct xop_error *error) {
    uint64_t id = request->id;
    request_drop(request);
    count_refused(c, why);
    answer_failure(c, id, error, false);
    return NULL;
}

static struct request *refuse(struct connection *c, struct request *request,
                              const struct xop_error *error) {
    bool exhausted = error->status == XOP_RESOURCE_EXHAUSTED;
    return refuse_for(c, request, exhausted ? REFUSED_EXHAUSTED : REFUSED_INVALID, error);
}

static struct request *on_run(struct connection *c, const struct message *m, uint64_t body) {
    struct io_thread *thread = c->thread;
    struct xop_error error;
    struct request *request = begin(c, m, body);
    if (!request)
        return NULL;
    if (request_fill(request, c, m, &error) != XOP_OK)
        return refuse(c, request, &error);
    if (thread->generation &&
        !catalogue_find(thread->generation->catalogue, request->op, &request->op_index)) {
        char quoted[96];
        xop_fail(&error, XOP_NOT_FOUND,
                 "there is no operator \"%s\" (xopctl ops lists those there are)",
                 message_quote(quoted, sizeof quoted, request->op, strlen(request->op)));
        return refuse_for(c, request, REFUSED_NO_OPERATOR, &error);
    }
    request->op_generation = thread->generation ? thread->generation->number : 0;
    /* A name that no catalogue has confirmed gets no slot: clients could use them all up. */
    if (thread->generation)
        request->op_slot = catalogue_slot(thread->generation->catalogue, request->op_index);
    request_attach(request, c, m->deadline_ms);
    return request;
}

/* ---- Tensors that stay, and clients' memory ---- */

static struct request *on_put(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    struct request *request = begin(c, m, body);
    if (request && operands_put(request, c, m, body, &error) != XOP_OK)
        return refuse(c, request, &error);
    if (request)
        request_attach(request, c, m->deadline_ms);
    return request;
}

static struct request *on_get(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    struct request *request = begin(c, m, body);
    if (request && operands_get(request, c, m, &error) != XOP_OK)
        return refuse(c, request, &error);
    if (request)
        request_attach(request, c, m->deadline_ms);
    return request;
}

static bool is_local(const struct connection *c, struct xop_error *error) {
    if (!c->is_unix)
        xop_fail(error, XOP_FAILED_PRECONDITION,
                 "descriptors pass over Unix sockets alone: this is no such connection");
    return c->is_unix;
}

static struct request *on_export(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    struct request *request = begin(c, m, body);
    if (request && (!is_local(c, &error) || operands_export(request, c, m, &error) != XOP_OK))
        return refuse(c, request, &error);
    if (request)
        request_attach(request, c, 0);
    return request;
}

static struct request *on_free(struct connection *c, const struct message *m, uint64_t body) {
    struct resident *resident = resident_find(c, m->handle);
    struct context *context = context_find(c, m->handle);
    struct xop_error error;
    (void)body;
    stats_add(c->stats.requests, 1);
    if (resident)
        resident_unname(resident);
    if (context)
        context_unname(context);
    if (resident || context) {
        answer_ok(c, m->id);
        return NULL;
    }
    xop_fail(&error, XOP_NOT_FOUND, "there is no resident tensor or context %llu",
             (unsigned long long)m->handle);
    count_refused(c, REFUSED_INVALID);
    answer_failure(c, m->id, &error, false);
    return NULL;
}

static struct request *on_attach(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    struct memory *memory = NULL;
    struct request *request = begin(c, m, body);
    int fd = input_take_fd(c); /* in any case: the next is another frame's */
    if (!request) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    if (!is_local(c, &error))
        ;
    else if (fd < 0)
        xop_fail(&error, XOP_INVALID_ARGUMENT, "no descriptor came with the frame");
    else if (table_find(&c->holdings.memories, m->handle))
        xop_fail(&error, XOP_ALREADY_EXISTS, "memory %llu is attached already",
                 (unsigned long long)m->handle);
    else {
        memory = memory_attach(c, m->handle, fd, m->length, m->write, &error);
        fd = -1;
    }
    if (fd >= 0)
        close(fd);
    request->kind = SEAM_ADOPT;
    request->memory = memory;
    if (memory && !order_access(request, &memory->object, 0, memory->bytes, true)) {
        xop_fail(&error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
        memory_detach(memory);
        memory = NULL;
    }
    if (!memory)
        return refuse(c, request, &error);
    request_attach(request, c, 0);
    return request;
}

static struct request *on_detach(struct connection *c, const struct message *m, uint64_t body) {
    struct memory *memory = table_find(&c->holdings.memories, m->handle);
    struct xop_error error;
    struct request *request = begin(c, m, body);
    if (!request)
        return NULL;
    request->kind = SEAM_RELEASE;
    request->memory = memory;
    bool ordered = memory && order_access(request, &memory->object, 0, memory->bytes, true);
    if (!memory)
        xop_fail(&error, XOP_NOT_FOUND, "no memory %llu is attached",
                 (unsigned long long)m->handle);
    else if (!ordered)
        xop_fail(&error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
    if (!ordered)
        return refuse(c, request, &error);
    memory_detach(memory);
    request_attach(request, c, 0);
    return request;
}

static struct request *on_probe(struct connection *c, const struct message *m, uint64_t body) {
    struct request *request = begin(c, m, body);
    if (!request)
        return NULL;
    request->kind = SEAM_PROBE;
    request->bytes_in = m->bytes_in;
    request->bytes_out = m->bytes_out;
    request_attach(request, c, 0);
    return request;
}

/* ---- Others ---- */

static struct request *on_cancel(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    struct request *target = request_find(c, m->target);
    (void)body;
    if (!target) {
        xop_fail(&error, XOP_NOT_FOUND, "request %llu is not in flight",
                 (unsigned long long)m->target);
        answer_failure(c, m->id, &error, false);
        return NULL;
    }
    request_fail(target, XOP_CANCELLED, "cancelled by its client");
    answer_ok(c, m->id);
    return NULL;
}

static void answer_describe(struct connection *c, uint64_t id, const char *op) {
    struct generation *generation = c->thread->generation;
    struct worker_info info;
    struct xop_error error;
    char quoted[96];
    char *json = NULL;
    enum stats_refused why;
    if (generation) {
        shared_info(c->thread->front, &info);
        json = catalogue_describe(generation->catalogue, op, info.backend, info.device);
    }
    if (json) {
        answer_document_take(c, id, json);
        return;
    }
    if (generation && op)
        xop_fail(&error, XOP_NOT_FOUND, "there is no operator \"%s\"",
                 message_quote(quoted, sizeof quoted, op, strlen(op)));
    else if (generation || refused_now(c, &why, &error) == XOP_OK)
        xop_fail(&error, XOP_UNAVAILABLE, "the catalogue is not available now");
    answer_failure(c, id, &error, false);
}

static struct request *on_describe(struct connection *c, const struct message *m, uint64_t body) {
    (void)body;
    if (c->thread->generation || c->thread->draining ||
        atomic_load(&c->thread->front->unavailable)) {
        answer_describe(c, m->id, m->op);
    } else {
        /* A worker is starting: this connection waits for it. */
        c->awaits_worker = true;
        c->awaiting_id = m->id;
        snprintf(c->awaiting_op, sizeof c->awaiting_op, "%s", m->op ? m->op : "");
    }
    return NULL;
}

void handle_worker_changed(struct connection *c) {
    if (!c->awaits_worker)
        return;
    c->awaits_worker = false;
    answer_describe(c, c->awaiting_id, *c->awaiting_op ? c->awaiting_op : NULL);
    connection_visit(c);
}

static struct request *on_stats(struct connection *c, const struct message *m, uint64_t body) {
    (void)body;
    answer_document_take(c, m->id,
                         document_stats(c->thread->front, admit_sees_all(c) ? NULL : c->identity));
    return NULL;
}

static struct request *on_ping(struct connection *c, const struct message *m, uint64_t body) {
    (void)body;
    answer_document_take(c, m->id, document_ping(c->thread->front));
    return NULL;
}

static struct request *on_unimplemented(struct connection *c, const struct message *m,
                                        uint64_t body) {
    struct xop_error error;
    (void)body;
    xop_fail(&error, XOP_UNIMPLEMENTED, "this server does not offer \"%s\"",
             message_type_name(m->type));
    answer_failure(c, m->id, &error, false);
    return NULL;
}

/* ---- The table ---- */

static struct request *(*const rows[MESSAGE_TYPES])(struct connection *, const struct message *,
                                                    uint64_t body) = {
    [MESSAGE_HELLO] = on_hello,
    [MESSAGE_FORWARD] = on_run,
    [MESSAGE_BACKWARD] = on_run,
    [MESSAGE_PUT] = on_put,
    [MESSAGE_GET] = on_get,
    [MESSAGE_FREE] = on_free,
    [MESSAGE_EXPORT] = on_export,
    [MESSAGE_PROBE] = on_probe,
    [MESSAGE_CANCEL] = on_cancel,
    [MESSAGE_DESCRIBE] = on_describe,
    [MESSAGE_STATS] = on_stats,
    [MESSAGE_PING] = on_ping,
    [MESSAGE_ATTACH] = on_attach,
    [MESSAGE_DETACH] = on_detach,
    [MESSAGE_DEFINE] = on_unimplemented,
    [MESSAGE_LOAD] = on_unimplemented,
    [MESSAGE_DRAIN] = on_unimplemented,
    [MESSAGE_RELOAD] = on_unimplemented,
};

/* Answers what its sender may not send, or not now. */
static bool is_admitted(struct connection *c, const struct message *m) {
    struct xop_error error;
    if (admit_message(c, m->type, &error) == XOP_OK)
        return true;
    int fd = m->type == MESSAGE_ATTACH ? input_take_fd(c) : -1;
    if (fd >= 0)
        close(fd);
    stats_add(c->stats.requests, 1);
    count_refused(c, error.status == XOP_PERMISSION_DENIED ? REFUSED_FORBIDDEN : REFUSED_QUOTA);
    answer_failure(c, m->id, &error, false);
    return false;
}

struct request *handle_message(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    if (!rows[m->type] || (m->type == MESSAGE_HELLO) == c->greeted) {
        xop_fail(&error, XOP_INVALID_ARGUMENT, "\"%s\" is not allowed %s",
                 message_type_name(m->type),
                 !rows[m->type] ? "from a client"
                 : c->greeted   ? "a second time"
                                : "before hello");
        connection_log(c, m->id, LOG_LEVEL_INFO, "refused: %s", error.message);
        connection_close(c, &error);
        return NULL;
    }
    if (m->type != MESSAGE_HELLO && request_find(c, m->id)) {
        xop_fail(&error, XOP_INVALID_ARGUMENT, "id: %llu is already in flight",
                 (unsigned long long)m->id);
        connection_log(c, m->id, LOG_LEVEL_INFO, "refused: %s", error.message);
        /* Answered without that id, which still has its own answer to come. */
        connection_close(c, &error);
        return NULL;
    }
    if (m->type != MESSAGE_HELLO && !is_admitted(c, m))
        return NULL;
    return rows[m->type](c, m, body);
}
