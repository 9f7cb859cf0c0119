/* libxopclient against a server that follows the protocol, in its own order and time. */
#include "client_server.h"

#include <poll.h>
#include <sys/wait.h>

static void serve_echo(struct server *s) {
    while (next(s)) {
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 100);
        else if (s->message.type == MESSAGE_FORWARD)
            echo(s, s->message.id);
    }
}

static void a_call_returns_its_output(void **state) {
    struct xop_tensor in, out;
    struct xop_request request = simple(&in);
    struct xop_result *result;
    float given[3] = {0};
    (void)state;
    start(&server, serve_echo);
    struct xop_client *client = open_client();
    assert_int_equal(xop_run(client, &request, &result), XOP_OK);
    assert_int_equal(result->nout, 1);
    assert_memory_equal(result->out[0].data, input, sizeof input);
    xop_result_free(result);
    /* Into memory of ours. */
    out = xop_tensor_1d(XOP_F32, 3, given);
    request.out = &out;
    request.nout = 1;
    assert_int_equal(xop_run(client, &request, &result), XOP_OK);
    assert_ptr_equal(result->out[0].data, given);
    assert_memory_equal(given, input, sizeof input);
    xop_result_free(result);
    /* Of another shape than what comes. */
    out = xop_tensor_1d(XOP_F32, 2, given);
    assert_int_equal(xop_run(client, &request, &result), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(result->error.message, "f32 (3,)"));
    assert_non_null(strstr(result->error.message, "f32 (2,)"));
    xop_result_free(result);
    request.out = NULL;
    request.nout = 0;
    assert_int_equal(xop_run(client, &request, &result), XOP_OK);
    xop_result_free(result);
    xop_client_close(client);
    stop(&server);
}

static void requests_that_cannot_be_are_refused_at_once(void **state) {
    static float large[1 << 15];
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    struct xop_result *result;
    struct xop_error error;
    (void)state;
    start(&server, serve_echo);
    struct xop_client *client = open_client();
    in = xop_tensor_1d(XOP_F32, 1 << 15, large); /* 128 KiB, the server takes 64 */
    assert_int_equal(xop_run(client, &request, &result), XOP_RESOURCE_EXHAUSTED);
    xop_result_free(result);
    in = xop_tensor_1d(XOP_F32, -1, large);
    assert_int_equal(xop_run(client, &request, &result), XOP_INVALID_ARGUMENT);
    xop_result_free(result);
    request.nin = XOP_MAX_INPUTS + 1;
    assert_int_equal(xop_run(client, &request, &result), XOP_INVALID_ARGUMENT);
    xop_result_free(result);
    request = simple(&in);
    request.op = NULL;
    assert_int_equal(xop_run(client, &request, &result), XOP_INVALID_ARGUMENT);
    xop_result_free(result);
    assert_int_equal(xop_cancel(client, 12345, &error), XOP_NOT_FOUND);
    xop_client_close(client);
    stop(&server);
}

/* Collects 32 requests and answers them last first. */
static void serve_backwards(struct server *s) {
    static unsigned char bodies[32][16];
    uint64_t ids[32];
    int n = 0;
    while (next(s)) {
        if (s->message.type == MESSAGE_HELLO) {
            say_hello(s, 100);
            continue;
        }
        memcpy(bodies[n], s->body, 12);
        ids[n++] = s->message.id;
        for (; n == 32 && n > 0;)
            while (n > 0) {
                memcpy(s->body, bodies[--n], 12);
                echo(s, ids[n]);
            }
    }
}

static void answers_in_any_order_reach_their_calls(void **state) {
    static struct expectation expected[320];
    struct tally tally = {0};
    struct xop_error error;
    (void)state;
    start(&server, serve_backwards);
    struct xop_client *client = open_client();
    for (int i = 0; i < 320; i++) {
        struct xop_tensor in;
        struct xop_request request = simple(&in);
        expected[i].tally = &tally;
        for (int k = 0; k < 3; k++)
            expected[i].values[k] = (float)(i + k);
        in.data = expected[i].values;
        assert_int_equal(xop_submit(client, &request, on_done, &expected[i], NULL, &error), XOP_OK);
    }
    assert_int_equal(xop_client_wait(client, 60000, &error), XOP_OK);
    assert_int_equal(tally.answered, 320);
    assert_int_equal(tally.wrong, 0);
    xop_client_close(client);
    stop(&server);
}

static void serve_silence(struct server *s) {
    while (next(s))
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 100);
}

