/* daemon/shared/arena.c against a plain map of what is taken. */
#include "daemon/shared/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define G ((uint64_t)ARENA_GRANULE)
enum { GRANULES = 1024 };

static void random_use_agrees_with_a_plain_map(void **state) {
    static unsigned char map[GRANULES];
    static uint64_t taken[GRANULES], sizes[GRANULES];
    struct arena *arena = arena_new(GRANULES * G);
    unsigned seed = 3;
    uint32_t n = 0;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t offset, bytes = (uint64_t)(rand_r(&seed) % 40) * (i % 7 ? 100 : 2000);
        if (rand_r(&seed) % 100 < 55) {
            if (!arena_take(arena, bytes, &offset))
                continue;
            uint64_t granules = bytes ? (bytes + G - 1) / G : 1;
            assert_int_equal(arena_size_at(arena, offset), granules * G);
            for (uint64_t k = 0; k < granules; k++)
                assert_int_equal(map[offset / G + k]++, 0);
            taken[n] = offset;
            sizes[n++] = granules;
        } else if (n > 0) {
            uint32_t k = (uint32_t)rand_r(&seed) % n;
            assert_true(arena_give(arena, taken[k]));
            memset(map + taken[k] / G, 0, sizes[k]);
            taken[k] = taken[--n];
            sizes[k] = sizes[n];
        }
    }
    while (n > 0)
        assert_true(arena_give(arena, taken[--n]));
    assert_int_equal(arena_used(arena), 0);
    uint64_t whole;
    assert_true(arena_take(arena, GRANULES * G, &whole)); /* all joined again */
    assert_int_equal(whole, 0);
    arena_free(arena);
}

static void neighbours_join_whatever_the_order(void **state) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    (void)state;
    for (int o = 0; o < 6; o++) {
        struct arena *arena = arena_new(3 * G);
        uint64_t offsets[3], whole;
        for (int i = 0; i < 3; i++)
            assert_true(arena_take(arena, G, &offsets[i]));
        assert_false(arena_take(arena, 1, &whole));
        for (int i = 0; i < 3; i++)
            assert_true(arena_give(arena, offsets[orders[o][i]]));
        assert_true(arena_take(arena, 3 * G, &whole));
        arena_free(arena);
    }
}

static void a_full_arena_gives_its_last_granule(void **state) {
    struct arena *arena = arena_new(100 * G);
    uint64_t offset;
    (void)state;
    assert_true(arena_take(arena, 63 * G, &offset));
    assert_true(arena_take(arena, 37 * G, &offset)); /* exactly what is left */
    assert_false(arena_take(arena, 1, &offset));
    assert_int_equal(arena_used(arena), 100 * G);
    arena_free(arena);
}

static void what_was_not_taken_is_not_given(void **state) {
    struct arena *arena = arena_new(16 * G);
    uint64_t offset;
    (void)state;
    assert_true(arena_take(arena, 4 * G, &offset));
    assert_false(arena_give(arena, offset + G));
    assert_false(arena_give(arena, offset + 1));
    assert_false(arena_give(arena, 8 * G));
    assert_false(arena_give(arena, 16 * G));
    assert_false(arena_give(arena, UINT64_MAX));
    assert_true(arena_give(arena, offset));
    assert_false(arena_give(arena, offset));
    assert_false(arena_take(arena, 17 * G, &offset));
    assert_false(arena_take(arena, UINT64_MAX, &offset));
    arena_free(arena);
    assert_null(arena_new(10));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_use_agrees_with_a_plain_map),
        cmocka_unit_test(neighbours_join_whatever_the_order),
        cmocka_unit_test(a_full_arena_gives_its_last_granule),
        cmocka_unit_test(what_was_not_taken_is_not_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
