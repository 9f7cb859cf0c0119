#include "daemon/shared/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int marks[1000];

static void what_was_added_is_found_until_it_is_removed(void **state) {
    struct table table = {0};
    (void)state;
    assert_null(table_find(&table, 7));
    assert_null(table_any(&table));
    for (uint64_t i = 1; i <= 1000; i++)
        assert_true(table_add(&table, i << 40, &marks[i - 1]));
    assert_int_equal(table.count, 1000);
    /* Every third goes, in an order of its own, so that what was pushed on has to move back. */
    for (uint64_t k = 0; k < 1000; k++) {
        uint64_t i = (k * 617) % 1000 + 1;
        if (i % 3 == 0)
            assert_ptr_equal(table_remove(&table, i << 40), &marks[i - 1]);
        if (i % 3 == 0)
            assert_null(table_remove(&table, i << 40));
    }
    for (uint64_t i = 1; i <= 1000; i++)
        assert_ptr_equal(table_find(&table, i << 40), i % 3 ? &marks[i - 1] : NULL);
    assert_null(table_find(&table, 0));
    table_close(&table);
}

static void it_can_be_emptied_one_by_one(void **state) {
    struct table table = {0};
    uint32_t n = 0;
    (void)state;
    for (uint64_t i = 1; i <= 100; i++)
        assert_true(table_add(&table, i, &marks[i]));
    for (int *mark; (mark = table_any(&table)); n++)
        assert_ptr_equal(table_remove(&table, (uint64_t)(mark - marks)), mark);
    assert_int_equal(n, 100);
    assert_int_equal(table.count, 0);
    table_close(&table);
}

/* Against a plain array, with keys that come and go at random. */
static void random_use_agrees_with_a_plain_list(void **state) {
    struct table table = {0};
    void *there[257] = {0};
    (void)state;
    srand(1);
    for (int round = 0; round < 100000; round++) {
        uint64_t key = (uint64_t)(rand() % 256) + 1;
        if (there[key]) {
            assert_ptr_equal(table_remove(&table, key), there[key]);
            there[key] = NULL;
        } else {
            there[key] = &marks[rand() % 1000];
            assert_true(table_add(&table, key, there[key]));
        }
        key = (uint64_t)(rand() % 256) + 1;
        assert_ptr_equal(table_find(&table, key), there[key]);
    }
    table_close(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_found_until_it_is_removed),
        cmocka_unit_test(it_can_be_emptied_one_by_one),
        cmocka_unit_test(random_use_agrees_with_a_plain_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
