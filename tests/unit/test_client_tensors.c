/* libxopclient's puts and gets, in pieces and whole, exports and probes. */
#include "client_model.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>

/* The model takes bodies of 64 KiB. */
enum { PIECE = 1 << 16, LARGE = 3 * PIECE / 4 + 100 };

static float *some_floats(int64_t n) {
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)i;
    return values;
}

static void a_tensor_goes_and_comes_in_pieces(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_error error;
    float *values = some_floats(LARGE), *got = calloc(LARGE, sizeof *got);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, LARGE, values);
    struct xop_tensor back = xop_tensor_1d(XOP_F32, LARGE, got);
    (void)state;
    must(xop_put(client, 7, &tensor, &error), &error);
    must(xop_get(client, 7, &back, &error), &error);
    assert_memory_equal(got, values, LARGE * sizeof *values);
    must(xop_free(client, 7, &error), &error);
    assert_int_equal(xop_get(client, 7, &back, &error), XOP_NOT_FOUND);
    assert_int_equal(xop_free(client, 7, &error), XOP_NOT_FOUND);
    model_stop(&model, client);
    uint64_t bytes = LARGE * sizeof *values, n = (bytes + PIECE - 1) / PIECE;
    assert_int_equal(model_count(&model, MESSAGE_PUT), n);
    for (uint32_t i = 0; i < n; i++) {
        const struct note *put = model_note(&model, MESSAGE_PUT, i);
        const struct message *get = &model_note(&model, MESSAGE_GET, i)->message;
        uint64_t left = bytes - i * PIECE, piece = left < PIECE ? left : PIECE;
        assert_int_equal(put->message.offset, i * PIECE);
        assert_int_equal(put->body_bytes, piece);
        assert_int_equal(put->message.in[0].shape[0], LARGE);
        assert_int_equal(get->offset, i * PIECE);
        assert_int_equal(get->length, piece);
    }
    free(values);
    free(got);
}

static void small_and_empty_tensors_are_one_piece(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_error error;
    double value = 4, got = 0;
    struct xop_tensor scalar = {XOP_F64, 0, {0}, &value}, back = {XOP_F64, 0, {0}, &got};
    struct xop_tensor empty = xop_tensor_2d(XOP_F32, 3, 0, NULL);
    (void)state;
    must(xop_put(client, 1, &scalar, &error), &error);
    must(xop_get(client, 1, &back, &error), &error);
    assert_true(got == 4);
    must(xop_put(client, 2, &empty, &error), &error);
    must(xop_get(client, 2, &empty, &error), &error);
    model_stop(&model, client);
    assert_int_equal(model_count(&model, MESSAGE_PUT), 2);
    assert_int_equal(model_note(&model, MESSAGE_PUT, 1)->body_bytes, 0);
    assert_int_equal(model_note(&model, MESSAGE_GET, 1)->message.length, 0);
}

