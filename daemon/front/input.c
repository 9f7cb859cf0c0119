#include "input.h"

#include "answer.h"
#include "connection.h"
#include "dispatch.h"
#include "handle.h"
#include "identity.h"
#include "request.h"
#include "shared.h"
#include "thread.h"
#include "tls.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What one turn of a connection may read before others have theirs. */
#define TURN_BYTES (UINT64_C(4) << 20)
/* Frames of one connection before the others have their turn, and what one is counted at least. */
#define TURN_FRAMES 64u
#define FRAME_LEAST 128u

struct inbox *input_inbox(struct io_thread *thread) {
    return &thread->front->inbox;
}

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
    return inbox_take(input_inbox(thread), thread->index, bytes, &request->block);
}

/* Its identity pays for the space, once, however long it waits for it. */
static enum xop_status pay_space(struct connection *c, struct request *request,
                                 struct xop_error *error) {
    if (request->payer)
        return XOP_OK;
    request->paid = block_bytes(request);
    return identity_take(c->identity, QUOTA_INBOX, request->paid, &request->payer, error);
}

static void begin_body(struct connection *c) {
    struct xop_error error;
    if (c->receiving && block_bytes(c->receiving) > inbox_largest(input_inbox(c->thread)))
        request_fail(c->receiving, XOP_RESOURCE_EXHAUSTED,
                     "the request with its attributes needs more than this server's inbox has");
    if (c->receiving && pay_space(c, c->receiving, &error) != XOP_OK)
        request_fail(c->receiving, error.status, "%s", error.message);
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
        c->body_at = input_inbox(c->thread)->base + request->block.offset;
    if (c->body_left == 0)
        finish_body(c);
}

/* A header that cannot be read is answered where it says to whom; else the connection is over,
 * since nobody would know which of its requests went wrong. */
static bool refuse_header(struct connection *c, const struct message *message,
                          const struct xop_error *error) {
    connection_log(c, message->id, LOG_LEVEL_INFO, "refused: %s", error->message);
    stats_add(c->stats.errors, 1);
    /* An id that is in flight already has its own answer to come. */
    if (message->id == 0 || !c->greeted || request_find(c, message->id)) {
        connection_close(c, error);
        return false;
    }
    stats_add(c->thread->stats.refused[REFUSED_MALFORMED], 1);
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
            c->stage_deadline_ns = io_after_ms(shared_config(thread)->frame_timeout_ms);
        if (there < FRAME_PREFIX)
            return false;
        if (frame_read_prefix(at, shared_max_body(thread), &c->prefix, &error) != XOP_OK) {
            connection_log(c, 0, LOG_LEVEL_INFO, "refused: %s", error.message);
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

bool input_is_paused(const struct connection *c) {
    return answer_is_high(c) || c->awaits_worker ||
           stats_get(c->stats.in_flight) >= shared_config(c->thread)->max_in_flight;
}

/* Works off the buffer until bytes, space or the client's patience run out. */
static void process(struct connection *c) {
    bool more = true;
    while (more && !c->ended) {
        switch (c->state) {
        case CONNECTION_FRAME:
            if (input_is_paused(c) && c->greeted)
                c->stage_deadline_ns = 0; /* it is not the client that is slow */
            more = !input_is_paused(c) && take_header(c);
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
    if (c->state == CONNECTION_FRAME && input_is_paused(c))
        return false;
    return true;
}

void input_arm(struct connection *c) {
    bool want = wants_read(c);
    if (c->ended)
        return;
    if (want != c->read_armed &&
        (want ? event_add(&c->read_event, NULL) : event_del(&c->read_event)) < 0)
        connection_log(c, 0, LOG_LEVEL_ERROR, "its socket cannot be watched");
    c->read_armed = want;
    /* What TLS has read of the socket already makes no event of its own. */
    if (want && c->tls && tls_has_pending(c->tls))
        event_active(&c->read_event, EV_READ, 1);
}

int input_take_fd(struct connection *c) {
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

bool input_read(struct connection *c) {
    uint64_t total = 0;
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
    input_arm(c);
    return total > 0;
}

/* What was held back for output or for requests in flight goes on. */
void input_resume(struct connection *c) {
    if (!c->read_armed && wants_read(c)) {
        process(c);
        input_arm(c);
    }
}

void input_forget(struct connection *c, const struct request *request) {
    if (c->receiving != request)
        return;
    c->receiving = NULL;
    /* What is still to come of its body is dropped; it needs no space for that. */
    if (c->state == CONNECTION_SPACE)
        c->state = CONNECTION_BODY;
}

/* ---- Space in the inbox ---- */

void input_space_freed(struct io_thread *thread, bool for_all) {
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

void input_retry_waiting(struct io_thread *thread) {
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
        input_arm(c);
    }
}

void input_end(struct connection *c) {
    close_fds(c);
    leave_waiting(c);
}