static void deadlines_hold_when_the_server_is_silent(void **state) {
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    struct xop_result *result;
    struct expectation unused = {.tally = &(struct tally){0}};
    struct xop_error error;
    (void)state;
    start(&server, serve_silence);
    struct xop_client *client = open_client();
    request.deadline_ms = 30;
    assert_int_equal(xop_run(client, &request, &result), XOP_DEADLINE_EXCEEDED);
    xop_result_free(result);
    assert_int_equal(xop_submit(client, &request, on_done, &unused, NULL, &error), XOP_OK);
    assert_int_equal(xop_client_wait(client, 60000, &error), XOP_OK);
    assert_int_equal(unused.tally->answered, 1);
    request.deadline_ms = 0;
    assert_int_equal(xop_submit(client, &request, on_done, &unused, NULL, &error), XOP_OK);
    assert_int_equal(xop_client_wait(client, 30, &error), XOP_DEADLINE_EXCEEDED);
    xop_client_close(client); /* completes what is in flight */
    assert_int_equal(unused.tally->answered, 2);
    stop(&server);
}

/* Answers only what comes after a request that it lets go by. */
static void serve_late(struct server *s) {
    uint64_t first = 0;
    while (next(s)) {
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 100);
        else if (first == 0)
            first = s->message.id;
        else if (s->message.type == MESSAGE_FORWARD) {
            echo(s, first); /* too late for it, and not to be taken for another's */
            echo(s, s->message.id);
        }
    }
}

static void an_answer_that_comes_too_late_is_dropped(void **state) {
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    struct xop_result *result;
    (void)state;
    start(&server, serve_late);
    struct xop_client *client = open_client();
    request.deadline_ms = 20;
    assert_int_equal(xop_run(client, &request, &result), XOP_DEADLINE_EXCEEDED);
    xop_result_free(result);
    request.deadline_ms = 0;
    assert_int_equal(xop_run(client, &request, &result), XOP_OK);
    assert_memory_equal(result->out[0].data, input, sizeof input);
    xop_result_free(result);
    xop_client_close(client);
    stop(&server);
}

static void *run_many(void *arg) {
    struct xop_client *client = arg;
    for (int i = 0; i < 200; i++) {
        struct xop_tensor in;
        float values[3] = {(float)i, (float)(uintptr_t)&in, 7};
        struct xop_request request = simple(&in);
        struct xop_result *result;
        in.data = values;
        if (xop_run(client, &request, &result) != XOP_OK ||
            memcmp(result->out[0].data, values, sizeof values) != 0)
            return client;
        xop_result_free(result);
    }
    return NULL;
}

static void threads_share_a_connection(void **state) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    (void)state;
    start(&server, serve_echo);
    struct xop_client *client = open_client();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, client), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    xop_client_close(client);
    stop(&server);
}

struct chain {
    struct xop_client *client;
    int left;
};

static void on_link(void *arg, struct xop_result *result) {
    struct chain *chain = arg;
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    xop_result_free(result);
    if (--chain->left > 0)
        xop_submit(chain->client, &request, on_link, chain, NULL, NULL);
}

static void callbacks_may_submit(void **state) {
    struct chain chain = {.left = 50};
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    struct xop_error error;
    (void)state;
    start(&server, serve_echo);
    chain.client = open_client();
    assert_int_equal(xop_submit(chain.client, &request, on_link, &chain, NULL, &error), XOP_OK);
    while (chain.left > 0) { /* as an application's own loop would */
        struct pollfd ready = {xop_client_descriptor(chain.client), xop_client_events(chain.client),
                               0};
        assert_int_equal(poll(&ready, 1, 60000), 1);
        assert_int_equal(xop_client_dispatch(chain.client, &error), XOP_OK);
    }
    xop_client_close(chain.client);
    stop(&server);
}

