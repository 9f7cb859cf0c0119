#include "state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 10000
#define DEFAULT_MAX_RESPONSE (UINT64_C(64) << 30)

/* ---- Waiting ---- */

/* Interrupts the leader's poll, so that it looks again at what there is to send. */
static void wake_leader(struct xop_client *client) {
    uint64_t one = 1;
    if (!client->has_leader)
        return;
    if (write(client->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        pump_kill(client, XOP_INTERNAL, "an eventfd cannot be written");
}

/* One turn of the thread that polls for all. The lock is held before and after. */
static void lead(struct xop_client *client, int timeout_ms) {
    int deadline = pump_timeout(client);
    uint64_t count;
    if (timeout_ms < 0 || (deadline >= 0 && deadline < timeout_ms))
        timeout_ms = deadline;
    struct pollfd ready[] = {
        {client->fd, (short)(POLLIN | (pump_wants_output(client) ? POLLOUT : 0)), 0},
        {client->wake, POLLIN, 0}};
    client->has_leader = true;
    pthread_mutex_unlock(&client->lock);
    int n = poll(ready, 2, timeout_ms);
    int failed = n < 0 ? errno : 0;
    pthread_mutex_lock(&client->lock);
    client->has_leader = false;
    if (failed && failed != EINTR)
        pump_kill(client, XOP_INTERNAL, "poll failed");
    if (n > 0 && ready[1].revents && read(client->wake, &count, sizeof count) < 0 &&
        errno != EAGAIN)
        pump_kill(client, XOP_INTERNAL, "an eventfd cannot be read");
    pump_turn(client, n > 0 && (ready[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0);
    pthread_cond_broadcast(&client->changed);
}

/* Waits for another thread to change something. False once until_ns (0: never) has passed. */
static bool wait_change(struct xop_client *client, uint64_t until_ns) {
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    if (until_ns && address_now() >= until_ns)
        return false;
    if (until_ns)
        pthread_cond_timedwait(&client->changed, &client->lock, &until);
    else
        pthread_cond_wait(&client->changed, &client->lock);
    return true;
}

/* A turn of waiting: as the leader, or for the leader. False once until_ns (0: never) has passed.
 */
static bool wait_turn(struct xop_client *client, uint64_t until_ns) {
    uint64_t now = address_now();
    if (client->has_leader)
        return wait_change(client, until_ns);
    if (until_ns && now >= until_ns)
        return false;
    uint64_t ms = until_ns ? (until_ns - now) / 1000000 + 1 : 0;
    lead(client, until_ns ? (ms > 3600000 ? 3600000 : (int)ms) : -1);
    pump_run_callbacks(client);
    return true;
}

/* ---- Opening and closing ---- */

static enum xop_status say_hello(struct xop_client *client,
                                 const struct xop_client_options *options, uint64_t until_ns,
                                 struct xop_error *error) {
    struct message hello = {.type = MESSAGE_HELLO,
                            .version_min = PROTO_VERSION,
                            .version_max = PROTO_VERSION,
                            .agent =
                                options->agent ? options->agent : program_invocation_short_name,
                            .token = options->token,
                            .device = -1};
    char agent[PROTO_MAX_AGENT + 1];
    unsigned char bytes[FRAME_PREFIX + PROTO_MAX_TOKEN + 512];
    snprintf(agent, sizeof agent, "%s", hello.agent);
    hello.agent = message_utf8(agent, strlen(agent)) ? agent : "?";
    if (options->token && strlen(options->token) > PROTO_MAX_TOKEN)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the token has more than %u bytes",
                        PROTO_MAX_TOKEN);
    size_t n = message_encode(&hello, 0, bytes, sizeof bytes);
    /* A new socket's buffer takes so little at once. */
    if (n == 0 || send(client->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
        return xop_fail(error, XOP_UNAVAILABLE, "%s: hello cannot be sent: %s",
                        client->address.text, n ? strerror(errno) : "it is too long");
    bool in_time = true;
    pthread_mutex_lock(&client->lock);
    while (!client->greeted && !client->dead && in_time)
        in_time = wait_turn(client, until_ns);
    pthread_mutex_unlock(&client->lock);
    if (client->greeted && !client->dead)
        return XOP_OK;
    if (client->dead)
        return xop_fail(error, client->death.status, "%s: %.400s", client->address.text,
                        client->death.message);
    return xop_fail(error, XOP_UNAVAILABLE, "%s: it did not say hello in time",
                    client->address.text);
}

static struct xop_client *client_new(const struct xop_client_options *options) {
    struct xop_client *client = calloc(1, sizeof *client);
    pthread_condattr_t attributes;
    if (!client)
        return NULL;
    client->pid = getpid();
    client->fd = -1;
    client->next_id = 1;
    client->max_in_flight = 1;
    client->max_response = options->max_response ? options->max_response : DEFAULT_MAX_RESPONSE;
    client->out_tail = &client->out;
    client->finished_tail = &client->finished;
    client->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->buffer = malloc(CLIENT_BUFFER);
    client->reader = reader_new(&pump_handler, client, client->max_response);
    pthread_mutex_init(&client->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&client->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return client;
}

static void client_free(struct xop_client *client) {
    if (client->fd >= 0)
        close(client->fd);
    if (client->wake >= 0)
        close(client->wake);
    reader_free(client->reader);
    free(client->buffer);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

enum xop_status xop_client_open(const char *address, const struct xop_client_options *given,
                                struct xop_client **out, struct xop_error *error) {
    struct xop_client_options options = {0};
    struct xop_error local;
    if (!error)
        error = &local;
    *out = NULL;
    if (given && given->size == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "options.size is sizeof(struct xop_client_options)");
    if (given)
        memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    uint64_t ms = options.timeout_ms ? options.timeout_ms : DEFAULT_TIMEOUT_MS;
    uint64_t until_ns = address_after_ms(ms);
    struct xop_client *client = client_new(&options);
    if (!client || client->wake < 0 || !client->buffer || !client->reader)
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    else if (address_connect_any(address, until_ns, &client->address, &client->fd, error) ==
                 XOP_OK &&
             say_hello(client, &options, until_ns, error) == XOP_OK) {
        *out = client;
        return XOP_OK;
    }
    if (client)
        client_free(client);
    return error->status;
}

void xop_client_close(struct xop_client *client) {
    if (!client)
        return;
    if (client->pid == getpid()) {
        pthread_mutex_lock(&client->lock);
        pump_kill(client, XOP_CANCELLED, "the client was closed");
        pump_run_callbacks(client);
        pthread_mutex_unlock(&client->lock);
        client_free(client);
    } else {
        close(client->fd); /* a child's copy; the rest may be in use where it was copied */
        close(client->wake);
    }
}

const char *xop_client_address(const struct xop_client *client) { return client->address.text; }

uint64_t xop_client_max_body(const struct xop_client *client) { return client->max_body; }

uint64_t xop_client_max_in_flight(const struct xop_client *client) { return client->max_in_flight; }

/* ---- Calls ---- */

static enum xop_status check_usable(const struct xop_client *client, struct xop_error *error) {
    if (client->pid != getpid())
        return xop_fail(error, XOP_FAILED_PRECONDITION,
                        "this client was opened by the parent process: open one after fork");
    return XOP_OK;
}

/* Queues a call; the lock is held. */
static enum xop_status start(struct xop_client *client, struct call *call,
                             struct xop_error *error) {
    if (client->dead)
        return xop_fail(error, XOP_UNAVAILABLE, "%s", client->death.message);
    if (client->draining && !call->is_internal)
        return xop_fail(error, XOP_UNAVAILABLE, "the server is about to stop");
    pump_add(client, call);
    pump_turn(client, false);
    if (pump_wants_output(client) || call->deadline_ns)
        wake_leader(client);
    return XOP_OK;
}

/* A call for a request, or NULL. */
static struct call *prepare(struct xop_client *client, const struct xop_request *request,
                            struct xop_error *error) {
    struct message message;
    uint64_t body_bytes;
    if (check_usable(client, error) != XOP_OK ||
        call_message(request, &message, &body_bytes, error) != XOP_OK)
        return NULL;
    if (body_bytes > client->max_body) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                 "the inputs have %llu bytes, this server takes %llu in a request",
                 (unsigned long long)body_bytes, (unsigned long long)client->max_body);
        return NULL;
    }
    pthread_mutex_lock(&client->lock);
    message.id = client->next_id++;
    pthread_mutex_unlock(&client->lock);
    struct call *call = call_new(&message, request->in, request->nin, body_bytes, error);
    if (!call)
        return NULL;
    if (request->deadline_ms > 0)
        call->deadline_ns = address_after_ms(request->deadline_ms);
    if (request->out)
        memcpy(call->wanted, request->out, request->nout * sizeof *request->out);
    call->nwanted = request->out ? request->nout : 0;
    call->is_run = true;
    return call;
}

/* A result that holds nothing but a failure; NULL where memory runs out. */
static struct xop_result *failure(const struct xop_error *error) {
    struct xop_error ignored;
    const struct message nothing = {.type = MESSAGE_PING, .id = 1, .device = -1};
    struct call *call = call_new(&nothing, NULL, 0, 0, &ignored);
    if (!call)
        return NULL;
    struct xop_result *result = call->result;
    result->error = *error;
    call->result = NULL;
    call_free(call);
    return result;
}

/* Sends a call and waits for its result. */
static enum xop_status run(struct xop_client *client, struct call *call, struct xop_result **result,
                           struct xop_error *error) {
    pthread_mutex_lock(&client->lock);
    call->waiter = true;
    if (start(client, call, error) != XOP_OK) {
        pthread_mutex_unlock(&client->lock);
        call_free(call);
        *result = failure(error);
        return error->status;
    }
    pump_run_callbacks(client);
    while (!call->finished)
        wait_turn(client, 0);
    *result = call->result;
    call->result = NULL;
    /* An abandoned call stays for the server's answer to come; a dead client knows it no more. */
    call->waiter = false;
    bool stays = call->abandoned && pump_find(client, call->id) == call;
    pthread_mutex_unlock(&client->lock);
    if (!stays)
        call_free(call);
    return (*result)->error.status;
}

enum xop_status xop_run(struct xop_client *client, const struct xop_request *request,
                        struct xop_result **result) {
    struct xop_error error = {XOP_OK, ""};
    struct call *call = prepare(client, request, &error);
    if (call)
        return run(client, call, result, &error);
    *result = failure(&error);
    return *result ? error.status : XOP_RESOURCE_EXHAUSTED;
}

enum xop_status xop_submit(struct xop_client *client, const struct xop_request *request,
                           xop_done_fn done, void *arg, uint64_t *id, struct xop_error *error) {
    struct xop_error local = {XOP_OK, ""};
    if (!error)
        error = &local;
    if (!done)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "done: a function is needed");
    struct call *call = prepare(client, request, error);
    if (!call)
        return error->status;
    call->done = done;
    call->arg = arg;
    if (id)
        *id = call->id;
    pthread_mutex_lock(&client->lock);
    enum xop_status status = start(client, call, error);
    pthread_mutex_unlock(&client->lock);
    if (status != XOP_OK)
        call_free(call);
    return status;
}

enum xop_status xop_cancel(struct xop_client *client, uint64_t id, struct xop_error *error) {
    struct xop_error local;
    struct message message = {.type = MESSAGE_CANCEL, .target = id, .device = -1};
    if (!error)
        error = &local;
    if (check_usable(client, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&client->lock);
    enum xop_status status = XOP_OK;
    struct call *target = pump_find(client, id);
    if (client->dead || !target || target->abandoned) {
        status =
            xop_fail(error, XOP_NOT_FOUND, "request %llu is not in flight", (unsigned long long)id);
    } else if (!target->begun) {
        pump_abandon(client, target, XOP_CANCELLED, "cancelled before it was sent");
        wake_leader(client);
    } else {
        message.id = client->next_id++;
        struct call *call = call_new(&message, NULL, 0, 0, error);
        status = call ? XOP_OK : error->status;
        if (call) {
            call->is_internal = true;
            status = start(client, call, error);
            if (status != XOP_OK)
                call_free(call);
        }
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

static enum xop_status ask(struct xop_client *client, enum message_type type, const char *op,
                           struct xop_result **result) {
    struct xop_error error = {XOP_OK, ""};
    struct message message = {.type = type, .op = op, .device = -1};
    struct call *call = NULL;
    if (op && strlen(op) > XOP_MAX_NAME) {
        xop_fail(&error, XOP_NOT_FOUND, "there is no operator of so long a name");
    } else if (check_usable(client, &error) == XOP_OK) {
        pthread_mutex_lock(&client->lock);
        message.id = client->next_id++;
        pthread_mutex_unlock(&client->lock);
        call = call_new(&message, NULL, 0, 0, &error);
    }
    if (call)
        return run(client, call, result, &error);
    *result = failure(&error);
    return *result ? error.status : XOP_RESOURCE_EXHAUSTED;
}

enum xop_status xop_describe(struct xop_client *client, const char *op,
                             struct xop_result **result) {
    return ask(client, MESSAGE_DESCRIBE, op, result);
}

enum xop_status xop_stats(struct xop_client *client, struct xop_result **result) {
    return ask(client, MESSAGE_STATS, NULL, result);
}

enum xop_status xop_ping(struct xop_client *client, struct xop_result **result) {
    return ask(client, MESSAGE_PING, NULL, result);
}

/* ---- Event loops ---- */

int xop_client_descriptor(const struct xop_client *client) { return client->fd; }

short xop_client_events(const struct xop_client *const_client) {
    struct xop_client *client = (struct xop_client *)(uintptr_t)const_client;
    if (client->pid != getpid())
        return 0; /* the lock may be held by a thread that this process does not have */
    pthread_mutex_lock(&client->lock);
    short events = (short)(POLLIN | (pump_wants_output(client) ? POLLOUT : 0));
    pthread_mutex_unlock(&client->lock);
    return events;
}

int xop_client_timeout(const struct xop_client *const_client) {
    struct xop_client *client = (struct xop_client *)(uintptr_t)const_client;
    if (client->pid != getpid())
        return -1;
    pthread_mutex_lock(&client->lock);
    int ms = client->finished ? 0 : pump_timeout(client);
    pthread_mutex_unlock(&client->lock);
    return ms;
}

enum xop_status xop_client_dispatch(struct xop_client *client, struct xop_error *error) {
    struct xop_error local;
    if (!error)
        error = &local;
    if (check_usable(client, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&client->lock);
    pump_turn(client, true);
    pump_run_callbacks(client);
    enum xop_status status = XOP_OK;
    if (client->dead)
        status = xop_fail(error, XOP_UNAVAILABLE, "%s", client->death.message);
    pthread_mutex_unlock(&client->lock);
    return status;
}

enum xop_status xop_client_wait(struct xop_client *client, uint64_t timeout_ms,
                                struct xop_error *error) {
    struct xop_error local;
    uint64_t until_ns = timeout_ms ? address_after_ms(timeout_ms) : 0;
    enum xop_status status = XOP_OK;
    if (!error)
        error = &local;
    if (check_usable(client, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&client->lock);
    pump_run_callbacks(client);
    while ((client->unfinished > 0 || client->calling > 0) && status == XOP_OK)
        if (!(client->unfinished > 0 ? wait_turn(client, until_ns) : wait_change(client, until_ns)))
            status = xop_fail(error, XOP_DEADLINE_EXCEEDED, "%u calls are still in flight",
                              client->unfinished);
    pump_run_callbacks(client);
    if (client->dead && status == XOP_OK)
        status = xop_fail(error, XOP_UNAVAILABLE, "%s", client->death.message);
    pthread_mutex_unlock(&client->lock);
    return status;
}
