/* Tensors that stay in the server: put, get, free and export. */
#include "state.h"

#include <unistd.h>

/* Large tensors go in pieces, so that requests of others come in between. */
#define PIECE_BYTES (UINT64_C(64) << 20)

uint64_t xop_handle(struct xop_client *client) {
    return atomic_fetch_add_explicit(&client->handles, 1, memory_order_relaxed) + 1;
}

/* A tensor that goes to or comes from a handle: one call, or a whole and its pieces. */
struct copy {
    struct call *call, *pieces;
};

/* The largest piece of whole elements; 0: a request does not hold one. */
static uint64_t piece_bytes(const struct xop_client *client, const struct xop_tensor *tensor) {
    uint64_t most = client->max_body < PIECE_BYTES ? client->max_body : PIECE_BYTES;
    size_t size = xop_dtype_size(tensor->dtype);
    return size ? most - most % size : 0;
}

static enum xop_status make_pieces(struct xop_client *client, enum message_type type,
                                   uint64_t handle, const struct xop_tensor *tensor, uint64_t bytes,
                                   uint64_t step, struct copy *copy, struct xop_error *error) {
    struct composed composed;
    struct call **tail = &copy->pieces;
    copy->call = call_take(&client->pool);
    if (!copy->call)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    for (uint64_t at = 0; at < bytes; at += step) {
        compose_piece(&composed, type, handle, tensor, at, bytes - at < step ? bytes - at : step);
        struct call *piece = run_call(client, &composed, error);
        if (!piece)
            break;
        piece->is_internal = true;
        piece->whole = copy->call;
        copy->call->pieces++;
        *tail = piece;
        tail = &piece->next;
    }
    *tail = NULL;
    if (copy->call->pieces == (bytes + step - 1) / step)
        return XOP_OK;
    for (struct call *piece = copy->pieces, *next; piece; piece = next) {
        next = piece->next;
        call_give(&client->pool, piece);
    }
    call_give(&client->pool, copy->call);
    return error->status;
}

/* The lock is held. */
static enum xop_status prepare(struct xop_client *client, enum message_type type, uint64_t handle,
                               const struct xop_tensor *tensor, struct copy *copy,
                               struct xop_error *error) {
    struct composed composed;
    uint64_t bytes;
    *copy = (struct copy){NULL, NULL};
    if (compose_check(tensor, true, &bytes, error) != XOP_OK)
        return error->status;
    uint64_t step = piece_bytes(client, tensor);
    if (!compose_in_place(&composed, &client->attached, type, handle, tensor, bytes)) {
        if (bytes > 0 && step == 0)
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                            "this server takes %llu bytes in a request, less than an element",
                            (unsigned long long)client->max_body);
        if (bytes > step)
            return make_pieces(client, type, handle, tensor, bytes, step, copy, error);
        compose_piece(&composed, type, handle, tensor, 0, bytes);
    }
    copy->call = run_call(client, &composed, error);
    return copy->call ? XOP_OK : error->status;
}

static enum xop_status check_handle(const struct xop_client *client, uint64_t handle,
                                    struct xop_error *error) {
    if (handle == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "handle: 0 names no tensor");
    return run_usable(client, error);
}

