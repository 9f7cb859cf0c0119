/* The loops that a daemon is compared with: each gives the same bits, and touches what is its own.
 */
#include "client/xopctl/bench_plain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 4099 };

static float x[MOST], b[MOST], wanted[MOST], y[MOST + 2];

/* Sums whose rounding tells a fused multiply-add from two roundings. */
static int fill(void **state) {
    (void)state;
    for (int i = 0; i < MOST; i++) {
        x[i] = 1 + (float)i * 0x1p-20f;
        volatile float square = x[i] * x[i];
        b[i] = i % 2 ? (float)i : -square;
        wanted[i] = square + b[i];
    }
    return 0;
}

/* One number before y and one behind it must stay. */
static void check(const struct bench_arrays *arrays) {
    assert_memory_equal(y + 1, wanted, (size_t)arrays->n * sizeof *y);
    assert_true(y[0] == -7);
    assert_true(y[arrays->n + 1] == -7);
}

static struct bench_arrays prepare(int64_t n) {
    for (int64_t i = 0; i < MOST + 2; i++)
        y[i] = -7;
    return (struct bench_arrays){x, b, y + 1, n};
}

static void every_length_is_computed_by_each_loop(void **state) {
    (void)state;
    for (int64_t n = 0; n < 70; n++) {
        struct bench_arrays arrays = prepare(n);
        bench_plain_scalar(&arrays);
        check(&arrays);
        arrays = prepare(n);
        bench_plain_vector(&arrays);
        check(&arrays);
    }
}

static void a_crew_leaves_nothing_out(void **state) {
    static const int64_t lengths[] = {0, 1, 15, 16, 17, 31, 33, 1000, 4096, MOST};
    struct bench_crew *crew = bench_crew_open();
    (void)state;
    assert_non_null(crew);
    assert_true(bench_crew_size(crew) >= 1);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct bench_arrays arrays = prepare(lengths[i]);
        bench_crew_run(crew, &arrays);
        check(&arrays);
    }
    bench_crew_close(crew);
}

static void a_crew_that_never_ran_can_be_closed(void **state) {
    (void)state;
    bench_crew_close(bench_crew_open());
    bench_crew_close(NULL);
    assert_true(y[0] == -7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_is_computed_by_each_loop),
        cmocka_unit_test(a_crew_leaves_nothing_out),
        cmocka_unit_test(a_crew_that_never_ran_can_be_closed),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
