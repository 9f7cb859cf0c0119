/*
 * Which driver a CUDA toolkit needs and what runs on which architecture: facts of NVIDIA's as
 * tables and rules, apart from what finds them out about a machine.
 */
#ifndef XOPCTL_CUDA_VERSIONS_H
#define XOPCTL_CUDA_VERSIONS_H

#include <stdbool.h>

/* CUDA versions are numbered as CUDA does: 12040 is 12.4. */
#define CUDA_MAJOR(version) ((version) / 1000)
#define CUDA_MINOR(version) ((version) / 10 % 100)

/* The driver that comes with a toolkit, or of the last one before it that is known; NULL for one
 * before the first. */
const char *cuda_driver_of(int toolkit);

/* The oldest driver that runs machine code of a toolkit: from CUDA 11 on that of the first toolkit
 * of the same major version. NULL as above. */
const char *cuda_oldest_driver(int toolkit);

enum cuda_fit {
    CUDA_NO_CODE,
    CUDA_PTX,     /* the driver has to translate */
    CUDA_MACHINE, /* machine code that runs as it is */
};

/* What lists of architectures, "75,80,90a", have for a device of that compute capability (90). */
enum cuda_fit cuda_fit(const char *machine, const char *ptx, int device);

/* Whether a driver that supports a CUDA version runs machine code, and translates PTX, of a
 * toolkit. */
bool cuda_runs(int driver, int toolkit);
bool cuda_translates(int driver, int toolkit);

#endif
