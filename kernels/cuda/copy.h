/*
 * Many small copies as one launch: operands of a group that are staged, each too small to be worth
 * a call into CUDA of its own. Called by the backend, on the loop's thread.
 */
#ifndef KERNELS_CUDA_COPY_H
#define KERNELS_CUDA_COPY_H

#include <cuda_runtime_api.h>

#include <xop/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COPY_SMALL (UINT64_C(64) << 10) /* bytes, up to which a copy goes this way */

/* Both addresses are the device's. */
struct copy_range {
    const void *from;
    void *to;
    uint64_t bytes;
};

/* Enqueues all copies. Ranges that are written must not overlap any other. */
enum xop_status copy_enqueue(const struct copy_range *ranges, uint32_t n, uint32_t max_blocks,
                             cudaStream_t stream, struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
