#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Calls ---- */

bool run_is_ours(const struct xop_client *client) {
    return client->ours ? *client->ours : client->pid == getpid();
}

enum xop_status run_usable(const struct xop_client *client, struct xop_error *error) {
    if (!run_is_ours(client))
        return xop_fail(error, XOP_FAILED_PRECONDITION,
                        "this client was opened by the parent process: open one after fork");
    return XOP_OK;
}

struct call *run_call(struct xop_client *client, struct composed *composed,
                      struct xop_error *error) {
    if (composed->body.bytes > client->max_body) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                 "the inputs have %llu bytes, this server takes %llu in a request",
                 (unsigned long long)composed->body.bytes, (unsigned long long)client->max_body);
        return NULL;
    }
    struct call *call = call_take(&client->pool);
    if (!call) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
        return NULL;
    }
    composed->message.id = client->next_id++;
    call->expected = composed->expected;
    if (call_encode(call, &composed->message, &composed->body, error) == XOP_OK)
        return call;
    call_give(&client->pool, call);
    return NULL;
}

/* Frees a call and its pieces. */
static void drop(struct xop_client *client, struct call *call, struct call *pieces) {
    for (struct call *next; pieces; pieces = next) {
        next = pieces->next;
        call_give(&client->pool, pieces);
    }
    call_give(&client->pool, call);
}

enum xop_status run_start(struct xop_client *client, struct call *call, struct call *pieces,
                          struct xop_error *error) {
    bool deadline = call->deadline_ns != 0;
    if (client->dead || (client->draining && !call->is_internal)) {
        drop(client, call, pieces);
        return xop_fail(error, XOP_UNAVAILABLE, "%s",
                        client->dead ? client->death.message : "the server is about to stop");
    }
    if (pieces)
        pump_add_whole(client, call);
    else
        pump_add(client, call);
    for (struct call *next; pieces; pieces = next) {
        next = pieces->next;
        pump_add(client, pieces);
    }
    if (deadline)
        wait_wake(client);
    pump_send(client);
    return XOP_OK;
}

struct xop_result *run_wait(struct xop_client *client, struct call *call, struct call *pieces,
                            struct xop_error *error) {
    struct xop_result *result;
    call->waiter = true;
    if (run_start(client, call, pieces, error) != XOP_OK) {
        if ((result = outcome_new()))
            result->error = *error;
        else
            error->status = XOP_RESOURCE_EXHAUSTED;
        return result;
    }
    pump_run_callbacks(client);
    while (!call->finished)
        wait_turn(client, 0);
    result = call->result;
    call->result = NULL;
    /* An abandoned call stays for the server's answer to come; a dead client knows it no more. */
    call->waiter = false;
    if (!(call->abandoned && pump_find(client, call->id) == call))
        call_give(&client->pool, call);
    *error = result->error;
    return result;
}

enum xop_status run_simple(struct xop_client *client, struct composed *composed,
                           struct xop_error *error) {
    pthread_mutex_lock(&client->lock);
    struct call *call = run_call(client, composed, error);
    if (call)
        xop_result_free(run_wait(client, call, NULL, error));
    pthread_mutex_unlock(&client->lock);
    return error->status;
}

/* ---- Operators ---- */

/* A call for a request, or NULL. The lock is held. */
static struct call *prepare(struct xop_client *client, const struct xop_request *request,
                            struct xop_error *error) {
    struct composed composed;
    struct call *call = NULL;
    if (compose_run(&composed, &client->attached, request, error) != XOP_OK ||
        !(call = run_call(client, &composed, error)))
        return NULL;
    if (request->deadline_ms > 0)
        call->deadline_ns = address_after_ms(request->deadline_ms);
    if (request->out)
        memcpy(call->wanted, request->out, request->nout * sizeof *request->out);
    return call;
}

/* A result that holds nothing but a failure. */
static enum xop_status failed(struct xop_result **result, const struct xop_error *error) {
    *result = outcome_new();
    if (!*result)
        return XOP_RESOURCE_EXHAUSTED;
    (*result)->error = *error;
    return error->status;
}

enum xop_status xop_run(struct xop_client *client, const struct xop_request *request,
                        struct xop_result **result) {
    struct xop_error error = {XOP_OK, ""};
    *result = NULL;
    if (run_usable(client, &error) != XOP_OK)
        return failed(result, &error);
    pthread_mutex_lock(&client->lock);
    struct call *call = prepare(client, request, &error);
    if (call)
        *result = run_wait(client, call, NULL, &error);
    pthread_mutex_unlock(&client->lock);
    return call ? error.status : failed(result, &error);
}

