/*
 * What a failed CUDA call means for a request, and the macro through which every call is made. Used
 * by the backend (C) and by operators (CUDA C++). Callable from any thread.
 */
#ifndef KERNELS_CUDA_CHECK_H
#define KERNELS_CUDA_CHECK_H

#include <cuda_runtime_api.h>

#include <xop/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* XOP_OK, or a failure whose sentence names the error, the call and its place. */
#define CHECK_CUDA(error, call) check_cuda((call), #call, __FILE__, __LINE__, (error))

enum xop_status check_cuda(cudaError_t code, const char *call, const char *file, int line,
                           struct xop_error *error);

/* The status that fits a CUDA error: DEVICE_FAULT for those after which only a new process can use
 * the device, RESOURCE_EXHAUSTED where memory is short, else INTERNAL. */
enum xop_status check_status(cudaError_t code);

#ifdef __cplusplus
}
#endif
#endif
