/* libxopclient's memory: where tensors are found to lie, and who has it attached. */
#include "client_model.h"

#include <errno.h>
#include <fcntl.h>

static void memory_is_whole_zeroed_sealed_pages(void **state) {
    struct xop_memory *memory;
    struct xop_error error;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)state;
    assert_int_equal(xop_memory_create(page + 1, &memory, &error), XOP_OK);
    assert_int_equal(xop_memory_bytes(memory), 2 * page);
    unsigned char *data = xop_memory_data(memory);
    assert_int_equal((uintptr_t)data % page, 0);
    for (size_t i = 0; i < 2 * page; i++)
        assert_int_equal(data[i], 0);
    int fd = xop_memory_descriptor(memory), seals = fcntl(fd, F_GET_SEALS);
    assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 0), -1);
    xop_memory_free(memory);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(xop_memory_create(0, &memory, &error), XOP_INVALID_ARGUMENT);
    assert_null(memory);
    assert_int_equal(xop_memory_create(SIZE_MAX, &memory, &error), XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(xop_memory_create(SIZE_MAX - page, &memory, NULL), XOP_RESOURCE_EXHAUSTED);
    xop_memory_free(NULL);
}

/* One request in whose n floats at `in` are to come out at `out`. */
static void pass(struct xop_client *client, float *in, float *out, int64_t n) {
    struct xop_tensor from = xop_tensor_1d(XOP_F32, n, in), to;
    struct xop_request request = {.op = "echo", .in = &from, .nin = 1};
    struct xop_result *result;
    if (out) {
        to = xop_tensor_1d(XOP_F32, n, out);
        request.out = &to;
        request.nout = 1;
    }
    if (xop_run(client, &request, &result) != XOP_OK)
        fail_msg("%s", result->error.message);
    assert_int_equal(result->nout, 1);
    assert_int_equal(result->out[0].dtype, XOP_F32);
    assert_int_equal(result->out[0].shape[0], n);
    if (out)
        assert_ptr_equal(result->out[0].data, out);
    assert_int_equal((uintptr_t)result->out[0].data % sizeof(float), 0);
    assert_memory_equal(result->out[0].data, in, (size_t)n * sizeof *in);
    xop_result_free(result);
}

static void check_place(uint32_t n, enum message_place in, uint64_t in_at, enum message_place out,
                        uint64_t out_at) {
    const struct message *m = &model_note(&model, MESSAGE_FORWARD, n)->message;
    assert_int_equal(m->in[0].place, in);
    assert_int_equal(m->in[0].offset, in_at);
    assert_int_equal(m->nout > 0 ? m->out[0].place : PLACE_NONE, out);
    if (out == PLACE_MEMORY)
        assert_int_equal(m->out[0].offset, out_at);
    if (in == PLACE_MEMORY)
        assert_int_equal(model_note(&model, MESSAGE_FORWARD, n)->body_bytes, 0);
}

static void tensors_in_attached_memory_are_used_where_they_lie(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_memory *memory = model_memory_of(8192);
    struct xop_error error;
    float *data = xop_memory_data(memory);
    float ours[16] = {0};
    (void)state;
    for (int i = 0; i < 1024; i++)
        data[i] = (float)i;
    pass(client, data, data + 1024, 16); /* 0: not attached yet */
    must(xop_memory_attach(client, memory, true, &error), &error);
    pass(client, data + 16, data + 1024, 16); /* 1: both in place */
    pass(client, data + 17, data + 1040, 16); /* 2: the input not at a multiple of 64 */
    pass(client, data + 32, ours, 16);        /* 3: the output elsewhere */
    pass(client, data + 48, NULL, 16);        /* 4: the output the library's */
    pass(client, data + 48, data + 1041, 16); /* 5: the output not at a multiple of 64 */
    pass(client, data + 2032, ours, 16);      /* 6: the last that fits */
    pass(client, data + 64, data + 64, 16);   /* 7: in its place */
    must(xop_memory_detach(client, memory, &error), &error);
    pass(client, data + 16, data + 1024, 16); /* 8: not attached any more */
    model_stop(&model, client);
    xop_memory_free(memory);
    check_place(0, PLACE_BODY, 0, PLACE_NONE, 0);
    check_place(1, PLACE_MEMORY, 64, PLACE_MEMORY, 4096);
    check_place(2, PLACE_BODY, 0, PLACE_MEMORY, 4160);
    check_place(3, PLACE_MEMORY, 128, PLACE_NONE, 0);
    check_place(4, PLACE_MEMORY, 192, PLACE_NONE, 0);
    check_place(5, PLACE_MEMORY, 192, PLACE_NONE, 0);
    check_place(6, PLACE_MEMORY, 8128, PLACE_NONE, 0);
    check_place(7, PLACE_MEMORY, 256, PLACE_MEMORY, 256);
    check_place(8, PLACE_BODY, 0, PLACE_NONE, 0);
    const struct note *attach = model_note(&model, MESSAGE_ATTACH, 0);
    assert_true(attach->descriptor);
    assert_true(attach->message.write);
    assert_int_equal(attach->message.length, 8192);
    assert_int_equal(model_note(&model, MESSAGE_DETACH, 0)->message.handle, attach->message.handle);
    for (uint32_t i = 0; i < model.nnotes; i++)
        assert_true(model.notes[i].descriptor == (&model.notes[i] == attach));
}

