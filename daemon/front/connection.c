#include "connection.h"

#include "admit.h"
#include "answer.h"
#include "dispatch.h"
#include "input.h"
#include "operands.h"
#include "request.h"
#include "shared.h"
#include "tls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_FRAME_BYTES 1024u
#define LINGER_NS (CONNECTION_LINGER_MS * UINT64_C(1000000))
#define LEAVE_TURNS 64 /* of reading, for what came before the server stops */

void connection_log(const struct connection *c, uint64_t id, enum log_level level,
                    const char *format, ...) {
    char text[1024], request[32] = "";
    va_list args;
    if (!log_writes(level))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (id != 0)
        snprintf(request, sizeof request, " request %llu", (unsigned long long)id);
    log_write(level, "client %u (%s)%s: %s", c->number, c->peer, request, text);
}

/* ---- Events ---- */

static void continue_handshake(struct connection *c) {
    struct xop_error error;
    char text[TLS_SUBJECT + 128];
    enum tls_step step = tls_handshake(c->tls, &error);
    if (step == TLS_REFUSED) {
        connection_log(c, 0, LOG_LEVEL_WARN, "refused: %s", error.message);
        stats_add(c->thread->stats.ended[ENDED_TLS], 1);
        connection_end(c, "no TLS handshake");
        return;
    }
    connection_want_write(c, step == TLS_WANTS_WRITE);
    if (step != TLS_DONE)
        return;
    c->handshaking = false;
    c->stage_deadline_ns = io_after_ms(shared_config(c->thread)->hello_timeout_ms);
    tls_describe(c->tls, text, sizeof text);
    connection_log(c, 0, LOG_LEVEL_INFO, "%s", text);
    input_arm(c); /* hello may have come along */
}

static void on_read(evutil_socket_t fd, short what, void *arg) {
    struct connection *c = arg;
    (void)fd, (void)what;
    c->thread->events++;
    if (c->handshaking)
        continue_handshake(c);
    else
        input_read(c);
}

static void on_write(evutil_socket_t fd, short what, void *arg) {
    struct connection *c = arg;
    (void)fd, (void)what;
    if (c->handshaking)
        continue_handshake(c);
    else
        answer_flush(c);
}

void connection_want_write(struct connection *c, bool want) {
    if (want == c->write_armed || c->ended)
        return;
    if ((want ? event_add(&c->write_event, NULL) : event_del(&c->write_event)) < 0)
        connection_log(c, 0, LOG_LEVEL_ERROR, "its socket cannot be watched");
    c->write_armed = want;
}

void connection_sent(struct connection *c) {
    if (c->state == CONNECTION_CLOSING && !c->out && !c->shut) {
        c->shut = true;
        c->stage_deadline_ns = io_now() + LINGER_NS;
        if (c->tls)
            tls_shutdown(c->tls);
        /* What was sent over a Unix socket is with its peer already. */
        if (shutdown(c->fd, SHUT_WR) < 0 || (c->is_unix && c->thread->leaving))
            connection_end(c, "closed");
    }
    if (!c->ended)
        input_resume(c);
}

void connection_answered(struct connection *c) {
    /* Work that became possible is done from the loop, not from within an answer. */
    if (!c->read_armed && !c->ended)
        connection_visit(c);
}

/* ---- Beginning and end ---- */

void connection_visit(struct connection *c) {
    if (c->flushing)
        return;
    c->flushing = true;
    c->next_flush = c->thread->flush;
    c->thread->flush = c;
}

static void link_connection(struct connection *c) {
    struct io_thread *thread = c->thread;
    pthread_mutex_lock(&thread->lock);
    c->next = thread->connections;
    if (c->next)
        c->next->previous = c;
    thread->connections = c;
    pthread_mutex_unlock(&thread->lock);
}

