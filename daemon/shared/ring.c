#include "ring.h"

#include <errno.h>
#include <unistd.h>

size_t ring_bytes(uint32_t capacity) {
    size_t bytes = sizeof(struct ring_shared) + capacity * sizeof(uint64_t);
    return (bytes + 63) & ~(size_t)63;
}

void ring_view(struct ring *ring, struct ring_shared *shared, uint32_t capacity) {
    ring->shared = shared;
    ring->capacity = capacity;
    ring->position = 0;
}

enum ring_outcome ring_push(struct ring *ring, uint64_t entry) {
    uint32_t head = atomic_load_explicit(&ring->shared->head, memory_order_acquire);
    uint32_t used = ring->position - head;
    if (used > ring->capacity)
        return RING_CORRUPT;
    if (used == ring->capacity)
        return RING_FULL;
    atomic_store_explicit(&ring->shared->entries[ring->position & (ring->capacity - 1)], entry,
                          memory_order_relaxed);
    ring->position++;
    /* Sequentially consistent rather than release: the bell is looked at next. */
    atomic_store(&ring->shared->tail, ring->position);
    return RING_OK;
}

enum ring_outcome ring_pop(struct ring *ring, uint64_t *entry) {
    uint32_t tail = atomic_load(&ring->shared->tail);
    uint32_t waiting = tail - ring->position;
    if (waiting > ring->capacity)
        return RING_CORRUPT;
    if (waiting == 0)
        return RING_EMPTY;
    *entry = atomic_load_explicit(&ring->shared->entries[ring->position & (ring->capacity - 1)],
                                  memory_order_relaxed);
    ring->position++;
    atomic_store_explicit(&ring->shared->head, ring->position, memory_order_release);
    return RING_OK;
}

uint32_t ring_waiting(const struct ring *ring) {
    uint32_t waiting = atomic_load(&ring->shared->tail) - ring->position;
    return waiting > ring->capacity ? 0 : waiting;
}

void bell_arm(struct ring_bell *bell) { atomic_store(&bell->armed, 1); }

void bell_disarm(struct ring_bell *bell) {
    atomic_store_explicit(&bell->armed, 0, memory_order_relaxed);
}

void bell_ring(struct ring_bell *bell, int eventfd) {
    if (atomic_load(&bell->armed) == 0 || atomic_exchange(&bell->armed, 0) == 0)
        return;
    uint64_t one = 1;
    ssize_t n;
    do
        n = write(eventfd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    /* EAGAIN means that the counter is full, so the consumer is awake in any case. */
}