static void memory_that_is_only_read_takes_no_output(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_memory *memory = model_memory_of(8192);
    struct xop_error error;
    float *data = xop_memory_data(memory);
    (void)state;
    data[3] = 3;
    must(xop_memory_attach(client, memory, false, &error), &error);
    pass(client, data, data + 1024, 16);
    model_stop(&model, client);
    xop_memory_free(memory);
    check_place(0, PLACE_MEMORY, 0, PLACE_NONE, 0);
    assert_false(model_note(&model, MESSAGE_ATTACH, 0)->message.write);
}

/* A tensor that only begins in attached memory, and one in memory between two that are attached. */
static void the_right_memory_is_found_among_many(void **state) {
    enum { N = 7 };
    struct xop_client *client = model_start(&model);
    struct xop_memory *memories[N];
    struct xop_error error;
    (void)state;
    for (int i = 0; i < N; i++) {
        memories[i] = model_memory_of(4096);
        ((float *)xop_memory_data(memories[i]))[64] = (float)i + 1;
        if (i != 3)
            must(xop_memory_attach(client, memories[i], true, &error), &error);
    }
    for (int i = 0; i < N; i++) {
        float *data = xop_memory_data(memories[i]);
        pass(client, data + 64, data + 512, 16);
    }
    must(xop_memory_detach(client, memories[5], &error), &error);
    for (int i = 0; i < N; i++) {
        float *data = xop_memory_data(memories[i]);
        pass(client, data + 64, data + 512, 16);
    }
    model_stop(&model, client);
    for (int i = 0; i < N; i++)
        xop_memory_free(memories[i]);
    for (uint32_t i = 0; i < 2 * N; i++) {
        bool attached = i % N != 3 && i != N + 5;
        uint64_t id = i % N < 3 ? i % N + 1 : i % N;
        const struct message *m = &model_note(&model, MESSAGE_FORWARD, i)->message;
        assert_int_equal(m->in[0].place, attached ? PLACE_MEMORY : PLACE_BODY);
        if (attached)
            assert_int_equal(m->in[0].id, id);
    }
}

static void what_does_not_go_is_told(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_memory *memory = model_memory_of(4096), *other = model_memory_of(4096);
    struct xop_error error;
    (void)state;
    assert_int_equal(xop_memory_detach(client, memory, &error), XOP_NOT_FOUND);
    must(xop_memory_attach(client, memory, true, &error), &error);
    assert_int_equal(xop_memory_attach(client, memory, true, &error), XOP_ALREADY_EXISTS);
    must(xop_memory_detach(client, memory, &error), &error);
    assert_int_equal(xop_memory_detach(client, memory, &error), XOP_NOT_FOUND);
    must(xop_memory_attach(client, memory, true, &error), &error); /* under another id */
    model_stop(&model, client);
    assert_int_not_equal(model_note(&model, MESSAGE_ATTACH, 0)->message.handle,
                         model_note(&model, MESSAGE_ATTACH, 1)->message.handle);
    /* Refused by the server: it is not attached then. */
    model_reset(&model);
    model.refused = MESSAGE_ATTACH;
    model.status = XOP_RESOURCE_EXHAUSTED;
    client = model_open(&model);
    assert_int_equal(xop_memory_attach(client, other, true, &error), XOP_RESOURCE_EXHAUSTED);
    assert_string_equal(error.message, "the model refuses");
    assert_int_equal(xop_memory_detach(client, other, &error), XOP_NOT_FOUND);
    pass(client, xop_memory_data(other), NULL, 16);
    model_stop(&model, client);
    check_place(0, PLACE_BODY, 0, PLACE_NONE, 0);
    xop_memory_free(memory);
    xop_memory_free(other);
}

static struct model second;

