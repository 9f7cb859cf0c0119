/*
 * A lane runs one group at a time: its streams, the events that time it, its device memory and its
 * staging. Owned by the backend; the loop's thread only, but that another one may take the device
 * memory of a lane that has no group.
 *
 * Small groups go on a stream of high priority, so that they need not wait for the blocks of a
 * large one in another lane. Large ones that do nothing but reach across the bus go on one stream
 * that all lanes share, one after the other: side by side they would be no faster, and twice as
 * many reads would queue before a small one's. Device memory grows to what the largest group so far
 * needed and is kept, so that in a steady state nothing is allocated.
 */
#ifndef KERNELS_CUDA_LANE_H
#define KERNELS_CUDA_LANE_H

#include "kernels/cuda/stage.h"

struct lane {
    struct xop_group *group; /* NULL: free */
    cudaStream_t normal, urgent;
    cudaStream_t stream; /* what the group is on: one of them, or what all lanes share */
    cudaEvent_t begin, ready, done, end;
    struct stage stage;
    cudaMemPool_t pool; /* the backend's; NULL where the device has none */
    void *memory;
    uint64_t memory_bytes;
    bool signals; /* an eventfd is written when the group is done */
    /* What went wrong after something had been enqueued: said when the group is done. */
    enum xop_status status;
    struct xop_error error;
};

enum xop_status lane_open(struct lane *lane, cudaMemPool_t pool, struct xop_error *error);

/* A stream for all lanes' large groups that reach across the bus. */
enum xop_status lane_make_bus(cudaStream_t *stream, struct xop_error *error);

/* Frees everything. `usable`: the lane is idle and the device answers; else only what is not
 * CUDA's, since destroying would wait or fail. */
void lane_close(struct lane *lane, bool usable);

/* Makes sure that the free lane has this much device memory. RESOURCE_EXHAUSTED where there is
 * none; the lane has none at all then. */
enum xop_status lane_reserve(struct lane *lane, uint64_t bytes, struct xop_error *error);

/* Gives the free lane's device memory back. */
void lane_release(struct lane *lane);

/* Frees device memory that a lane had, when the stream is that far. */
void lane_free(cudaMemPool_t pool, void *memory, cudaStream_t stream);

/* What the group took on the device, from events that are done. */
enum xop_status lane_times(const struct lane *lane, uint64_t *copy_ns, uint64_t *run_ns,
                           struct xop_error *error);

#endif
