#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/cpu_fixture.h"

/* An operator whose launch does what the test says. Its one input is never looked at; plan.bytes
 * decides where it runs. */
static enum xop_status (*behaviour)(const struct xop_launch *launch, struct xop_error *error);

static enum xop_status launch_behaviour(const struct xop_launch *launch, struct xop_error *error) {
    return behaviour(launch, error);
}

static const struct xop_operand operands[] = {{"x", "anything", 0, 0}};
static const struct xop_op own_op = {
    .abi = XOP_OP_ABI,
    .name = "own",
    .doc = "",
    .dtypes = XOP_FLOATS,
    .pass = {{.in = operands, .out = operands, .nin = 1, .nout = 1, .launch = launch_behaviour}},
};
static const struct xop_plan small_plan = {.bytes = 1}, large_plan = {.bytes = 1 << 30};
static struct xop_call own_call;

static struct xop_group own_group(const struct xop_plan *const *plan) {
    return (struct xop_group){
        .op = &own_op, .pass = XOP_FORWARD, .ncalls = 1, .calls = &own_call, .plans = plan};
}

static bool readable(struct xop_backend *backend) {
    struct pollfd now = {.fd = api->descriptor(backend), .events = POLLIN};
    return poll(&now, 1, 0) == 1;
}

static enum xop_status succeed(const struct xop_launch *launch, struct xop_error *error) {
    (void)launch;
    (void)error;
    return XOP_OK;
}

static void another_abi_has_no_backend(void **state) {
    (void)state;
    assert_null(xop_backend_entry(XOP_BACKEND_ABI + 1));
}

static void the_backend_says_what_it_is(void **state) {
    struct xop_backend *backend = fixture_open(3, 5);
    struct xop_device_info info;
    (void)state;
    api->info(backend, &info);
    assert_string_equal(info.backend, "cpu");
    assert_true(strlen(info.device) > 0);
    assert_null(strchr(info.device, '\n'));
    assert_true(strlen(info.runtime) > 0);
    assert_true(info.memory_total > 0);
    assert_true(info.memory_free <= info.memory_total);
    assert_int_equal(info.threads, 3);
    assert_int_equal(info.lanes, 5);
    assert_int_equal(api->free_lanes(backend), 5);
    api->close(backend);
    backend = fixture_open(0, 0);
    api->info(backend, &info);
    assert_true(info.threads >= 1);
    assert_int_equal(info.lanes, 4);
    api->close(backend);
}

static void its_operators_are_complete(void **state) {
    static const char *const names[] = {"square_bias", "sigmoid", "sigmoid_complement",
                                        "bose_einstein"};
    struct xop_backend *backend = fixture_open(1, 0);
    (void)state;
    assert_ptr_equal(api->library(), api->library());
    assert_string_equal(api->library()->backend, "cpu");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct xop_op *op = fixture_op(names[i]);
        assert_int_equal(op->abi, XOP_OP_ABI);
        assert_int_equal(op->dtypes, XOP_FLOATS);
        for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
            assert_non_null(op->pass[pass].infer);
            assert_non_null(op->pass[pass].launch);
            assert_true(op->pass[pass].max_group > 1);
        }
    }
    api->close(backend);
}

static void small_groups_are_done_when_submit_returns(void **state) {
    struct xop_backend *backend = fixture_open(1, 2);
    const struct xop_plan *plan = &small_plan;
    struct xop_group group = own_group(&plan), *done;
    struct xop_error error;
    uint32_t count;
    (void)state;
    behaviour = succeed;
    assert_int_equal(api->submit(backend, &group, &error), XOP_OK);
    assert_int_equal(api->free_lanes(backend), 1);
    assert_true(readable(backend));
    assert_int_equal(api->poll(backend, &done, 1, &count, &error), XOP_OK);
    assert_int_equal(count, 1);
    assert_ptr_equal(done, &group);
    assert_int_equal(api->free_lanes(backend), 2);
    assert_false(readable(backend));
    assert_int_equal(api->poll(backend, &done, 1, &count, &error), XOP_OK);
    assert_int_equal(count, 0);
    api->close(backend);
}

