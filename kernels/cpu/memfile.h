/*
 * Memory for resident tensors on the CPU: sealed memory files, mapped shared. What is mapped is
 * remembered by its address, so that it can be dropped by it. Owned by the backend; any thread.
 */
#ifndef KERNELS_CPU_MEMFILE_H
#define KERNELS_CPU_MEMFILE_H

#include <pthread.h>

#include <xop/types.h>

struct memfile_map {
    void *base;
    uint64_t bytes;
};

struct memfile {
    pthread_mutex_t lock; /* guards what follows */
    struct memfile_map *map;
    uint32_t n, capacity;
};

void memfile_open(struct memfile *memory);
/* Unmaps everything. */
void memfile_close(struct memfile *memory);

/* As the memory functions of kernels/backend.h; new memory is always zeroed. */
enum xop_status memfile_make(struct memfile *memory, uint64_t *bytes, int *descriptor, void **base,
                             struct xop_error *error);
enum xop_status memfile_import(struct memfile *memory, int descriptor, uint64_t bytes, void **base,
                               struct xop_error *error);
enum xop_status memfile_drop(struct memfile *memory, void *base, struct xop_error *error);

#endif
