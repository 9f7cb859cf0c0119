#include "stats.h"

#include <math.h>

#define FIRST 7u /* log2 of the smallest value that is told apart */

void stats_max(_Atomic uint64_t *counter, uint64_t n) {
    uint64_t seen = stats_get(*counter);
    while (n > seen && !atomic_compare_exchange_weak_explicit(
                           counter, &seen, n, memory_order_relaxed, memory_order_relaxed))
        ;
}

static uint32_t bucket_of(uint64_t ns) {
    if (ns < UINT64_C(1) << FIRST)
        return 0;
    uint32_t log = 63u - (uint32_t)__builtin_clzll(ns);
    uint32_t bucket = 1 + (log - FIRST) * 8 + (uint32_t)(ns >> (log - 3) & 7);
    return bucket < STATS_BUCKETS ? bucket : STATS_BUCKETS - 1;
}

static double middle_ns(uint32_t bucket) {
    if (bucket == 0)
        return (double)(UINT64_C(1) << (FIRST - 1));
    uint32_t log = FIRST + (bucket - 1) / 8;
    return ldexp(8.5 + (bucket - 1) % 8, (int)log - 3);
}

void stats_histogram_add(struct histogram *histogram, uint64_t ns) {
    stats_add(histogram->buckets[bucket_of(ns)], 1);
    stats_add(histogram->count, 1);
    stats_max(&histogram->max_ns, ns);
}

void stats_histogram_merge(struct histogram *into, const struct histogram *from) {
    for (uint32_t i = 0; i < STATS_BUCKETS; i++)
        stats_add(into->buckets[i], stats_get(from->buckets[i]));
    stats_add(into->count, stats_get(from->count));
    stats_max(&into->max_ns, stats_get(from->max_ns));
}

double stats_histogram_quantile_us(const struct histogram *histogram, double part) {
    uint64_t total = 0, seen = 0;
    for (uint32_t i = 0; i < STATS_BUCKETS; i++)
        total += stats_get(histogram->buckets[i]);
    if (total == 0)
        return 0;
    double max = (double)stats_get(histogram->max_ns);
    for (uint32_t i = 0; i < STATS_BUCKETS; i++) {
        seen += stats_get(histogram->buckets[i]);
        if ((double)seen >= part * (double)total)
            return fmin(middle_ns(i), max) / 1000;
    }
    return max / 1000;
}