static void the_descriptor_stays_readable_while_groups_are_left(void **state) {
    struct xop_backend *backend = fixture_open(1, 3);
    const struct xop_plan *plan = &small_plan;
    struct xop_group groups[3], *done[3];
    struct xop_error error;
    uint32_t count;
    (void)state;
    behaviour = succeed;
    for (int i = 0; i < 3; i++) {
        groups[i] = own_group(&plan);
        assert_int_equal(api->submit(backend, &groups[i], &error), XOP_OK);
    }
    assert_int_equal(api->poll(backend, done, 2, &count, &error), XOP_OK);
    assert_int_equal(count, 2);
    assert_ptr_equal(done[0], &groups[0]);
    assert_ptr_equal(done[1], &groups[1]);
    assert_true(readable(backend));
    assert_int_equal(api->poll(backend, done, 3, &count, &error), XOP_OK);
    assert_int_equal(count, 1);
    assert_ptr_equal(done[0], &groups[2]);
    assert_false(readable(backend));
    api->close(backend);
}

static sem_t entered, leave;

static enum xop_status wait_for_leave(const struct xop_launch *launch, struct xop_error *error) {
    (void)launch;
    (void)error;
    sem_post(&entered);
    sem_wait(&leave);
    return XOP_OK;
}

static void a_group_beyond_the_lanes_is_not_taken(void **state) {
    struct xop_backend *backend = fixture_open(2, 2);
    const struct xop_plan *plan = &large_plan;
    struct xop_group groups[3] = {own_group(&plan), own_group(&plan), own_group(&plan)};
    struct xop_error error;
    (void)state;
    behaviour = wait_for_leave;
    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(api->submit(backend, &groups[i], &error), XOP_OK);
        sem_wait(&entered); /* it runs on a thread of the pool, not here */
    }
    assert_int_not_equal(groups[0].lane, groups[1].lane);
    assert_int_equal(api->free_lanes(backend), 0);
    assert_false(readable(backend));
    assert_int_equal(api->submit(backend, &groups[2], &error), XOP_RESOURCE_EXHAUSTED);
    sem_post(&leave);
    sem_post(&leave);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_wait(backend)->status, XOP_OK);
    assert_int_equal(api->free_lanes(backend), 2);
    assert_int_equal(api->submit(backend, &groups[2], &error), XOP_OK);
    sem_post(&leave);
    assert_ptr_equal(fixture_wait(backend), &groups[2]);
    api->close(backend);
    sem_destroy(&entered);
    sem_destroy(&leave);
}

static enum xop_status fail_aloud(const struct xop_launch *launch, struct xop_error *error) {
    (void)launch;
    return xop_fail(error, XOP_UNIMPLEMENTED, "not on Mondays");
}

static enum xop_status fail_silently(const struct xop_launch *launch, struct xop_error *error) {
    (void)launch;
    (void)error;
    return XOP_INTERNAL;
}

static void an_error_of_launch_comes_back_with_the_group(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    const struct xop_plan *plans[] = {&small_plan, &large_plan};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct xop_group group = own_group(&plans[i]);
        struct xop_error error;
        behaviour = fail_aloud;
        assert_int_equal(api->submit(backend, &group, &error), XOP_OK);
        assert_ptr_equal(fixture_wait(backend), &group);
        assert_int_equal(group.status, XOP_UNIMPLEMENTED);
        assert_int_equal(group.error.status, XOP_UNIMPLEMENTED);
        assert_string_equal(group.error.message, "not on Mondays");
        behaviour = fail_silently;
        assert_int_equal(api->submit(backend, &group, &error), XOP_OK);
        assert_ptr_equal(fixture_wait(backend), &group);
        assert_int_equal(group.status, XOP_INTERNAL);
        assert_non_null(strstr(group.error.message, "own"));
    }
    api->close(backend);
}

