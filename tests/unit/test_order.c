/* daemon/front/order.c: whoever conflicts with an earlier one waits for it, and nobody else does.
 */
#include "daemon/front/io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct io_thread thread;
static struct request requests[64];
static struct order_list windows[ORDER_WINDOWS];
static struct object object;
static int dropped;

static void on_drop(struct object *o) {
    assert_ptr_equal(o, &object);
    dropped++;
}

static int setup(void **state) {
    (void)state;
    memset(&thread, 0, sizeof thread);
    memset(requests, 0, sizeof requests);
    memset(windows, 0, sizeof windows);
    memset(&object, 0, sizeof object);
    dropped = 0;
    thread.unblocked_tail = &thread.unblocked;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        requests[i].thread = &thread;
        requests[i].id = i + 1;
        requests[i].state = REQUEST_BLOCKED;
    }
    object_init(&object, on_drop);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    object_drop(&object);
    assert_int_equal(dropped, 1);
    order_close(&thread);
    return 0;
}

static void use(int i, uint64_t begin, uint64_t end, bool write) {
    assert_true(order_access(&requests[i], &object, begin, end, write));
}

static void readers_share_and_writers_do_not(void **state) {
    (void)state;
    use(0, 0, 10, false);
    use(1, 5, 15, false);
    assert_int_equal(requests[1].blockers, 0);
    use(2, 8, 20, true); /* behind both */
    assert_int_equal(requests[2].blockers, 2);
    use(3, 0, 8, false); /* beside the writer */
    assert_int_equal(requests[3].blockers, 0);
    use(4, 19, 25, true);
    assert_int_equal(requests[4].blockers, 1);
    order_release(&requests[0], false);
    assert_null(thread.unblocked);
    order_release(&requests[1], false);
    assert_ptr_equal(thread.unblocked, &requests[2]);
    for (int i = 2; i < 5; i++)
        order_release(&requests[i], false);
    assert_int_equal(requests[4].blockers, 0);
}

static void what_reads_what_a_failed_one_writes_is_aborted_and_names_it(void **state) {
    (void)state;
    use(0, 0, 10, true);
    use(1, 0, 4, false);  /* reads it */
    use(2, 0, 10, true);  /* writes it anew */
    use(3, 10, 20, true); /* another range */
    order_release(&requests[0], true);
    assert_int_equal(requests[1].aborted_by, 1);
    assert_int_equal(requests[2].aborted_by, 0);
    for (int i = 1; i < 4; i++)
        order_release(&requests[i], false);
}

static void a_request_does_not_block_itself(void **state) {
    (void)state;
    use(0, 0, 10, false);
    use(0, 0, 10, true);
    assert_int_equal(requests[0].blockers, 0);
    use(1, 0, 10, false);
    assert_int_equal(requests[1].blockers, 1);
    order_release(&requests[0], false);
    order_release(&requests[1], false);
}

static void an_empty_range_has_its_place(void **state) {
    (void)state;
    use(0, 0, 0, true);
    use(1, 0, UINT64_MAX, false);
    assert_int_equal(requests[1].blockers, 1);
    order_release(&requests[0], false);
    order_release(&requests[1], false);
}

/* Each writer of the whole waits for the one before it alone, however many there are. */
static void a_long_chain_has_few_edges(void **state) {
    (void)state;
    for (int i = 0; i < 64; i++) {
        use(i, 0, 100, true);
        assert_int_equal(requests[i].blockers, i > 0);
    }
    for (int i = 0; i < 64; i++)
        order_release(&requests[i], false);
}

struct range {
    uint64_t begin, end;
    bool write;
};

static bool conflict(const struct range *a, const struct range *b) {
    return a->begin < b->end && b->begin < a->end && (a->write || b->write);
}

/* Requests with up to three ranges end in random order as they become free: none may become free
 * before all those that conflict with it have ended. */
static void random_ranges(bool in_windows) {
    srand(3);
    for (int round = 0; round < 300; round++) {
        struct range ranges[64][3];
        bool ended[64] = {false};
        setup(NULL);
        object.windows = in_windows ? windows : NULL;
        for (int i = 0; i < 64; i++)
            for (int k = 0; k < 3; k++) {
                uint64_t at = (uint64_t)rand() % (1 << 18);
                uint64_t n =
                    rand() % 8 == 0 ? (uint64_t)rand() % (1 << 18) : 1 + (uint64_t)rand() % 5000;
                ranges[i][k] = (struct range){at, at + n + 1, rand() % 3 == 0};
                use(i, ranges[i][k].begin, ranges[i][k].end, ranges[i][k].write);
            }
        for (int left = 64; left > 0; left--) {
            int free_ones[64], n = 0;
            for (int i = 0; i < 64; i++)
                if (!ended[i] && requests[i].blockers == 0)
                    free_ones[n++] = i;
            assert_true(n > 0);
            int chosen = free_ones[rand() % n];
            for (int i = 0; i < chosen; i++)
                for (int a = 0; a < 9 && !ended[i]; a++)
                    assert_false(conflict(&ranges[i][a / 3], &ranges[chosen][a % 3]));
            ended[chosen] = true;
            order_release(&requests[chosen], false);
        }
        assert_int_equal(object.references, 1);
        teardown(NULL);
    }
    setup(NULL);
}

static void random_ranges_keep_the_order(void **state) {
    (void)state;
    teardown(NULL);
    random_ranges(false);
    random_ranges(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(readers_share_and_writers_do_not, setup, teardown),
        cmocka_unit_test_setup_teardown(what_reads_what_a_failed_one_writes_is_aborted_and_names_it,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_request_does_not_block_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_range_has_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_chain_has_few_edges, setup, teardown),
        cmocka_unit_test_setup_teardown(random_ranges_keep_the_order, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
