#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
