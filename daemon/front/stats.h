/*
 * Counters and histograms. Each I/O thread writes its own; anybody may read them at any time
 * (relaxed atomics), so a document about them is nearly, not exactly, of one moment.
 */
#ifndef FRONT_STATS_H
#define FRONT_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <xop/types.h>

#define STATS_SLOTS 512u /* operators by name, over the life of the daemon */
#define STATS_BUCKETS 256u

/* Durations: buckets of an eighth of a power of two, from 128 ns up. */
struct histogram {
    _Atomic uint64_t count, max_ns;
    _Atomic uint64_t buckets[STATS_BUCKETS];
};

struct op_stats {
    _Atomic uint64_t requests, errors, bytes_in, bytes_out, batches, batched, batch_max;
    struct histogram queue, run;
};

struct client_stats {
    _Atomic uint64_t requests, errors, bytes_in, bytes_out;
    _Atomic uint64_t resident_bytes, attached_bytes;
    _Atomic uint32_t in_flight, residents, contexts;
};

#define stats_add(counter, n) atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)
#define stats_get(counter) atomic_load_explicit(&(counter), memory_order_relaxed)
void stats_max(_Atomic uint64_t *counter, uint64_t n);

void stats_histogram_add(struct histogram *histogram, uint64_t ns);
/* Adds up `from` into `into`, which is only this thread's. */
void stats_histogram_merge(struct histogram *into, const struct histogram *from);
/* The bucket's middle below which `part` (0 to 1) of the values lie, in microseconds. */
double stats_histogram_quantile_us(const struct histogram *histogram, double part);

#endif