static void a_tensor_in_attached_memory_is_moved_whole(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_memory *memory = model_memory_of(5 * PIECE);
    struct xop_error error;
    float *data = xop_memory_data(memory);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, PIECE / 2, data + 16);
    struct xop_tensor back = xop_tensor_1d(XOP_F32, PIECE / 2, data + PIECE / 2 + 32);
    struct xop_tensor aside = xop_tensor_1d(XOP_F32, PIECE / 2, data + PIECE / 2 + 33);
    (void)state;
    for (int i = 0; i < PIECE / 2; i++)
        data[16 + i] = (float)i;
    must(xop_memory_attach(client, memory, true, &error), &error);
    must(xop_put(client, 1, &tensor, &error), &error);
    must(xop_get(client, 1, &back, &error), &error);
    assert_memory_equal(back.data, tensor.data, 2 * PIECE);
    must(xop_get(client, 1, &aside, &error), &error); /* not at a multiple of 64: in pieces */
    assert_memory_equal(aside.data, tensor.data, 2 * PIECE);
    must(xop_memory_detach(client, memory, &error), &error);
    must(xop_memory_attach(client, memory, false, &error), &error);
    must(xop_get(client, 1, &back, &error), &error); /* it may not write there */
    must(xop_put(client, 1, &back, &error), &error);
    model_stop(&model, client);
    xop_memory_free(memory);
    const struct note *put = model_note(&model, MESSAGE_PUT, 0);
    const struct message *get = &model_note(&model, MESSAGE_GET, 0)->message;
    assert_int_equal(put->message.in[0].place, PLACE_MEMORY);
    assert_int_equal(put->message.in[0].offset, 64);
    assert_int_equal(put->body_bytes, 0);
    assert_int_equal(get->nout, 1);
    assert_int_equal(get->out[0].place, PLACE_MEMORY);
    assert_int_equal(get->out[0].offset, 2 * PIECE + 128);
    assert_int_equal(get->length, 2 * PIECE);
    assert_int_equal(model_count(&model, MESSAGE_GET), 1 + 2 + 2);
    assert_int_equal(model_note(&model, MESSAGE_GET, 1)->message.nout, 0);
    assert_int_equal(model_note(&model, MESSAGE_GET, 3)->message.nout, 0);
    assert_int_equal(model_note(&model, MESSAGE_PUT, 1)->message.in[0].place, PLACE_MEMORY);
}

struct end {
    int count;
    enum xop_status status;
    char message[512];
};

static void on_end(void *arg, struct xop_result *result) {
    struct end *end = arg;
    end->count++;
    end->status = result->error.status;
    memcpy(end->message, result->error.message, sizeof end->message);
    if (result->nout != 0)
        end->count = 1000;
    xop_result_free(result);
}

/* The second of many pieces is refused. What had not begun by then is not sent. */
static void a_piece_that_fails_fails_the_whole_once(void **state) {
    struct end end = {0}, later = {0};
    struct xop_error error;
    float *values = some_floats(LARGE * 4);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, LARGE * 4, values);
    struct xop_tensor small = xop_tensor_1d(XOP_F32, 3, values);
    (void)state;
    model_reset(&model);
    model.max_in_flight = 2; /* one piece after the other */
    model.refused = MESSAGE_PUT;
    model.refused_from = 1;
    model.status = XOP_RESOURCE_EXHAUSTED;
    struct xop_client *client = model_open(&model);
    must(xop_submit_put(client, 7, &tensor, on_end, &end, &error), &error);
    must(xop_submit_free(client, 7, on_end, &later, &error), &error);
    must(xop_client_wait(client, 60000, &error), &error);
    assert_int_equal(end.count, 1);
    assert_int_equal(end.status, XOP_RESOURCE_EXHAUSTED);
    assert_string_equal(end.message, "the model refuses");
    assert_int_equal(later.count, 1);
    assert_int_equal(later.status, XOP_OK);
    assert_int_equal(xop_put(client, 8, &small, &error), XOP_RESOURCE_EXHAUSTED);
    model_stop(&model, client);
    assert_int_equal(model_count(&model, MESSAGE_PUT), 2 + 1);
    free(values);
}

/* Several pieces fail, in different ways, while all are in flight: the first failure counts. */
static void serve_failures(struct server *s) {
    struct message m = {.type = MESSAGE_RESULT, .device = -1};
    uint64_t ids[3];
    for (int n = 0; n < 3 && next(s);) {
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 100);
        else
            ids[n++] = s->message.id;
    }
    static const enum xop_status statuses[] = {XOP_OK, XOP_DATA_LOSS, XOP_ABORTED};
    static unsigned char bytes[PIECE];
    for (int i = 0; i < 3; i++) {
        m.id = ids[(i + 1) % 3];
        m.status = statuses[i];
        m.error = m.status ? "lost" : NULL;
        m.run_ns = 10;
        say(s, &m, bytes, m.status ? 0 : PIECE);
    }
    next(s);
}