static void a_child_must_not_use_its_parents_client(void **state) {
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    struct xop_result *result;
    int status;
    (void)state;
    start(&server, serve_echo);
    struct xop_client *client = open_client();
    pid_t child = fork();
    if (child == 0)
        _exit(xop_run(client, &request, &result) == XOP_FAILED_PRECONDITION ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(xop_run(client, &request, &result), XOP_OK);
    xop_result_free(result);
    xop_client_close(client);
    stop(&server);
}

/* Refuses a request when its header is there, and takes the body only then. */
static void serve_early(struct server *s) {
    unsigned char bytes[FRAME_PREFIX];
    struct frame_prefix prefix;
    struct xop_error error;
    struct message hello = {
        .type = MESSAGE_HELLO, .device = -1, .version_min = 1, .version_max = 1};
    hello.max_body = 1 << 28;
    next(s);
    say(s, &hello, NULL, 0);
    while (read_all(s->fd, bytes, sizeof bytes) &&
           frame_read_prefix(bytes, 1 << 28, &prefix, &error) == XOP_OK &&
           read_all(s->fd, s->header, prefix.header_bytes)) {
        struct message m = {.type = MESSAGE_RESULT, .device = -1, .status = XOP_NOT_FOUND};
        if (message_decode(s->decoder, s->header, prefix.header_bytes, prefix.body_bytes,
                           &s->message, &error) != XOP_OK)
            return;
        m.id = s->message.id;
        m.error = "no such operator";
        say(s, &m, NULL, 0);
        for (uint64_t left = prefix.body_bytes; left > 0;) {
            ssize_t n = recv(s->fd, s->body, left < sizeof s->body ? left : sizeof s->body, 0);
            if (n <= 0)
                return;
            left -= (uint64_t)n;
        }
    }
}

static void an_answer_before_the_request_is_sent_is_no_harm(void **state) {
    int64_t n = 4 << 20;
    float *large = calloc((size_t)n, sizeof *large);
    struct xop_tensor in = xop_tensor_1d(XOP_F32, n, large);
    struct xop_request request = {.op = "none", .in = &in, .nin = 1};
    struct xop_result *result;
    (void)state;
    start(&server, serve_early);
    struct xop_client *client = open_client();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(xop_run(client, &request, &result), XOP_NOT_FOUND);
        xop_result_free(result);
    }
    free(large);
    xop_client_close(client);
    stop(&server);
}

static atomic_bool dispatching;

/* Dispatches as an event loop does, when there is something to read: a thread that only dispatched
 * could hold the client's lock against all others for ever where locks are not fair. */
static void *dispatch_all(void *arg) {
    struct pollfd readable = {.fd = xop_client_descriptor(arg), .events = POLLIN};
    while (atomic_load(&dispatching))
        if (poll(&readable, 1, 1) >= 0)
            xop_client_dispatch(arg, NULL);
    return NULL;
}

static void dispatching_beside_a_blocking_call_loses_no_answer(void **state) {
    pthread_t thread;
    (void)state;
    start(&server, serve_echo);
    struct xop_client *client = open_client();
    atomic_store(&dispatching, true);
    assert_int_equal(pthread_create(&thread, NULL, dispatch_all, client), 0);
    for (int i = 0; i < 10; i++)
        assert_null(run_many(client));
    atomic_store(&dispatching, false);
    pthread_join(thread, NULL);
    xop_client_close(client);
    stop(&server);
}

/* Takes on two at once and answers nothing but cancels, and what they cancel. */
static void serve_cancels(struct server *s) {
    while (next(s)) {
        struct message m = {.type = MESSAGE_RESULT, .device = -1};
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 2);
        if (s->message.type != MESSAGE_CANCEL)
            continue;
        m.id = s->message.id;
        say(s, &m, NULL, 0);
        m.id = s->message.target;
        m.status = XOP_CANCELLED;
        say(s, &m, NULL, 0);
    }
}

static void on_cancelled(void *arg, struct xop_result *result) {
    *(int *)arg += result->error.status == XOP_CANCELLED;
    xop_result_free(result);
}

static void cancels_pass_what_waits(void **state) {
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    uint64_t ids[4];
    int cancelled = 0;
    struct xop_error error;
    (void)state;
    start(&server, serve_cancels);
    struct xop_client *client = open_client();
    for (int i = 0; i < 4; i++)
        assert_int_equal(xop_submit(client, &request, on_cancelled, &cancelled, &ids[i], &error),
                         XOP_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(xop_cancel(client, ids[i], &error), XOP_OK);
    assert_int_equal(xop_client_wait(client, 60000, &error), XOP_OK);
    assert_int_equal(cancelled, 4);
    xop_client_close(client);
    stop(&server);
}

static void spinning_and_sleeping_give_the_same(void **state) {
    const uint32_t times[] = {0, 1, 20000, XOP_SPIN_NEVER};
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct xop_client_options options = {.size = sizeof options, .spin_us = times[i]};
        struct xop_client *client;
        struct xop_result *result;
        struct xop_error error;
        struct xop_tensor in;
        struct xop_request request = simple(&in);
        start(&server, serve_echo);
        assert_int_equal(xop_client_open(server.address, &options, &client, &error), XOP_OK);
        assert_null(run_many(client));
        xop_client_close(client);
        stop(&server);
        /* A deadline ends spinning as it ends sleep. */
        start(&server, serve_silence);
        options.spin_us = times[i] == 20000 ? UINT32_MAX - 1 : times[i];
        assert_int_equal(xop_client_open(server.address, &options, &client, &error), XOP_OK);
        request.deadline_ms = 5;
        assert_int_equal(xop_run(client, &request, &result), XOP_DEADLINE_EXCEEDED);
        xop_result_free(result);
        xop_client_close(client);
        stop(&server);
    }
}

