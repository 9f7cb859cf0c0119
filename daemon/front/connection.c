#include "connection.h"

#include "answer.h"
#include "dispatch.h"
#include "handle.h"
#include "operands.h"
#include "request.h"
#include "shared.h"
#include "thread.h"
#include "tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What one turn of a connection may read before others have theirs. */
#define TURN_BYTES (UINT64_C(4) << 20)
/* Frames of one connection before the others have their turn, and what one is counted at least. */
#define TURN_FRAMES 64u
#define FRAME_LEAST 128u
#define FIRST_FRAME_BYTES 1024u
#define LINGER_NS UINT64_C(2000000000)

struct inbox *connection_inbox(struct io_thread *thread) {
    return &thread->front->inbox;
}

static uint64_t after_ms(uint64_t ms) { return io_now() + ms * 1000000; }

/* ---- Frames ---- */

/* The request's body is there: it waits for the worker. */
static void finish_body(struct connection *c) {
    struct request *request = c->receiving;
    c->receiving = NULL;
    c->state = CONNECTION_FRAME;
    c->stage_deadline_ns = 0;
    c->body_began_ns = 0;
    if (request)
        dispatch_queue(request);
}

/* Bytes of the inbox that a request takes: its body and, behind it, what does not fit in a record.
 */
static uint64_t block_bytes(const struct request *request) {
    uint64_t at = request->body_bytes;
    if (request->long_arguments) {
        message_align(at, &at);
        at += (uint64_t)(request->nin + request->nout) * sizeof(struct seam_tensor) +
              request->attr_bytes;
    }
    return at;
}

static void wait_for_space(struct connection *c) {
    struct io_thread *thread = c->thread;
    c->state = CONNECTION_SPACE;
    c->stage_deadline_ns = 0;
    if (c->waiting)
        return;
    c->waiting = true;
    stats_add(thread->front->nwaiting, 1);
    c->next_waiting = NULL;
    *thread->waiting_tail = c;
    thread->waiting_tail = &c->next_waiting;
}

/* Takes the request's space; false where it has to wait. What is large does not pass others that
 * wait: small ones have a slab of their own. */
static bool take_space(struct connection *c, struct request *request) {
    struct io_thread *thread = c->thread;
    uint64_t bytes = block_bytes(request);
    if (request->block.bytes > 0)
        return true;
    if (bytes > INBOX_SMALL && thread->waiting && thread->waiting != c)
        return false;
    return inbox_take(connection_inbox(thread), thread->index, bytes, &request->block);
}

static void begin_body(struct connection *c) {
    if (c->receiving && block_bytes(c->receiving) > inbox_largest(connection_inbox(c->thread)))
        request_fail(c->receiving, XOP_RESOURCE_EXHAUSTED,
                     "the request with its attributes needs more than this server's inbox has");
    struct request *request = c->receiving;
    if (request && !take_space(c, request)) {
        wait_for_space(c);
        return;
    }
    c->state = CONNECTION_BODY;
    c->body_began_ns = io_now();
    c->body_bytes = c->body_left;
    c->stage_deadline_ns = 0;
    if (request)
        c->body_at = connection_inbox(c->thread)->base + request->block.offset;
    if (c->body_left == 0)
        finish_body(c);
}

/* A header that cannot be read is answered where it says to whom; else the connection is over,
 * since nobody would know which of its requests went wrong. */
static bool refuse_header(struct connection *c, const struct message *message,
                          const struct xop_error *error) {
    log_info("%s: %s", c->peer, error->message);
    stats_add(c->stats.errors, 1);
    /* An id that is in flight already has its own answer to come. */
    if (message->id == 0 || !c->greeted || request_find(c, message->id)) {
        connection_close(c, error);
        return false;
    }
    answer_failure(c, message->id, error, false);
    return true;
}

/* Keeps count of a connection's frames, and the mean of what they have, within bounds. */
static void note_frame(struct connection *c, uint64_t bytes) {
    uint64_t most = CONNECTION_BUFFER, mean = c->frame_bytes;
    stats_add(c->stats.bytes_in, bytes);
    mean = (7 * mean + (bytes < most ? bytes : most)) / 8;
    c->frame_bytes = mean > FRAME_LEAST ? (uint32_t)mean : FRAME_LEAST;
    c->turn_frames++;
    c->thread->frames++;
}

