#include "listen.h"

#include "bind.h"
#include "thread.h"
#include "tls.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURN 64 /* connections accepted before other events have their turn */
#define PAUSE_MS 100

struct listener {
    struct bound bound;
    enum config_scheme scheme;
    struct event *event;
    bool passed; /* it outlives us, and what is in its queue with it */
};

struct listeners {
    struct front *front;
    struct listener list[CONFIG_LISTENERS * 4];
    uint32_t count;
    struct event *pause;
    uint32_t turn;
    bool refused_logged;
};

/* ---- Accepting ---- */

static void describe_peer(const struct listener *listener, int fd,
                          const struct sockaddr_storage *address, socklen_t length, char *out,
                          size_t capacity) {
    if (listener->scheme == CONFIG_UNIX) {
        struct ucred peer;
        socklen_t bytes = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0)
            snprintf(out, capacity, "unix uid %u gid %u pid %d", peer.uid, peer.gid, peer.pid);
        else
            snprintf(out, capacity, "unix");
        return;
    }
    char host[64] = "?", port[16] = "?";
    getnameinfo((const struct sockaddr *)address, length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, capacity, "%s %s port %s", listener->scheme == CONFIG_TLS ? "tls" : "tcp", host,
             port);
}

/* The thread that has least to do: by frames of late and by connections, of which one that is
 * silent counts as a few frames. Among equals they take turns. */
static struct io_thread *choose_thread(struct listeners *ls) {
    struct front *front = ls->front;
    struct io_thread *best = NULL;
    uint64_t least = UINT64_MAX;
    uint32_t first = ls->turn++;
    for (uint32_t i = 0; i < front->nthreads; i++) {
        struct io_thread *thread = &front->threads[(first + i) % front->nthreads];
        uint64_t load =
            64 * (uint64_t)atomic_load(&thread->nconnections) + atomic_load(&thread->recent_frames);
        if (load < least) {
            least = load;
            best = thread;
        }
    }
    return best;
}

