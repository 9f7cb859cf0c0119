#include "kernels/cuda/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/check.h"

/* What a person can do about an error from the first calls into CUDA. */
static const struct {
    cudaError_t code;
    const char *advice;
} advices[] = {
    {cudaErrorNoDevice, "no NVIDIA device is visible to this process: see nvidia-smi, the "
                        "permissions of /dev/nvidia*, and CUDA_VISIBLE_DEVICES"},
    {cudaErrorInsufficientDriver, "no NVIDIA driver is loaded, or it is too old"},
    {cudaErrorSystemDriverMismatch, "the driver's kernel module and its library are of different "
                                    "versions; usually a restart of the machine is due"},
    {cudaErrorCompatNotSupportedOnDevice, "the forward compatibility library in use does not "
                                          "support this device"},
    {cudaErrorSystemNotReady, "a service that the driver needs is not running, such as "
                              "nvidia-fabricmanager"},
    {cudaErrorDevicesUnavailable, "the device is busy or refuses this process; in exclusive mode "
                                  "one process alone may use it"},
    {cudaErrorInitializationError, "the driver cannot be initialised in this process"},
    {cudaErrorMemoryAllocation, "the device has no memory left for a context"},
    {cudaErrorNotPermitted, "this process may not use the device"},
    {cudaErrorMpsConnectionFailed, "the MPS server of this machine cannot be reached"},
    {cudaErrorNoKernelImageForDevice, "this build holds no code for the device's architecture"},
};

/* UNAVAILABLE, whatever the code: nothing ran yet, and another attempt may help. */
static enum xop_status unavailable(cudaError_t code, const char *doing, struct xop_error *error) {
    const char *advice = "";
    int driver = 0;

    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (advices[i].code == code)
            advice = advices[i].advice;
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    if (driver == 0)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "no NVIDIA driver is loaded on this machine; this build needs one for CUDA "
                        "%d.%d or later (%s from %s)",
                        CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100, cudaGetErrorName(code),
                        doing);
    if (code == cudaErrorInsufficientDriver)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "the NVIDIA driver is for CUDA %d.%d but this build needs one for CUDA "
                        "%d.%d or later: install a newer driver",
                        driver / 1000, driver / 10 % 100, CUDART_VERSION / 1000,
                        CUDART_VERSION / 10 % 100);
    return xop_fail(error, XOP_UNAVAILABLE, "%s failed: %s (%s)%s%s", doing,
                    cudaGetErrorString(code), cudaGetErrorName(code), advice[0] ? ": " : "",
                    advice);
}

static int attribute(int ordinal, enum cudaDeviceAttr which) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, ordinal) == cudaSuccess ? value : 0;
}

static enum xop_status choose(int ordinal, struct xop_error *error) {
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);

    if (code != cudaSuccess)
        return unavailable(code, "looking for devices", error);
    if (count == 0)
        return unavailable(cudaErrorNoDevice, "looking for devices", error);
    if (ordinal < 0 || ordinal >= count)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "there is no CUDA device %d; this machine shows %d, numbered from 0",
                        ordinal, count);
    if (attribute(ordinal, cudaDevAttrComputeMode) == cudaComputeModeProhibited)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "CUDA device %d is in compute mode PROHIBITED (nvidia-smi -c changes it)",
                        ordinal);
    return XOP_OK;
}

static enum xop_status describe(struct gpu *gpu, struct xop_error *error) {
    struct cudaDeviceProp properties;
    int driver = 0;
    cudaError_t code = cudaGetDeviceProperties(&properties, gpu->ordinal);

    if (code != cudaSuccess)
        return unavailable(code, "reading the device's properties", error);
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    snprintf(gpu->name, sizeof gpu->name, "%.*s", (int)sizeof gpu->name - 1, properties.name);
    snprintf(gpu->runtime, sizeof gpu->runtime, "CUDA %d.%d, driver %d.%d", CUDART_VERSION / 1000,
             CUDART_VERSION / 10 % 100, driver / 1000, driver / 10 % 100);
    /* For what is told about it alone: nothing fails without. */
    if (cudaDeviceGetPCIBusId(gpu->pci, (int)sizeof gpu->pci, gpu->ordinal) != cudaSuccess) {
        cudaGetLastError(); /* not a later call's failure */
        gpu->pci[0] = 0;
    }
    gpu->multiprocessors = properties.multiProcessorCount;
    gpu->compute_capability = 10 * properties.major + properties.minor;
    gpu->registers_read_only =
        attribute(gpu->ordinal, cudaDevAttrHostRegisterReadOnlySupported) != 0;
    gpu->sees_host_addresses =
        attribute(gpu->ordinal, cudaDevAttrCanUseHostPointerForRegisteredMem) != 0;
    gpu->has_pools = attribute(gpu->ordinal, cudaDevAttrMemoryPoolsSupported) != 0;
    if (!attribute(gpu->ordinal, cudaDevAttrCanMapHostMemory) ||
        !attribute(gpu->ordinal, cudaDevAttrUnifiedAddressing))
        return xop_fail(error, XOP_UNAVAILABLE, "%s cannot access host memory directly", gpu->name);
    return XOP_OK;
}

enum xop_status gpu_open(int ordinal, struct gpu *gpu, struct xop_error *error) {
    enum xop_status status = choose(ordinal, error);
    cudaError_t code;

    memset(gpu, 0, sizeof *gpu);
    gpu->ordinal = ordinal;
    if (status != XOP_OK)
        return status;
    code = cudaSetDevice(ordinal);
    if (code == cudaSuccess)
        code = cudaFree(NULL); /* makes the context */
    if (code != cudaSuccess)
        return unavailable(code, "making a context on the device", error);
    return describe(gpu, error);
}

enum xop_status gpu_enter(const struct gpu *gpu, struct xop_error *error) {
    static _Thread_local bool entered;
    static _Thread_local int current;
    enum xop_status status = XOP_OK;

    if (entered && current == gpu->ordinal)
        return XOP_OK;
    status = CHECK_CUDA(error, cudaSetDevice(gpu->ordinal));
    entered = status == XOP_OK;
    current = gpu->ordinal;
    return status;
}
