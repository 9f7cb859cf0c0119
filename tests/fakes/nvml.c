#include "tests/fakes/nvml.h"

#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPU_IS_LOST = 15 };

struct fake_nvml fake_nvml = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .degrees = 41};

/* The device is no pointer to anything. */
static int device;

static int answer(const void *handle, int unsupported) {
    if (handle != &device)
        return NOT_FOUND;
    pthread_mutex_lock(&fake_nvml.lock);
    int code = fake_nvml.lost ? GPU_IS_LOST : unsupported ? NOT_SUPPORTED : OK;
    pthread_mutex_unlock(&fake_nvml.lock);
    return code;
}

static void note(int *counter) {
    pthread_mutex_lock(&fake_nvml.lock);
    ++*counter;
    pthread_cond_broadcast(&fake_nvml.changed);
    pthread_mutex_unlock(&fake_nvml.lock);
}

int nvmlInit_v2(void) {
    note(&fake_nvml.begun);
    return fake_nvml.fails;
}

int nvmlShutdown(void) {
    note(&fake_nvml.ended);
    return OK;
}

const char *nvmlErrorString(int code) { return code == NOT_FOUND ? "Not Found" : "Some Error"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, const void **out) {
    *out = &device;
    return strcmp(pci, "0000:1B:00.0") == 0 ? OK : NOT_FOUND;
}

int nvmlDeviceGetUtilizationRates(const void *handle, unsigned busy[2]) {
    busy[0] = 93;
    busy[1] = 0;
    return answer(handle, 0);
}

int nvmlDeviceGetMemoryInfo(const void *handle, unsigned long long memory[3]) {
    memory[0] = 150000000000;
    memory[1] = 149000000000;
    memory[2] = 1000000000;
    return answer(handle, 0);
}

int nvmlDeviceGetTemperature(const void *handle, int sensor, unsigned *degrees) {
    if (sensor != 0)
        return NOT_SUPPORTED;
    pthread_mutex_lock(&fake_nvml.lock);
    *degrees = fake_nvml.degrees;
    while (fake_nvml.hangs) {
        fake_nvml.is_hanging = 1;
        pthread_cond_broadcast(&fake_nvml.changed);
        pthread_cond_wait(&fake_nvml.changed, &fake_nvml.lock);
    }
    fake_nvml.is_hanging = 0;
    pthread_mutex_unlock(&fake_nvml.lock);
    return answer(handle, 0);
}

int nvmlDeviceGetPowerUsage(const void *handle, unsigned *milliwatts) {
    *milliwatts = 123456;
    return answer(handle, fake_nvml.no_power);
}

int nvmlDeviceGetEnforcedPowerLimit(const void *handle, unsigned *milliwatts) {
    *milliwatts = 700000;
    return answer(handle, fake_nvml.no_power);
}

int nvmlDeviceGetTotalEccErrors(const void *handle, int type, int counter,
                                unsigned long long *errors) {
    if (counter != 0)
        return NOT_SUPPORTED;
    *errors = type == 0 ? 17 : 0;
    int code = answer(handle, 0);
    if (type == 1)
        note(&fake_nvml.rounds);
    return code;
}
