/* daemon/worker: its loop with a front and a backend made for the purpose. */
#include "worker_fixture.h"

/* ---- What holds ---- */

static void a_request_comes_back_with_its_output(void **state) {
    uint32_t index;
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct seam_request *r = fill(3, 0, 100);
        uint64_t tag = r->tag;
        submit(3);
        struct seam_result *result = next(&index);
        assert_int_equal(index, 3);
        assert_int_equal(result->status, XOP_OK);
        assert_int_equal(result->tag, tag);
        assert_int_equal(result->nout, 1);
        const float *out = (const float *)(front.worker.outbox.base + result->out[0].offset);
        assert_true(out[0] == 4 && out[99] == 103);
        release(result);
    }
}

static void what_waits_goes_as_one_launch(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    /* Two fill the lanes; the others collect and go in groups of at most MAX_GROUP. */
    fill(0, 0, 10), submit(0);
    wait_submitted(1);
    fill(1, 0, 10), submit(1);
    wait_submitted(2);
    for (uint32_t i = 2; i < 2 + 2 * MAX_GROUP; i++)
        fill(i, 0, 10), submit(i);
    set_hold(false);
    for (uint32_t i = 0; i < 2 + 2 * MAX_GROUP; i++) {
        struct seam_result *result = next(&index);
        assert_int_equal(result->status, XOP_OK);
        assert_true(result->batch >= 1 && result->batch <= MAX_GROUP);
    }
    pthread_mutex_lock(&fake.lock);
    assert_true(fake.submitted < 2 + 2 * MAX_GROUP); /* some went together */
    assert_int_equal(fake.calls, 2 + 2 * MAX_GROUP);
    pthread_mutex_unlock(&fake.lock);
}

static void other_attributes_do_not_share_a_launch(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    fill(0, 0, 10), submit(0);
    wait_submitted(1);
    fill(1, 0, 10), submit(1);
    wait_submitted(2);
    for (uint32_t i = 2; i < 10; i++) {
        struct xop_attr attr = {"eps", XOP_ATTR_INT, 1, {.i = i % 2}};
        struct seam_request *r = fill(i, 0, 10);
        size_t used = sizeof(struct seam_tensor);
        assert_true(seam_put_attr(r->arguments, sizeof r->arguments, &used, &attr));
        r->nattrs = 1;
        r->attr_bytes = (uint32_t)(used - sizeof(struct seam_tensor));
        submit(i);
    }
    set_hold(false);
    for (uint32_t i = 0; i < 10; i++)
        assert_true(next(&index)->batch <= 4);
}

static void mistakes_are_named(void **state) {
    struct seam_request *r;
    struct seam_tensor *t;
    size_t used = sizeof(struct seam_tensor);
    (void)state;
    r = fill(1, 0, 10);
    t = (struct seam_tensor *)(void *)r->arguments;
    t->rank = 2;
    t->shape[1] = 1;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "x has one dimension");
    r = fill(1, 0, 10);
    ((struct seam_tensor *)(void *)r->arguments)->dtype = XOP_F64;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "input x of good is f64: it can be f32");
    r = fill(1, 0, 10);
    r->nin = 0;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "takes 1 inputs (x), 0 came");
    r = fill(1, 0, 10);
    ((struct seam_tensor *)(void *)r->arguments)->place = SEAM_NOWHERE;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "has no data");
    r = fill(1, 0, 10);
    r->pass = XOP_BACKWARD;
    submit(1);
    expect_error(1, XOP_UNIMPLEMENTED, "no backward");
    r = fill(1, 0, 10);
    struct xop_attr unknown = {"colour", XOP_ATTR_INT, 1, {.i = 1}};
    seam_put_attr(r->arguments, sizeof r->arguments, &used, &unknown);
    r->nattrs = 1;
    r->attr_bytes = (uint32_t)(used - sizeof(struct seam_tensor));
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "\"colour\" (those it has: eps, mode)");
    used = sizeof(struct seam_tensor);
    r = fill(1, 0, 10);
    struct xop_attr wrong = {"mode", XOP_ATTR_INT, 1, {.i = 1}};
    seam_put_attr(r->arguments, sizeof r->arguments, &used, &wrong);
    r->nattrs = 1;
    r->attr_bytes = (uint32_t)(used - sizeof(struct seam_tensor));
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "is of type int, but string is expected");
    r = fill(1, 0, 10);
    r->nout = 2;
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "has 1 outputs, 2 were asked for");
    fill(1, 0, 250000); /* a megabyte, of which the outbox keeps a part for small ones */
    submit(1);
    expect_error(1, XOP_RESOURCE_EXHAUSTED, "output y needs 976.6 KiB");
}