static void what_cannot_be_launched_is_refused(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    const struct xop_plan *plans[] = {&small_plan, &small_plan};
    struct xop_call calls[2] = {{0}};
    struct xop_group group = own_group(plans);
    struct xop_error error;
    (void)state;
    group.pass = XOP_BACKWARD;
    assert_int_equal(api->submit(backend, &group, &error), XOP_UNIMPLEMENTED);
    group.pass = XOP_FORWARD;
    group.calls = calls;
    group.ncalls = 2;
    assert_int_equal(api->submit(backend, &group, &error), XOP_INTERNAL);
    group.ncalls = 0;
    assert_int_equal(api->submit(backend, &group, &error), XOP_INTERNAL);
    assert_int_equal(api->free_lanes(backend), 4);
    api->close(backend);
}

static _Atomic int64_t visited;

static void count_pieces(void *arg, int64_t begin, int64_t end) {
    (void)arg;
    visited += end - begin;
}

static enum xop_status spread(const struct xop_launch *launch, struct xop_error *error) {
    (void)error;
    launch->host->parallel(launch->host, 1000, 7, count_pieces, NULL);
    return XOP_OK;
}

static void a_launch_may_spread_its_work_wherever_it_runs(void **state) {
    struct xop_backend *backend = fixture_open(3, 0);
    const struct xop_plan *plans[] = {&small_plan, &large_plan};
    (void)state;
    behaviour = spread;
    for (int i = 0; i < 2; i++) {
        struct xop_group group = own_group(&plans[i]);
        struct xop_error error;
        visited = 0;
        assert_int_equal(api->submit(backend, &group, &error), XOP_OK);
        assert_ptr_equal(fixture_wait(backend), &group);
        assert_int_equal(visited, 1000);
        assert_int_equal(group.copy_ns, 0);
        assert_true(group.run_ns > 0);
    }
    api->close(backend);
}

static void closing_drops_what_has_not_begun(void **state) {
    struct xop_backend *backend = fixture_open(1, 2);
    const struct xop_plan *plan = &large_plan;
    struct xop_group first = own_group(&plan), second = own_group(&plan);
    struct xop_error error;
    (void)state;
    behaviour = succeed;
    for (int i = 0; i < 2; i++)
        assert_int_equal(api->submit(backend, i ? &second : &first, &error), XOP_OK);
    api->close(backend);
    api->close(NULL);
}

static void any_memory_can_be_registered(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    static _Alignas(4096) unsigned char page[4096];
    struct xop_error error;
    (void)state;
    assert_int_equal(api->register_host(backend, page, sizeof page, true, &error), XOP_OK);
    assert_int_equal(api->unregister_host(backend, page, &error), XOP_OK);
    api->close(backend);
}

/* ---- Memory, copies, keeps, probes ---- */

static void made_memory_outlives_the_backend_that_made_it(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    struct xop_error error;
    uint64_t bytes = 10001;
    unsigned char *base = NULL, *again = NULL;
    void *at;
    int fd = -1;
    (void)state;
    assert_int_equal(api->memory_make(backend, &bytes, true, &fd, &at, &error), XOP_OK);
    base = at;
    assert_int_equal(bytes % 4096, 0);
    assert_true(bytes >= 10001);
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(base[i], 0);
    for (uint64_t i = 0; i < bytes; i++)
        base[i] = (unsigned char)(i * 7);
    assert_int_equal(api->memory_drop(backend, base, &error), XOP_OK);
    assert_int_equal(api->memory_drop(backend, base, &error), XOP_NOT_FOUND);
    api->close(backend);

    backend = fixture_open(1, 0);
    assert_int_equal(api->memory_import(backend, fd, bytes, &at, &error), XOP_OK);
    again = at;
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(again[i], (unsigned char)(i * 7));
    api->close(backend); /* with the memory still mapped */
    assert_int_equal(close(fd), 0);
}