static void the_first_failure_wins(void **state) {
    struct end end = {0};
    struct xop_error error;
    float *values = some_floats(3 * PIECE / 4);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, 3 * PIECE / 4, values);
    (void)state;
    start(&server, serve_failures);
    struct xop_client *client = open_client();
    must(xop_submit_get(client, 1, &tensor, on_end, &end, &error), &error);
    must(xop_client_wait(client, 60000, &error), &error);
    assert_int_equal(end.count, 1);
    assert_int_equal(end.status, XOP_DATA_LOSS);
    xop_client_close(client);
    stop(&server);
    free(values);
}

/* Reads nothing but hello until the test says so. */
static atomic_bool may_read;
static void serve_later(struct server *s) {
    next(s);
    say_hello(s, 100);
    while (!atomic_load(&may_read))
        sched_yield();
    while (next(s)) {
        struct message m = {.type = MESSAGE_RESULT, .id = s->message.id, .device = -1};
        if (s->message.type == MESSAGE_FORWARD)
            echo(s, s->message.id);
        else
            say(s, &m, NULL, 0);
    }
}

/* Pieces fill the socket; the deadline of a request behind them passes before any of it is sent,
 * and the pieces go on. */
static void a_deadline_passes_while_pieces_are_sent(void **state) {
    struct end end = {0};
    struct xop_error error;
    float *values = some_floats(1 << 20);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, 1 << 20, values), in;
    struct xop_request request = simple(&in);
    struct xop_result *result;
    (void)state;
    atomic_store(&may_read, false);
    start(&server, serve_later);
    struct xop_client *client = open_client();
    must(xop_submit_put(client, 1, &tensor, on_end, &end, &error), &error);
    request.deadline_ms = 20;
    assert_int_equal(xop_run(client, &request, &result), XOP_DEADLINE_EXCEEDED);
    xop_result_free(result);
    assert_int_equal(xop_client_wait(client, 20, &error), XOP_DEADLINE_EXCEEDED);
    assert_int_equal(end.count, 0);
    atomic_store(&may_read, true);
    must(xop_client_wait(client, 60000, &error), &error);
    assert_int_equal(end.count, 1);
    assert_int_equal(end.status, XOP_OK);
    request.deadline_ms = 0;
    assert_int_equal(xop_run(client, &request, &result), XOP_OK);
    xop_result_free(result);
    xop_client_close(client);
    stop(&server);
    free(values);
}

/* Pieces sent, half sent and waiting: all end with the client, in one callback. */
static void closing_ends_a_whole_once(void **state) {
    struct end put = {0}, get = {0};
    struct xop_error error;
    float *values = some_floats(1 << 20);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, 1 << 20, values);
    (void)state;
    atomic_store(&may_read, false);
    start(&server, serve_later);
    struct xop_client *client = open_client();
    must(xop_submit_put(client, 1, &tensor, on_end, &put, &error), &error);
    must(xop_submit_get(client, 1, &tensor, on_end, &get, &error), &error);
    xop_client_close(client);
    assert_int_equal(put.count, 1);
    assert_int_equal(put.status, XOP_CANCELLED);
    assert_int_equal(get.count, 1);
    assert_int_equal(get.status, XOP_CANCELLED);
    atomic_store(&may_read, true);
    stop(&server);
    free(values);
}

