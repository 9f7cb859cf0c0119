/* Histograms of latencies: percentiles, merging, the ends of the range. */
#include "client/xopctl/histogram.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static struct histogram *new_histogram(void) {
    struct histogram *histogram = calloc(1, sizeof *histogram);
    assert_non_null(histogram);
    return histogram;
}

static void assert_within(double got, double wanted, double share) {
    if (fabs(got - wanted) > share * wanted)
        fail_msg("%g is not within %g of %g", got, share, wanted);
}

static void an_empty_one_has_no_percentiles(void **state) {
    struct histogram *histogram = new_histogram();
    (void)state;
    assert_true(histogram_at(histogram, 0.5) == 0);
    assert_true(histogram_mean(histogram) == 0);
    free(histogram);
}

static void every_value_is_kept_to_four_thousandths(void **state) {
    (void)state;
    for (uint64_t value = 1; value < UINT64_C(1) << 41; value += value / 77 + 1) {
        struct histogram *histogram = new_histogram();
        histogram_add(histogram, value);
        histogram_add(histogram, 2 * value); /* so that the value is not the largest */
        assert_within(histogram_at(histogram, 0.5), (double)value, 0.004);
        assert_true(histogram_at(histogram, 1) == (double)(2 * value));
        free(histogram);
    }
}

static void percentiles_are_ranks_of_the_values(void **state) {
    struct histogram *histogram = new_histogram();
    (void)state;
    for (uint64_t i = 1; i <= 100000; i++)
        histogram_add(histogram, i * 1000);
    assert_within(histogram_at(histogram, 0), 1000, 0.004);
    assert_within(histogram_at(histogram, 0.5), 50000e3, 0.004);
    assert_within(histogram_at(histogram, 0.99), 99000e3, 0.004);
    assert_within(histogram_at(histogram, 0.999), 99900e3, 0.004);
    assert_true(histogram_at(histogram, 1) == 100000e3);
    assert_within(histogram_mean(histogram), 50000.5e3, 1e-9);
    free(histogram);
}

static void one_value_among_many_is_the_last_percentile_only(void **state) {
    struct histogram *histogram = new_histogram();
    (void)state;
    for (int i = 0; i < 999; i++)
        histogram_add(histogram, 10);
    histogram_add(histogram, 1000000);
    assert_true(histogram_at(histogram, 0.999) == 10);
    assert_true(histogram_at(histogram, 0.9991) == 1000000);
    free(histogram);
}

static void merged_ones_are_as_if_one_had_counted(void **state) {
    struct histogram *all = new_histogram(), *some = new_histogram(), *others = new_histogram();
    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        histogram_add(all, i * i);
        histogram_add(i % 3 ? some : others, i * i);
    }
    histogram_merge(some, others);
    assert_memory_equal(some, all, sizeof *all);
    free(all);
    free(some);
    free(others);
}

static void what_is_too_long_is_in_the_last_bucket(void **state) {
    struct histogram *histogram = new_histogram();
    (void)state;
    histogram_add(histogram, UINT64_MAX);
    histogram_add(histogram, 0);
    assert_true(histogram->counts[HISTOGRAM_BUCKETS - 1] == 1);
    assert_true(histogram_at(histogram, 0.5) == 0);
    assert_true(histogram_at(histogram, 1) == (double)(UINT64_C(2) << HISTOGRAM_LARGEST_BIT) - 1);
    free(histogram);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_one_has_no_percentiles),
        cmocka_unit_test(every_value_is_kept_to_four_thousandths),
        cmocka_unit_test(percentiles_are_ranks_of_the_values),
        cmocka_unit_test(one_value_among_many_is_the_last_percentile_only),
        cmocka_unit_test(merged_ones_are_as_if_one_had_counted),
        cmocka_unit_test(what_is_too_long_is_in_the_last_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
