/*
 * Device memory for resident tensors, which other processes can map by a descriptor: made with the
 * driver's virtual memory functions, which are found at run time, so that this library loads where
 * there is no driver. Owned by the backend; once open, the helper thread only.
 */
#ifndef KERNELS_CUDA_MEMORY_H
#define KERNELS_CUDA_MEMORY_H

#include <cuda_runtime_api.h>
#include <cudaTypedefs.h>

#include "kernels/cuda/gpu.h"

struct memory_driver {
    PFN_cuDeviceGetAttribute_v2000 attribute;
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemExportToShareableHandle_v10020 export_handle;
    PFN_cuMemImportFromShareableHandle_v10020 import_handle;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 free_address;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
};

struct memory {
    int ordinal;
    struct memory_driver driver;
    uint64_t granularity; /* 0: the device or its driver cannot do this */
    cudaStream_t stream;  /* the helper's */
};

/* What the driver lacks shows in memory_make and memory_import, as UNIMPLEMENTED. */
enum xop_status memory_open(struct memory *memory, const struct gpu *gpu, struct xop_error *error);
/* What is still mapped is not touched. `usable`: CUDA may be called. */
void memory_close(struct memory *memory, bool usable);

/* As in kernels/backend.h, but for zeroing. RESOURCE_EXHAUSTED where the device has too little. */
enum xop_status memory_make(const struct memory *memory, uint64_t *bytes, int *descriptor,
                            void **base, struct xop_error *error);
enum xop_status memory_import(const struct memory *memory, int descriptor, uint64_t bytes,
                              void **base, struct xop_error *error);
enum xop_status memory_zero(const struct memory *memory, void *base, uint64_t bytes,
                            struct xop_error *error);
enum xop_status memory_unmap(const struct memory *memory, void *base, uint64_t bytes,
                             struct xop_error *error);

#endif
