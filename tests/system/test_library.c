/* libxopclient against a real xopd: memory, tensors that stay, contexts and exports. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xop/client.h>

#include <cmocka.h>

/* ---- A daemon of our own ---- */

static struct {
    pid_t pid;
    FILE *log;
    char directory[64], address[96];
} daemon_;

static const char *backend(void) {
    const char *name = getenv("XOP_BACKEND");
    return name && *name ? name : "cpu";
}

static void be_daemon(int log) {
    char program[512];
    const char *build = getenv("XOP_BUILD");
    snprintf(program, sizeof program, "%s/xopd", build ? build : "build");
    if (dup2(log, STDERR_FILENO) >= 0)
        execl(program, "xopd", "--backend", backend(), "--listen", daemon_.address, (char *)NULL);
    _exit(127);
}

static int start_daemon(void **state) {
    char line[1024];
    int ends[2];
    (void)state;
    strcpy(daemon_.directory, "/tmp/xopd-test-XXXXXX");
    if (!mkdtemp(daemon_.directory) || pipe(ends) < 0)
        return -1;
    snprintf(daemon_.address, sizeof daemon_.address, "unix:%s/xopd.sock", daemon_.directory);
    daemon_.pid = fork();
    if (daemon_.pid == 0)
        be_daemon(ends[1]);
    close(ends[1]);
    daemon_.log = fdopen(ends[0], "r");
    while (daemon_.log && fgets(line, sizeof line, daemon_.log))
        if (strstr(line, "ready: "))
            return 0;
    fprintf(stderr, "xopd did not get ready: %s\n", line);
    return -1;
}

static int stop_daemon(void **state) {
    char log[1 << 16], path[96];
    int status = -1;
    (void)state;
    kill(daemon_.pid, SIGTERM);
    size_t n = daemon_.log ? fread(log, 1, sizeof log, daemon_.log) : 0;
    waitpid(daemon_.pid, &status, 0);
    if (daemon_.log)
        fclose(daemon_.log);
    snprintf(path, sizeof path, "%s/xopd.sock", daemon_.directory);
    unlink(path);
    rmdir(daemon_.directory);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    fprintf(stderr, "---- log of xopd, which ended with %d\n%.*s----\n", status, (int)n, log);
    return -1;
}

/* ---- Helpers ---- */

static void must(enum xop_status status, const struct xop_error *error) {
    if (status != XOP_OK)
        fail_msg("%s: %s", xop_status_name(status), error->message);
}

static struct xop_client *open_client(void) {
    struct xop_client *client;
    struct xop_error error;
    must(xop_client_open(daemon_.address, NULL, &client, &error), &error);
    return client;
}

static struct xop_result *run(struct xop_client *client, const struct xop_request *request) {
    struct xop_result *result;
    if (xop_run(client, request, &result) != XOP_OK)
        fail_msg("%s: %s", request->op, result->error.message);
    return result;
}

static void fill(float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(i % 1000) / 250 - 2;
}

static const struct xop_tensor resident = {.dtype = XOP_DTYPE_NONE};

/* Sends x inline, and holds the output to `expected`. */
static void check_sigmoid(struct xop_client *client, float *x, const float *expected, int64_t n) {
    struct xop_tensor in = xop_tensor_1d(XOP_F32, n, x);
    struct xop_request request = {.op = "sigmoid", .in = &in, .nin = 1};
    struct xop_result *result = run(client, &request);
    assert_memory_equal(result->out[0].data, expected, (size_t)n * sizeof *x);
    xop_result_free(result);
}

/* ---- Tests ---- */

