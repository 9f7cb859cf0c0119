/* daemon/front/generation.c: which blocks of an outbox are held, and what a worker may not do. */
#include "daemon/front/generation.h"
#include "daemon/shared/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define G ((uint64_t)ARENA_GRANULE)

static int setup(void **state) {
    struct generation *g;
    struct xop_error error;
    int control;
    if (generation_new(1, 2, 16, 16 * MIB, &g, &control, &error) != XOP_OK)
        return -1;
    close(control);
    *state = g;
    return 0;
}

static int teardown(void **state) {
    generation_drop(*state);
    return 0;
}

static void a_block_is_held_once(void **state) {
    struct generation *g = *state;
    assert_true(generation_claim(g, 0, G));
    assert_false(generation_claim(g, 0, G));
    generation_unclaim(g, 0, G);
    assert_true(generation_claim(g, 0, 1));
}

static void overlapping_blocks_are_refused_and_leave_no_trace(void **state) {
    struct generation *g = *state;
    /* Blocks around word boundaries of the map, which has 64 granules a word. */
    assert_true(generation_claim(g, 200 * G, 10 * G));
    assert_false(generation_claim(g, 0, 201 * G));
    assert_true(generation_claim(g, 0, 200 * G));
    assert_false(generation_claim(g, 209 * G, 1000 * G));
    assert_true(generation_claim(g, 210 * G, 1000 * G));
    generation_unclaim(g, 0, 200 * G);
    generation_unclaim(g, 200 * G, 10 * G);
    generation_unclaim(g, 210 * G, 1000 * G);
    assert_true(generation_claim(g, 0, 16 * MIB));
}

static void random_blocks_agree_with_a_plain_model(void **state) {
    struct generation *g = *state;
    enum { N = 1024 };
    static unsigned char model[N];
    unsigned seed = 7;
    for (int i = 0; i < 20000; i++) {
        uint64_t first = (uint64_t)rand_r(&seed) % N, n = 1 + (uint64_t)rand_r(&seed) % 130;
        bool is_free = true;
        if (first + n > N)
            n = N - first;
        for (uint64_t k = first; k < first + n; k++)
            is_free &= !model[k];
        bool claimed = generation_claim(g, first * G, n * G);
        assert_int_equal(claimed, is_free);
        for (uint64_t k = first; claimed && k < first + n; k++)
            model[k] = 1;
        if (claimed && i % 3 != 0) {
            generation_unclaim(g, first * G, n * G);
            for (uint64_t k = first; k < first + n; k++)
                model[k] = 0;
        }
        if (i % 500 == 0) {
            generation_unclaim(g, 0, N * G);
            for (int k = 0; k < N; k++)
                model[k] = 0;
        }
    }
}

static void impossible_blocks_are_refused(void **state) {
    struct generation *g = *state;
    assert_false(generation_claim(g, 1, G));
    assert_false(generation_claim(g, 0, 0));
    assert_false(generation_claim(g, 16 * MIB, G));
    assert_false(generation_claim(g, 16 * MIB - G, 2 * G));
    assert_false(generation_claim(g, UINT64_MAX - G + 1, G));
    assert_false(generation_claim(g, 0, UINT64_MAX));
}

static void shared_memory_cannot_be_shrunk_by_a_worker(void **state) {
    struct generation *g = *state;
    assert_int_equal(ftruncate(g->seam_fd, 0), -1);
    assert_int_equal(ftruncate(g->outbox_fd, 0), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_block_is_held_once, setup, teardown),
        cmocka_unit_test_setup_teardown(overlapping_blocks_are_refused_and_leave_no_trace, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(random_blocks_agree_with_a_plain_model, setup, teardown),
        cmocka_unit_test_setup_teardown(impossible_blocks_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_memory_cannot_be_shrunk_by_a_worker, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