static void nonsense_is_refused_and_the_loop_goes_on(void **state) {
    struct seam_request *r;
    struct seam_tensor *t;
    uint32_t index;
    (void)state;
    for (int what = 0; what < 9; what++) {
        r = fill(2, 0, 10);
        t = (struct seam_tensor *)(void *)r->arguments;
        switch (what) {
        case 0: r->op = 99; break;
        case 1: r->nin = 200; break;
        case 2: r->attr_bytes = UINT32_MAX; break;
        case 3: r->arguments_offset = INBOX - 8; break;
        case 4: t->offset = INBOX; break;
        case 5: t->offset = UINT64_MAX - 63; break;
        case 6: t->rank = 9; break;
        case 7: t->shape[0] = INT64_MAX; break;
        default: t->place = 77; break;
        }
        submit(2);
        expect_error(2, XOP_INTERNAL, "not well-formed");
    }
    assert_int_equal(ring_push(&front.lane.submit, 1000), RING_OK); /* no such record */
    assert_int_equal(ring_push(&front.lane.release, 12345), RING_OK);
    fill(2, 0, 10);
    submit(2);
    assert_int_equal(next(&index)->status, XOP_OK);
}

static void a_request_waits_for_space_and_small_ones_pass(void **state) {
    uint32_t index;
    (void)state;
    /* Large ones of 384 KiB: two fit into what is not kept for small ones. */
    for (uint32_t i = 0; i < 3; i++)
        fill(i, 0, 98304), submit(i);
    struct seam_result *first = next(&index);
    struct seam_result *second = next(&index);
    assert_int_equal(first->status, XOP_OK);
    assert_int_equal(second->status, XOP_OK);
    fill(10, 1, 10), submit(10); /* another operator, so that it is in another queue */
    next(&index);
    assert_int_equal(index, 10);
    release(first);
    assert_int_equal(next(&index)->status, XOP_OK);
    assert_int_equal(index, 2);
}

static void writing_outside_is_found_when_checked(void **state) {
    uint32_t index;
    (void)state;
    fill(1, 1, 64)->flags = SEAM_CHECK;
    submit(1);
    expect_error(1, XOP_INTERNAL, "operator far wrote outside its output");
    fill(1, 0, 64)->flags = SEAM_CHECK;
    submit(1);
    assert_int_equal(next(&index)->status, XOP_OK);
}

static void what_is_late_is_not_launched(void **state) {
    (void)state;
    fill(1, 0, 10)->deadline_ns = 1;
    submit(1);
    expect_error(1, XOP_DEADLINE_EXCEEDED, "before it was started");
    assert_int_equal(submitted(), 0);
}

static void a_suspect_runs_with_nothing_else(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    fill(0, 0, 10), submit(0);
    wait_submitted(1);
    fill(1, 0, 10)->flags = SEAM_ALONE;
    submit(1);
    fill(2, 0, 10), submit(2);
    set_hold(false);
    uint32_t order[3];
    for (int i = 0; i < 3; i++) {
        struct seam_result *result = next(&index);
        assert_int_equal(result->batch, 1);
        order[i] = index;
    }
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
    assert_int_equal(order[2], 2);
}

static void a_lost_device_ends_the_loop(void **state) {
    (void)state;
    set_hold(true);
    fill(0, 0, 10), submit(0);
    pthread_mutex_lock(&fake.lock);
    fake.lose = true;
    pthread_mutex_unlock(&fake.lock);
    pthread_join(front.thread, NULL);
    assert_int_equal(front.ended, XOP_DEVICE_FAULT);
    assert_int_equal(front.lane.results[0].launched, 1);
    assert_int_equal(ring_waiting(&front.lane.complete), 0); /* it was not completed */
    pthread_create(&front.thread, NULL, run_loop, NULL);     /* for the teardown */
}

static void what_ended_beside_a_lost_group_is_answered(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    for (uint32_t i = 0; i < 2; i++) {
        fill(i, 0, 10), submit(i);
        wait_submitted(i + 1);
    }
    pthread_mutex_lock(&fake.lock);
    fake.lose_last = true;
    fake.hold = false;
    pthread_mutex_unlock(&fake.lock);
    pthread_join(front.thread, NULL);
    assert_int_equal(front.ended, XOP_DEVICE_FAULT);
    assert_int_equal(ring_waiting(&front.lane.complete), 1);
    assert_int_equal(next(&index)->status, XOP_OK);
    assert_int_equal(index, 1); /* the last to start is the first that is found done */
    pthread_create(&front.thread, NULL, run_loop, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_comes_back_with_its_output, start, stop),
        cmocka_unit_test_setup_teardown(what_waits_goes_as_one_launch, start, stop),
        cmocka_unit_test_setup_teardown(other_attributes_do_not_share_a_launch, start, stop),
        cmocka_unit_test_setup_teardown(mistakes_are_named, start, stop),
        cmocka_unit_test_setup_teardown(nonsense_is_refused_and_the_loop_goes_on, start, stop),
        cmocka_unit_test_setup_teardown(a_request_waits_for_space_and_small_ones_pass, start, stop),
        cmocka_unit_test_setup_teardown(writing_outside_is_found_when_checked, start, stop),
        cmocka_unit_test_setup_teardown(what_is_late_is_not_launched, start, stop),
        cmocka_unit_test_setup_teardown(a_suspect_runs_with_nothing_else, start, stop),
        cmocka_unit_test_setup_teardown(a_lost_device_ends_the_loop, start, stop),
        cmocka_unit_test_setup_teardown(what_ended_beside_a_lost_group_is_answered, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
