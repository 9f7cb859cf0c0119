#include "state.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PARTS_AT_ONCE 64
/* Calls that callbacks submit are held back for so many, or till the last callback has run: then
 * one system call sends them all. */
#define HELD_MOST 16
/* What one turn sends before it looks at anything else. */
#define TURN_BYTES (16u << 20)

/* ---- The table of calls ---- */

static struct call **bucket(struct xop_client *client, uint64_t id) {
    return &client->by_id[id % CALL_HASH];
}

struct call *pump_find(struct xop_client *client, uint64_t id) {
    struct call *call = *bucket(client, id);
    while (call && call->id != id)
        call = call->same_hash;
    return call;
}

/* Cancels go before what has not begun: behind it they might come too late, or never. */
static void enqueue(struct xop_client *client, struct call *call) {
    struct call **at = client->out_tail;
    if (call->is_urgent)
        for (at = &client->out; *at && ((*at)->begun || (*at)->is_urgent);)
            at = &(*at)->next;
    call->next = *at;
    *at = call;
    if (!call->next)
        client->out_tail = &call->next;
}

void pump_add(struct xop_client *client, struct call *call) {
    struct call **first = bucket(client, call->id);
    call->same_hash = *first;
    *first = call;
    call->older = client->newest;
    if (call->older)
        call->older->newer = call;
    else
        client->oldest = call;
    client->newest = call;
    enqueue(client, call);
    client->unfinished += !call->is_internal;
    client->exports += call->expected.kind == OUTCOME_EXPORT;
    if (call->deadline_ns) {
        if (client->with_deadline == 0 || call->deadline_ns < client->first_deadline_ns)
            client->first_deadline_ns = call->deadline_ns;
        client->with_deadline++;
    }
}

void pump_add_whole(struct xop_client *client, struct call *call) {
    client->unfinished += !call->is_internal;
}

static void forget(struct xop_client *client, struct call *call) {
    struct call **at = bucket(client, call->id);
    while (*at != call)
        at = &(*at)->same_hash;
    *at = call->same_hash;
    if (call->newer)
        call->newer->older = call->older;
    else
        client->newest = call->older;
    if (call->older)
        call->older->newer = call->newer;
    else
        client->oldest = call->newer;
    if (client->receiving == call)
        client->receiving = NULL;
    client->exports -= call->expected.kind == OUTCOME_EXPORT;
    client->with_deadline -= call->deadline_ns != 0;
    call->deadline_ns = 0;
}

/* Takes a call that has not been sent whole out of the queue. */
static void unqueue(struct xop_client *client, struct call *call) {
    struct call **at = &client->out;
    while (*at && *at != call)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = call->next;
    if (!*at)
        client->out_tail = at;
}

/* ---- Finishing ---- */

static void finish(struct xop_client *client, struct call *call);

/* Of a whole that has failed, what has not begun is of no use any more. */
static void drop_pieces(struct xop_client *client, struct call *whole) {
    for (struct call **at = &client->out; *at;) {
        struct call *piece = *at;
        if (piece->whole != whole || piece->begun) {
            at = &piece->next;
            continue;
        }
        *at = piece->next;
        forget(client, piece);
        call_give(&client->pool, piece);
        whole->pieces--;
    }
    client->out_tail = &client->out;
    while (*client->out_tail)
        client->out_tail = &(*client->out_tail)->next;
}

static void finish_piece(struct xop_client *client, struct call *piece) {
    struct call *whole = piece->whole;
    bool first_failure = whole->result->error.status == XOP_OK &&
                         piece->result->error.status != XOP_OK && !client->dead;
    outcome_add(whole->result, piece->result);
    call_give(&client->pool, piece);
    whole->pieces--;
    if (first_failure)
        drop_pieces(client, whole);
    if (whole->pieces == 0)
        finish(client, whole);
}

/* The call's result is final. A blocking call's owner frees it; a callback is run later. */
static void finish(struct xop_client *client, struct call *call) {
    uint64_t one = 1;
    if (call->whole) {
        finish_piece(client, call);
        return;
    }
    call->finished = true;
    /* Whoever polls for all may be the one that waits for this. */
    if (client->has_leader && write(client->wake, &one, sizeof one) < 0)
        client->wake_failed = errno != EAGAIN;
    client->unfinished -= !call->is_internal;
    if (call->is_internal) {
        call_give(&client->pool, call);
    } else if (call->done) {
        call->next = NULL;
        *client->finished_tail = call;
        client->finished_tail = &call->next;
    }
    pthread_cond_broadcast(&client->changed);
}

/* Where the answer came before the request was sent whole, which a server that refuses it does, the
 * rest has to follow, or the next request would be taken for it. */
