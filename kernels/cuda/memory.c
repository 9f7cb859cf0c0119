#include "kernels/cuda/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/check.h"

#define HANDLE_TYPE CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

/* ---- The driver's functions ---- */

static const struct {
    const char *name;
    unsigned version; /* of the function's form */
    size_t offset;
} functions[] = {
    {"cuDeviceGetAttribute", 2000, offsetof(struct memory_driver, attribute)},
    {"cuMemGetAllocationGranularity", 10020, offsetof(struct memory_driver, granularity)},
    {"cuMemCreate", 10020, offsetof(struct memory_driver, create)},
    {"cuMemRelease", 10020, offsetof(struct memory_driver, release)},
    {"cuMemExportToShareableHandle", 10020, offsetof(struct memory_driver, export_handle)},
    {"cuMemImportFromShareableHandle", 10020, offsetof(struct memory_driver, import_handle)},
    {"cuMemAddressReserve", 10020, offsetof(struct memory_driver, reserve)},
    {"cuMemAddressFree", 10020, offsetof(struct memory_driver, free_address)},
    {"cuMemMap", 10020, offsetof(struct memory_driver, map)},
    {"cuMemUnmap", 10020, offsetof(struct memory_driver, unmap)},
    {"cuMemSetAccess", 10020, offsetof(struct memory_driver, set_access)},
};

static cudaError_t find(const char *name, unsigned version, void **function) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t code;
#if CUDART_VERSION >= 12050
    code = cudaGetDriverEntryPointByVersion(name, function, version, cudaEnableDefault, &found);
#else
    (void)version; /* the runtime's own, which is later: these have had one form only */
    code = cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &found);
#endif
    if (code == cudaSuccess && found != cudaDriverEntryPointSuccess)
        code = cudaErrorSymbolNotFound;
    return code;
}

static bool load(struct memory_driver *driver) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = NULL;
        if (find(functions[i].name, functions[i].version, &function) != cudaSuccess || !function) {
            cudaGetLastError(); /* not a later call's failure */
            return false;
        }
        memcpy((char *)driver + functions[i].offset, &function, sizeof function);
    }
    return true;
}

/* The driver's codes are the runtime's, by number. */
static enum xop_status fail(struct xop_error *error, CUresult code, const char *call) {
    const cudaError_t same = (cudaError_t)code;
    return xop_fail(error, check_status(same), "%s (%s) from %s", cudaGetErrorName(same),
                    cudaGetErrorString(same), call);
}

#define CHECK_DRIVER(error, code, name) ((code) == CUDA_SUCCESS ? XOP_OK : fail(error, code, name))

static CUmemAllocationProp properties_of(const struct memory *memory) {
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = HANDLE_TYPE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->ordinal},
    };
    return properties;
}

static bool supported(const struct memory *memory) {
    static const CUdevice_attribute needed[] = {
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    };
    bool all = true;

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        int value = 0;
        all = all && memory->driver.attribute(&value, needed[i], memory->ordinal) == CUDA_SUCCESS &&
              value;
    }
    return all;
}

enum xop_status memory_open(struct memory *memory, const struct gpu *gpu, struct xop_error *error) {
    CUmemAllocationProp properties;
    size_t granularity = 0;