static void two_clients_share_a_memory(void **state) {
    struct xop_client *one = model_start(&model), *two = model_start(&second);
    struct xop_memory *memory = model_memory_of(8192), *before = model_memory_of(4096);
    struct xop_error error;
    float *data = xop_memory_data(memory);
    (void)state;
    data[0] = 5;
    must(xop_memory_attach(two, before, true, &error), &error);
    must(xop_memory_attach(one, memory, true, &error), &error);
    must(xop_memory_attach(two, memory, false, &error), &error);
    pass(one, data, data + 16, 16);
    pass(two, data + 16, data + 32, 16);
    must(xop_memory_detach(one, memory, &error), &error);
    pass(two, data + 16, NULL, 16);
    pass(one, data, NULL, 16);
    model_stop(&model, one);
    /* One of them is gone, the other still has it. */
    pass(two, data + 16, NULL, 16);
    xop_memory_free(memory);
    xop_memory_free(before);
    model_stop(&second, two);
    check_place(0, PLACE_MEMORY, 0, PLACE_MEMORY, 64);
    check_place(1, PLACE_BODY, 0, PLACE_NONE, 0);
    assert_int_equal(model_note(&model, MESSAGE_FORWARD, 0)->message.in[0].id, 1);
    for (uint32_t i = 0; i < 3; i++) {
        const struct message *m = &model_note(&second, MESSAGE_FORWARD, i)->message;
        assert_int_equal(m->in[0].place, PLACE_MEMORY);
        assert_int_equal(m->in[0].id, 2); /* each client counts its own */
        assert_true(m->nout == 0 || m->out[0].place == PLACE_NONE);
    }
}

static void freeing_memory_detaches_it(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_memory *memory = model_memory_of(4096);
    struct xop_error error;
    float ours[16] = {1};
    (void)state;
    must(xop_memory_attach(client, memory, true, &error), &error);
    xop_memory_free(memory);
    /* Whatever is at these addresses now is nothing that the server has. */
    pass(client, ours, NULL, 16);
    model_stop(&model, client);
    assert_int_equal(model_count(&model, MESSAGE_DETACH), 1);
    assert_int_equal(model_note(&model, MESSAGE_DETACH, 0)->message.handle, 1);
}

static void free_it(void *arg, struct xop_result *result) {
    xop_memory_free(arg);
    xop_result_free(result);
}

/* By a callback that runs while the memory is being attached, and while it is being detached. */
static void freeing_may_come_in_between(void **state) {
    float ours[16] = {1};
    struct xop_tensor in = xop_tensor_1d(XOP_F32, 16, ours);
    struct xop_request request = {.op = "echo", .in = &in, .nin = 1};
    struct xop_error error;
    (void)state;
    for (int detached = 0; detached < 2; detached++) {
        struct xop_client *client = model_start(&model);
        struct xop_memory *memory = model_memory_of(4096);
        if (detached)
            must(xop_memory_attach(client, memory, true, &error), &error);
        must(xop_submit(client, &request, free_it, memory, NULL, &error), &error);
        must(detached ? xop_memory_detach(client, memory, &error)
                      : xop_memory_attach(client, memory, true, &error),
             &error);
        pass(client, ours, NULL, 16);
        model_stop(&model, client);
        assert_int_equal(model_count(&model, MESSAGE_ATTACH), 1);
        assert_int_equal(model_count(&model, MESSAGE_DETACH), 1);
    }
}

/* Requests that were submitted before still find it. */
static void freeing_goes_behind_what_waits(void **state) {
    enum { N = 20 };
    struct tally tally = {0};
    struct expectation expected = {.tally = &tally, .values = {1, 2, 3}};
    struct xop_client *client;
    struct xop_memory *memory = model_memory_of(4096);
    struct xop_error error;
    struct xop_tensor in = xop_tensor_1d(XOP_F32, 3, xop_memory_data(memory));
    struct xop_request request = {.op = "echo", .in = &in, .nin = 1};
    (void)state;
    memcpy(in.data, expected.values, sizeof expected.values);
    client = model_start(&model);
    must(xop_memory_attach(client, memory, false, &error), &error);
    for (int i = 0; i < N; i++)
        must(xop_submit(client, &request, on_done, &expected, NULL, &error), &error);
    xop_memory_free(memory);
    must(xop_client_wait(client, 60000, &error), &error);
    assert_int_equal(tally.answered, N);
    assert_int_equal(tally.wrong, 0);
    model_stop(&model, client);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(model_note(&model, MESSAGE_FORWARD, i)->message.in[0].place, PLACE_MEMORY);
}

static void a_client_may_close_with_memory_attached(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_memory *memory = model_memory_of(4096), *another = model_memory_of(4096);
    struct xop_error error;
    float *data = xop_memory_data(memory);
    (void)state;
    must(xop_memory_attach(client, memory, true, &error), &error);
    must(xop_memory_attach(client, another, true, &error), &error);
    model_stop(&model, client);
    data[0] = 1; /* it is the caller's as before */
    client = model_start(&model);
    must(xop_memory_attach(client, memory, true, &error), &error);
    pass(client, data, data + 16, 16);
    xop_memory_free(memory);
    model_stop(&model, client);
    check_place(0, PLACE_MEMORY, 0, PLACE_MEMORY, 64);
    xop_memory_free(another);
}

