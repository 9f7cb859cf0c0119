/*
 * The inbox: shared memory into which request bodies are received. The front allocates it and is
 * the only one that can write it: a worker's descriptor is sealed against writing. It outlives
 * workers.
 *
 * Each I/O thread has a slab of its own for small blocks; large ones come from what all share,
 * under a lock. Threads that wait for space are woken through `inbox_waiters`.
 */
#ifndef FRONT_INBOX_H
#define FRONT_INBOX_H

#include "daemon/shared/arena.h"

#include <pthread.h>
#include <stdatomic.h>
#include <xop/types.h>

#define INBOX_SMALL (64u * 1024)

struct inbox {
    int fd;
    unsigned char *base;
    uint64_t bytes;
    uint32_t nslabs;
    uint64_t slab_bytes;
    struct arena **slabs; /* slab i covers [i * slab_bytes, (i + 1) * slab_bytes) */
    pthread_mutex_t lock;
    struct arena *shared; /* covers what is above the slabs */
    _Atomic uint64_t used;
};

struct inbox_block {
    uint64_t offset, bytes; /* bytes 0: no block */
};

enum xop_status inbox_open(struct inbox *inbox, uint64_t bytes, uint32_t threads,
                           struct xop_error *error);
void inbox_close(struct inbox *inbox);

/* The largest block there can ever be. */
uint64_t inbox_largest(const struct inbox *inbox);

/* For the I/O thread `thread`; false where there is no space now. bytes 0 gives no block. */
bool inbox_take(struct inbox *inbox, uint32_t thread, uint64_t bytes, struct inbox_block *block);

/* By the thread that took it. Returns whether other threads may use what became free. */
bool inbox_give(struct inbox *inbox, struct inbox_block *block);

#endif
