/* daemon/front/stats.c: quantiles of a histogram are near the true ones. */
#include "daemon/front/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void quantiles_are_within_a_bucket_of_the_truth(void **state) {
    static struct histogram histogram;
    (void)state;
    for (uint64_t us = 1; us <= 10000; us++)
        stats_histogram_add(&histogram, us * 1000);
    static const double parts[] = {0.1, 0.5, 0.9, 0.99};
    for (size_t i = 0; i < 4; i++) {
        double got = stats_histogram_quantile_us(&histogram, parts[i]), expected = parts[i] * 10000;
        if (fabs(got - expected) > expected / 8)
            fail_msg("quantile %g is %g us, not near %g", parts[i], got, expected);
    }
    assert_true(stats_histogram_quantile_us(&histogram, 1.0) <= 10000);
}

static void extremes_are_counted(void **state) {
    static struct histogram histogram, sum;
    (void)state;
    stats_histogram_add(&histogram, 0);
    stats_histogram_add(&histogram, UINT64_MAX);
    stats_histogram_merge(&sum, &histogram);
    stats_histogram_merge(&sum, &histogram);
    assert_int_equal(stats_get(sum.count), 4);
    assert_true(stats_get(sum.max_ns) == UINT64_MAX);
    assert_true(stats_histogram_quantile_us(&sum, 0.5) < 1);
}

static void an_empty_histogram_has_quantile_zero(void **state) {
    static struct histogram histogram;
    (void)state;
    assert_true(stats_histogram_quantile_us(&histogram, 0.5) == 0);
}

static void values_below_a_power_of_two_are_counted_exactly(void **state) {
    static struct histogram histogram;
    (void)state;
    /* One in each sixteenth of every power of two from 2^7 to 2^37. */
    for (uint32_t log = 7; log < 38; log++)
        for (uint64_t i = 0; i < 16; i++)
            stats_histogram_add(&histogram, (UINT64_C(1) << log) + (i << (log - 4)));
    for (uint32_t log = 7; log <= 37; log++)
        assert_int_equal(stats_histogram_below(&histogram, log), (log - 7) * 16);
    assert_int_equal(stats_histogram_below(&histogram, 64), 31 * 16);
}

static void the_sum_is_of_all_values(void **state) {
    static struct histogram histogram, sum;
    (void)state;
    stats_histogram_add(&histogram, 1000);
    stats_histogram_add(&histogram, 500);
    stats_histogram_merge(&sum, &histogram);
    stats_histogram_merge(&sum, &histogram);
    assert_int_equal(stats_get(sum.sum_ns), 3000);
}

static void every_status_has_a_place_of_its_own(void **state) {
    static struct op_stats op;
    uint32_t known = 0;
    (void)state;
    for (uint32_t code = 0; code <= XOP_DEVICE_FAULT; code++)
        if (xop_status_known(code))
            for (known++; stats_op_requests(&op) < known * (known + 1) / 2;)
                stats_op_ended(&op, (enum xop_status)code);
    /* The n-th known status was counted n times. */
    uint32_t nth = 0;
    for (uint32_t slot = 0; slot < STATS_STATUSES; slot++) {
        enum xop_status status;
        if (stats_status(slot, &status))
            assert_int_equal(stats_get(op.statuses[slot]), ++nth);
        else
            assert_int_equal(stats_get(op.statuses[slot]), 0);
    }
    assert_int_equal(nth, known);
    assert_int_equal(stats_op_errors(&op), stats_op_requests(&op) - 1);
}

static void launches_are_counted_by_size(void **state) {
    static struct op_stats op, sum;
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        stats_op_ran(&op, 3);
    stats_op_ran(&op, 1);
    stats_op_ran(&op, 2);
    stats_op_ran(&op, 2);
    stats_op_ran(&op, 4096);
    stats_op_ran(&op, UINT32_MAX);
    stats_op_merge(&sum, &op);
    assert_int_equal(stats_get(sum.batch_sizes[0]), 1);
    assert_int_equal(stats_get(sum.batch_sizes[1]), 2);
    assert_int_equal(stats_get(sum.batch_sizes[2]), 3);
    assert_int_equal(stats_get(sum.batch_sizes[12]), 2);
    assert_int_equal(stats_get(sum.batched), 8);
    assert_true(stats_get(sum.batch_max) == UINT32_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_within_a_bucket_of_the_truth),
        cmocka_unit_test(extremes_are_counted),
        cmocka_unit_test(an_empty_histogram_has_quantile_zero),
        cmocka_unit_test(values_below_a_power_of_two_are_counted_exactly),
        cmocka_unit_test(the_sum_is_of_all_values),
        cmocka_unit_test(every_status_has_a_place_of_its_own),
        cmocka_unit_test(launches_are_counted_by_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
