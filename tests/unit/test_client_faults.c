/* libxopclient against servers that do what none should. */
#include "client_server.h"

/* What each of these scripts does ends the connection; every call in flight has to end with a
 * status. */
static void say_raw(struct server *s, const void *bytes, size_t n) {
    if (send(s->fd, bytes, n, MSG_NOSIGNAL) < 0)
        return;
}
static void bad_close(struct server *s) { shutdown(s->fd, SHUT_RDWR); }
static void bad_garbage(struct server *s) {
    say_raw(s, "\0\0\0\0garbage of some length to be read as a frame", 48);
}
static void bad_wrong_id(struct server *s) { echo(s, s->message.id + 100); }
static void bad_half_response(struct server *s) {
    unsigned char bytes[512];
    struct message m = {.type = MESSAGE_RESULT, .id = s->message.id, .device = -1, .nout = 1};
    m.out[0] = s->message.in[0];
    size_t n = message_encode(&m, 12, bytes, sizeof bytes);
    say_raw(s, bytes, n);
    say_raw(s, "1234", 4);
    shutdown(s->fd, SHUT_RDWR);
}
static void bad_huge_header(struct server *s) {
    say_raw(s, "XOP1\xff\xff\xff\xff\0\0\0\0\0\0\0\0", 16);
}
static void bad_huge_body(struct server *s) {
    unsigned char bytes[512];
    struct message m = {.type = MESSAGE_RESULT, .id = s->message.id, .device = -1, .nout = 1};
    m.out[0] =
        (struct message_tensor){XOP_F32, 1, {INT64_C(1) << 50}, PLACE_BODY, ACCESS_DEFAULT, 0, 0};
    say_raw(s, bytes, message_encode(&m, UINT64_C(1) << 52, bytes, sizeof bytes));
}
static void bad_request_type(struct server *s) {
    struct message m = {.type = MESSAGE_PING, .id = s->message.id, .device = -1};
    say(s, &m, NULL, 0);
}
static void bad_error(struct server *s) {
    struct message m = {.type = MESSAGE_ERROR, .status = XOP_PERMISSION_DENIED, .device = -1};
    m.error = "you may not";
    say(s, &m, NULL, 0);
}
static const script bad[] = {bad_close,       bad_garbage,   bad_wrong_id,     bad_half_response,
                             bad_huge_header, bad_huge_body, bad_request_type, bad_error};
static size_t which;

static void serve_badly(struct server *s) {
    bool done = false;
    while (next(s)) {
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 100);
        else if (!done)
            bad[which](s), done = true;
    }
}

static void a_server_that_misbehaves_ends_every_call(void **state) {
    (void)state;
    for (which = 0; which < sizeof bad / sizeof *bad; which++) {
        struct expectation unused = {.tally = &(struct tally){0}};
        struct xop_tensor in;
        struct xop_request request = simple(&in);
        struct xop_result *result;
        struct xop_error error;
        start(&server, serve_badly);
        struct xop_client *client = open_client();
        assert_int_equal(xop_submit(client, &request, on_done, &unused, NULL, &error), XOP_OK);
        enum xop_status status = xop_run(client, &request, &result);
        assert_int_not_equal(status, XOP_OK);
        assert_true(strlen(result->error.message) > 5);
        xop_result_free(result);
        assert_int_equal(xop_client_wait(client, 60000, &error), XOP_UNAVAILABLE);
        assert_int_equal(unused.tally->answered, 1);
        /* And from now on at once. */
        assert_int_equal(xop_run(client, &request, &result), XOP_UNAVAILABLE);
        xop_result_free(result);
        assert_int_equal(xop_client_dispatch(client, &error), XOP_UNAVAILABLE);
        xop_client_close(client);
        stop(&server);
    }
}

static void serve_no_hello(struct server *s) {
    struct message m = {.type = MESSAGE_ERROR, .status = XOP_UNAVAILABLE, .device = -1};
    m.error = "full";
    next(s);
    say(s, &m, NULL, 0);
}

static void a_refusal_at_the_door_is_told(void **state) {
    struct xop_client *client;
    struct xop_error error;
    (void)state;
    start(&server, serve_no_hello);
    assert_int_equal(xop_client_open(server.address, NULL, &client, &error), XOP_UNAVAILABLE);
    assert_non_null(strstr(error.message, "full"));
    assert_null(client);
    stop(&server);
}

static void serve_hello(struct server *s) {
    while (next(s))
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 100);
}

static void refuse_at_the_door(struct server *s) {
    struct message m = {.type = MESSAGE_ERROR, .status = XOP_UNAUTHENTICATED, .device = -1};
    m.error = "who are you";
    next(s);
    say(s, &m, NULL, 0);
}

/* A list is gone through until a server answers, and what a server answers is the answer. */
static void the_next_address_is_for_a_server_that_is_not_there(void **state) {
    struct server good;
    struct xop_client *client;
    struct xop_error error;
    struct xop_client_options options = {.size = sizeof options, .timeout_ms = 60000};
    char list[400];
    int mute = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un silent = {.sun_family = AF_UNIX};
    (void)state;
    snprintf(silent.sun_path, sizeof silent.sun_path, "/tmp/xop-mute-%d", getpid());
    assert_int_equal(bind(mute, (struct sockaddr *)&silent, sizeof silent), 0);
    assert_int_equal(listen(mute, 4), 0);

    start(&server, serve_no_hello);
    start(&good, serve_hello);
    snprintf(list, sizeof list, "unix:/nonexistent/a,%s,tcp:127.0.0.1:1,%s", server.address,
             good.address);
    assert_int_equal(xop_client_open(list, &options, &client, &error), XOP_OK);
    assert_string_equal(xop_client_address(client), good.address);
    xop_client_close(client);
    stop(&server);
    stop(&good);

    /* One that says nothing has no more than its part of the time. */
    start(&good, serve_hello);
    options.timeout_ms = 4000;
    snprintf(list, sizeof list, "unix:%s,%s", silent.sun_path, good.address);
    assert_int_equal(xop_client_open(list, &options, &client, &error), XOP_OK);
    assert_string_equal(xop_client_address(client), good.address);
    xop_client_close(client);
    stop(&good);
    options.timeout_ms = 60000;

    assert_int_equal(
        xop_client_open("unix:/nonexistent/a,unix:/nonexistent/b", &options, &client, &error),
        XOP_UNAVAILABLE);
    assert_non_null(strstr(error.message, "/nonexistent/a"));
    assert_non_null(strstr(error.message, "/nonexistent/b"));

    start(&server, refuse_at_the_door);
    snprintf(list, sizeof list, "%s,unix:/nonexistent/b", server.address);
    assert_int_equal(xop_client_open(list, &options, &client, &error), XOP_UNAUTHENTICATED);
    stop(&server);
    close(mute);
    unlink(silent.sun_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_misbehaves_ends_every_call),
        cmocka_unit_test(a_refusal_at_the_door_is_told),
        cmocka_unit_test(the_next_address_is_for_a_server_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