static void what_is_no_made_memory_is_not_imported(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    struct xop_error error;
    uint64_t bytes = 4096;
    void *base, *at;
    int fd, loose, pipe_ends[2];
    (void)state;
    assert_int_equal(api->memory_make(backend, &bytes, false, &fd, &base, &error), XOP_OK);
    assert_int_equal(api->memory_import(backend, fd, bytes + 4096, &at, &error),
                     XOP_INVALID_ARGUMENT);
    assert_int_equal(api->memory_import(backend, fd, 0, &at, &error), XOP_INVALID_ARGUMENT);
    assert_int_not_equal(ftruncate(fd, 0), 0);
    loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(loose, 4096), 0);
    assert_int_equal(api->memory_import(backend, loose, 4096, &at, &error), XOP_INVALID_ARGUMENT);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(api->memory_import(backend, pipe_ends[0], 4096, &at, &error),
                     XOP_INVALID_ARGUMENT);
    assert_int_equal(api->memory_import(backend, -1, 4096, &at, &error), XOP_INTERNAL);
    bytes = UINT64_MAX;
    assert_int_equal(api->memory_make(backend, &bytes, false, &loose, &at, &error),
                     XOP_RESOURCE_EXHAUSTED);
    bytes = UINT64_C(1) << 62;
    assert_int_equal(api->memory_make(backend, &bytes, false, &loose, &at, &error),
                     XOP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.message, "4611686018427387904"));
    close(fd);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    api->close(backend);
}

static void a_copy_moves_bytes_as_they_are(void **state) {
    static const int64_t sizes[] = {0, 1, 77, 400000};
    struct xop_backend *backend = fixture_open(2, 0);
    struct fixture_request requests[4];
    struct xop_tensor in[4];
    struct xop_call calls[4];
    const struct xop_plan *plans[4];
    (void)state;
    assert_ptr_equal(api->copy(), api->copy());
    for (int i = 0; i < 4; i++) {
        in[i] = fixture_random(i % 2 ? XOP_F64 : XOP_BF16, 1, &sizes[i], (uint32_t)i);
        calls[i] = fixture_prepare(&requests[i], api->copy(), XOP_FORWARD, &in[i], 1);
        plans[i] = &requests[i].plan;
    }
    fixture_run(backend, api->copy(), XOP_FORWARD, calls, plans, 4); /* small and large together */
    for (int i = 0; i < 4; i++) {
        uint64_t bytes = 0;
        assert_true(xop_tensor_bytes(&in[i], &bytes));
        if (bytes > 0)
            assert_memory_equal(in[i].data, requests[i].out[0].data, bytes);
        fixture_finish(&requests[i]);
        fixture_free(&in[i]);
    }
    api->close(backend);
}

static void a_copy_to_a_place_of_another_size_fails(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    const int64_t n = 10;
    struct xop_tensor in = fixture_random(XOP_F32, 1, &n, 1);
    struct fixture_request request;
    struct xop_call call = fixture_prepare(&request, api->copy(), XOP_FORWARD, &in, 1);
    const struct xop_plan *plan = &request.plan;
    struct xop_group group = {.op = api->copy(), .ncalls = 1, .calls = &call, .plans = &plan};
    struct xop_error error;
    (void)state;
    in.shape[0] = 11;
    assert_int_equal(api->submit(backend, &group, &error), XOP_OK);
    assert_int_equal(fixture_wait(backend)->status, XOP_INTERNAL);
    in.shape[0] = 10;
    fixture_finish(&request);
    fixture_free(&in);
    api->close(backend);
}

/* Runs square_bias on n elements with everything kept in `memory`: x, b, y one after the other. */
static struct xop_group *run_kept(struct xop_backend *backend, struct xop_tensor *in,
                                  struct fixture_request *request, struct xop_group *group,
                                  float *memory, int64_t n) {
    static struct xop_call call;
    static const struct xop_plan *plan;
    static void *keep[3];
    static void *const *keeps[] = {keep};
    struct xop_error error;
    for (int k = 0; k < 3; k++)
        keep[k] = memory + k * n;
    call = fixture_prepare(request, fixture_op("square_bias"), XOP_FORWARD, in, 1);
    plan = &request->plan;
    *group = (struct xop_group){.op = fixture_op("square_bias"),
                                .ncalls = 1,
                                .calls = &call,
                                .plans = &plan,
                                .keeps = keeps};
    assert_int_equal(api->submit(backend, group, &error), XOP_OK);
    return fixture_wait(backend);
}

