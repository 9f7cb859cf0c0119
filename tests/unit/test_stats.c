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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_within_a_bucket_of_the_truth),
        cmocka_unit_test(extremes_are_counted),
        cmocka_unit_test(an_empty_histogram_has_quantile_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
