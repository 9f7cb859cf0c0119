/*
 * A server for tests of libxopclient: a thread that follows a script, using proto/ alone. Included
 * by one test program each.
 */
#ifndef UNIT_CLIENT_SERVER_H
#define UNIT_CLIENT_SERVER_H

#include "proto/frame.h"
#include "proto/message.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xop/client.h>

#include <cmocka.h>

struct server;
typedef void (*script)(struct server *);

struct server {
    pthread_t thread;
    char path[64], address[80];
    int listener, fd;
    script script;
    struct message_decoder *decoder;
    struct message message;
    unsigned char header[PROTO_MAX_HEADER], body[1 << 16];
    uint64_t body_bytes;
    int descriptor; /* that came with the message; -1: none */
};

/* ---- The server's side ---- */

static bool read_all(int fd, void *to, size_t n) {
    return recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

static void drop_descriptor(struct server *s) {
    if (s->descriptor >= 0)
        close(s->descriptor);
    s->descriptor = -1;
}

/* A frame's prefix, and the descriptor that came with its first byte. */
static bool read_prefix(struct server *s, unsigned char bytes[FRAME_PREFIX]) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {bytes, FRAME_PREFIX};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    drop_descriptor(s);
    if (recvmsg(s->fd, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != FRAME_PREFIX)
        return false;
    struct cmsghdr *head = message.msg_controllen > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head && head->cmsg_type == SCM_RIGHTS)
        memcpy(&s->descriptor, CMSG_DATA(head), sizeof s->descriptor);
    return true;
}

/* The next message; false at the end of the connection. */
static bool next(struct server *s) {
    unsigned char bytes[FRAME_PREFIX];
    struct frame_prefix prefix;
    struct xop_error error;
    if (!read_prefix(s, bytes) ||
        frame_read_prefix(bytes, sizeof s->body, &prefix, &error) != XOP_OK)
        return false;
    s->body_bytes = prefix.body_bytes;
    return read_all(s->fd, s->header, prefix.header_bytes) &&
           (prefix.body_bytes == 0 || read_all(s->fd, s->body, prefix.body_bytes)) &&
           message_decode(s->decoder, s->header, prefix.header_bytes, prefix.body_bytes,
                          &s->message, &error) == XOP_OK;
}

static void say(struct server *s, const struct message *m, const void *body, size_t n) {
    unsigned char bytes[4096];
    size_t header = message_encode(m, n, bytes, sizeof bytes);
    if (send(s->fd, bytes, header, MSG_NOSIGNAL) < 0 ||
        (n > 0 && send(s->fd, body, n, MSG_NOSIGNAL) < 0))
        return;
}

static void say_hello(struct server *s, uint64_t max_in_flight) {
    struct message m = {.type = MESSAGE_HELLO, .device = -1, .version_min = 1, .version_max = 1};
    m.max_body = 1 << 16;
    m.max_in_flight = max_in_flight;
    say(s, &m, NULL, 0);
}

/* The first input comes back as the output. */
static inline void echo(struct server *s, uint64_t id) {
    struct message m = {.type = MESSAGE_RESULT, .id = id, .device = -1, .nout = 1};
    uint64_t bytes = 0;
    struct xop_error error;
    m.out[0] = s->message.in[0];
    message_tensor_bytes(&m.out[0], &bytes, &error);
    say(s, &m, s->body, bytes);
}

static void *serve(void *arg) {
    struct server *s = arg;
    s->fd = accept(s->listener, NULL, NULL);
    if (s->fd >= 0) {
        s->script(s);
        drop_descriptor(s);
        close(s->fd);
    }
    return NULL;
}

static void start(struct server *s, script what) {
    static int number;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memset(s, 0, sizeof *s);
    s->script = what;
    s->descriptor = -1;
    s->decoder = message_decoder_new();
    snprintf(s->path, sizeof s->path, "/tmp/xop-test-%d-%d.sock", getpid(), number++);
    snprintf(s->address, sizeof s->address, "unix:%s", s->path);
    strcpy(address.sun_path, s->path);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->listener, 4), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct server *s) {
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    unlink(s->path);
    message_decoder_free(s->decoder);
}

static struct server server;

static struct xop_client *open_client_of(struct server *s) {
    struct xop_client *client;
    struct xop_error error;
    if (xop_client_open(s->address, NULL, &client, &error) != XOP_OK)
        fail_msg("%s", error.message);
    return client;
}

static inline struct xop_client *open_client(void) { return open_client_of(&server); }

static float input[3] = {1, 2, 3};

static inline struct xop_request simple(struct xop_tensor *in) {
    *in = xop_tensor_1d(XOP_F32, 3, input);
    return (struct xop_request){.op = "echo", .in = in, .nin = 1};
}

struct tally {
    int answered, wrong;
};
struct expectation {
    struct tally *tally;
    float values[3];
};

static inline void on_done(void *arg, struct xop_result *result) {
    struct expectation *expected = arg;
    expected->tally->answered++;
    if (result->error.status != XOP_OK ||
        memcmp(result->out[0].data, expected->values, sizeof expected->values) != 0)
        expected->tally->wrong++;
    xop_result_free(result);
}

#endif