static void a_group_keeps_copies_of_its_operands(void **state) {
    struct xop_backend *backend = fixture_open(2, 0);
    static const int64_t sizes[] = {5, 300000};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int64_t n = sizes[i];
        struct xop_tensor in[] = {fixture_random(XOP_F32, 1, &n, 1),
                                  fixture_random(XOP_F32, 1, &n, 2)};
        uint64_t bytes = (uint64_t)n * 12;
        struct fixture_request request;
        struct xop_group group;
        struct xop_error error;
        void *memory;
        int fd;
        assert_int_equal(api->memory_make(backend, &bytes, true, &fd, &memory, &error), XOP_OK);
        assert_ptr_equal(run_kept(backend, in, &request, &group, memory, n), &group);
        assert_int_equal(group.status, XOP_OK);
        assert_memory_equal(memory, in[0].data, (size_t)n * 4);
        assert_memory_equal((float *)memory + n, in[1].data, (size_t)n * 4);
        assert_memory_equal((float *)memory + 2 * n, request.out[0].data, (size_t)n * 4);
        assert_true(((float *)memory)[2 * n] != 0);
        fixture_finish(&request);
        fixture_free(&in[0]);
        fixture_free(&in[1]);
        assert_int_equal(api->memory_drop(backend, memory, &error), XOP_OK);
        close(fd);
    }
    api->close(backend);
}

static enum xop_status negate(const struct xop_launch *launch, struct xop_error *error) {
    float *y = launch->calls[0].out[0].data;
    *y = -*(const float *)launch->calls[0].in[0].data;
    return behaviour == fail_aloud ? fail_aloud(launch, error) : XOP_OK;
}

static void an_input_is_kept_as_it_was_before_the_launch(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    struct xop_op op = own_op;
    const struct xop_plan *plans[] = {&small_plan, &large_plan};
    (void)state;
    op.pass[0].launch = negate;
    for (int i = 0; i < 4; i++) {
        bool fails = i >= 2;
        float x = 3, kept_x = 0, kept_y = 0;
        struct xop_tensor tensor = {.dtype = XOP_F32, .data = &x};
        struct xop_call call = {.in = &tensor, .out = &tensor};
        void *const keep[] = {&kept_x, &kept_y};
        void *const *const keeps[] = {keep};
        struct xop_group group = own_group(&plans[i % 2]);
        struct xop_error error;
        behaviour = fails ? fail_aloud : succeed;
        group.op = &op;
        group.calls = &call;
        group.keeps = keeps;
        assert_int_equal(api->submit(backend, &group, &error), XOP_OK);
        assert_int_equal(fixture_wait(backend)->status, fails ? XOP_UNIMPLEMENTED : XOP_OK);
        assert_true(x == -3);
        assert_true(kept_x == 3);
        assert_true(kept_y == (fails ? 0 : -3)); /* what failed has no result to keep */
    }
    api->close(backend);
}

static void an_operand_that_lies_where_it_is_kept_is_left_there(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    struct xop_op op = own_op;
    const struct xop_plan *plan = &small_plan;
    float x = 3, y = 0;
    struct xop_tensor in = {.dtype = XOP_F32, .data = &x}, out = {.dtype = XOP_F32, .data = &y};
    struct xop_call call = {.in = &in, .out = &out};
    void *const keep[] = {&x, &y}, *const nothing[] = {NULL, NULL};
    void *const *const keeps[][1] = {{keep}, {nothing}, {NULL}};
    (void)state;
    op.pass[0].launch = negate;
    behaviour = succeed;
    for (int i = 0; i < 3; i++) {
        struct xop_group group = own_group(&plan);
        struct xop_error error;
        group.op = &op;
        group.calls = &call;
        group.keeps = keeps[i];
        y = 0;
        assert_int_equal(api->submit(backend, &group, &error), XOP_OK);
        assert_int_equal(fixture_wait(backend)->status, XOP_OK);
        assert_true(x == 3 && y == -3);
    }
    api->close(backend);
}