enum xop_status xop_submit(struct xop_client *client, const struct xop_request *request,
                           xop_done_fn done, void *arg, uint64_t *id, struct xop_error *error) {
    struct xop_error local = {XOP_OK, ""};
    if (!error)
        error = &local;
    if (!done)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "done: a function is needed");
    if (run_usable(client, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&client->lock);
    struct call *call = prepare(client, request, error);
    enum xop_status status = call ? XOP_OK : error->status;
    if (call) {
        call->done = done;
        call->arg = arg;
        if (id)
            *id = call->id;
        status = run_start(client, call, NULL, error);
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

bool xop_wait(struct xop_client *client, uint64_t id, uint64_t timeout_ms) {
    uint64_t until_ns = timeout_ms ? address_after_ms(timeout_ms) : 0;
    bool in_time = true, done = false;
    if (!run_is_ours(client))
        return true; /* nothing of a child's is in flight */
    pthread_mutex_lock(&client->lock);
    uint32_t signals = client->signals;
    for (;;) {
        pump_run_callbacks(client);
        const struct call *call = pump_find(client, id);
        bool answered = !call || call->abandoned;
        done = answered && !pump_is_running(client, id);
        if (done || !in_time || client->signals != signals)
            break;
        in_time = answered ? wait_change(client, until_ns) : wait_turn(client, until_ns);
    }
    pthread_mutex_unlock(&client->lock);
    return done;
}

/* A cancel of a call that the server has. The lock is held. */
static enum xop_status send_cancel(struct xop_client *client, uint64_t id,
                                   struct xop_error *error) {
    struct composed composed;
    compose_plain(&composed, MESSAGE_CANCEL, OUTCOME_PLAIN);
    composed.message.target = id;
    struct call *call = run_call(client, &composed, error);
    if (!call)
        return error->status;
    call->is_internal = call->is_urgent = true;
    return run_start(client, call, NULL, error);
}

enum xop_status xop_cancel(struct xop_client *client, uint64_t id, struct xop_error *error) {
    struct xop_error local;
    enum xop_status status = XOP_OK;
    if (!error)
        error = &local;
    if (run_usable(client, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&client->lock);
    struct call *target = pump_find(client, id);
    if (client->dead || !target || target->abandoned || target->is_internal) {
        status =
            xop_fail(error, XOP_NOT_FOUND, "request %llu is not in flight", (unsigned long long)id);
    } else if (!target->begun) {
        pump_abandon(client, target, XOP_CANCELLED, "cancelled before it was sent");
        wait_wake(client);
    } else {
        status = send_cancel(client, id, error);
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

/* ---- Documents ---- */

static enum xop_status ask(struct xop_client *client, struct composed *composed,
                           struct xop_result **result) {
    struct xop_error error = {XOP_OK, ""};
    *result = NULL;
    if (run_usable(client, &error) != XOP_OK)
        return failed(result, &error);
    pthread_mutex_lock(&client->lock);
    struct call *call = run_call(client, composed, &error);
    if (call)
        *result = run_wait(client, call, NULL, &error);
    pthread_mutex_unlock(&client->lock);
    return call ? error.status : failed(result, &error);
}

enum xop_status xop_describe(struct xop_client *client, const char *op,
                             struct xop_result **result) {
    struct composed composed;
    struct xop_error error;
    compose_plain(&composed, MESSAGE_DESCRIBE, OUTCOME_DOCUMENT);
    composed.message.op = op;
    if (op && strlen(op) > XOP_MAX_NAME) {
        xop_fail(&error, XOP_NOT_FOUND, "there is no operator of so long a name");
        return failed(result, &error);
    }
    return ask(client, &composed, result);
}

enum xop_status xop_stats(struct xop_client *client, struct xop_result **result) {
    struct composed composed;
    compose_plain(&composed, MESSAGE_STATS, OUTCOME_DOCUMENT);
    return ask(client, &composed, result);
}

enum xop_status xop_ping(struct xop_client *client, struct xop_result **result) {
    struct composed composed;
    compose_plain(&composed, MESSAGE_PING, OUTCOME_DOCUMENT);
    return ask(client, &composed, result);
}

enum xop_status xop_probe(struct xop_client *client, uint64_t bytes_in, uint64_t bytes_out,
                          struct xop_result **result) {
    struct composed composed;
    compose_plain(&composed, MESSAGE_PROBE, OUTCOME_DOCUMENT);
    composed.message.bytes_in = bytes_in;
    composed.message.bytes_out = bytes_out;
    return ask(client, &composed, result);
}