static void *close_it(void *arg) {
    xop_client_close(arg);
    return NULL;
}

static void closing_and_freeing_may_race(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct xop_client *client = model_start(&model);
        struct xop_memory *memories[4];
        struct xop_error error;
        pthread_t thread;
        for (int i = 0; i < 4; i++) {
            memories[i] = model_memory_of(4096);
            must(xop_memory_attach(client, memories[i], true, &error), &error);
        }
        assert_int_equal(pthread_create(&thread, NULL, close_it, client), 0);
        for (int i = 0; i < 4; i++)
            xop_memory_free(memories[i]);
        pthread_join(thread, NULL);
        stop(&model.server);
        assert_int_equal(model_count(&model, MESSAGE_ATTACH), 4);
    }
}

static void a_lost_connection_lets_memory_go(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_memory *memory = model_memory_of(4096), *late = model_memory_of(4096);
    struct xop_error error;
    (void)state;
    must(xop_memory_attach(client, memory, true, &error), &error);
    shutdown(xop_client_descriptor(client), SHUT_RDWR);
    assert_int_equal(xop_memory_detach(client, memory, &error), XOP_UNAVAILABLE);
    assert_int_equal(xop_memory_detach(client, memory, &error), XOP_NOT_FOUND);
    assert_int_equal(xop_memory_attach(client, late, true, &error), XOP_UNAVAILABLE);
    assert_int_equal(xop_memory_detach(client, late, &error), XOP_NOT_FOUND);
    xop_memory_free(memory);
    model_stop(&model, client);
    xop_memory_free(late);
}

/* A descriptor begins a call of its own: what waits before it is sent first. */
static void a_descriptor_goes_with_its_frame(void **state) {
    enum { N = 40 };
    struct tally tally = {0};
    struct expectation expected = {.tally = &tally, .values = {1, 2, 3}};
    struct xop_client *client;
    struct xop_memory *memory = model_memory_of(4096);
    struct xop_error error;
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    (void)state;
    model_reset(&model);
    model.max_in_flight = 3; /* so that most of them wait in the client */
    client = model_open(&model);
    for (int i = 0; i < N; i++)
        must(xop_submit(client, &request, on_done, &expected, NULL, &error), &error);
    must(xop_memory_attach(client, memory, true, &error), &error);
    must(xop_client_wait(client, 60000, &error), &error);
    assert_int_equal(tally.answered, N);
    assert_int_equal(tally.wrong, 0);
    xop_memory_free(memory);
    model_stop(&model, client);
    assert_int_equal(model.notes[N].message.type, MESSAGE_ATTACH);
    for (uint32_t i = 0; i < model.nnotes; i++)
        assert_true(model.notes[i].descriptor == (i == N));
}

static void a_child_may_only_free_its_parents_memory(void **state) {
    static struct xop_client *client; /* whose copy the child leaves as it is */
    struct xop_memory *memory = model_memory_of(4096);
    struct xop_error error;
    int status;
    (void)state;
    client = model_start(&model);
    must(xop_memory_attach(client, memory, true, &error), &error);
    pid_t child = fork();
    if (child == 0) {
        bool ok = xop_memory_attach(client, memory, true, NULL) == XOP_FAILED_PRECONDITION &&
                  xop_memory_detach(client, memory, NULL) == XOP_FAILED_PRECONDITION;
        xop_memory_free(memory);
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pass(client, xop_memory_data(memory), NULL, 16);
    xop_memory_free(memory);
    model_stop(&model, client);
    check_place(0, PLACE_MEMORY, 0, PLACE_NONE, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_whole_zeroed_sealed_pages),
        cmocka_unit_test(tensors_in_attached_memory_are_used_where_they_lie),
        cmocka_unit_test(memory_that_is_only_read_takes_no_output),
        cmocka_unit_test(the_right_memory_is_found_among_many),
        cmocka_unit_test(what_does_not_go_is_told),
        cmocka_unit_test(two_clients_share_a_memory),
        cmocka_unit_test(freeing_memory_detaches_it),
        cmocka_unit_test(freeing_may_come_in_between),
        cmocka_unit_test(freeing_goes_behind_what_waits),
        cmocka_unit_test(a_client_may_close_with_memory_attached),
        cmocka_unit_test(closing_and_freeing_may_race),
        cmocka_unit_test(a_lost_connection_lets_memory_go),
        cmocka_unit_test(a_descriptor_goes_with_its_frame),
        cmocka_unit_test(a_child_may_only_free_its_parents_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