void pump_answered(struct xop_client *client, struct call *call) {
    if (!call->sent) {
        call->answered = true;
        client->receiving = NULL;
        return;
    }
    forget(client, call);
    client->in_flight -= !call->is_urgent;
    if (!call->abandoned)
        finish(client, call);
    else if (!call->waiter) /* else its owner, who is waking up, frees it */
        call_give(&client->pool, call);
}

/* A copy of a call that takes over its result: what is left behind waits for the server's answer.
 */
static struct call *take_result(struct xop_client *client, struct call *call) {
    struct call *taker = call_take(&client->pool);
    if (!taker)
        return NULL;
    xop_result_free(taker->result);
    taker->id = call->id;
    taker->done = call->done;
    taker->arg = call->arg;
    taker->result = call->result;
    call->result = NULL;
    return taker;
}

/* Tells the server that nobody waits any more. It is no loss where this fails. */
static void cancel(struct xop_client *client, uint64_t id) {
    struct composed composed;
    struct xop_error ignored;
    compose_plain(&composed, MESSAGE_CANCEL, OUTCOME_PLAIN);
    composed.message.target = id;
    struct call *call = run_call(client, &composed, &ignored);
    if (!call)
        return;
    call->is_internal = call->is_urgent = true;
    pump_add(client, call);
}