static void hand_over(struct listeners *ls, int fd, const char *peer, bool tls) {
    struct front *front = ls->front;
    if (atomic_fetch_add(&front->nconnections, 1) >= front->config->max_connections) {
        atomic_fetch_sub(&front->nconnections, 1);
        stats_add(front->stats.ended[ENDED_LIMIT], 1);
        if (!ls->refused_logged)
            log_warn("%s: refused: there are %llu connections already", peer,
                     (unsigned long long)front->config->max_connections);
        ls->refused_logged = true;
        /* Best effort: the socket is new, so that a short message fits. */
        struct message message = {.type = MESSAGE_ERROR,
                                  .status = XOP_UNAVAILABLE,
                                  .device = -1,
                                  .error = "this server has as many connections as it may have"};
        unsigned char bytes[512];
        size_t n = message_encode(&message, 0, bytes, sizeof bytes);
        if (!tls && n > 0 && send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            log_debug("%s: could not be told", peer);
        close(fd);
        return;
    }
    ls->refused_logged = false;
    struct io_thread *thread = choose_thread(ls);
    /* Counted here, so that of many that come at once each thread gets its part. */
    atomic_fetch_add(&thread->nconnections, 1);
    if (!thread_post_adopt(thread, fd, peer, tls)) {
        atomic_fetch_sub(&thread->nconnections, 1);
        atomic_fetch_sub(&front->nconnections, 1);
        close(fd);
    }
}

static void set_accepting(struct listeners *ls, bool accepting) {
    for (uint32_t i = 0; i < ls->count; i++)
        if ((accepting ? event_add(ls->list[i].event, NULL) : event_del(ls->list[i].event)) < 0)
            log_error("cannot change what is listened to");
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    set_accepting(arg, true);
}

/* Returns whether there may be more. */
static bool accept_some(struct listeners *ls, const struct listener *listener) {
    for (int i = 0; i < TURN; i++) {
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        char peer[96];
        int client = accept4(listener->bound.fd, (struct sockaddr *)&address, &length,
                             SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client >= 0) {
            describe_peer(listener, client, &address, length, peer, sizeof peer);
            hand_over(ls, client, peer, listener->scheme == CONFIG_TLS);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* Those there are go on; who comes waits in the kernel's queue. */
            struct timeval after = {0, PAUSE_MS * 1000};
            log_warn("cannot accept: %m: trying again in %d ms", PAUSE_MS);
            set_accepting(ls, false);
            event_add(ls->pause, &after);
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return false;
    }
    return true;
}

static void on_accept(evutil_socket_t fd, short what, void *arg) {
    struct listeners *ls = arg;
    (void)what;
    for (uint32_t i = 0; i < ls->count; i++)
        if (ls->list[i].bound.fd == fd)
            accept_some(ls, &ls->list[i]);
}

/* ---- Opening ---- */

/* Takes what is bound in any case. */
static enum xop_status add(struct listeners *ls, struct bound *bound, enum config_scheme scheme,
                           struct xop_error *error) {
    struct listener *listener = &ls->list[ls->count];
    struct event *event =
        event_new(ls->front->base, bound->fd, EV_READ | EV_PERSIST, on_accept, ls);
    if (ls->count == sizeof ls->list / sizeof *ls->list)
        xop_fail(error, XOP_UNAVAILABLE, "too many addresses");
    else if (!event || event_add(event, NULL) < 0)
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for events");
    else {
        *listener = (struct listener){.bound = *bound, .scheme = scheme, .event = event};
        ls->count++;
        if (scheme == CONFIG_UNIX)
            log_info("listening on %s", bound->address);
        else
            log_info("listening on %s:%s", scheme == CONFIG_TLS ? "tls" : "tcp", bound->address);
        return XOP_OK;
    }
    if (event)
        event_free(event);
    bind_close(bound);
    return error->status;
}

static enum xop_status open_unix(struct listeners *ls, const char *name, struct xop_error *error) {
    struct bound bound;
    if (bind_unix(ls->front->config, name, &bound, error) != XOP_OK)
        return error->status;
    return add(ls, &bound, CONFIG_UNIX, error);
}

static enum xop_status open_tcp_one(struct listeners *ls, const struct addrinfo *info,
                                    const char *name, struct xop_error *error) {
    struct bound bound;
    if (bind_tcp(info, name, &bound, error) != XOP_OK)
        return error->status;
    return add(ls, &bound, config_scheme(name), error);
}

static enum xop_status open_tcp(struct listeners *ls, const char *name, struct xop_error *error) {
    char text[CONFIG_STRING], *host, *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    snprintf(text, sizeof text, "%s", name + 4);
    if (!config_split(text, &host, &port))
        return xop_fail(error, XOP_UNAVAILABLE,
                        "%s: %.3s:host:port with a port from 0 to 65535 is expected", name, name);
    int failed = getaddrinfo(*host == '*' ? NULL : host, port, &hints, &found);
    if (failed)
        return xop_fail(error, XOP_UNAVAILABLE, "%s: %s", name, gai_strerror(failed));
    enum xop_status status = XOP_OK;
    for (const struct addrinfo *info = found; info && status == XOP_OK; info = info->ai_next)
        status = open_tcp_one(ls, info, name, error);
    freeaddrinfo(found);
    return status;
}

static bool was_passed(const struct front *front, const char *listener) {
    for (uint32_t i = 0; i < front->passed->count; i++)
        if (passed_matches(&front->passed->list[i], listener))
            return true;
    return false;
}

static enum xop_status open_passed(struct listeners *ls, const struct passed_socket *socket,
                                   struct xop_error *error) {
    struct front *front = ls->front;
    enum config_scheme scheme;
    if (passed_scheme(socket, front->config, &scheme, error) != XOP_OK)
        return error->status;
    if (scheme == CONFIG_TLS && !front->tls && !(front->tls = tls_open(front->config, error)))
        return error->status;
    struct bound bound = {.fd = socket->fd};
    snprintf(bound.address, sizeof bound.address, "%.120s, which was passed", socket->text);
    if (add(ls, &bound, scheme, error) != XOP_OK)
        return error->status;
    ls->list[ls->count - 1].passed = true;
    return XOP_OK;
}

enum xop_status listen_open(struct front *front, struct xop_error *error) {
    struct listeners *ls = front->listeners = calloc(1, sizeof *ls);
    const struct config *config = front->config;
    if (!ls || !(ls->pause = evtimer_new(front->base, on_pause_over, ls)))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    ls->front = front;
    for (uint32_t i = 0; i < front->passed->count; i++)
        if (open_passed(ls, &front->passed->list[i], error) != XOP_OK)
            return error->status;
    for (uint64_t i = 0; i < config->nlisten; i++) {
        const char *name = config->listen[i];
        if (was_passed(front, name) || (config->listens_by_default && ls->count > 0))
            continue;
        enum config_scheme scheme = config_scheme(name);
        if (scheme == CONFIG_TLS && !front->tls && !(front->tls = tls_open(config, error)))
            return error->status;
        if ((scheme == CONFIG_UNIX ? open_unix(ls, name + 5, error) : open_tcp(ls, name, error)) !=
            XOP_OK)
            return error->status;
    }
    return XOP_OK;
}

void listen_finish(struct front *front) {
    struct listeners *ls = front->listeners;
    for (uint32_t i = 0; ls && i < ls->count; i++)
        for (int turn = 0;
             !ls->list[i].passed && turn < BIND_BACKLOG / TURN && accept_some(ls, &ls->list[i]);
             turn++)
            ;
}

void listen_close(struct front *front) {
    struct listeners *ls = front->listeners;
    if (!ls)
        return;
    for (uint32_t i = 0; i < ls->count; i++) {
        event_free(ls->list[i].event);
        bind_close(&ls->list[i].bound);
    }
    if (ls->pause)
        event_free(ls->pause);
    free(ls);
    front->listeners = NULL;
}
