/*
 * Copies: many small ones as one launch, each too small to be worth a call into CUDA of its own,
 * and large ones by the copy engines; and the copy operator, which is made of both. Called by the
 * backend, on the loop's thread.
 */
#ifndef KERNELS_CUDA_COPY_H
#define KERNELS_CUDA_COPY_H

#include <cuda_runtime_api.h>

#include <xop/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COPY_SMALL (UINT64_C(64) << 10) /* bytes, up to which a copy goes this way */

/* Host memory is registered in pieces that end at multiples of this, and one call into CUDA may not
 * copy from or to more than one of them. */
#define COPY_PIECE (UINT64_C(64) << 20)

/* Both addresses are the device's. */
struct copy_range {
    const void *from;
    void *to;
    uint64_t bytes;
};

/* Enqueues all copies. Ranges that are written must not overlap any other. */
enum xop_status copy_enqueue(const struct copy_range *ranges, uint32_t n, uint32_t max_blocks,
                             cudaStream_t stream, struct xop_error *error);

/* Enqueues one copy for the engines. An address may be the host's, also of pageable memory, which
 * takes the caller's time. */
enum xop_status copy_large(void *to, const void *from, uint64_t bytes, cudaStream_t stream,
                           struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