void pump_abandon(struct xop_client *client, struct call *call, enum xop_status status,
                  const char *text) {
    if (!call->begun) {
        unqueue(client, call);
        forget(client, call);
        call_fail(call, status, text);
        finish(client, call);
        return;
    }
    /* Its memory is the caller's again from now on: what was not sent yet is copied, and what
     * arrives is dropped. Where that is not possible the connection is of no use any more. */
    if (!call->sent && !call_detach_memory(call)) {
        pump_kill(client, XOP_RESOURCE_EXHAUSTED, "out of memory while a request was being sent");
        return;
    }
    if (client->receiving == call)
        reader_drop_body(client->reader);
    call->abandoned = true;
    call_fail(call, status, text);
    if (status == XOP_DEADLINE_EXCEEDED && !call->answered)
        cancel(client, call->id);
    client->with_deadline -= call->deadline_ns != 0;
    call->deadline_ns = 0;
    if (call->waiter) {
        /* A blocking call's owner is woken and leaves the call here. */
        call->finished = true;
        client->unfinished--;
        pthread_cond_broadcast(&client->changed);
        return;
    }
    if (!call->done)
        return; /* nobody waits for it */
    struct call *taker = take_result(client, call);
    if (!taker) {
        call->abandoned = false;
        pump_kill(client, XOP_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    finish(client, taker);
}

void pump_kill(struct xop_client *client, enum xop_status status, const char *text) {
    if (client->dead)
        return;
    client->dead = true;
    xop_fail(&client->death, status, "%s", text);
    shutdown(client->fd, SHUT_RDWR); /* so that whoever polls it wakes, and the server knows */
    client->out = NULL;
    client->out_tail = &client->out;
    client->held = 0;
    while (client->oldest) {
        struct call *call = client->oldest;
        forget(client, call);
        if (call->abandoned && !(call->waiter && call->result)) {
            call_give(&client->pool, call);
            continue;
        }
        if (call->abandoned)
            continue;        /* its owner is about to leave with the result, and frees it */
        if (!call->answered) /* else the server's answer stands */
            call_fail(call, status, text);
        finish(client, call);
    }
    client->in_flight = 0;
    pthread_cond_broadcast(&client->changed);
}

/* Sends what callbacks queued. */
static void send_held(struct xop_client *client) {
    client->held = 0;
    pump_turn(client, false);
    if (pump_wants_output(client))
        wait_wake(client);
}

void pump_send(struct xop_client *client) {
    if (client->has_caller && pthread_equal(client->caller, pthread_self()) &&
        ++client->held < HELD_MOST)
        return;
    send_held(client);
}

bool pump_is_running(const struct xop_client *client, uint64_t id) {
    const struct call *at = client->running;
    while (at && at->id != id)
        at = at->next;
    return at != NULL;
}

static void run_callback(struct xop_client *client) {
    struct call *call = client->finished;
    struct call **at = &client->running;
    client->finished = call->next;
    if (!client->finished)
        client->finished_tail = &client->finished;
    call->next = client->running;
    client->running = call;
    if (call->result)
        call->result->id = call->id;
    pthread_mutex_unlock(&client->lock);
    call->done(call->arg, call->result);
    pthread_mutex_lock(&client->lock);
    call->result = NULL;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    call_give(&client->pool, call);
    pthread_cond_broadcast(&client->changed);
}

void pump_run_callbacks(struct xop_client *client) {
    bool mine = client->finished && !client->has_caller;
    if (mine) {
        client->caller = pthread_self();
        client->has_caller = true;
    }
    while (client->finished) {
        run_callback(client);
        if (mine && !client->finished && client->held > 0)
            send_held(client); /* which may finish others */
    }
    if (mine)
        client->has_caller = false;
}

/* ---- Deadlines ---- */

int pump_timeout(const struct xop_client *client) {
    if (client->with_deadline == 0)
        return -1;
    uint64_t now = address_now();
    if (client->first_deadline_ns <= now)
        return 0;
    uint64_t ms = (client->first_deadline_ns - now) / 1000000 + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Looks at all calls only when the first deadline that there was has come. */
static void enforce_deadlines(struct xop_client *client) {
    uint64_t now, first = UINT64_MAX;
    if (client->with_deadline == 0 || (now = address_now()) < client->first_deadline_ns)
        return;
    for (struct call *call = client->newest, *older; call && !client->dead; call = older) {
        older = call->older;
        if (call->deadline_ns && call->deadline_ns <= now)
            pump_abandon(client, call, XOP_DEADLINE_EXCEEDED,
                         "the deadline passed before the server answered");
        else if (call->deadline_ns && call->deadline_ns < first)
            first = call->deadline_ns;
    }
    client->first_deadline_ns = first;
}

/* ---- Sending ---- */

/* How many more calls may begin. One less than the server takes on at once: it reads no further
 * then, and a cancel would not reach it. */
static uint64_t may_begin(const struct xop_client *client) {
    uint64_t limit = client->max_in_flight > 1 ? client->max_in_flight - 1 : 1;
    return client->in_flight < limit ? limit - client->in_flight : 0;
}

bool pump_wants_output(const struct xop_client *client) {
    const struct call *call = client->out;
    if (client->secure && secure_wants_write(client->secure) && !client->dead &&
        !client->send_failed)
        return true;
    return call && !client->dead && !client->send_failed &&
           (call->begun || call->is_urgent || may_begin(client) > 0);
}

/* What one system call sends. A call that takes a descriptor along begins one. */
static uint32_t gather(struct xop_client *client, struct iovec *parts) {
    uint32_t n = 0;
    uint64_t more = may_begin(client);
    for (struct call *call = client->out; call && n < PARTS_AT_ONCE; call = call->next) {
        if (n > 0 && call->descriptor >= 0)
            break;
        if (!call->begun && !call->is_urgent && more-- == 0)
            break;
        for (uint32_t i = call->part; i < call->nparts && n < PARTS_AT_ONCE; i++)
            parts[n++] = call->parts[i];
    }
    return n;
}

static ssize_t send_parts(struct xop_client *client) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct call *first = client->out;
    struct iovec parts[PARTS_AT_ONCE];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = gather(client, parts)};
    if (client->secure)
        return secure_send(client->secure, parts, (uint32_t)message.msg_iovlen);
    if (first->descriptor >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &first->descriptor, sizeof(int));
    }
    ssize_t sent = sendmsg(client->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
        first->descriptor = -1; /* it went with the first byte */
    return sent;
}

static void advance(struct xop_client *client, size_t bytes) {
    while (client->out && (bytes > 0 || client->out->part == client->out->nparts)) {
        struct call *call = client->out;
        if (!call->begun)
            client->in_flight += !call->is_urgent;
        call->begun = true;
        while (call->part < call->nparts && bytes >= call->parts[call->part].iov_len)
            bytes -= call->parts[call->part++].iov_len;
        if (call->part < call->nparts) {
            struct iovec *part = &call->parts[call->part];
            part->iov_base = (char *)part->iov_base + bytes;
            part->iov_len -= bytes;
            return;
        }
        call->sent = true;
        client->out = call->next;
        if (!client->out)
            client->out_tail = &client->out;
        if (call->answered)
            pump_answered(client, call);
    }
}

static void send_some(struct xop_client *client) {
    size_t total = 0;
    while (pump_wants_output(client) && total < TURN_BYTES) {
        ssize_t sent = send_parts(client);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (sent < 0) {
            /* What the server said last, its reason perhaps, is still to be read. */
            client->send_failed = errno;
            return;
        }
        if (sent == 0 && client->secure && secure_wants_write(client->secure))
            return;
        total += (size_t)sent;
        advance(client, (size_t)sent);
    }
}

/* ---- All of it ---- */

void pump_turn(struct xop_client *client, bool may_read) {
    if (!client->dead)
        send_some(client);
    if (!client->dead && (may_read || client->send_failed))
        receive_some(client);
    if (!client->dead)
        send_some(client);
    if (!client->dead)
        enforce_deadlines(client);
}
