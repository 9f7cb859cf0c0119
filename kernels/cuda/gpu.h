/*
 * The device itself: finding it, saying precisely why it cannot be used, and its properties. Opened
 * once by the backend; afterwards read only, by any thread.
 */
#ifndef KERNELS_CUDA_GPU_H
#define KERNELS_CUDA_GPU_H

#include <xop/types.h>

struct gpu {
    int ordinal;
    char name[128];
    char runtime[64]; /* "CUDA 13.0, driver 13.0" */
    char pci[16];     /* "0000:1B:00.0"; empty: unknown */
    int multiprocessors;
    int compute_capability;   /* 10 * major + minor */
    bool registers_read_only; /* host memory that is mapped read-only can be pinned */
    bool sees_host_addresses; /* registered host memory has the same address for both */
    bool has_pools;           /* stream-ordered allocation */
};

/* Makes the device current for the calling thread and its context usable. UNAVAILABLE with the
 * reason where that cannot be. */
enum xop_status gpu_open(int ordinal, struct gpu *gpu, struct xop_error *error);

/* Makes the device current for the calling thread, if it is not. */
enum xop_status gpu_enter(const struct gpu *gpu, struct xop_error *error);

#endif
