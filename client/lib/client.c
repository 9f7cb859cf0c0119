#include "state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 10000
#define DEFAULT_MAX_RESPONSE (UINT64_C(64) << 30)

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
    if (options->token && !client->address.is_unix && !client->address.is_tls &&
        !options->insecure_token)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s: a token is not sent where whoever listens can read it: use tls:, or "
                        "insist with insecure_token",
                        client->address.text);
    if (options->token && strlen(options->token) > PROTO_MAX_TOKEN)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the token has more than %u bytes",
                        PROTO_MAX_TOKEN);
    size_t n = message_encode(&hello, 0, bytes, sizeof bytes);
    /* A new socket's buffer takes so little at once. */
    struct iovec part = {bytes, n};
    ssize_t sent = n == 0           ? -1
                   : client->secure ? secure_send(client->secure, &part, 1)
                                    : send(client->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* A server that refused the certificate says so in what is still to be read. */
    if (sent < 0 && n > 0 && client->secure)
        client->send_failed = errno;
    else if (sent != (ssize_t)n)
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

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static const char *mark_ours(void) {
    char *page =
        mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, page_bytes(), MADV_WIPEONFORK) < 0) {
        munmap(page, page_bytes());
        return NULL;
    }
    *page = 1;
    return page;
}

static struct xop_client *client_new(const struct xop_client_options *options) {
    struct xop_client *client = calloc(1, sizeof *client);
    pthread_condattr_t attributes;
    if (!client)
        return NULL;
    client->pid = getpid();
    client->ours = mark_ours();
    client->fd = -1;
    client->next_id = 1;
    client->max_in_flight = 1;
    client->spin_ns = wait_spin_ns(options->spin_us);
    client->max_response = options->max_response ? options->max_response : DEFAULT_MAX_RESPONSE;
    client->out_tail = &client->out;
    client->finished_tail = &client->finished;
    client->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->buffer = malloc(CLIENT_BUFFER);
    client->reader = reader_new(&receive_handler, client, client->max_response);
    pthread_mutex_init(&client->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&client->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return client;
}

static void client_free(struct xop_client *client) {
    secure_free(client->secure);
    if (client->fd >= 0)
        close(client->fd);
    if (client->wake >= 0)
        close(client->wake);
    while (client->ndescriptors > 0)
        close(client->descriptors[--client->ndescriptors]);
    call_pool_clear(&client->pool);
    if (client->ours)
        munmap((void *)(uintptr_t)client->ours, page_bytes());
    reader_free(client->reader);
    free(client->buffer);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

static enum xop_status open_one(const char *address, const struct xop_client_options *options,
                                uint64_t until_ns, struct xop_client **out,
                                struct xop_error *error) {
    struct xop_client *client = client_new(options);
    if (!client || client->wake < 0 || !client->buffer || !client->reader)
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    else if (address_connect_any(address, until_ns, &client->address, &client->fd, error) ==
                 XOP_OK &&
             (!client->address.is_tls || secure_open(&client->address, client->fd, options,
                                                     until_ns, &client->secure, error) == XOP_OK) &&
             say_hello(client, options, until_ns, error) == XOP_OK) {
        *out = client;
        return XOP_OK;
    }
    if (client)
        client_free(client);
    return error->status;
}

/* The next is for a server that is not there; one that is and refuses has answered for all. */
static enum xop_status open_first(const char *list, const struct xop_client_options *options,
                                  uint64_t until_ns, struct xop_client **out,
                                  struct xop_error *error) {
    char one[ADDRESS_MAX], tried[480] = "";
    uint32_t left = address_count(list);
    if (left == 1)
        return open_one(list, options, until_ns, out, error);
    for (; left > 0; left--) {
        uint64_t now = address_now();
        /* None that is silent takes the time of those behind it. */
        uint64_t part_ns = until_ns > now ? (until_ns - now) / left : 0;
        enum xop_status status = address_first(&list, one, error);
        if (status == XOP_OK)
            status = open_one(one, options, now + part_ns, out, error);
        if (status != XOP_UNAVAILABLE)
            return status;
        size_t used = strlen(tried);
        snprintf(tried + used, sizeof tried - used, "%s%.160s", used ? "; " : "", error->message);
    }
    return xop_fail(error, XOP_UNAVAILABLE, "%s", tried);
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
    const char *set = address ? address : getenv("XOP_ADDRESS");
    if (set && *set)
        return open_first(set, &options, until_ns, out, error);
    return open_one(address, &options, until_ns, out, error);
}

void xop_client_close(struct xop_client *client) {
    if (!client)
        return;
    if (run_is_ours(client)) {
        pthread_mutex_lock(&client->lock);
        pump_kill(client, XOP_CANCELLED, "the client was closed");
        pump_run_callbacks(client);
        pthread_mutex_unlock(&client->lock);
        attached_drop_all(client);
        client_free(client);
    } else {
        close(client->fd); /* a child's copy; the rest may be in use where it was copied */
        close(client->wake);
    }
}

const char *xop_client_address(const struct xop_client *client) { return client->address.text; }

uint64_t xop_client_max_body(const struct xop_client *client) { return client->max_body; }

uint64_t xop_client_max_in_flight(const struct xop_client *client) { return client->max_in_flight; }

/* ---- Event loops ---- */

int xop_client_descriptor(const struct xop_client *client) { return client->fd; }

short xop_client_events(const struct xop_client *const_client) {
    struct xop_client *client = (struct xop_client *)(uintptr_t)const_client;
    if (!run_is_ours(client))
        return 0; /* the lock may be held by a thread that this process does not have */
    pthread_mutex_lock(&client->lock);
    short events = (short)(POLLIN | (pump_wants_output(client) ? POLLOUT : 0));
    pthread_mutex_unlock(&client->lock);
    return events;
}

int xop_client_timeout(const struct xop_client *const_client) {
    struct xop_client *client = (struct xop_client *)(uintptr_t)const_client;
    if (!run_is_ours(client))
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
    if (run_usable(client, error) != XOP_OK)
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
    if (run_usable(client, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&client->lock);
    pump_run_callbacks(client);
    while ((client->unfinished > 0 || client->running) && status == XOP_OK)
        if (!(client->unfinished > 0 ? wait_turn(client, until_ns) : wait_change(client, until_ns)))
            status = xop_fail(error, XOP_DEADLINE_EXCEEDED, "%u calls are still in flight",
                              client->unfinished);
    pump_run_callbacks(client);
    if (client->dead && status == XOP_OK)
        status = xop_fail(error, XOP_UNAVAILABLE, "%s", client->death.message);
    pthread_mutex_unlock(&client->lock);
    return status;
}
