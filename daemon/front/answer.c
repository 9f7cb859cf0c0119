#include "answer.h"

#include "admit.h"
#include "complete.h"
#include "connection.h"
#include "dispatch.h"
#include "operands.h"
#include "shared.h"
#include "tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PARTS_AT_ONCE 256

static const unsigned char padding[PROTO_ALIGNMENT];

static struct response *response_new(struct io_thread *thread) {
    struct response *response = thread->free_responses;
    if (response)
        thread->free_responses = response->next;
    else if (!(response = malloc(sizeof *response)))
        return NULL;
    atomic_fetch_add(&thread->unsent, 1);
    memset(response, 0, offsetof(struct response, parts));
    response->fd = -1;
    return response;
}

static void response_free(struct io_thread *thread, struct response *response) {
    atomic_fetch_sub(&thread->unsent, 1);
    if (response->generation) {
        complete_release(thread, response->generation, response->block_offset,
                         response->block_bytes);
        generation_drop(response->generation);
    }
    free(response->document);
    if (response->fd >= 0)
        close(response->fd);
    response->next = thread->free_responses;
    thread->free_responses = response;
}

static uint64_t response_bytes(const struct response *response) {
    uint64_t bytes = 0;
    for (uint32_t i = response->part; i < response->nparts; i++)
        bytes += response->parts[i].iov_len;
    return bytes;
}

static void add_part(struct response *response, const void *bytes, size_t length) {
    if (length > 0)
        response->parts[response->nparts++] = (struct iovec){(void *)(uintptr_t)bytes, length};
}

/* Puts the encoded header in front of the parts and queues the response. */
static void send_message(struct connection *c, struct response *response,
                         const struct message *message) {
    response->parts[0] = (struct iovec){response->header, 0};
    if (response->nparts == 0)
        response->nparts = 1;
    uint64_t body = response_bytes(response);
    size_t header = message_encode(message, body, response->header, RESPONSE_HEADER);
    if (header == 0)
        abort(); /* RESPONSE_HEADER holds the largest message there can be */
    response->parts[0].iov_len = header;
    if (!c->out) {
        c->out_began_ns = io_now();
        c->out_sent = 0;
    }
    *c->out_tail = response;
    c->out_tail = &response->next;
    c->out_bytes += header + body;
    c->out_count++;
    connection_visit(c);
}

/* A response for a message without body, or with the parts that the caller adds. A connection that
 * cannot be answered is of no use to anybody; it ends later, as the caller still uses its requests.
 */
static struct response *begin(struct connection *c) {
    struct response *response = response_new(c->thread);
    if (!response) {
        c->doomed = true;
        connection_visit(c);
        return NULL;
    }
    response->nparts = 1;
    return response;
}

static void send_simple(struct connection *c, const struct message *message) {
    struct response *response = begin(c);
    if (response)
        send_message(c, response, message);
}

static struct message *blank(enum message_type type, uint64_t id) {
    static _Thread_local struct message message;
    message_reset(&message, type, id);
    return &message;
}

void answer_hello(struct connection *c) {
    struct message *m = blank(MESSAGE_HELLO, 0);
    m->version_min = m->version_max = PROTO_VERSION;
    m->agent = "xopd " XOP_VERSION;
    m->max_body = admit_max_body(c);
    m->max_in_flight = admit_max_in_flight(c);
    m->generation = c->thread->generation ? c->thread->generation->number : 0;
    send_simple(c, m);
}

/* Every request that fails can be found by its id, where somebody looks for it. */
static void note_failure(const struct connection *c, uint64_t id, enum xop_status status,
                         const char *why) {
    connection_log(c, id, LOG_LEVEL_DEBUG, "%s: %s", xop_status_name(status), why);
}

void answer_failure(struct connection *c, uint64_t id, const struct xop_error *error,
                    bool started) {
    struct message *m = blank(MESSAGE_RESULT, id);
    m->status = error->status;
    m->error = error->message;
    m->started = started;
    note_failure(c, id, error->status, error->message);
    send_simple(c, m);
    m->error = NULL; /* the caller's */
}