/* Reads a header from the buffer; false where more bytes are needed or the connection is over. */
static bool take_header(struct connection *c) {
    struct io_thread *thread = c->thread;
    struct xop_error error;
    size_t there = c->end - c->start;
    const unsigned char *at = c->buffer + c->start;
    if (!c->has_prefix) {
        if (there > 0 && c->stage_deadline_ns == 0)
            c->stage_deadline_ns = after_ms(shared_config(thread)->frame_timeout_ms);
        if (there < FRAME_PREFIX)
            return false;
        if (frame_read_prefix(at, shared_max_body(thread), &c->prefix, &error) != XOP_OK) {
            log_info("%s: %s", c->peer, error.message);
            connection_close(c, &error);
            return false;
        }
        c->has_prefix = true;
    }
    if (there < FRAME_PREFIX + c->prefix.header_bytes)
        return false;
    c->has_prefix = false;
    c->start += FRAME_PREFIX + c->prefix.header_bytes;
    c->body_left = c->prefix.body_bytes;
    note_frame(c, FRAME_PREFIX + c->prefix.header_bytes + c->prefix.body_bytes);
    struct message *message = &thread->message;
    if (message_decode(thread->decoder, at + FRAME_PREFIX, c->prefix.header_bytes, c->body_left,
                       message, &error) != XOP_OK) {
        if (!refuse_header(c, message, &error))
            return false;
    } else {
        c->receiving = handle_message(c, message, c->body_left);
    }
    if (c->state == CONNECTION_FRAME)
        begin_body(c);
    return !c->ended;
}

/* Takes what the buffer holds of a body; false where more is needed. */
static bool take_body(struct connection *c) {
    uint64_t there = c->end - c->start;
    size_t n = (size_t)(there < c->body_left ? there : c->body_left);
    if (c->receiving) {
        memcpy(c->body_at, c->buffer + c->start, n);
        c->body_at += n;
    }
    c->start += n;
    c->body_left -= n;
    if (c->body_left > 0)
        return false;
    finish_body(c);
    return true;
}

static bool is_paused(const struct connection *c) {
    return answer_is_high(c) || c->awaits_worker ||
           stats_get(c->stats.in_flight) >= shared_config(c->thread)->max_in_flight;
}

/* Works off the buffer until bytes, space or the client's patience run out. */
static void process(struct connection *c) {
    bool more = true;
    while (more && !c->ended) {
        switch (c->state) {
        case CONNECTION_FRAME:
            if (is_paused(c) && c->greeted)
                c->stage_deadline_ns = 0; /* it is not the client that is slow */
            more = !is_paused(c) && take_header(c);
            break;
        case CONNECTION_BODY: more = take_body(c); break;
        case CONNECTION_SPACE: more = false; break;
        case CONNECTION_CLOSING:
            c->start = c->end;
            more = false;
            break;
        }
    }
}

/* ---- Reading ---- */

static bool wants_read(const struct connection *c) {
    if (c->ended || c->state == CONNECTION_SPACE)
        return false;
    if (c->state == CONNECTION_FRAME && is_paused(c))
        return false;
    return true;
}

/* What TLS has read of the socket already makes no event of its own. */
static void announce_pending(struct connection *c) {
    if (c->tls && c->read_armed && !c->ended && tls_has_pending(c->tls))
        event_active(&c->read_event, EV_READ, 1);
}

static void want_read(struct connection *c) {
    bool want = wants_read(c);
    if (want == c->read_armed || c->ended)
        return;
    if ((want ? event_add(&c->read_event, NULL) : event_del(&c->read_event)) < 0)
        log_error("%s: cannot watch its socket", c->peer);
    c->read_armed = want;
    announce_pending(c);
}

int connection_take_fd(struct connection *c) {
    if (c->nfds == 0)
        return -1;
    int fd = c->fds[0];
    memmove(c->fds, c->fds + 1, --c->nfds * sizeof *c->fds);
    return fd;
}

static void close_fds(struct connection *c) {
    while (c->nfds > 0)
        close(c->fds[--c->nfds]);
}

/* Keeps what descriptors came along, up to a few: who sends more has no use for them. */
static void collect_fds(struct connection *c, struct msghdr *message) {
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (c->nfds < CONNECTION_FDS)
                c->fds[c->nfds++] = fd;
            else
                close(fd);
        }
    }
}

/* As much of the buffer as a turn's frames are likely to fill, so that a client with many small
 * ones does not make others of its thread wait for all of them. */
static size_t room(const struct connection *c) {
    size_t free = CONNECTION_BUFFER - c->end, wanted = (size_t)TURN_FRAMES * c->frame_bytes;
    return wanted < free ? wanted : free;
}

