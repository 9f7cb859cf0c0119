#include "tests/faults/fault.h"

static __global__ void address(float *nowhere) { *nowhere = 1; }

static __global__ void endless(volatile const float *x) {
    /* What it waits for is in no number. */
    while (*x == *x || *x != *x)
        ;
}

static cudaError_t run(const struct xop_call *call, cudaStream_t stream) {
    enum fault fault = fault_of(call);
    uint64_t bytes = 0;
    xop_tensor_bytes(&call->in[0], &bytes);
    if (fault == FAULT_ADDRESS)
        address<<<1, 1, 0, stream>>>((float *)64);
    else if (fault == FAULT_ENDLESS && bytes > 0)
        endless<<<1, 1, 0, stream>>>((const float *)call->in[0].data);
    cudaError_t failed = cudaGetLastError();
    if (failed != cudaSuccess || !call->out[0].data || bytes == 0)
        return failed;
    return cudaMemcpyAsync(call->out[0].data, call->in[0].data, bytes, cudaMemcpyDefault, stream);
}

static enum xop_status launch(const struct xop_launch *launch, struct xop_error *error) {
    cudaError_t failed = cudaSuccess;
    for (uint32_t i = 0; i < launch->ncalls && failed == cudaSuccess; i++) {
        if (fault_on_host(&launch->calls[i], error) != XOP_OK)
            return error->status;
        failed = run(&launch->calls[i], (cudaStream_t)launch->stream);
    }
    if (failed == cudaSuccess)
        return XOP_OK;
    return xop_fail(error, XOP_INTERNAL, "fault: %s", cudaGetErrorString(failed));
}

FAULT_LIBRARY("cuda", launch);