void answer_ok(struct connection *c, uint64_t id) { send_simple(c, blank(MESSAGE_RESULT, id)); }

void answer_export(struct connection *c, uint64_t id, struct memory *memory) {
    struct response *response = begin(c);
    struct message *m = blank(MESSAGE_RESULT, id);
    if (!response)
        return;
    m->length = memory->whole;
    response->fd = memory->exported;
    memory->exported = -1;
    memory->flags &= ~(uint32_t)SEAM_EXPORT;
    send_message(c, response, m);
}

void answer_document_take(struct connection *c, uint64_t id, char *json) {
    struct xop_error error;
    if (!json) {
        xop_fail(&error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
        answer_failure(c, id, &error, false);
        return;
    }
    struct response *response = begin(c);
    if (!response) {
        free(json);
        return;
    }
    struct message *m = blank(MESSAGE_RESULT, id);
    m->media = "application/json";
    response->document = json;
    add_part(response, json, strlen(json));
    send_message(c, response, m);
}

/* An output in the body, behind what is there already. */
static void put_in_body(struct response *response, const struct generation *generation,
                        const struct seam_tensor *from, uint64_t *end, struct message_tensor *to) {
    uint64_t bytes = 0, aligned = 0;
    struct xop_error ignored;
    message_tensor_bytes(to, &bytes, &ignored);
    message_align(*end, &aligned);
    if (bytes > 0)
        add_part(response, padding, aligned - *end);
    else
        aligned = *end & ~(uint64_t)(PROTO_ALIGNMENT - 1);
    to->place = PLACE_BODY;
    to->offset = aligned;
    add_part(response, generation->outbox + from->offset, bytes);
    if (bytes > 0)
        *end = aligned + bytes;
}

/* Says of each output what it is and where: not the worker's word, but the request's decides. */
static void put_outputs(struct response *response, struct message *m, const struct request *request,
                        const struct generation *generation, const struct seam_result *result) {
    const struct seam_tensor *asked = operands_tensors(request) + request->nin;
    const struct memory *memory;
    uint64_t end = 0;
    for (uint32_t i = 0; i < result->nout; i++) {
        const struct seam_tensor *from = &result->out[i];
        struct message_tensor *to = &m->out[i];
        *to = (struct message_tensor){.place = PLACE_OMIT};
        if (from->place == SEAM_NOWHERE)
            continue;
        to->dtype = (enum xop_dtype)from->dtype;
        to->rank = from->rank;
        memcpy(to->shape, from->shape, sizeof to->shape);
        if (request->staying && i < request->nout && request->staying->out[i]) {
            to->place = PLACE_RESIDENT;
            to->id = request->staying->out[i]->handle;
        } else if (from->place == SEAM_MEMORY &&
                   (memory = operands_memory(request, asked[i].memory))) {
            to->place = PLACE_MEMORY;
            to->id = memory->id;
            to->offset = asked[i].offset;
        } else {
            put_in_body(response, generation, from, &end, to);
        }
    }
    m->nout = result->nout;
}

/* What a get asked for is the body as it is; a put, an attach or a detach has none. */
static void put_piece(struct response *response, const struct generation *generation,
                      const struct seam_result *result) {
    const struct seam_tensor *from = &result->out[0];
    if (result->nout == 1 && from->place == SEAM_OUTBOX)
        add_part(response, generation->outbox + from->offset, operands_bytes(from));
}

void answer_result(struct connection *c, const struct request *request,
                   struct generation *generation, const struct seam_result *result) {
    struct response *response = begin(c);
    if (!response)
        return;
    struct message *m = blank(MESSAGE_RESULT, request->id);
    m->status = (enum xop_status)result->status;
    m->started = result->launched_ns != 0;
    m->queue_ns = result->queue_ns;
    m->copy_ns = result->copy_ns;
    m->run_ns = result->run_ns;
    m->batch = result->batch;
    if (result->status != XOP_OK) {
        m->error = result->message;
        note_failure(c, request->id, m->status, m->error);
    } else if (request->kind == SEAM_RUN)
        put_outputs(response, m, request, generation, result);
    else if (request->kind == SEAM_COPY && request->staying->in[0])
        put_piece(response, generation, result);
    if (result->block_bytes > 0) {
        response->generation = generation_hold(generation);
        response->block_offset = result->block_offset;
        response->block_bytes = result->block_bytes;
    }
    send_message(c, response, m);
}

void answer_error(struct connection *c, const struct xop_error *error) {
    struct message *m = blank(MESSAGE_ERROR, 0);
    m->status = error->status;
    m->error = error->message;
    send_simple(c, m);
    m->error = NULL; /* the caller's */
}

void answer_goaway(struct connection *c) {
    struct message *m = blank(MESSAGE_GOAWAY, 0);
    m->error = "this server is about to stop";
    send_simple(c, m);
}

void answer_generation(struct connection *c, uint64_t generation) {
    struct message *m = blank(MESSAGE_GENERATION, 0);
    m->generation = generation;
    send_simple(c, m);
}

/* ---- Sending ---- */

/* One that takes a descriptor along begins a call of its own. */
static uint32_t gather(const struct connection *c, struct iovec *parts) {
    uint32_t n = 0;
    for (const struct response *r = c->out; r && n < PARTS_AT_ONCE; r = r->next) {
        if (r->fd >= 0 && n > 0)
            break;
        for (uint32_t i = r->part; i < r->nparts && n < PARTS_AT_ONCE; i++)
            parts[n++] = r->parts[i];
    }
    return n;
}

static ssize_t send_some(struct connection *c) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec parts[PARTS_AT_ONCE];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = gather(c, parts)};
    if (c->tls) /* descriptors go over Unix sockets alone */
        return tls_write(c->tls, parts, (uint32_t)message.msg_iovlen);
    if (c->out->fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &c->out->fd, sizeof(int));
    }
    ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && c->out->fd >= 0) {
        close(c->out->fd); /* it is under way */
        c->out->fd = -1;
    }
    return sent;
}