/* One call of the kernel, which may bring descriptors along. */
static ssize_t receive_plain(struct connection *c, struct iovec *parts, uint32_t n) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(CONNECTION_FDS * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = n};
    if (c->is_unix) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
    }
    ssize_t got = recvmsg(c->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0 && message.msg_controllen > 0)
        collect_fds(c, &message);
    return got;
}

/* Receives into the body's place first and, in the same call, into the buffer. */
static ssize_t receive(struct connection *c) {
    if (c->start > 0) {
        memmove(c->buffer, c->buffer + c->start, c->end - c->start);
        c->end -= c->start;
        c->start = 0;
    }
    struct iovec parts[2];
    uint32_t n = 0;
    uint64_t direct = 0;
    if (c->state == CONNECTION_BODY && c->receiving && c->end == 0) {
        direct = c->body_left < TURN_BYTES ? c->body_left : TURN_BYTES;
        parts[n++] = (struct iovec){c->body_at, (size_t)direct};
    }
    parts[n++] = (struct iovec){c->buffer + c->end, room(c)};
    if (direct < c->body_left && n == 2)
        n = 1; /* the buffer's turn comes when the body is whole */
    ssize_t got;
    do
        got = c->tls ? tls_read(c->tls, parts, n) : receive_plain(c, parts, n);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return got;
    uint64_t straight = (uint64_t)got < direct ? (uint64_t)got : direct;
    c->body_at += straight;
    c->body_left -= straight;
    c->end += (size_t)got - straight;
    return got;
}

static void on_end_of_input(struct connection *c, ssize_t got) {
    if (got < 0)
        connection_end(c, strerror(errno));
    else if (c->state == CONNECTION_BODY || c->has_prefix || c->end > c->start)
        connection_end(c, c->state == CONNECTION_CLOSING ? "closed" : "closed within a frame");
    else
        connection_end(c, "closed");
}

static void continue_handshake(struct connection *c) {
    struct xop_error error;
    char text[TLS_SUBJECT + 128];
    enum tls_step step = tls_handshake(c->tls, &error);
    if (step == TLS_REFUSED) {
        log_warn("client %u (%s) refused: %s", c->number, c->peer, error.message);
        connection_end(c, "no TLS handshake");
        return;
    }
    connection_want_write(c, step == TLS_WANTS_WRITE);
    if (step != TLS_DONE)
        return;
    c->handshaking = false;
    c->subject = tls_subject(c->tls);
    c->stage_deadline_ns = after_ms(shared_config(c->thread)->hello_timeout_ms);
    tls_describe(c->tls, text, sizeof text);
    log_info("client %u (%s): %s", c->number, c->peer, text);
    announce_pending(c);
}

static void on_read(evutil_socket_t fd, short what, void *arg) {
    struct connection *c = arg;
    uint64_t total = 0;
    (void)fd, (void)what;
    c->thread->events++;
    if (c->handshaking) {
        continue_handshake(c);
        return;
    }
    c->turn_frames = 0;
    while (total < TURN_BYTES && c->turn_frames < TURN_FRAMES && wants_read(c)) {
        size_t asked = room(c);
        ssize_t got = receive(c);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (got <= 0) {
            on_end_of_input(c, got);
            break;
        }
        total += (uint64_t)got;
        process(c);
        /* What came with whole frames, and belonged to none that had a use for it. */
        if (c->nfds > 0 && c->state == CONNECTION_FRAME && c->start == c->end)
            close_fds(c);
        if ((size_t)got < asked / 2)
            break; /* the socket is most likely empty: save a call */
    }
    want_read(c);
    announce_pending(c);
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
        log_error("%s: cannot watch its socket", c->peer);
    c->write_armed = want;
}

/* What was held back for output or for requests in flight goes on. */
static void resume(struct connection *c) {
    if (!c->read_armed && wants_read(c)) {
        process(c);
        want_read(c);
    }
}

void connection_sent(struct connection *c) {
    if (c->state == CONNECTION_CLOSING && !c->out && !c->shut) {
        c->shut = true;
        c->stage_deadline_ns = io_now() + LINGER_NS;
        if (c->tls)
            tls_shutdown(c->tls);
        if (shutdown(c->fd, SHUT_WR) < 0)
            connection_end(c, "closed");
    }
    if (!c->ended)
        resume(c);
}

void connection_answered(struct connection *c) {
    /* Work that became possible is done from the loop, not from within an answer. */
    if (!c->read_armed && !c->ended)
        connection_visit(c);
}

