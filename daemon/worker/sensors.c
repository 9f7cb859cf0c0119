#include "sensors.h"

#include "daemon/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEAVE_MS 1000 /* how long closing waits for a call into the driver */

/* Of NVML's interface, which is kept stable, what is used here: NVML API Reference Guide, "Device
 * Queries" and "Initialization and Cleanup". */
typedef struct nvml_device *nvml_device; /* nvmlDevice_t */

struct nvml_utilization { /* nvmlUtilization_t */
    unsigned gpu, memory;
};

struct nvml_memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};

enum { NVML_OK = 0, NVML_TEMPERATURE_GPU = 0, NVML_ECC_VOLATILE = 0 };

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int);
    int (*by_pci)(const char *, nvml_device *);
    int (*utilization)(nvml_device, struct nvml_utilization *);
    int (*memory)(nvml_device, struct nvml_memory *);
    int (*temperature)(nvml_device, int sensor, unsigned *);
    int (*power)(nvml_device, unsigned *);
    int (*power_limit)(nvml_device, unsigned *);
    int (*ecc)(nvml_device, int type, int counter, unsigned long long *);
};

static const struct {
    const char *name;
    size_t offset;
    bool needed; /* without which nothing can be asked */
} symbols[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init), true},
    {"nvmlShutdown", offsetof(struct nvml, shutdown), true},
    {"nvmlErrorString", offsetof(struct nvml, error_string), true},
    {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct nvml, by_pci), true},
    {"nvmlDeviceGetUtilizationRates", offsetof(struct nvml, utilization), false},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory), false},
    {"nvmlDeviceGetTemperature", offsetof(struct nvml, temperature), false},
    {"nvmlDeviceGetPowerUsage", offsetof(struct nvml, power), false},
    {"nvmlDeviceGetEnforcedPowerLimit", offsetof(struct nvml, power_limit), false},
    {"nvmlDeviceGetTotalEccErrors", offsetof(struct nvml, ecc), false},
};

struct sensors {
    char library[256], pci[32];
    uint32_t every_ms;
    _Atomic uint64_t *values;
    struct nvml nvml;
    nvml_device device;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    bool ended, abandoned; /* the last of the two sides frees it */
};

/* ---- One reading ---- */

static void publish(struct sensors *s, enum seam_sensor sensor, bool known, uint64_t value) {
    atomic_store_explicit(&s->values[sensor], known && value < UINT64_MAX ? value + 1 : 0,
                          memory_order_relaxed);
}

static void read_utilization(struct sensors *s) {
    struct nvml_utilization busy = {0};
    bool known = s->nvml.utilization && s->nvml.utilization(s->device, &busy) == NVML_OK;
    publish(s, SEAM_GPU_BUSY, known, busy.gpu);
    publish(s, SEAM_GPU_MEMORY_BUSY, known, busy.memory);
}

static void read_memory(struct sensors *s) {
    struct nvml_memory memory = {0};
    bool known = s->nvml.memory && s->nvml.memory(s->device, &memory) == NVML_OK;
    publish(s, SEAM_GPU_MEMORY_USED, known, memory.used);
}

static void read_temperature(struct sensors *s) {
    unsigned degrees = 0;
    bool known = s->nvml.temperature &&
                 s->nvml.temperature(s->device, NVML_TEMPERATURE_GPU, &degrees) == NVML_OK;
    publish(s, SEAM_GPU_TEMPERATURE, known, degrees);
}

static void read_power(struct sensors *s) {
    unsigned used = 0, limit = 0;
    bool known = s->nvml.power && s->nvml.power(s->device, &used) == NVML_OK;
    publish(s, SEAM_GPU_POWER, known, used);
    known = s->nvml.power_limit && s->nvml.power_limit(s->device, &limit) == NVML_OK;
    publish(s, SEAM_GPU_POWER_LIMIT, known, limit);
}