static void memory_gives_what_frames_give(void **state) {
    enum { N = 100000 };
    struct xop_client *one = open_client(), *two = open_client();
    struct xop_memory *memory;
    struct xop_error error;
    static float copy[N];
    (void)state;
    must(xop_memory_create(3 * N * sizeof(float), &memory, &error), &error);
    must(xop_memory_attach(one, memory, true, &error), &error);
    must(xop_memory_attach(two, memory, false, &error), &error);
    float *x = xop_memory_data(memory), *y = x + 110016; /* a multiple of 64 bytes */
    fill(x, N);
    memcpy(copy, x, sizeof copy);
    struct xop_tensor in = xop_tensor_1d(XOP_F32, N, x), out = xop_tensor_1d(XOP_F32, N, y);
    struct xop_request request = {.op = "sigmoid", .in = &in, .nin = 1, .out = &out, .nout = 1};
    struct xop_result *result = run(one, &request);
    assert_ptr_equal(result->out[0].data, y);
    xop_result_free(result);
    check_sigmoid(one, copy, y, N);
    check_sigmoid(two, x, y, N); /* read in place, and received into new memory */
    memset(y, 0, N * sizeof *y);
    result = run(two, &request); /* received into the memory, which this one may only read */
    assert_ptr_equal(result->out[0].data, y);
    xop_result_free(result);
    check_sigmoid(two, copy, y, N);
    must(xop_memory_detach(one, memory, &error), &error);
    check_sigmoid(one, x, y, N);
    xop_client_close(one);
    check_sigmoid(two, x, y, N);
    xop_memory_free(memory);
    check_sigmoid(two, copy, copy, 0); /* the connection is as it was */
    xop_client_close(two);
}

static void a_large_tensor_goes_and_comes_in_pieces(void **state) {
    const int64_t n = (150 << 20) / 4 + 3;
    struct xop_client *client = open_client();
    struct xop_error error;
    float *values = malloc((size_t)n * sizeof *values), *got = calloc((size_t)n, sizeof *got);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, n, values);
    struct xop_tensor back = xop_tensor_1d(XOP_F32, n, got);
    uint64_t handle = xop_handle(client);
    (void)state;
    assert_true(values && got);
    fill(values, n);
    must(xop_put(client, handle, &tensor, &error), &error);
    must(xop_get(client, handle, &back, &error), &error);
    assert_int_equal(memcmp(got, values, (size_t)n * sizeof *got), 0);
    tensor.shape[0]--; /* another shape than it has */
    assert_int_equal(xop_put(client, handle, &tensor, &error), XOP_INVALID_ARGUMENT);
    must(xop_free(client, handle, &error), &error);
    assert_int_equal(xop_get(client, handle, &back, &error), XOP_NOT_FOUND);
    assert_int_equal(xop_free(client, handle, &error), XOP_NOT_FOUND);
    xop_client_close(client);
    free(values);
    free(got);
}

static void attached_memory_is_put_and_got_whole(void **state) {
    enum { N = 70000 };
    struct xop_client *client = open_client();
    struct xop_memory *memory;
    struct xop_error error;
    (void)state;
    must(xop_memory_create(1 << 20, &memory, &error), &error);
    must(xop_memory_attach(client, memory, true, &error), &error);
    float *x = xop_memory_data(memory), *y = x + (1 << 17);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, N, x), back = xop_tensor_1d(XOP_F32, N, y);
    fill(x, N);
    must(xop_put(client, 1, &tensor, &error), &error);
    must(xop_get(client, 1, &back, &error), &error);
    assert_memory_equal(y, x, N * sizeof *x);
    xop_memory_free(memory);
    xop_client_close(client);
}

struct tally {
    int done, failed;
    enum xop_status last;
};

static void on_done(void *arg, struct xop_result *result) {
    struct tally *tally = arg;
    tally->done++;
    if (result->error.status != XOP_OK) {
        tally->failed++;
        tally->last = result->error.status;
    }
    xop_result_free(result);
}

/* A put, a chain of requests each of which reads what the one before writes, a get: all submitted
 * before anything is done. */
