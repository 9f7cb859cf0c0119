#include "state.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* What one turn receives before it looks at anything else. */
#define TURN_BYTES (16u << 20)

/* ---- Descriptors that come ---- */

static int take_descriptor(struct xop_client *client) {
    if (client->ndescriptors == 0)
        return -1;
    int descriptor = client->descriptors[0];
    memmove(client->descriptors, client->descriptors + 1,
            --client->ndescriptors * sizeof *client->descriptors);
    return descriptor;
}

static void close_descriptors(struct xop_client *client) {
    while (client->ndescriptors > 0)
        close(client->descriptors[--client->ndescriptors]);
}

static void keep_descriptors(struct xop_client *client, struct msghdr *message) {
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(head) + i * sizeof descriptor, sizeof descriptor);
            if (client->ndescriptors < CLIENT_DESCRIPTORS)
                client->descriptors[client->ndescriptors++] = descriptor;
            else
                close(descriptor);
        }
    }
}

/* ---- Receiving ---- */

static enum xop_status on_result(struct xop_client *client, const struct message *message,
                                 uint64_t body_bytes, struct reader_segment *segments,
                                 uint32_t *nsegments, struct xop_error *error) {
    struct call *call = pump_find(client, message->id);
    if (!call || !call->begun || call->answered)
        return xop_fail(error, XOP_INTERNAL,
                        "the server answered request %llu, which was not in flight",
                        (unsigned long long)message->id);
    if (call->expected.kind == OUTCOME_EXPORT && call->result)
        outcome_give_descriptor(call->result, take_descriptor(client));
    if (!call->abandoned)
        outcome_receive(call->result, &call->expected, call->wanted, message, body_bytes, segments,
                        nsegments);
    client->receiving = call;
    return XOP_OK;
}

static enum xop_status on_hello(struct xop_client *client, const struct message *message,
                                struct xop_error *error) {
    if (client->greeted)
        return xop_fail(error, XOP_INTERNAL, "the server said hello twice");
    if (message->version_min > PROTO_VERSION || message->version_max < PROTO_VERSION)
        return xop_fail(error, XOP_FAILED_PRECONDITION,
                        "the server speaks version %llu of the protocol, this library %d",
                        (unsigned long long)message->version_min, PROTO_VERSION);
    client->greeted = true;
    client->max_body = message->max_body ? message->max_body : PROTO_MAX_BODY;
    client->max_in_flight = message->max_in_flight ? message->max_in_flight : UINT32_MAX;
    client->generation = message->generation;
    return XOP_OK;
}

static enum xop_status on_message(void *arg, const struct message *message, uint64_t body_bytes,
                                  struct reader_segment *segments, uint32_t *nsegments,
                                  struct xop_error *error) {
    struct xop_client *client = arg;
    *nsegments = 0;
    if (!client->greeted && message->type != MESSAGE_HELLO && message->type != MESSAGE_ERROR)
        return xop_fail(error, XOP_INTERNAL, "the server did not say hello");
    switch (message->type) {
    case MESSAGE_RESULT: return on_result(client, message, body_bytes, segments, nsegments, error);
    case MESSAGE_HELLO: return on_hello(client, message, error);
    case MESSAGE_ERROR:
        return xop_fail(error, message->status ? message->status : XOP_UNAVAILABLE, "%s",
                        message->error ? message->error : "the server ended the connection");
    case MESSAGE_GOAWAY: client->draining = true; return XOP_OK;
    case MESSAGE_GENERATION: client->generation = message->generation; return XOP_OK;
    default:
        return xop_fail(error, XOP_INTERNAL, "the server sent \"%s\", which is for clients to send",
                        message_type_name(message->type));
    }
}

static void on_complete(void *arg) {
    struct xop_client *client = arg;
    if (client->receiving)
        pump_answered(client, client->receiving);
    else
        pthread_cond_broadcast(&client->changed); /* hello, for instance */
}

const struct reader_handler receive_handler = {on_message, on_complete};

static void end_of_stream(struct xop_client *client, int failed) {
    char text[160];
    const char *refused = client->secure ? secure_reason(client->secure) : NULL;
    if (refused)
        snprintf(text, sizeof text, "TLS: %.120s", refused);
    else if (failed)
        snprintf(text, sizeof text, "the connection to the server broke: %s", strerror(failed));
    else
        snprintf(text, sizeof text, "the server closed the connection%s",
                 reader_is_within(client->reader) ? " within a response" : "");
    pump_kill(client, XOP_UNAVAILABLE, text);
}

/* Descriptors are taken where an export is to bring one, and else never come to be. */
static ssize_t receive(struct xop_client *client, void *to, size_t length) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(CLIENT_DESCRIPTORS * sizeof(int))];
    } control;
    if (client->secure)
        return secure_receive(client->secure, to, length);
    if (client->exports == 0)
        return recv(client->fd, to, length, MSG_DONTWAIT);
    struct iovec part = {to, length};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(client->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got >= 0 && message.msg_controllen > 0)
        keep_descriptors(client, &message);
    return got;
}

void receive_some(struct xop_client *client) {
    size_t total = 0;
    while (!client->dead &&
           (total < TURN_BYTES || (client->secure && secure_has_pending(client->secure)))) {
        struct xop_error error = {XOP_INTERNAL, "the server's bytes make no sense"};
        unsigned char *to;
        size_t length;
        reader_direct(client->reader, &to, &length);
        bool direct = length >= CLIENT_BUFFER / 4;
        ssize_t got =
            receive(client, direct ? to : client->buffer, direct ? length : CLIENT_BUFFER);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (got <= 0) {
            end_of_stream(client, got < 0 ? errno : 0);
            return;
        }
        total += (size_t)got;
        if (direct)
            reader_advance(client->reader, (size_t)got);
        else if (reader_feed(client->reader, client->buffer, (size_t)got, &error) != XOP_OK)
            pump_kill(client, error.status, error.message);
        /* A descriptor comes with the first byte of the frame that it belongs to: once no frame's
         * header is awaited, what is left belongs to none. */
        if (client->ndescriptors > 0 && !reader_is_before_message(client->reader))
            close_descriptors(client);
        if (!direct && (size_t)got < CLIENT_BUFFER)
            break; /* most likely that was all */
    }
    if (client->send_failed && !client->dead)
        end_of_stream(client, client->send_failed);
}