static void activations_may_write_over_their_input(void **state) {
    static const char *const names[] = {"sigmoid", "sigmoid_complement", "bose_einstein"};
    static const int64_t sizes[] = {1, 3, 8, 37, 5000, 200001};
    struct xop_backend *backend = fixture_open(2, 0);
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names * (sizeof sizes / sizeof *sizes); k++)
        for (enum xop_dtype dtype = XOP_F16; dtype <= XOP_F64; dtype++) {
            const struct xop_op *op = fixture_op(names[k % 3]);
            struct xop_tensor x = fixture_random(dtype, 1, &sizes[k / 3], (uint32_t)k);
            struct fixture_request apart, there;
            struct xop_call call;
            const struct xop_plan *plan = &there.plan;
            uint64_t bytes = 0;
            assert_true(op->pass[XOP_FORWARD].out[0].flags & XOP_OPERAND_IN_PLACE);
            assert_true(xop_tensor_bytes(&x, &bytes));
            fixture_run_one(backend, &apart, op, XOP_FORWARD, &x, 1);
            call = fixture_prepare(&there, op, XOP_FORWARD, &x, 0);
            there.out[0].data = x.data;
            fixture_run(backend, op, XOP_FORWARD, &call, &plan, 1);
            there.out[0].data = NULL;
            assert_memory_equal(x.data, apart.out[0].data, bytes);
            fixture_finish(&apart);
            fixture_finish(&there);
            fixture_free(&x);
        }
    api->close(backend);
}

static void a_probe_times_what_it_moves(void **state) {
    struct xop_backend *backend = fixture_open(2, 0);
    struct xop_probe probe;
    struct xop_error error;
    (void)state;
    assert_int_equal(api->probe(backend, 100000, 50001, &probe, &error), XOP_OK);
    assert_true(probe.direct_ns > 0);
    assert_true(probe.copy_ns > 0);
    assert_int_equal(probe.launch_ns, 0);
    assert_int_equal(probe.device_ns, 0);
    assert_int_equal(api->probe(backend, 0, 0, &probe, &error), XOP_OK);
    assert_int_equal(probe.direct_ns, 0);
    assert_int_equal(api->probe(backend, UINT64_MAX, 1, &probe, &error), XOP_RESOURCE_EXHAUSTED);
    api->close(backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_abi_has_no_backend),
        cmocka_unit_test(the_backend_says_what_it_is),
        cmocka_unit_test(its_operators_are_complete),
        cmocka_unit_test(small_groups_are_done_when_submit_returns),
        cmocka_unit_test(the_descriptor_stays_readable_while_groups_are_left),
        cmocka_unit_test(a_group_beyond_the_lanes_is_not_taken),
        cmocka_unit_test(an_error_of_launch_comes_back_with_the_group),
        cmocka_unit_test(what_cannot_be_launched_is_refused),
        cmocka_unit_test(a_launch_may_spread_its_work_wherever_it_runs),
        cmocka_unit_test(closing_drops_what_has_not_begun),
        cmocka_unit_test(any_memory_can_be_registered),
        cmocka_unit_test(made_memory_outlives_the_backend_that_made_it),
        cmocka_unit_test(what_is_no_made_memory_is_not_imported),
        cmocka_unit_test(a_copy_moves_bytes_as_they_are),
        cmocka_unit_test(a_copy_to_a_place_of_another_size_fails),
        cmocka_unit_test(a_group_keeps_copies_of_its_operands),
        cmocka_unit_test(an_input_is_kept_as_it_was_before_the_launch),
        cmocka_unit_test(an_operand_that_lies_where_it_is_kept_is_left_there),
        cmocka_unit_test(activations_may_write_over_their_input),
        cmocka_unit_test(a_probe_times_what_it_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