static void a_chain_runs_in_the_order_submitted(void **state) {
    enum { N = 5000, LINKS = 30 };
    struct xop_client *client = open_client();
    struct xop_error error;
    struct tally tally = {0};
    static float x[N], y[N], expected[N];
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, N, x), back = xop_tensor_1d(XOP_F32, N, y);
    (void)state;
    fill(x, N);
    must(xop_submit_put(client, 1, &tensor, on_done, &tally, &error), &error);
    for (uint64_t i = 1; i <= LINKS; i++) {
        uint64_t from = i, to = i + 1;
        struct xop_request request = {.op = "sigmoid",
                                      .in = &resident,
                                      .nin = 1,
                                      .nout = 1,
                                      .in_resident = &from,
                                      .out_resident = &to};
        must(xop_submit(client, &request, on_done, &tally, NULL, &error), &error);
        must(xop_submit_free(client, from, on_done, &tally, &error), &error);
    }
    must(xop_submit_get(client, LINKS + 1, &back, on_done, &tally, &error), &error);
    must(xop_client_wait(client, 60000, &error), &error);
    assert_int_equal(tally.done, 2 * LINKS + 2);
    assert_int_equal(tally.failed, 0);
    memcpy(expected, x, sizeof expected);
    for (int i = 0; i < LINKS; i++) {
        struct xop_tensor in = xop_tensor_1d(XOP_F32, N, expected);
        struct xop_request request = {.op = "sigmoid", .in = &in, .nin = 1};
        struct xop_result *result = run(client, &request);
        memcpy(expected, result->out[0].data, sizeof expected);
        xop_result_free(result);
    }
    assert_memory_equal(y, expected, sizeof expected);
    xop_client_close(client);
}

static void a_context_gives_backward_what_it_needs(void **state) {
    enum { N = 3000 };
    struct xop_client *client = open_client();
    struct xop_error error;
    static float x[N], grad[N];
    uint64_t handle = xop_handle(client), context = xop_handle(client);
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, N, x);
    struct xop_tensor in[] = {resident, xop_tensor_1d(XOP_F32, N, grad)};
    (void)state;
    fill(x, N);
    fill(grad, N);
    must(xop_put(client, handle, &tensor, &error), &error);
    struct xop_request forward = {
        .op = "sigmoid", .in = in, .nin = 1, .in_resident = &handle, .keep = context};
    struct xop_request backward = {
        .op = "sigmoid", .pass = XOP_BACKWARD, .in = in, .nin = 2, .context = context};
    struct xop_result *first = run(client, &forward), *second = run(client, &backward);
    struct xop_tensor whole[] = {first->out[0], in[1]};
    struct xop_request plain = {.op = "sigmoid", .pass = XOP_BACKWARD, .in = whole, .nin = 2};
    struct xop_result *third = run(client, &plain);
    assert_memory_equal(second->out[0].data, third->out[0].data, sizeof x);
    xop_result_free(first);
    xop_result_free(second);
    xop_result_free(third);
    must(xop_free(client, context, &error), &error);
    assert_int_equal(xop_run(client, &backward, &first), XOP_NOT_FOUND);
    xop_result_free(first);
    xop_client_close(client);
}

static void what_depends_on_a_failure_is_aborted(void **state) {
    struct xop_client *client = open_client();
    struct xop_error error;
    struct tally bad = {0}, behind = {0};
    float x[2][3] = {{1, 2, 3}, {4, 5, 6}};
    struct xop_tensor in[] = {xop_tensor_1d(XOP_F32, 3, x[0]), xop_tensor_1d(XOP_F32, 2, x[1])};
    const uint64_t handle = 5;
    struct xop_request wrong = {
        .op = "square_bias", .in = in, .nin = 2, .nout = 1, .out_resident = &handle};
    struct xop_request reader = {
        .op = "sigmoid", .in = &resident, .nin = 1, .in_resident = &handle};
    (void)state;
    must(xop_submit(client, &wrong, on_done, &bad, NULL, &error), &error);
    must(xop_submit(client, &reader, on_done, &behind, NULL, &error), &error);
    must(xop_client_wait(client, 60000, &error), &error);
    assert_int_equal(bad.last, XOP_INVALID_ARGUMENT);
    assert_int_equal(behind.failed, 1);
    assert_true(behind.last == XOP_ABORTED || behind.last == XOP_NOT_FOUND);
    xop_client_close(client);
}

