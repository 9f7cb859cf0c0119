#include "handle.h"

#include "answer.h"
#include "connection.h"
#include "document.h"
#include "request.h"
#include "shared.h"

#include <string.h>

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
    c->greeted = true;
    if (m->agent) { /* others read it, for stats */
        pthread_mutex_lock(&c->thread->lock);
        message_quote(c->agent, sizeof c->agent, m->agent, strlen(m->agent));
        pthread_mutex_unlock(&c->thread->lock);
    }
    log_debug("client %u is %s", c->number, c->agent);
    answer_hello(c);
    return NULL;
}

static enum xop_status refused_now(struct connection *c, struct xop_error *error) {
    struct front *front = c->thread->front;
    struct worker_info info;
    if (c->thread->draining)
        return xop_fail(error, XOP_UNAVAILABLE, "this server is about to stop");
    if (!atomic_load(&front->unavailable))
        return XOP_OK;
    shared_info(front, &info);
    return xop_fail(error, XOP_UNAVAILABLE, "there is no worker: %.400s", info.reason);
}

static struct request *on_run(struct connection *c, const struct message *m, uint64_t body) {
    struct io_thread *thread = c->thread;
    struct xop_error error;
    stats_add(c->stats.requests, 1);
    struct request *request = request_new(thread);
    if (!request) {
        xop_fail(&error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
        goto refuse;
    }
    if (refused_now(c, &error) != XOP_OK || request_fill(request, m, &error) != XOP_OK)
        goto refuse;
    request->body_bytes = body;
    if (thread->generation &&
        !catalogue_find(thread->generation->catalogue, request->op, &request->op_index)) {
        char quoted[96];
        xop_fail(&error, XOP_NOT_FOUND,
                 "there is no operator \"%s\" (xopctl ops lists those there are)",
                 message_quote(quoted, sizeof quoted, request->op, strlen(request->op)));
        goto refuse;
    }
    request->op_generation = thread->generation ? thread->generation->number : 0;
    /* A name that no catalogue has confirmed gets no slot: clients could use them all up. */
    request->op_slot = thread->generation
                           ? catalogue_slot(thread->generation->catalogue, request->op_index)
                           : STATS_SLOTS - 1;
    request_attach(request, c, m->deadline_ms);
    return request;
refuse:
    if (request)
        request_free(request);
    stats_add(c->stats.errors, 1);
    answer_failure(c, m->id, &error, false);
    return NULL;
}

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
    else if (generation || refused_now(c, &error) == XOP_OK)
        xop_fail(&error, XOP_UNAVAILABLE, "the catalogue is not available now");
    answer_failure(c, id, &error, false);
}

static struct request *on_describe(struct connection *c, const struct message *m, uint64_t body) {
    (void)body;
    if (c->thread->generation || atomic_load(&c->thread->front->unavailable)) {
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

static void answer_json(struct connection *c, uint64_t id, char *json) {
    struct xop_error error;
    if (json) {
        answer_document_take(c, id, json);
    } else {
        xop_fail(&error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
        answer_failure(c, id, &error, false);
    }
}

static struct request *on_stats(struct connection *c, const struct message *m, uint64_t body) {
    (void)body;
    answer_json(c, m->id, document_stats(c->thread->front));
    return NULL;
}

static struct request *on_ping(struct connection *c, const struct message *m, uint64_t body) {
    (void)body;
    answer_json(c, m->id, document_ping(c->thread->front));
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
    [MESSAGE_HELLO] = on_hello,          [MESSAGE_FORWARD] = on_run,
    [MESSAGE_BACKWARD] = on_run,         [MESSAGE_PUT] = on_unimplemented,
    [MESSAGE_GET] = on_unimplemented,    [MESSAGE_FREE] = on_unimplemented,
    [MESSAGE_CANCEL] = on_cancel,        [MESSAGE_DESCRIBE] = on_describe,
    [MESSAGE_STATS] = on_stats,          [MESSAGE_PING] = on_ping,
    [MESSAGE_ATTACH] = on_unimplemented, [MESSAGE_DETACH] = on_unimplemented,
    [MESSAGE_DEFINE] = on_unimplemented, [MESSAGE_LOAD] = on_unimplemented,
    [MESSAGE_DRAIN] = on_unimplemented,  [MESSAGE_RELOAD] = on_unimplemented,
};

struct request *handle_message(struct connection *c, const struct message *m, uint64_t body) {
    struct xop_error error;
    if (!rows[m->type] || (m->type == MESSAGE_HELLO) == c->greeted) {
        xop_fail(&error, XOP_INVALID_ARGUMENT, "\"%s\" is not allowed %s",
                 message_type_name(m->type),
                 !rows[m->type] ? "from a client"
                 : c->greeted   ? "a second time"
                                : "before hello");
        log_info("client %u (%s): %s", c->number, c->peer, error.message);
        connection_close(c, &error);
        return NULL;
    }
    if (m->type != MESSAGE_HELLO && request_find(c, m->id)) {
        xop_fail(&error, XOP_INVALID_ARGUMENT, "id: %llu is already in flight",
                 (unsigned long long)m->id);
        /* Answered without that id, which still has its own answer to come. */
        connection_close(c, &error);
        return NULL;
    }
    return rows[m->type](c, m, body);
}
