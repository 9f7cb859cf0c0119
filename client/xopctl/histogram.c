#include "histogram.h"

#include <math.h>

void histogram_merge(struct histogram *into, const struct histogram *from) {
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->counts[i] += from->counts[i];
    into->total += from->total;
    into->sum += from->sum;
    into->largest = from->largest > into->largest ? from->largest : into->largest;
}

/* The middle of a bucket's values; those below 2 * 2^HISTOGRAM_BITS have buckets of their own. */
static double middle(uint32_t bucket) {
    uint32_t octave = bucket >> HISTOGRAM_BITS, shift = octave > 1 ? octave - 1 : 0;
    uint64_t low = (uint64_t)(bucket - (shift << HISTOGRAM_BITS)) << shift;
    return (double)low + (double)((UINT64_C(1) << shift) - 1) / 2;
}

double histogram_at(const struct histogram *histogram, double share) {
    double wanted = ceil(share * (double)histogram->total);
    uint64_t rank = wanted > 1 ? (uint64_t)wanted : 1, seen = 0;
    if (histogram->total == 0)
        return 0;
    if (rank >= histogram->total)
        return (double)histogram->largest;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen >= rank)
            return fmin(middle(i), (double)histogram->largest);
    }
    return (double)histogram->largest;
}

double histogram_mean(const struct histogram *histogram) {
    return histogram->total ? (double)histogram->sum / (double)histogram->total : 0;
}
