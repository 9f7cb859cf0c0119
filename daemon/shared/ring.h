/*
 * A ring of 64-bit entries in memory that two processes share: one producer, one consumer, no
 * locks.
 *
 * Neither side believes the other. Each keeps its own position in its own memory (struct ring) and
 * only publishes it; what the peer publishes is checked against what is possible, and RING_CORRUPT
 * means that the peer is faulty. A struct ring belongs to one thread.
 *
 * Bells: a consumer that wants to sleep arms its bell, looks at its rings once more and then waits
 * on a descriptor; a producer rings the bell after it pushed. Push and arm are sequentially
 * consistent, so that either the consumer sees the entry or the producer sees the armed bell.
 */
#ifndef SHARED_RING_H
#define SHARED_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ring_outcome { RING_OK, RING_EMPTY, RING_FULL, RING_CORRUPT };

/* In shared memory, followed by `capacity` entries. */
struct ring_shared {
    alignas(64) _Atomic uint32_t tail; /* published by the producer */
    alignas(64) _Atomic uint32_t head; /* published by the consumer */
    alignas(64) _Atomic uint64_t entries[];
};

/* One side's view. */
struct ring {
    struct ring_shared *shared;
    uint32_t capacity; /* a power of two */
    uint32_t position; /* producer: its tail; consumer: its head */
};

struct ring_bell {
    alignas(64) _Atomic uint32_t armed;
};

/* Bytes of a ring_shared of that capacity, a multiple of 64. */
size_t ring_bytes(uint32_t capacity);

/* A view of zeroed shared memory, at its start. */
void ring_view(struct ring *ring, struct ring_shared *shared, uint32_t capacity);

enum ring_outcome ring_push(struct ring *ring, uint64_t entry);
enum ring_outcome ring_pop(struct ring *ring, uint64_t *entry);

/* Consumer: how many entries are waiting (0 where the peer's word is impossible: pop tells). */
uint32_t ring_waiting(const struct ring *ring);

void bell_arm(struct ring_bell *bell);
void bell_disarm(struct ring_bell *bell);
/* Wakes the consumer through its eventfd if the bell is armed. */
void bell_ring(struct ring_bell *bell, int eventfd);

#endif
