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

#define STATS_STATUSES 18u    /* OK to UNAUTHENTICATED by number, then DEVICE_FAULT */
#define STATS_BATCH_SIZES 13u /* up to 2^i requests, to the most that batch.max allows */

/* Durations: buckets of an eighth of a power of two, from 128 ns up. */
struct histogram {
    _Atomic uint64_t count, sum_ns, max_ns;
    _Atomic uint64_t buckets[STATS_BUCKETS];
};

struct op_stats {
    _Atomic uint64_t statuses[STATS_STATUSES]; /* requests by how they ended */
    _Atomic uint64_t bytes_in, bytes_out;
    /* Each request of a launch of n counts 2^32/n of a batch. */
    _Atomic uint64_t batches, batched, batch_sum, batch_max;
    _Atomic uint64_t batch_sizes[STATS_BATCH_SIZES]; /* requests by the size of their launch */
    struct histogram queue, run;
};

/* How the bytes of tensors come and go. */
enum stats_path { STATS_INLINE, STATS_SHM, STATS_RESIDENT, STATS_PATHS };
enum stats_direction { STATS_IN, STATS_OUT, STATS_DIRECTIONS };

/* Why connections are not taken, or ended from this side. */
enum stats_ended {
    ENDED_LIMIT,
    ENDED_TLS,
    ENDED_HELLO,
    ENDED_SLOW,
    ENDED_PROTOCOL,
    ENDED_FORBIDDEN,
    STATS_ENDED
};
/* Why requests are refused before they are queued. */
enum stats_refused {
    REFUSED_DRAINING,
    REFUSED_NO_WORKER,
    REFUSED_NO_OPERATOR,
    REFUSED_MALFORMED,
    REFUSED_EXHAUSTED,
    REFUSED_QUOTA,
    REFUSED_FORBIDDEN,
    REFUSED_INVALID,
    STATS_REFUSED
};

/* What a thread counts besides operators. */
struct thread_stats {
    _Atomic uint64_t bytes[STATS_PATHS][STATS_DIRECTIONS];
    _Atomic uint64_t ended[STATS_ENDED], refused[STATS_REFUSED];
};

struct client_stats {
    _Atomic uint64_t requests, errors, bytes_in, bytes_out;
    _Atomic uint64_t resident_bytes, attached_bytes;
    _Atomic uint32_t in_flight, residents, contexts;
};

#define stats_add(counter, n) atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)
#define stats_get(counter) atomic_load_explicit(&(counter), memory_order_relaxed)
/* The same for a counter that no other thread writes, without the price of an atomic addition. */
#define stats_tally(counter, n)                                                                    \
    atomic_store_explicit(&(counter), stats_get(counter) + (n), memory_order_relaxed)
void stats_max(_Atomic uint64_t *counter, uint64_t n);

/* A request has ended with this status, or run in a launch of so many. */
void stats_op_ended(struct op_stats *op, enum xop_status status);
void stats_op_ran(struct op_stats *op, uint32_t batch);
uint64_t stats_op_requests(const struct op_stats *op);
uint64_t stats_op_errors(const struct op_stats *op);
/* The status that statuses[slot] counts; false where there is no such status. */
bool stats_status(uint32_t slot, enum xop_status *status);
/* These add up `from` into `into`, which is only this thread's. */
void stats_op_merge(struct op_stats *into, const struct op_stats *from);
void stats_thread_merge(struct thread_stats *into, const struct thread_stats *from);

void stats_histogram_add(struct histogram *histogram, uint64_t ns);
void stats_histogram_merge(struct histogram *into, const struct histogram *from);
/* The middle of the values that buckets[bucket] counts. */
double stats_histogram_middle_ns(uint32_t bucket);
/* How many values lie below 2^log ns; log from 7 on. With 64 all are below. */
uint64_t stats_histogram_below(const struct histogram *histogram, uint32_t log);
/* The bucket's middle below which `part` (0 to 1) of the values lie, in microseconds. */
double stats_histogram_quantile_us(const struct histogram *histogram, double part);

#endif
