/* xop_wait: a thread that waits for one request of its own, and may look up meanwhile. */
#include "client_server.h"

#include <signal.h>
#include <sys/time.h>

/* Answers a request when a later one comes, so the last stays unanswered. */
static void serve_one_behind(struct server *s) {
    uint64_t waiting = 0;
    while (next(s)) {
        if (s->message.type == MESSAGE_HELLO) {
            say_hello(s, 100);
            continue;
        }
        if (waiting)
            echo(s, waiting);
        waiting = s->message.id;
    }
}

static uint64_t submit(struct xop_client *client, struct expectation *expected) {
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    struct xop_error error;
    uint64_t id;
    memcpy(expected->values, input, sizeof input);
    if (xop_submit(client, &request, on_done, expected, &id, &error) != XOP_OK)
        fail_msg("%s", error.message);
    return id;
}

static void one_request_is_waited_for_and_no_other(void **state) {
    struct tally first = {0}, second = {0};
    struct expectation a = {.tally = &first}, b = {.tally = &second};
    (void)state;
    start(&server, serve_one_behind);
    struct xop_client *client = open_client();
    uint64_t id = submit(client, &a);
    assert_false(xop_wait(client, id, 10)); /* there is nothing behind it yet */
    assert_int_equal(first.answered, 0);
    uint64_t later = submit(client, &b);
    while (!xop_wait(client, id, 60000))
        ;
    assert_int_equal(first.answered, 1);
    assert_int_equal(first.wrong, 0);
    assert_int_equal(second.answered, 0);
    assert_false(xop_wait(client, later, 10));
    assert_true(xop_wait(client, id, 0)); /* it is in flight no more */
    xop_client_close(client);
    assert_int_equal(second.answered, 1);
    stop(&server);
}

static void on_alarm(int number) { (void)number; }

static void a_signal_ends_the_wait_and_not_the_request(void **state) {
    struct tally tally = {0};
    struct expectation expected = {.tally = &tally};
    /* Again and again: the first may come before the wait does. */
    const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, before;
    (void)state;
    start(&server, serve_one_behind);
    struct xop_client *client = open_client();
    uint64_t id = submit(client, &expected);
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    assert_false(xop_wait(client, id, 0));
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(tally.answered, 0);
    submit(client, &expected);
    while (!xop_wait(client, id, 60000))
        ;
    assert_int_equal(tally.answered, 1);
    xop_client_close(client);
    stop(&server);
}

/* Two requests, one argument: results say whose they are. */
struct named {
    uint64_t ids[2];
    uint32_t n;
};

static void on_named(void *arg, struct xop_result *result) {
    struct named *named = arg;
    assert_true(named->n < 2);
    named->ids[named->n++] = result->id;
    xop_result_free(result);
}

static void a_result_names_its_request(void **state) {
    struct named named = {.n = 0};
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    uint64_t first, second;
    (void)state;
    start(&server, serve_one_behind);
    struct xop_client *client = open_client();
    assert_int_equal(xop_submit(client, &request, on_named, &named, &first, NULL), XOP_OK);
    assert_int_equal(xop_submit(client, &request, on_named, &named, &second, NULL), XOP_OK);
    while (!xop_wait(client, first, 60000))
        ;
    xop_client_close(client); /* which cancels the second, unanswered */
    assert_int_equal(named.n, 2);
    assert_int_equal(named.ids[0], first);
    assert_int_equal(named.ids[1], second);
    stop(&server);
}

/* A callback that says when it has begun and ends when it is told to. */
struct slow {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool begun, may_end, ended;
};

static void on_slowly(void *arg, struct xop_result *result) {
    struct slow *slow = arg;
    pthread_mutex_lock(&slow->lock);
    slow->begun = true;
    pthread_cond_broadcast(&slow->changed);
    while (!slow->may_end)
        pthread_cond_wait(&slow->changed, &slow->lock);
    slow->ended = true;
    pthread_mutex_unlock(&slow->lock);
    xop_result_free(result);
}

static void serve_echo(struct server *s) {
    while (next(s)) {
        if (s->message.type == MESSAGE_HELLO)
            say_hello(s, 100);
        else
            echo(s, s->message.id);
    }
}

static void *wait_for_all(void *client) {
    xop_client_wait(client, 0, NULL);
    return NULL;
}

static void a_callback_on_another_thread_is_waited_for(void **state) {
    struct slow slow = {.begun = false};
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    pthread_t other;
    uint64_t id;
    (void)state;
    pthread_mutex_init(&slow.lock, NULL);
    pthread_cond_init(&slow.changed, NULL);
    start(&server, serve_echo);
    struct xop_client *client = open_client();
    assert_int_equal(xop_submit(client, &request, on_slowly, &slow, &id, NULL), XOP_OK);
    assert_int_equal(pthread_create(&other, NULL, wait_for_all, client), 0);
    pthread_mutex_lock(&slow.lock);
    while (!slow.begun)
        pthread_cond_wait(&slow.changed, &slow.lock);
    pthread_mutex_unlock(&slow.lock);
    assert_false(xop_wait(client, id, 10));
    pthread_mutex_lock(&slow.lock);
    slow.may_end = true;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.lock);
    assert_true(xop_wait(client, id, 0));
    assert_true(slow.ended);
    assert_int_equal(pthread_join(other, NULL), 0);
    xop_client_close(client);
    stop(&server);
    pthread_cond_destroy(&slow.changed);
    pthread_mutex_destroy(&slow.lock);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request_is_waited_for_and_no_other),
        cmocka_unit_test(a_signal_ends_the_wait_and_not_the_request),
        cmocka_unit_test(a_result_names_its_request),
        cmocka_unit_test(a_callback_on_another_thread_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
