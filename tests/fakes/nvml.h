/*
 * A stand-in for NVIDIA's management library with one device, at 0000:1B:00.0, that says what a
 * test wants it to. The test finds `fake_nvml` by dlsym.
 */
#ifndef FAKES_NVML_H
#define FAKES_NVML_H

#include <pthread.h>

struct fake_nvml {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int rounds;       /* how often the last of the sensors was asked */
    int begun, ended; /* calls of init and shutdown */
    int fails;        /* what init returns */
    int no_power;     /* NOT_SUPPORTED for both */
    int lost;         /* GPU_IS_LOST for all */
    int hangs;        /* the temperature takes until this is 0 */
    int is_hanging;
    unsigned degrees;
};

#endif
