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

double stats_histogram_middle_ns(uint32_t bucket) {
    if (bucket == 0)
        return (double)(UINT64_C(1) << (FIRST - 1));
    uint32_t log = FIRST + (bucket - 1) / 8;
    return ldexp(8.5 + (bucket - 1) % 8, (int)log - 3);
}

void stats_histogram_add(struct histogram *histogram, uint64_t ns) {
    stats_tally(histogram->buckets[bucket_of(ns)], 1);
    stats_tally(histogram->count, 1);
    stats_tally(histogram->sum_ns, ns);
    stats_max(&histogram->max_ns, ns);
}

void stats_histogram_merge(struct histogram *into, const struct histogram *from) {
    for (uint32_t i = 0; i < STATS_BUCKETS; i++)
        stats_tally(into->buckets[i], stats_get(from->buckets[i]));
    stats_tally(into->count, stats_get(from->count));
    stats_tally(into->sum_ns, stats_get(from->sum_ns));
    stats_max(&into->max_ns, stats_get(from->max_ns));
}

uint64_t stats_histogram_below(const struct histogram *histogram, uint32_t log) {
    uint64_t sum = 0;
    uint32_t end = log < 64 ? 1 + (log - FIRST) * 8 : STATS_BUCKETS;
    for (uint32_t i = 0; i < end && i < STATS_BUCKETS; i++)
        sum += stats_get(histogram->buckets[i]);
    return sum;
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
            return fmin(stats_histogram_middle_ns(i), max) / 1000;
    }
    return max / 1000;
}

/* ---- Operators ---- */

static uint32_t status_slot(enum xop_status status) {
    return status == XOP_DEVICE_FAULT ? STATS_STATUSES - 1 : (uint32_t)status;
}

bool stats_status(uint32_t slot, enum xop_status *status) {
    uint32_t number = slot == STATS_STATUSES - 1 ? (uint32_t)XOP_DEVICE_FAULT : slot;
    *status = (enum xop_status)number;
    return xop_status_known(number);
}

void stats_op_ended(struct op_stats *op, enum xop_status status) {
    stats_tally(op->statuses[status_slot(status)], 1);
}

void stats_op_ran(struct op_stats *op, uint32_t batch) {
    uint32_t size = batch > 1 ? 32u - (uint32_t)__builtin_clz(batch - 1) : 0;
    stats_tally(op->batched, 1);
    stats_tally(op->batches, (UINT64_C(1) << 32) / batch);
    stats_tally(op->batch_sum, batch);
    stats_tally(op->batch_sizes[size < STATS_BATCH_SIZES ? size : STATS_BATCH_SIZES - 1], 1);
    stats_max(&op->batch_max, batch);
}

uint64_t stats_op_errors(const struct op_stats *op) {
    uint64_t sum = 0;
    for (uint32_t i = 1; i < STATS_STATUSES; i++)
        sum += stats_get(op->statuses[i]);
    return sum;
}

uint64_t stats_op_requests(const struct op_stats *op) {
    return stats_get(op->statuses[0]) + stats_op_errors(op);
}

void stats_op_merge(struct op_stats *into, const struct op_stats *from) {
    for (uint32_t i = 0; i < STATS_STATUSES; i++)
        stats_tally(into->statuses[i], stats_get(from->statuses[i]));
    for (uint32_t i = 0; i < STATS_BATCH_SIZES; i++)
        stats_tally(into->batch_sizes[i], stats_get(from->batch_sizes[i]));
    stats_tally(into->bytes_in, stats_get(from->bytes_in));
    stats_tally(into->bytes_out, stats_get(from->bytes_out));
    stats_tally(into->batches, stats_get(from->batches));
    stats_tally(into->batched, stats_get(from->batched));
    stats_tally(into->batch_sum, stats_get(from->batch_sum));
    stats_max(&into->batch_max, stats_get(from->batch_max));
    stats_histogram_merge(&into->queue, &from->queue);
    stats_histogram_merge(&into->run, &from->run);
}

void stats_thread_merge(struct thread_stats *into, const struct thread_stats *from) {
    for (uint32_t i = 0; i < STATS_PATHS; i++)
        for (uint32_t j = 0; j < STATS_DIRECTIONS; j++)
            stats_tally(into->bytes[i][j], stats_get(from->bytes[i][j]));
    for (uint32_t i = 0; i < STATS_ENDED; i++)
        stats_tally(into->ended[i], stats_get(from->ended[i]));
    for (uint32_t i = 0; i < STATS_REFUSED; i++)
        stats_tally(into->refused[i], stats_get(from->refused[i]));
}
