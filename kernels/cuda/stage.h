/*
 * From a group's calls, whose tensors lie in host memory or in the device's, to what a launch gets,
 * whose tensors the device can reach. An operand in device memory is used in place. One in host
 * memory that is read or written once and in order is reached where it lies, across the bus; any
 * other has a place in device memory, is copied there before the launch and, if it is an output,
 * copied back after it. An operand of the host's that is kept has that place where it is kept. A
 * lane owns one; the loop's thread only.
 *
 * Order of use for a group: stage_reserve, stage_plan, which looks into the ranges and calls
 * nothing of CUDA's, then, with stage.bytes of device memory at hand, stage_place, stage_copy_in,
 * the launch, stage_copy_out, and when all is done stage_finish.
 */
#ifndef KERNELS_CUDA_STAGE_H
#define KERNELS_CUDA_STAGE_H

#include <cuda_runtime_api.h>

#include "kernels/backend.h"
#include "kernels/cuda/ranges.h"

/* A copy between where an operand lies and where it has to be in device memory as well: its place
 * for the launch, or where it is kept. */
struct stage_copy {
    struct xop_tensor *tensor; /* the launch's, where the place is in the lane's memory; or NULL */
    void *here;                /* where the operand lies */
    char *direct;              /* the same as the device sees it, or NULL */
    char *there;
    uint64_t bytes, offset; /* the place's, in the lane's memory */
};

struct stage {
    struct xop_call *calls; /* ncalls; what the launch gets */
    struct xop_tensor *tensors;
    struct stage_copy *in, *out; /* before the launch, to there; after it, back */
    struct copy_range *small;    /* scratch */
    uint32_t calls_capacity, operands_capacity;
    uint32_t nin, nout;
    uint64_t bytes;      /* of device memory that the group needs */
    bool direct;         /* some operand is reached across the bus */
    uint32_t reads;      /* the most inputs of one call that are */
    uint32_t call_reads; /* those of the call that is being planned */
    bool engines;        /* large operands are for the copy engines alone, which reach everything */
    bool indices;        /* the group has an index operand to be checked */
    struct xop_bad_index *bad_index; /* pinned; what comes back for each call */
    uint32_t bad_capacity;
    char *base;
};

enum xop_status stage_reserve(struct stage *stage, const struct xop_group *group,
                              struct xop_error *error);
enum xop_status stage_plan(struct stage *stage, const struct ranges *ranges,
                           const struct xop_group *group, struct xop_error *error);
void stage_place(struct stage *stage, const struct xop_group *group, void *base);

/* Whether there is anything to do before the launch, or after it. */
static inline bool stage_has_in(const struct stage *stage) {
    return stage->nin > 0 || stage->indices;
}
static inline bool stage_has_out(const struct stage *stage) {
    return stage->nout > 0 || stage->indices;
}

enum xop_status stage_copy_in(struct stage *stage, uint32_t ncalls, uint32_t max_blocks,
                              cudaStream_t stream, struct xop_error *error);
enum xop_status stage_copy_out(struct stage *stage, uint32_t ncalls, uint32_t max_blocks,
                               cudaStream_t stream, struct xop_error *error);

/* Hands on the bad indices: where a call has one, its value is fetched, over the stream, on which
 * nothing is left to do. */
enum xop_status stage_finish(const struct stage *stage, const struct xop_group *group,
                             cudaStream_t stream, struct xop_error *error);

/* Frees what the host holds; `usable` says whether CUDA may be called. */
void stage_close(struct stage *stage, bool usable);

#endif