/* Takes `sent` bytes off the queue, and whole responses with them. */
static void advance(struct connection *c, uint64_t sent) {
    c->out_bytes -= sent;
    while (c->out) {
        struct response *r = c->out;
        while (r->part < r->nparts && sent >= r->parts[r->part].iov_len)
            sent -= r->parts[r->part++].iov_len;
        if (r->part < r->nparts) {
            r->parts[r->part].iov_base = (char *)r->parts[r->part].iov_base + sent;
            r->parts[r->part].iov_len -= sent;
            return;
        }
        c->out = r->next;
        c->out_count--;
        response_free(c->thread, r);
    }
    c->out_tail = &c->out;
}

void answer_flush(struct connection *c) {
    bool was_high = answer_is_high(c);
    uint64_t total = 0;
    if (c->doomed) {
        connection_end(c, "out of memory for an answer");
        return;
    }
    while (c->out && total < ANSWER_TURN_BYTES) {
        ssize_t sent = send_some(c);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            connection_end(c, "the client is gone");
            return;
        }
        if (sent < 0)
            break;
        stats_add(c->stats.bytes_out, (uint64_t)sent);
        c->out_sent += (uint64_t)sent;
        total += (uint64_t)sent;
        advance(c, (uint64_t)sent);
    }
    if (!c->out)
        c->out_began_ns = 0;
    connection_want_write(c, c->out != NULL);
    if (was_high && !answer_is_high(c))
        dispatch_activate(c);
    connection_sent(c);
}

void answer_flush_all(struct io_thread *thread) {
    while (thread->flush) {
        struct connection *c = thread->flush;
        thread->flush = c->next_flush;
        c->flushing = false;
        if (c->ended)
            connection_bury(c);
        else
            answer_flush(c);
    }
}

void answer_drop(struct connection *c) {
    while (c->out) {
        struct response *r = c->out;
        c->out = r->next;
        response_free(c->thread, r);
    }
    c->out_tail = &c->out;
    c->out_bytes = c->out_count = 0;
}