void connection_forget(struct connection *c, const struct request *request) {
    if (c->receiving != request)
        return;
    c->receiving = NULL;
    /* What is still to come of its body is dropped; it needs no space for that. */
    if (c->state == CONNECTION_SPACE)
        c->state = CONNECTION_BODY;
}

/* ---- Space in the inbox ---- */

void connection_space_freed(struct io_thread *thread, bool for_all) {
    thread->space_freed = true;
    /* This thread's own waiting connections are looked at in every round of its loop. */
    if (for_all && atomic_load(&thread->front->nwaiting) > 0)
        thread_wake_waiting(thread->front);
}

static void leave_waiting(struct connection *c) {
    struct connection **at = &c->thread->waiting;
    while (*at && *at != c)
        at = &(*at)->next_waiting;
    if (!*at)
        return;
    *at = c->next_waiting;
    if (!*at)
        c->thread->waiting_tail = at;
    c->waiting = false;
    atomic_fetch_sub(&c->thread->front->nwaiting, 1);
}

void connection_retry_waiting(struct io_thread *thread) {
    /* In order of arrival, and nobody passes the first: else a large one would wait for ever. */
    while (thread->waiting) {
        struct connection *c = thread->waiting;
        if (c->state == CONNECTION_SPACE) {
            begin_body(c);
            if (c->state == CONNECTION_SPACE)
                break;
        }
        leave_waiting(c);
        process(c);
        want_read(c);
    }
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
    c->subject = "";
    c->out_tail = &c->out;
    c->connected_ns = io_now();
    c->stage_deadline_ns = after_ms(tls ? shared_config(thread)->tls_handshake_timeout_ms
                                        : shared_config(thread)->hello_timeout_ms);
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    event_assign(&c->read_event, thread->base, fd, EV_READ | EV_PERSIST, on_read, c);
    event_assign(&c->write_event, thread->base, fd, EV_WRITE | EV_PERSIST, on_write, c);
    link_connection(c);
    want_read(c);
    log_info("client %u connected: %s", c->number, c->peer);
}

void connection_end(struct connection *c, const char *reason) {
    if (c->ended)
        return;
    c->ended = true;
    log_info("client %u (%s) ended: %s", c->number, c->peer, reason);
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
    close_fds(c);
    answer_drop(c);
    dispatch_deactivate(c);
    leave_waiting(c);
    if (c->tls)
        tls_shutdown(c->tls);
    tls_free(c->tls);
    c->tls = NULL;
    c->subject = "";
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

void connection_close(struct connection *c, const struct xop_error *error) {
    if (c->state == CONNECTION_CLOSING)
        return;
    /* The error stands for every answer that is still to come. */
    while (c->requests)
        request_detach(c->requests);
    answer_error(c, error);
    stats_add(c->stats.errors, 1);
    c->state = CONNECTION_CLOSING;
    c->stage_deadline_ns =
        io_now() + LINGER_NS + shared_config(c->thread)->write_timeout_ms * 1000000;
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

static const char *overdue(const struct connection *c, uint64_t now, bool *at_once) {
    const struct config *config = shared_config(c->thread);
    *at_once = true;
    if (is_gone(c))
        return "closed";
    if (c->out && is_slow(c, now, c->out_began_ns, c->out_sent, config->write_timeout_ms))
        return "it does not take its responses";
    *at_once = c->state == CONNECTION_CLOSING;
    if (c->state == CONNECTION_BODY &&
        is_slow(c, now, c->body_began_ns, c->body_bytes - c->body_left, config->frame_timeout_ms))
        return "a frame came too slowly";
    if (!c->stage_deadline_ns || now <= c->stage_deadline_ns)
        return NULL;
    if (c->state == CONNECTION_CLOSING)
        return "closed";
    *at_once = *at_once || c->handshaking;
    if (c->handshaking)
        return "no TLS handshake in time";
    if (!c->greeted)
        return "no hello in time";
    return is_paused(c) ? NULL : "a frame came too slowly"; /* paused: it is we who are slow */
}

void connection_check_deadlines(struct io_thread *thread) {
    uint64_t now = io_now();
    for (struct connection *c = thread->connections, *next; c; c = next) {
        next = c->next;
        bool at_once;
        const char *why = c->ended ? NULL : overdue(c, now, &at_once);
        if (!why)
            continue;
        if (!at_once) {
            struct xop_error error;
            xop_fail(&error, XOP_DEADLINE_EXCEEDED, "%s: the connection is closed", why);
            log_info("client %u (%s): %s", c->number, c->peer, why);
            connection_close(c, &error);
        } else {
            connection_end(c, why);
        }
    }
}
