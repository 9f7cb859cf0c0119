#include "kernels/cuda/check.h"

/* After these the context is lost and every further call in this process fails. */
static bool is_fault(cudaError_t code) {
    switch ((int)code) {
    case 226: /* cudaErrorContained, and 721, cudaErrorTensorMemoryLeak: not in every header */
    case 721:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorContextIsDestroyed:
    case cudaErrorExternalDevice:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown: return true;
    default: return false;
    }
}

enum xop_status check_status(cudaError_t code) {
    if (code == cudaSuccess)
        return XOP_OK;
    if (is_fault(code))
        return XOP_DEVICE_FAULT;
    return code == cudaErrorMemoryAllocation || code == cudaErrorLaunchOutOfResources
               ? XOP_RESOURCE_EXHAUSTED
               : XOP_INTERNAL;
}

enum xop_status check_cuda(cudaError_t code, const char *call, const char *file, int line,
                           struct xop_error *error) {
    if (code == cudaSuccess)
        return XOP_OK;
    return xop_fail(error, check_status(code), "%s (%s) from %.200s at %s:%d",
                    cudaGetErrorName(code), cudaGetErrorString(code), call, file, line);
}