/* What callers were built against before spin_us. */
struct first_options {
    size_t size;
    const char *agent, *token;
    uint64_t timeout_ms, max_response;
};

static void options_of_earlier_versions_are_taken(void **state) {
    struct {
        struct first_options options;
        uint64_t behind;
    } old = {{.size = sizeof(struct first_options), .timeout_ms = 5000}, UINT64_MAX};
    struct {
        struct xop_client_options options;
        char more[64];
    } later = {.options = {.size = sizeof later}};
    struct xop_client *client;
    struct xop_error error;
    (void)state;
    assert_int_equal(offsetof(struct xop_client_options, spin_us), sizeof(struct first_options));
    start(&server, serve_echo);
    assert_int_equal(xop_client_open(server.address,
                                     (const struct xop_client_options *)(const void *)&old.options,
                                     &client, &error),
                     XOP_OK);
    assert_null(run_many(client));
    xop_client_close(client);
    stop(&server);
    memset(later.more, 0xff, sizeof later.more);
    start(&server, serve_echo);
    assert_int_equal(xop_client_open(server.address, &later.options, &client, &error), XOP_OK);
    assert_null(run_many(client));
    xop_client_close(client);
    later.options.size = 0;
    assert_int_equal(xop_client_open(server.address, &later.options, &client, &error),
                     XOP_INVALID_ARGUMENT);
    stop(&server);
}

/* Keeps many in flight from callbacks. */
struct crowd {
    struct xop_client *client;
    int left, flying, most;
};

static void on_member(void *arg, struct xop_result *result) {
    struct crowd *crowd = arg;
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    crowd->flying--;
    if (result->error.status != XOP_OK)
        crowd->left = -1000000;
    xop_result_free(result);
    for (int i = 0; i < 2 && crowd->left > 0 && crowd->flying < 64; i++) {
        crowd->left--;
        crowd->flying++;
        crowd->most = crowd->flying > crowd->most ? crowd->flying : crowd->most;
        if (xop_submit(crowd->client, &request, on_member, crowd, NULL, NULL) != XOP_OK)
            crowd->left = -1000000;
    }
}

static void what_callbacks_submit_is_sent_together_and_all_of_it(void **state) {
    struct crowd crowd = {.left = 3000, .flying = 1};
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    struct xop_error error;
    (void)state;
    start(&server, serve_echo);
    crowd.client = open_client();
    assert_int_equal(xop_submit(crowd.client, &request, on_member, &crowd, NULL, &error), XOP_OK);
    assert_int_equal(xop_client_wait(crowd.client, 60000, &error), XOP_OK);
    assert_int_equal(crowd.left, 0);
    assert_int_equal(crowd.flying, 0);
    assert_int_equal(crowd.most, 64);
    xop_client_close(crowd.client);
    stop(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_returns_its_output),
        cmocka_unit_test(requests_that_cannot_be_are_refused_at_once),
        cmocka_unit_test(answers_in_any_order_reach_their_calls),
        cmocka_unit_test(deadlines_hold_when_the_server_is_silent),
        cmocka_unit_test(an_answer_that_comes_too_late_is_dropped),
        cmocka_unit_test(threads_share_a_connection),
        cmocka_unit_test(callbacks_may_submit),
        cmocka_unit_test(a_child_must_not_use_its_parents_client),
        cmocka_unit_test(an_answer_before_the_request_is_sent_is_no_harm),
        cmocka_unit_test(dispatching_beside_a_blocking_call_loses_no_answer),
        cmocka_unit_test(cancels_pass_what_waits),
        cmocka_unit_test(spinning_and_sleeping_give_the_same),
        cmocka_unit_test(options_of_earlier_versions_are_taken),
        cmocka_unit_test(what_callbacks_submit_is_sent_together_and_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
