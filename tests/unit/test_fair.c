/* daemon/worker: who asks for one thing at a time does not wait behind those who ask for hundreds.
 */
#define FIXTURE_LANES 3
#define FIXTURE_GROUP 64
#include "worker_fixture.h"

enum { CROWD = 1, LONE = 2 };

static void ask(uint32_t index, uint32_t client) {
    fill(index, 0, 10)->client = client;
    submit(index);
}

static void collect(uint32_t n) {
    uint32_t index;
    while (n-- > 0)
        assert_int_equal(next(&index)->status, XOP_OK);
}

/* Has the worker know a client for one that has many at once. */
static void make_crowd(void) {
    set_hold(true);
    for (uint32_t i = 0; i < 10; i++)
        ask(i, CROWD);
    wait_rounds();
    set_hold(false);
    collect(10);
}

/* Takes all the lanes that it can have, one after the other. */
static uint32_t fill_its_lanes(void) {
    uint32_t before = submitted();
    set_hold(true);
    for (uint32_t i = 0; i < FIXTURE_LANES - 1; i++) {
        ask(i, CROWD);
        wait_submitted(before + i + 1);
    }
    return before + FIXTURE_LANES - 1;
}

static void a_lane_is_left_to_who_has_few(void **state) {
    (void)state;
    make_crowd();
    uint32_t n = fill_its_lanes();
    for (uint32_t i = 10; i < 20; i++)
        ask(i, CROWD);
    wait_rounds();
    assert_int_equal(submitted(), n);
    ask(30, LONE);
    wait_submitted(n + 1);
    assert_int_equal(front.lane.results[30].launched, 1);
    set_hold(false);
    collect(FIXTURE_LANES - 1 + 10 + 1);
}

static void who_has_few_goes_first(void **state) {
    (void)state;
    make_crowd();
    uint32_t n = fill_its_lanes();
    ask(20, LONE);
    wait_submitted(n + 1);
    for (uint32_t i = 10; i < 14; i++)
        ask(i, CROWD);
    ask(21, LONE);
    wait_rounds();
    set_hold(false);
    collect(FIXTURE_LANES - 1 + 1 + 4 + 1);
    assert_true(front.lane.results[21].launched_ns < front.lane.results[10].launched_ns);
    assert_int_equal(front.lane.results[21].batch, 1); /* not in a crowd's launch */
}

static void who_had_many_has_few_again(void **state) {
    (void)state;
    make_crowd();
    for (uint32_t i = 0; i < 20; i++) {
        ask(0, CROWD);
        collect(1);
    }
    uint32_t n = fill_its_lanes();
    ask(40, CROWD);
    wait_submitted(n + 1);
    set_hold(false);
    collect(FIXTURE_LANES);
}

static void a_crowd_takes_small_steps_beside_who_has_few(void **state) {
    (void)state;
    make_crowd();
    fill_its_lanes();
    /* As if one had come that is not over for long. */
    front.worker.few_ns = worker_now() + UINT64_C(3600000000000);
    for (uint32_t i = 3; i < 63; i++)
        ask(i, CROWD);
    wait_rounds();
    set_hold(false);
    collect(FIXTURE_LANES - 1 + 60);
    assert_int_equal(fake.largest, 48);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lane_is_left_to_who_has_few, start, stop),
        cmocka_unit_test_setup_teardown(who_has_few_goes_first, start, stop),
        cmocka_unit_test_setup_teardown(who_had_many_has_few_again, start, stop),
        cmocka_unit_test_setup_teardown(a_crowd_takes_small_steps_beside_who_has_few, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