static void what_cannot_be_is_refused_at_once(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_error error;
    float value = 1;
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, 1, &value);
    struct xop_tensor none = {.dtype = XOP_DTYPE_NONE}, nowhere = xop_tensor_1d(XOP_F32, 1, NULL);
    (void)state;
    assert_int_equal(xop_put(client, 0, &tensor, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(xop_get(client, 0, &tensor, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(xop_free(client, 0, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(xop_put(client, 1, &none, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(xop_put(client, 1, NULL, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(xop_get(client, 1, &nowhere, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(xop_submit_put(client, 1, &tensor, NULL, NULL, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(xop_submit_get(client, 1, &tensor, NULL, NULL, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(xop_submit_free(client, 1, NULL, NULL, &error), XOP_INVALID_ARGUMENT);
    model_stop(&model, client);
    assert_int_equal(model.nnotes, 0);
}

/* ---- Descriptors that come ---- */

static enum xop_status run_once(struct xop_client *client, const struct xop_request *request) {
    struct xop_result *result;
    enum xop_status status = xop_run(client, request, &result);
    xop_result_free(result);
    return status;
}

static int pipes[6][2];
static atomic_bool export_waits;

static void say_with(struct server *s, const struct message *m, const void *body, size_t n,
                     int descriptor) {
    unsigned char bytes[4096];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {{0}};
    size_t header = message_encode(m, n, bytes, sizeof bytes);
    if (n > 0)
        memcpy(bytes + header, body, n);
    struct iovec part = {bytes, header + n};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    if (sendmsg(s->fd, &message, MSG_NOSIGNAL) < 0)
        return;
}

/* Every answer brings the writing end of a pipe, wanted or not; exports of handle 3 bring none, and
 * those of handle 4 fail. An export of handle 5 is answered only with what comes after it. */
static void serve_descriptors(struct server *s) {
    uint64_t waiting = 0;
    for (uint32_t n = 0; next(s);) {
        const struct message *from = &s->message;
        struct message m = {.type = MESSAGE_RESULT, .id = from->id, .device = -1};
        bool forward = from->type == MESSAGE_FORWARD;
        if (from->type == MESSAGE_HELLO) {
            say_hello(s, 100);
            continue;
        }
        if (from->handle == 5) {
            waiting = from->id;
            atomic_store(&export_waits, true);
            continue;
        }
        if (forward) {
            m.nout = 1;
            m.out[0] = from->in[0];
        } else {
            m.length = 4096;
        }
        if (from->handle == 3) {
            say(s, &m, NULL, 0);
            continue;
        }
        if (from->handle == 4) {
            m.status = XOP_RESOURCE_EXHAUSTED;
            m.error = "no memory";
        }
        say_with(s, &m, s->body, forward ? 12 : 0, pipes[n][1]);
        close(pipes[n++][1]);
        if (waiting) {
            m = (struct message){.type = MESSAGE_RESULT, .id = waiting, .device = -1};
            m.length = 8192;
            say_with(s, &m, NULL, 0, pipes[n][1]);
            close(pipes[n++][1]);
            waiting = 0;
        }
    }
}

struct export_call {
    struct xop_client *client;
    enum xop_status status;
    int descriptor;
    uint64_t bytes;
};

static void *export_five(void *arg) {
    struct export_call *call = arg;
    const struct xop_tensor shape = xop_tensor_1d(XOP_F32, 3, NULL);
    call->status = xop_export(call->client, 5, &shape, &call->descriptor, &call->bytes, NULL);
    return NULL;
}

static void only_an_exports_descriptor_is_kept(void **state) {
    const struct xop_tensor shape = xop_tensor_1d(XOP_F32, 3, NULL);
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    struct xop_error error;
    int descriptor, none;
    uint64_t bytes;
    (void)state;
    for (int i = 0; i < 6; i++)
        assert_int_equal(pipe2(pipes[i], O_CLOEXEC | O_NONBLOCK), 0);
    start(&server, serve_descriptors);
    struct xop_client *client = open_client();
    assert_int_equal(run_once(client, &request), XOP_OK);                     /* pipe 0 */
    must(xop_export(client, 1, &shape, &descriptor, &bytes, &error), &error); /* 1 */
    assert_true(descriptor >= 0);
    assert_int_equal(bytes, 4096);
    assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(xop_export(client, 3, &shape, &none, &bytes, &error), XOP_INTERNAL);
    assert_int_equal(none, -1);
    assert_int_equal(xop_export(client, 4, &shape, &none, &bytes, &error), /* 2 */
                     XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(none, -1);
    assert_int_equal(run_once(client, &request), XOP_OK); /* 3 */
    /* One that comes with another frame while an export is awaited. */
    struct export_call call = {.client = client};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, export_five, &call), 0);
    while (!atomic_load(&export_waits))
        sched_yield();
    assert_int_equal(run_once(client, &request), XOP_OK); /* 4, and 5 for the export */
    pthread_join(thread, NULL);
    assert_int_equal(call.status, XOP_OK);
    assert_int_equal(call.bytes, 8192);
    assert_int_equal(write(descriptor, "x", 1), 1);
    assert_int_equal(write(call.descriptor, "y", 1), 1);
    xop_client_close(client);
    stop(&server);
    close(descriptor);
    close(call.descriptor);
    for (int i = 0; i < 6; i++) {
        char byte = 0;
        ssize_t got = read(pipes[i][0], &byte, 1);
        assert_int_equal(byte, i == 1 ? 'x' : i == 5 ? 'y' : 0);
        if (byte)
            got = read(pipes[i][0], &byte, 1);
        assert_int_equal(got, 0); /* nobody has its other end */
        close(pipes[i][0]);
    }
}

static void *serve_tcp(void *arg) {
    struct server *s = arg;
    s->fd = accept(s->listener, NULL, NULL);
    while (s->fd >= 0 && next(s))
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 100);
    close(s->fd);
    return NULL;
}

static void exports_and_attaching_need_a_unix_socket(void **state) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    const struct xop_tensor shape = xop_tensor_1d(XOP_F32, 3, NULL);
    struct xop_memory *memory = model_memory_of(4096);
    struct xop_error error;
    uint64_t bytes;
    int descriptor;
    (void)state;
    memset(&server, 0, sizeof server);
    server.descriptor = -1;
    server.decoder = message_decoder_new();
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(listen(server.listener, 1), 0);
    snprintf(server.address, sizeof server.address, "tcp:127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&server.thread, NULL, serve_tcp, &server), 0);
    struct xop_client *client = open_client();
    assert_int_equal(xop_export(client, 1, &shape, &descriptor, &bytes, &error),
                     XOP_FAILED_PRECONDITION);
    assert_int_equal(descriptor, -1);
    assert_int_equal(xop_memory_attach(client, memory, true, &error), XOP_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "Unix"));
    assert_int_equal(xop_memory_detach(client, memory, &error), XOP_NOT_FOUND);
    xop_client_close(client);
    pthread_join(server.thread, NULL);
    close(server.listener);
    message_decoder_free(server.decoder);
    xop_memory_free(memory);
}

static void a_probe_is_a_document(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_result *result;
    (void)state;
    assert_int_equal(xop_probe(client, 8192, 4096, &result), XOP_OK);
    assert_string_equal(result->text, "{\"launch_ns\":1}");
    assert_int_equal(result->text_bytes, strlen(result->text));
    xop_result_free(result);
    model_stop(&model, client);
    assert_int_equal(model_note(&model, MESSAGE_PROBE, 0)->message.bytes_in, 8192);
    assert_int_equal(model_note(&model, MESSAGE_PROBE, 0)->message.bytes_out, 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_goes_and_comes_in_pieces),
        cmocka_unit_test(small_and_empty_tensors_are_one_piece),
        cmocka_unit_test(a_tensor_in_attached_memory_is_moved_whole),
        cmocka_unit_test(a_piece_that_fails_fails_the_whole_once),
        cmocka_unit_test(the_first_failure_wins),
        cmocka_unit_test(a_deadline_passes_while_pieces_are_sent),
        cmocka_unit_test(closing_ends_a_whole_once),
        cmocka_unit_test(what_cannot_be_is_refused_at_once),
        cmocka_unit_test(only_an_exports_descriptor_is_kept),
        cmocka_unit_test(exports_and_attaching_need_a_unix_socket),
        cmocka_unit_test(a_probe_is_a_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