static void unlink_connection(struct connection *c) {
    struct io_thread *thread = c->thread;
    pthread_mutex_lock(&thread->lock);
    if (c->previous)
        c->previous->next = c->next;
    else
        thread->connections = c->next;
    if (c->next)
        c->next->previous = c->previous;
    pthread_mutex_unlock(&thread->lock);
    atomic_fetch_sub(&thread->nconnections, 1);
    atomic_fetch_sub(&thread->front->nconnections, 1);
}

static bool is_unix(int fd) {
    struct sockaddr_storage name = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof name;
    return getsockname(fd, (struct sockaddr *)&name, &length) == 0 && name.ss_family == AF_UNIX;
}

void connection_open(struct io_thread *thread, int fd, const char *peer, bool tls) {
    struct connection *c = calloc(1, sizeof *c);
    int on = 1;
    if (!c || !(c->buffer = malloc(CONNECTION_BUFFER)) ||
        (tls && !(c->tls = tls_accept(thread->front->tls, fd)))) {
        log_error("%s: refused: out of memory", peer);
        if (c)
            free(c->buffer);
        free(c);
        close(fd);
        atomic_fetch_sub(&thread->nconnections, 1);
        atomic_fetch_sub(&thread->front->nconnections, 1);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* fails on Unix sockets, rightly */
    c->thread = thread;
    c->frame_bytes = FIRST_FRAME_BYTES;
    c->fd = fd;
    c->number = atomic_fetch_add(&thread->front->connection_numbers, 1) + 1;
    for (uint32_t i = 0; i < REQUEST_PRIORITIES; i++)
        c->queue_tail[i] = &c->queue[i];
    c->is_unix = is_unix(fd);
    c->handshaking = tls;
    c->out_tail = &c->out;
    c->connected_ns = io_now();
    c->stage_deadline_ns = io_after_ms(tls ? shared_config(thread)->tls_handshake_timeout_ms
                                           : shared_config(thread)->hello_timeout_ms);
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    event_assign(&c->read_event, thread->base, fd, EV_READ | EV_PERSIST, on_read, c);
    event_assign(&c->write_event, thread->base, fd, EV_WRITE | EV_PERSIST, on_write, c);
    link_connection(c);
    input_arm(c);
    connection_log(c, 0, LOG_LEVEL_INFO, "connected");
}

void connection_end(struct connection *c, const char *reason) {
    if (c->ended)
        return;
    c->ended = true;
    if (c->read_armed)
        event_del(&c->read_event);
    if (c->write_armed)
        event_del(&c->write_event);
    c->read_armed = c->write_armed = false;
    while (c->requests)
        request_detach(c->requests);
    context_close_all(c);
    resident_close_all(c);
    memory_detach_all(c);
    admit_leave(c); /* what the worker still has of it is counted apart */
    connection_log(c, 0, LOG_LEVEL_INFO, "ended: %s", reason);
    answer_drop(c);
    dispatch_deactivate(c);
    input_end(c);
    if (c->tls)
        tls_shutdown(c->tls);
    tls_free(c->tls);
    c->tls = NULL;
    close(c->fd);
    c->fd = -1;
    connection_visit(c);
}

void connection_bury(struct connection *c) {
    answer_drop(c);
    unlink_connection(c);
    free(c->buffer);
    free(c);
}

static void close_for(struct connection *c, enum stats_ended why, const struct xop_error *error) {
    if (c->state == CONNECTION_CLOSING)
        return;
    if (why < STATS_ENDED)
        stats_add(c->thread->stats.ended[why], 1);
    /* The error stands for every answer that is still to come. */
    while (c->requests)
        request_detach(c->requests);
    answer_error(c, error);
    stats_add(c->stats.errors, 1);
    c->state = CONNECTION_CLOSING;
    c->stage_deadline_ns = io_after_ms(shared_config(c->thread)->write_timeout_ms) + LINGER_NS;
}

void connection_close(struct connection *c, const struct xop_error *error) {
    close_for(c, ENDED_PROTOCOL, error);
}

void connection_refuse(struct connection *c, const struct xop_error *error) {
    close_for(c, ENDED_FORBIDDEN, error);
}

void connection_leave(struct connection *c) {
    struct xop_error error;
    if (c->ended)
        return;
    if (c->handshaking || (c->shut && c->is_unix)) {
        connection_end(c, "the server stops");
        return;
    }
    for (int turn = 0; turn < LEAVE_TURNS && !c->ended && input_read(c); turn++)
        ;
    if (c->ended || c->state == CONNECTION_CLOSING)
        return;
    if (c->requests) {
        xop_fail(&error, XOP_UNAVAILABLE, "this server stops, and could not finish in time");
        close_for(c, STATS_ENDED, &error);
    }
    c->state = CONNECTION_CLOSING;
    c->stage_deadline_ns = io_now() + LINGER_NS;
    connection_visit(c);
}

/* Whether bytes come or go so slowly that the connection is given up: after a grace, at least
 * min_rate of them in every second since it began. */
static bool is_slow(const struct connection *c, uint64_t now, uint64_t began_ns, uint64_t bytes,
                    uint64_t grace_ms) {
    uint64_t grace_ns = grace_ms * 1000000;
    if (began_ns == 0 || now < began_ns || now - began_ns <= grace_ns)
        return false;
    double seconds = (double)(now - began_ns - grace_ns) / 1e9;
    return (double)bytes < seconds * (double)shared_config(c->thread)->min_rate;
}

/* Whether the client has gone, seen where the connection is not read from. */
static bool is_gone(const struct connection *c) {
    struct pollfd hangup = {c->fd, POLLRDHUP, 0};
    return !c->read_armed && c->state != CONNECTION_CLOSING && poll(&hangup, 1, 0) > 0;
}

/* ended: as what it is counted; STATS_ENDED: not at all. */
static const char *overdue(const struct connection *c, uint64_t now, bool *at_once,
                           enum stats_ended *ended) {
    const struct config *config = shared_config(c->thread);
    *at_once = true;
    *ended = STATS_ENDED;
    if (is_gone(c))
        return "closed";
    *ended = ENDED_SLOW;
    if (c->out && is_slow(c, now, c->out_began_ns, c->out_sent, config->write_timeout_ms))
        return "it does not take its responses";
    *at_once = c->state == CONNECTION_CLOSING;
    if (c->state == CONNECTION_BODY &&
        is_slow(c, now, c->body_began_ns, c->body_bytes - c->body_left, config->frame_timeout_ms))
        return "a frame came too slowly";
    if (!c->stage_deadline_ns || now <= c->stage_deadline_ns)
        return NULL;
    *ended = c->state == CONNECTION_CLOSING ? STATS_ENDED
             : c->handshaking               ? ENDED_TLS
             : !c->greeted                  ? ENDED_HELLO
                                            : ENDED_SLOW;
    if (c->state == CONNECTION_CLOSING)
        return "closed";
    *at_once = c->handshaking;
    if (c->handshaking)
        return "no TLS handshake in time";
    if (!c->greeted)
        return "no hello in time";
    return input_is_paused(c) ? NULL
                              : "a frame came too slowly"; /* paused: it is we who are slow */
}

void connection_check_deadlines(struct io_thread *thread) {
    uint64_t now = io_now();
    for (struct connection *c = thread->connections, *next; c; c = next) {
        next = c->next;
        bool at_once;
        enum stats_ended ended;
        const char *why = c->ended ? NULL : overdue(c, now, &at_once, &ended);
        if (!why)
            continue;
        if (!at_once) {
            struct xop_error error;
            xop_fail(&error, XOP_DEADLINE_EXCEEDED, "%s: the connection is closed", why);
            connection_log(c, 0, LOG_LEVEL_INFO, "%s", why);
            close_for(c, ended, &error);
        } else {
            if (ended != STATS_ENDED)
                stats_add(thread->stats.ended[ended], 1);
            connection_end(c, why);
        }
    }
}
