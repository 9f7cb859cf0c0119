/*
 * What the bare device takes, as a measure for what operators take. The helper thread only.
 */
#ifndef KERNELS_CUDA_PROBE_H
#define KERNELS_CUDA_PROBE_H

#include <cuda_runtime_api.h>

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* On the current device, with memory from the pool, if any; direct_blocks: as many as launches on
 * host memory have. */
enum xop_status probe_cuda(uint64_t bytes_in, uint64_t bytes_out, uint32_t direct_blocks,
                           cudaMemPool_t pool, struct xop_probe *probe, struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