/* Blocking where done is NULL. */
static enum xop_status move(struct xop_client *client, enum message_type type, uint64_t handle,
                            const struct xop_tensor *tensor, xop_done_fn done, void *arg,
                            struct xop_error *error) {
    struct copy copy;
    if (check_handle(client, handle, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&client->lock);
    enum xop_status status = prepare(client, type, handle, tensor, &copy, error);
    if (status == XOP_OK && done && copy.call) {
        copy.call->done = done;
        copy.call->arg = arg;
        status = run_start(client, copy.call, copy.pieces, error);
    } else if (status == XOP_OK) {
        xop_result_free(run_wait(client, copy.call, copy.pieces, error));
        status = error->status;
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

static enum xop_status needs_function(struct xop_error *error) {
    return xop_fail(error, XOP_INVALID_ARGUMENT, "done: a function is needed");
}

enum xop_status xop_put(struct xop_client *client, uint64_t handle, const struct xop_tensor *tensor,
                        struct xop_error *error) {
    struct xop_error local;
    return move(client, MESSAGE_PUT, handle, tensor, NULL, NULL, state_error(error, &local));
}

enum xop_status xop_get(struct xop_client *client, uint64_t handle, const struct xop_tensor *tensor,
                        struct xop_error *error) {
    struct xop_error local;
    return move(client, MESSAGE_GET, handle, tensor, NULL, NULL, state_error(error, &local));
}

enum xop_status xop_submit_put(struct xop_client *client, uint64_t handle,
                               const struct xop_tensor *tensor, xop_done_fn done, void *arg,
                               struct xop_error *error) {
    struct xop_error local;
    error = state_error(error, &local);
    return done ? move(client, MESSAGE_PUT, handle, tensor, done, arg, error)
                : needs_function(error);
}

enum xop_status xop_submit_get(struct xop_client *client, uint64_t handle,
                               const struct xop_tensor *tensor, xop_done_fn done, void *arg,
                               struct xop_error *error) {
    struct xop_error local;
    error = state_error(error, &local);
    return done ? move(client, MESSAGE_GET, handle, tensor, done, arg, error)
                : needs_function(error);
}

enum xop_status xop_free(struct xop_client *client, uint64_t handle, struct xop_error *error) {
    struct xop_error local;
    struct composed composed;
    error = state_error(error, &local);
    if (check_handle(client, handle, error) != XOP_OK)
        return error->status;
    compose_plain(&composed, MESSAGE_FREE, OUTCOME_PLAIN);
    composed.message.handle = handle;
    return run_simple(client, &composed, error);
}

enum xop_status xop_submit_free(struct xop_client *client, uint64_t handle, xop_done_fn done,
                                void *arg, struct xop_error *error) {
    struct xop_error local;
    struct composed composed;
    error = state_error(error, &local);
    if (!done)
        return needs_function(error);
    if (check_handle(client, handle, error) != XOP_OK)
        return error->status;
    compose_plain(&composed, MESSAGE_FREE, OUTCOME_PLAIN);
    composed.message.handle = handle;
    pthread_mutex_lock(&client->lock);
    struct call *call = run_call(client, &composed, error);
    enum xop_status status = call ? XOP_OK : error->status;
    if (call) {
        call->done = done;
        call->arg = arg;
        status = run_start(client, call, NULL, error);
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

static enum xop_status check_export(const struct xop_client *client, uint64_t handle,
                                    const struct xop_tensor *shape, struct xop_error *error) {
    uint64_t bytes;
    if (check_handle(client, handle, error) != XOP_OK ||
        compose_check(shape, false, &bytes, error) != XOP_OK)
        return error->status;
    if (!client->address.is_unix)
        return xop_fail(error, XOP_FAILED_PRECONDITION,
                        "descriptors pass over Unix sockets alone: this connection is %s",
                        client->address.text);
    return XOP_OK;
}

enum xop_status xop_export(struct xop_client *client, uint64_t handle,
                           const struct xop_tensor *shape, int *descriptor, uint64_t *bytes,
                           struct xop_error *error) {
    struct xop_error local;
    struct composed composed;
    struct xop_result *result = NULL;
    uint64_t length = 0;
    error = state_error(error, &local);
    *descriptor = -1;
    if (bytes)
        *bytes = 0;
    if (check_export(client, handle, shape, error) != XOP_OK)
        return error->status;
    compose_plain(&composed, MESSAGE_EXPORT, OUTCOME_EXPORT);
    composed.message.handle = handle;
    composed.message.nin = 1;
    compose_type(&composed.message.in[0], shape);
    pthread_mutex_lock(&client->lock);
    struct call *call = run_call(client, &composed, error);
    if (call)
        result = run_wait(client, call, NULL, error);
    pthread_mutex_unlock(&client->lock);
    if (result && result->error.status == XOP_OK) {
        *descriptor = outcome_take_descriptor(result, &length);
        if (bytes)
            *bytes = length;
    }
    xop_result_free(result);
    return error->status;
}