static void an_exported_tensor_is_shared(void **state) {
    enum { N = 1000 };
    struct xop_client *client = open_client();
    const struct xop_tensor shape = xop_tensor_1d(XOP_F32, N, NULL);
    struct xop_error error;
    int descriptor, none;
    uint64_t bytes, handle = xop_handle(client);
    static float x[N];
    (void)state;
    must(xop_export(client, handle, &shape, &descriptor, &bytes, &error), &error);
    assert_true(descriptor >= 0 && bytes >= N * sizeof(float));
    assert_int_equal(xop_export(client, handle, &shape, &none, &bytes, &error), XOP_ALREADY_EXISTS);
    assert_int_equal(none, -1);
    if (strcmp(backend(), "cpu") == 0) {
        struct xop_tensor back = xop_tensor_1d(XOP_F32, N, x);
        float *shared =
            mmap(NULL, N * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        assert_true(shared != MAP_FAILED);
        fill(shared, N);
        must(xop_get(client, handle, &back, &error), &error);
        assert_memory_equal(x, shared, sizeof x);
        munmap(shared, N * sizeof *shared);
    }
    close(descriptor);
    xop_client_close(client);
}

static void a_probe_measures(void **state) {
    struct xop_client *client = open_client();
    struct xop_result *result;
    (void)state;
    assert_int_equal(xop_probe(client, 8192, 4096, &result), XOP_OK);
    assert_non_null(strstr(result->text, "direct_ns"));
    xop_result_free(result);
    xop_client_close(client);
}

/* Everything at once from callbacks, and the client is closed in the midst of it. */
struct storm {
    struct xop_client *client;
    struct xop_request request;
    int left, done;
};

static void on_drop(void *arg, struct xop_result *result) {
    struct storm *storm = arg;
    bool ok = result->error.status == XOP_OK;
    xop_result_free(result);
    storm->done++;
    if (ok && storm->left-- > 0 &&
        xop_submit(storm->client, &storm->request, on_drop, storm, NULL, NULL) != XOP_OK)
        storm->left = -1000;
}

static void closing_in_a_storm_completes_every_call(void **state) {
    enum { N = 64 };
    struct xop_memory *memory;
    struct xop_error error;
    (void)state;
    must(xop_memory_create(1 << 16, &memory, &error), &error);
    float *x = xop_memory_data(memory);
    for (int round = 0; round < 5; round++) {
        struct xop_tensor in = xop_tensor_1d(XOP_F32, 256, x);
        struct xop_tensor out = xop_tensor_1d(XOP_F32, 256, x + 1024);
        struct storm storm = {.client = open_client(), .left = 2000};
        storm.request =
            (struct xop_request){.op = "sigmoid", .in = &in, .nin = 1, .out = &out, .nout = 1};
        must(xop_memory_attach(storm.client, memory, true, &error), &error);
        for (int i = 0; i < N; i++)
            must(xop_submit(storm.client, &storm.request, on_drop, &storm, NULL, &error), &error);
        while (storm.done < 300 * (round + 1))
            must(xop_client_dispatch(storm.client, &error), &error);
        int done = storm.done;
        xop_client_close(storm.client);
        assert_int_equal(storm.done, done + N);
    }
    xop_memory_free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_gives_what_frames_give),
        cmocka_unit_test(a_large_tensor_goes_and_comes_in_pieces),
        cmocka_unit_test(attached_memory_is_put_and_got_whole),
        cmocka_unit_test(a_chain_runs_in_the_order_submitted),
        cmocka_unit_test(a_context_gives_backward_what_it_needs),
        cmocka_unit_test(what_depends_on_a_failure_is_aborted),
        cmocka_unit_test(an_exported_tensor_is_shared),
        cmocka_unit_test(a_probe_measures),
        cmocka_unit_test(closing_in_a_storm_completes_every_call),
    };
    return cmocka_run_group_tests(tests, start_daemon, stop_daemon);
}
