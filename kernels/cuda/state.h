/*
 * The CUDA backend's state. Most of it is the loop's; what the helper thread uses as well is
 * guarded by `lock` or never changes while both run.
 */
#ifndef KERNELS_CUDA_STATE_H
#define KERNELS_CUDA_STATE_H

#include <pthread.h>

#include "kernels/cuda/lane.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ranges.h"

#define STATE_MAX_LANES 64u

struct xop_backend {
    struct gpu gpu;
    cudaMemPool_t pool;    /* NULL where the device has none */
    cudaStream_t bus;      /* lane.h */
    uint32_t fixed_blocks; /* of every launch on host memory; 0: what it reads decides */
    uint32_t copy_blocks;  /* of one that reads one operand */
    uint32_t nlanes, nbusy;
    uint32_t nsignalling;    /* busy lanes that will write the eventfd */
    uint64_t signals_coming; /* writes to it that were not read yet */
    bool lost;
    int event;
    struct memory memory; /* the helper's */
    /* Guards the ranges, which group each lane has, and the memory of lanes without one. CUDA is
     * not called while it is held. */
    pthread_mutex_t lock;
    struct ranges ranges;
    struct lane lane[STATE_MAX_LANES];
};

/* Frees the device memory that idle lanes hold, so that something else may have it; waits for the
 * stream, on which nothing may be going on. Either thread. */
void state_give_back_idle(struct xop_backend *backend, cudaStream_t stream);

#endif