    memory->ordinal = gpu->ordinal;
    properties = properties_of(memory);
    if (load(&memory->driver) && supported(memory) &&
        memory->driver.granularity(&granularity, &properties,
                                   CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS)
        memory->granularity = granularity;
    return CHECK_CUDA(error, cudaStreamCreateWithFlags(&memory->stream, cudaStreamNonBlocking));
}

void memory_close(struct memory *memory, bool usable) {
    if (usable && memory->stream)
        cudaStreamDestroy(memory->stream);
    memset(memory, 0, sizeof *memory);
}

/* ---- Mapping ---- */

static enum xop_status check_supported(const struct memory *memory, struct xop_error *error) {
    if (memory->granularity > 0)
        return XOP_OK;
    return xop_fail(error, XOP_UNIMPLEMENTED,
                    "this device or its driver cannot share device memory between processes");
}

/* Where the bytes are to be seen by the device; the memory behind the handle stays mapped when the
 * handle is released. */
static enum xop_status map(const struct memory *memory, CUmemGenericAllocationHandle handle,
                           uint64_t bytes, void **base, struct xop_error *error) {
    const struct memory_driver *driver = &memory->driver;
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUdeviceptr at = 0;
    CUresult code = driver->reserve(&at, bytes, memory->granularity, 0, 0);
    enum xop_status status = CHECK_DRIVER(error, code, "cuMemAddressReserve");

    if (status != XOP_OK)
        return status;
    code = driver->map(at, bytes, 0, handle, 0);
    if (code == CUDA_SUCCESS) {
        code = driver->set_access(at, bytes, &access, 1);
        status = CHECK_DRIVER(error, code, "cuMemSetAccess");
        if (status != XOP_OK)
            driver->unmap(at, bytes);
    } else {
        status = fail(error, code, "cuMemMap");
    }
    if (status == XOP_OK)
        *base = (void *)(uintptr_t)at;
    else
        driver->free_address(at, bytes);
    return status;
}

/* A descriptor that a child process does not inherit. */
static enum xop_status export_to(const struct memory *memory, CUmemGenericAllocationHandle handle,
                                 int *descriptor, struct xop_error *error) {
    int fd = -1;
    CUresult code = memory->driver.export_handle(&fd, handle, HANDLE_TYPE, 0);
    enum xop_status status = CHECK_DRIVER(error, code, "cuMemExportToShareableHandle");

    if (status == XOP_OK && fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        status =
            xop_fail(error, XOP_INTERNAL, "fcntl of a memory's descriptor: %s", strerror(errno));
        close(fd);
    }
    if (status == XOP_OK)
        *descriptor = fd;
    return status;
}

static enum xop_status create(const struct memory *memory, uint64_t bytes,
                              CUmemGenericAllocationHandle *handle, struct xop_error *error) {
    const CUmemAllocationProp properties = properties_of(memory);
    CUresult code = memory->driver.create(handle, bytes, &properties, 0);
    size_t available = 0, total = 0;

    if (code != CUDA_ERROR_OUT_OF_MEMORY)
        return CHECK_DRIVER(error, code, "cuMemCreate");
    if (cudaMemGetInfo(&available, &total) != cudaSuccess)
        cudaGetLastError(); /* not a later call's failure */
    return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                    "the device has no %llu bytes of memory left: of its %llu, %llu are free",
                    (unsigned long long)bytes, (unsigned long long)total,
                    (unsigned long long)available);
}

enum xop_status memory_make(const struct memory *memory, uint64_t *bytes, int *descriptor,
                            void **base, struct xop_error *error) {
    enum xop_status status = check_supported(memory, error);
    CUmemGenericAllocationHandle handle = 0;
    uint64_t size;

    if (status != XOP_OK)
        return status;
    if (*bytes == 0 || *bytes > INT64_MAX - memory->granularity)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "a memory cannot have %llu bytes",
                        (unsigned long long)*bytes);
    size = (*bytes + memory->granularity - 1) / memory->granularity * memory->granularity;
    status = create(memory, size, &handle, error);
    if (status != XOP_OK)
        return status;
    status = map(memory, handle, size, base, error);
    if (status == XOP_OK) {
        status = export_to(memory, handle, descriptor, error);
        if (status != XOP_OK)
            memory_unmap(memory, *base, size, NULL);
    }
    memory->driver.release(handle);
    if (status == XOP_OK)
        *bytes = size;
    return status;
}

enum xop_status memory_import(const struct memory *memory, int descriptor, uint64_t bytes,
                              void **base, struct xop_error *error) {
    enum xop_status status = check_supported(memory, error);
    CUmemGenericAllocationHandle handle = 0;
    CUresult code;

    if (status != XOP_OK)
        return status;
    if (bytes == 0 || bytes % memory->granularity != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "a memory of %llu bytes was not made on this device, whose memory comes in "
                        "units of %llu",
                        (unsigned long long)bytes, (unsigned long long)memory->granularity);
    code = memory->driver.import_handle(&handle, (void *)(intptr_t)descriptor, HANDLE_TYPE);
    if (code != CUDA_SUCCESS)
        return fail(error, code, "cuMemImportFromShareableHandle");
    status = map(memory, handle, bytes, base, error);
    memory->driver.release(handle);
    return status;
}

enum xop_status memory_zero(const struct memory *memory, void *base, uint64_t bytes,
                            struct xop_error *error) {
    enum xop_status status = CHECK_CUDA(error, cudaMemsetAsync(base, 0, bytes, memory->stream));
    return status == XOP_OK ? CHECK_CUDA(error, cudaStreamSynchronize(memory->stream)) : status;
}

enum xop_status memory_unmap(const struct memory *memory, void *base, uint64_t bytes,
                             struct xop_error *error) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)base;
    CUresult code = memory->driver.unmap(at, bytes);

    if (code != CUDA_SUCCESS)
        return fail(error, code, "cuMemUnmap");
    code = memory->driver.free_address(at, bytes);
    return CHECK_DRIVER(error, code, "cuMemAddressFree");
}
