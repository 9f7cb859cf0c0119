/*
 * Counts of durations in nanoseconds, in buckets whose width grows with the value: a percentile is
 * off by less than 0.4 %, whatever its size, and counting is one addition. One thread writes a
 * histogram; merge those of several threads when they are done. Zeroed memory is an empty one.
 */
#ifndef XOPCTL_HISTOGRAM_H
#define XOPCTL_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS 7 /* 2^7 buckets for each power of two */
#define HISTOGRAM_LARGEST_BIT 41
#define HISTOGRAM_BUCKETS ((HISTOGRAM_LARGEST_BIT - HISTOGRAM_BITS + 2) << HISTOGRAM_BITS)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total, sum, largest;
};

/* Values of 2^42 ns (73 minutes) and more share the last bucket. */
static inline void histogram_add(struct histogram *histogram, uint64_t value) {
    uint32_t shift = 0;
    if (value >> (HISTOGRAM_LARGEST_BIT + 1))
        value = (UINT64_C(2) << HISTOGRAM_LARGEST_BIT) - 1;
    if (value >> HISTOGRAM_BITS)
        shift = 63 - HISTOGRAM_BITS - (uint32_t)__builtin_clzll(value);
    histogram->counts[((uint64_t)shift << HISTOGRAM_BITS) + (value >> shift)]++;
    histogram->total++;
    histogram->sum += value;
    histogram->largest = value > histogram->largest ? value : histogram->largest;
}

void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value below or at which a share of 0 to 1 of all values lies; 0 where there are none. */
double histogram_at(const struct histogram *histogram, double share);

double histogram_mean(const struct histogram *histogram);

#endif
