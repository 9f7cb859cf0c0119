/* daemon/worker/batch.c and queue.c: what goes when, and what never does. */
#include "worker_fixture.h"

/* Fills both lanes of the backend, so that what comes next collects. */
static void fill_lanes(void) {
    set_hold(true);
    fill(0, 0, 10), submit(0);
    wait_submitted(1);
    fill(1, 0, 10), submit(1);
    wait_submitted(2);
}

static void nothing_starts_beside_a_suspect(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    fill(1, 0, 10)->flags = SEAM_ALONE;
    submit(1);
    wait_submitted(1);
    fill(2, 0, 10), submit(2);
    fill(3, 0, 10)->flags = SEAM_ALONE;
    submit(3);
    wait_rounds();
    assert_int_equal(submitted(), 1);
    set_hold(false);
    static const uint32_t order[] = {1, 3, 2}; /* suspects before what is ordinary */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(next(&index)->status, XOP_OK);
        assert_int_equal(index, order[i]);
    }
    assert_int_equal(fake.beside, 0);
}

static void a_late_suspect_is_not_launched(void **state) {
    struct seam_request *r = fill(1, 0, 10);
    (void)state;
    r->flags = SEAM_ALONE;
    r->deadline_ns = 1;
    submit(1);
    expect_error(1, XOP_DEADLINE_EXCEEDED, "before it was started");
    assert_int_equal(submitted(), 0);
    assert_int_equal(front.lane.results[1].launched_ns, 0);
}

static void a_group_that_is_too_large_is_split(void **state) {
    uint32_t index;
    (void)state;
    fill_lanes();
    for (uint32_t i = 2; i < 8; i++)
        fill(i, 0, 10), submit(i);
    wait_rounds();
    fake_set(1, false, 0);
    set_hold(false);
    for (int i = 0; i < 8; i++) {
        struct seam_result *result = next(&index);
        assert_int_equal(result->status, XOP_OK);
        assert_int_equal(result->batch, 1);
    }
    assert_int_equal(fake.largest, 1);
}

static void one_that_is_too_large_by_itself_gets_the_error(void **state) {
    (void)state;
    fake_set(0, true, 0);
    fill(4, 0, 10), submit(4);
    expect_error(4, XOP_RESOURCE_EXHAUSTED, "no workspace for 1");
    assert_int_equal(front.lane.results[4].launched, 0); /* the backend never took it */
}

static void small_results_pass_large_ones_of_the_same_operator(void **state) {
    uint32_t index;
    (void)state;
    for (uint32_t i = 0; i < 3; i++) /* two fit, the third waits */
        fill(i, 0, 98304), submit(i);
    struct seam_result *first = next(&index);
    next(&index);
    wait_rounds();
    fill(10, 0, 10), submit(10);
    next(&index);
    assert_int_equal(index, 10);
    release(first);
    assert_int_equal(next(&index)->status, XOP_OK);
    assert_int_equal(index, 2);
}

/* One that needs nearly the whole outbox waits behind a holder, while others that fit pass it: so
 * often, and no more. */
static void a_large_one_does_not_starve(void **state) {
    uint32_t index;
    (void)state;
    fill(0, 0, 30000), submit(0);
    struct seam_result *holder = next(&index);
    fill(1, 0, 220000), submit(1);
    wait_rounds();
    for (int i = 0; i < 64; i++) {
        fill(2, 0, 30000), submit(2);
        struct seam_result *result = next(&index);
        assert_int_equal(index, 2);
        release(result);
        wait_rounds();
    }
    fill(2, 0, 30000), submit(2);
    wait_rounds();
    assert_int_equal(ring_waiting(&front.lane.complete), 0); /* it waits behind the large one */
    fill(3, 0, 10), submit(3); /* which has no use for what small ones take */
    release(next(&index));
    assert_int_equal(index, 3);
    release(holder);
    struct seam_result *large = next(&index);
    assert_int_equal(index, 1);
    assert_int_equal(large->status, XOP_OK);
    release(large);
    next(&index);
    assert_int_equal(index, 2);
}

static void the_higher_priority_goes_first(void **state) {
    uint32_t index;
    (void)state;
    fill_lanes();
    fill(2, 0, 10)->priority = -1;
    submit(2);
    fill(3, 0, 10)->priority = 5;
    submit(3);
    wait_rounds();
    set_hold(false);
    for (int i = 0; i < 4; i++)
        next(&index);
    assert_true(front.lane.results[3].launched_ns <= front.lane.results[2].launched_ns);
}

static void small_and_large_results_do_not_share_a_launch(void **state) {
    uint32_t index;
    (void)state;
    fill_lanes();
    for (uint32_t i = 2; i < 6; i++)
        fill(i, 0, i < 4 ? 10 : 20000), submit(i);
    wait_rounds();
    set_hold(false);
    for (int i = 0; i < 6; i++)
        assert_true(next(&index)->batch <= 2);
}

static void an_index_out_of_range_is_named(void **state) {
    (void)state;
    fake_set(0, false, 7);
    fill(1, 2, 10), submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT,
                 "input x of picks is -3 at its element 7: it must be from 0 to 9");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_starts_beside_a_suspect, start, stop),
        cmocka_unit_test_setup_teardown(a_late_suspect_is_not_launched, start, stop),
        cmocka_unit_test_setup_teardown(a_group_that_is_too_large_is_split, start, stop),
        cmocka_unit_test_setup_teardown(one_that_is_too_large_by_itself_gets_the_error, start,
                                        stop),
        cmocka_unit_test_setup_teardown(small_results_pass_large_ones_of_the_same_operator, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_large_one_does_not_starve, start, stop),
        cmocka_unit_test_setup_teardown(the_higher_priority_goes_first, start, stop),
        cmocka_unit_test_setup_teardown(small_and_large_results_do_not_share_a_launch, start, stop),
        cmocka_unit_test_setup_teardown(an_index_out_of_range_is_named, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