/* The kind of an error is its place behind CORRECTED, as it is for NVML. */
static void read_ecc(struct sensors *s) {
    for (int kind = 0; kind < 2; kind++) {
        unsigned long long errors = 0;
        bool known =
            s->nvml.ecc && s->nvml.ecc(s->device, kind, NVML_ECC_VOLATILE, &errors) == NVML_OK;
        publish(s, SEAM_GPU_ECC_CORRECTED + (enum seam_sensor)kind, known, errors);
    }
}

static void (*const readings[])(struct sensors *) = {read_utilization, read_memory,
                                                     read_temperature, read_power, read_ecc};

/* ---- The thread ---- */

static bool load(struct sensors *s) {
    void *library = dlopen(s->library, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        log_info("no sensors: %s", why ? why : s->library);
        return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void **at = (void **)(void *)((char *)&s->nvml + symbols[i].offset);
        *at = dlsym(library, symbols[i].name);
        if (*at || !symbols[i].needed)
            continue;
        log_info("no sensors: %s has no %s", s->library, symbols[i].name);
        dlclose(library);
        return false;
    }
    return true; /* it stays loaded for the process's life */
}

static bool begin(struct sensors *s) {
    int failed = load(s) ? s->nvml.init() : -1;
    if (failed < 0)
        return false;
    if (failed == NVML_OK) {
        failed = s->nvml.by_pci(s->pci, &s->device);
        if (failed == NVML_OK)
            return true;
        s->nvml.shutdown();
    }
    log_info("no sensors for the device at %s: NVML: %s", s->pci, s->nvml.error_string(failed));
    return false;
}

/* Waits; false where it is time to end. */
static bool pause_goes_on(struct sensors *s) {
    struct timespec until;
    int waited = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)s->every_ms % 1000 * 1000000;
    until.tv_sec += (time_t)(s->every_ms / 1000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&s->lock);
    while (!s->stop && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&s->changed, &s->lock, &until);
    bool goes_on = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

static void read_until_stopped(struct sensors *s) {
    do {
        for (size_t i = 0; i < sizeof readings / sizeof *readings; i++)
            readings[i](s);
    } while (pause_goes_on(s));
    for (int i = 0; i < SEAM_SENSORS; i++)
        publish(s, (enum seam_sensor)i, false, 0);
    s->nvml.shutdown();
}

static void free_all(struct sensors *s) {
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void *run(void *arg) {
    struct sensors *s = arg;
    if (begin(s))
        read_until_stopped(s);
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    bool abandoned = s->abandoned;
    pthread_mutex_unlock(&s->lock);
    if (abandoned)
        free_all(s);
    return NULL;
}

struct sensors *sensors_open(const char *library, const char *pci, uint32_t every_ms,
                             _Atomic uint64_t *values) {
    struct sensors *s = *pci ? calloc(1, sizeof *s) : NULL;
    pthread_condattr_t monotonic;
    if (!s) {
        log_debug("no sensors: the device has no known place on the PCI bus");
        return NULL;
    }
    snprintf(s->library, sizeof s->library, "%s", library);
    snprintf(s->pci, sizeof s->pci, "%s", pci);
    s->every_ms = every_ms;
    s->values = values;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failed = pthread_create(&s->thread, NULL, run, s);
    if (!failed)
        return s;
    log_warn("no sensors: pthread_create: %s", strerror(failed));
    free_all(s);
    return NULL;
}

void sensors_close(struct sensors *s) {
    struct timespec until;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVE_MS / 1000;
    if (pthread_timedjoin_np(s->thread, NULL, &until) == 0) {
        free_all(s);
        return;
    }
    log_warn("the device's sensors do not answer: they are left alone");
    pthread_detach(s->thread);
    pthread_mutex_lock(&s->lock);
    s->abandoned = true;
    bool ended = s->ended;
    pthread_mutex_unlock(&s->lock);
    if (ended)
        free_all(s);
}
