/* NVIDIA's driver as the kernel, libcuda.so.1 and libnvidia-ml.so.1 tell of it. Both libraries are
 * opened, and their few functions declared here, so that xopctl runs where there is none. Numbers
 * are those of cuda.h and nvml.h. */
#include "doctor.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CU_COMPUTE_MODE 20
#define CU_CAPABILITY_MAJOR 75
#define CU_CAPABILITY_MINOR 76
#define NVML_UNCORRECTED 1
#define NVML_SINCE_LOADED 0

/* Every function that is used: name and parameters; all return int. */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(cuDriverGetVersion, (int *version))                                                          \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDeviceGetCount, (int *count))                                                              \
    X(cuDeviceGet, (int *device, int ordinal))                                                     \
    X(cuDeviceGetName, (char *name, int size, int device))                                         \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                               \
    X(cuDeviceGetPCIBusId, (char *id, int size, int device))
#define NVML_FUNCTIONS(X)                                                                          \
    X(nvmlInit_v2, (void))                                                                         \
    X(nvmlShutdown, (void))                                                                        \
    X(nvmlSystemGetDriverVersion, (char *version, unsigned size))                                  \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *id, void **device))                           \
    X(nvmlDeviceGetTotalEccErrors, (void *device, int type, int counter, unsigned long long *n))   \
    X(nvmlDeviceGetMigMode, (void *device, unsigned *now, unsigned *next))                         \
    X(nvmlDeviceGetEccMode, (void *device, unsigned *now, unsigned *next))                         \
    X(nvmlDeviceGetPersistenceMode, (void *device, unsigned *mode))

#define MEMBER(name, parameters) int(*name) parameters;
struct cuda {
    CUDA_FUNCTIONS(MEMBER)
};
struct nvml {
    NVML_FUNCTIONS(MEMBER)
};

/* ISO C has no conversion from an object's pointer to a function's; POSIX has, by this way. */
#define LOAD(name, parameters)                                                                     \
    found = host->symbol(library, #name);                                                          \
    memcpy(&calls->name, &found, sizeof found);                                                    \
    all = all && found;

static bool load_cuda(const struct doctor_host *host, void *library, struct cuda *calls) {
    void *found;
    bool all = true;
    CUDA_FUNCTIONS(LOAD)
    return all;
}

static bool load_nvml(const struct doctor_host *host, void *library, struct nvml *calls) {
    void *found;
    bool all = true;
    NVML_FUNCTIONS(LOAD)
    return all;
}

/* ---- What the kernel shows ---- */

static unsigned long read_hex(const struct doctor_host *host, const char *device,
                              const char *file) {
    char path[400], text[32];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", device, file);
    return doctor_read(host, path, text, sizeof text) ? strtoul(text, NULL, 16) : 0;
}

static int count_on_bus(const struct doctor_host *host) {
    char path[400];
    int n = 0;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", host->root);
    DIR *devices = opendir(path);
    if (!devices)
        return 0;
    for (struct dirent *entry; (entry = readdir(devices));) {
        if (entry->d_name[0] == '.')
            continue;
        unsigned long class = read_hex(host, entry->d_name, "class") >> 8;
        n += read_hex(host, entry->d_name, "vendor") == 0x10de &&
             (class == 0x0300 || class == 0x0302);
    }
    closedir(devices);
    return n;
}

/* An MPS daemon listens where CUDA_MPS_PIPE_DIRECTORY says, /tmp/nvidia-mps by default. */
static void find_mps(const struct doctor_host *host, struct doctor_driver *driver) {
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[400];
    struct stat info;
    directory = directory && *directory ? directory : "/tmp/nvidia-mps";
    snprintf(path, sizeof path, "%s%.180s/control", host->root, directory);
    if (stat(path, &info) == 0)
        snprintf(driver->mps, sizeof driver->mps, "%.180s", directory);
}

void doctor_probe_bus(const struct doctor_host *host, struct doctor_driver *driver) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char text[64];
    memset(driver, 0, sizeof *driver);
    driver->on_bus = count_on_bus(host);
    if (doctor_read(host, "/sys/module/nvidia/version", text, sizeof text))
        snprintf(driver->module, sizeof driver->module, "%s", text);
    snprintf(driver->visible, sizeof driver->visible, "%s", visible ? visible : "");
    find_mps(host, driver);
}

/* ---- What the libraries tell ---- */

static void ask_device(const struct nvml *nvml, const char *bus_id, struct doctor_device *device) {
    void *handle;
    unsigned mode, next_mode;
    unsigned long long errors;
    if (nvml->nvmlDeviceGetHandleByPciBusId_v2(bus_id, &handle) != 0)
        return;
    if (nvml->nvmlDeviceGetMigMode(handle, &mode, &next_mode) == 0)
        device->mig = (int)mode;
    if (nvml->nvmlDeviceGetPersistenceMode(handle, &mode) == 0)
        device->persistence = (int)mode;
    if (nvml->nvmlDeviceGetEccMode(handle, &mode, &next_mode) == 0) {
        device->ecc = (int)mode;
        device->ecc_next = (int)next_mode;
    }
    if (nvml->nvmlDeviceGetTotalEccErrors(handle, NVML_UNCORRECTED, NVML_SINCE_LOADED, &errors) ==
        0)
        device->memory_errors = (int64_t)errors;
}

static void describe(const struct cuda *cuda, const struct nvml *nvml, int ordinal,
                     struct doctor_device *device) {
    int handle, major = 0, minor = 0;
    char bus_id[32] = "";
    memset(device, 0, sizeof *device);
    device->mig = DOCTOR_UNKNOWN;
    device->persistence = device->ecc = device->ecc_next = DOCTOR_UNKNOWN;
    device->memory_errors = DOCTOR_UNKNOWN;
    snprintf(device->name, sizeof device->name, "device %d", ordinal);
    if (cuda->cuDeviceGet(&handle, ordinal) != 0)
        return;
    cuda->cuDeviceGetName(device->name, (int)sizeof device->name, handle);
    if (cuda->cuDeviceGetAttribute(&major, CU_CAPABILITY_MAJOR, handle) == 0 &&
        cuda->cuDeviceGetAttribute(&minor, CU_CAPABILITY_MINOR, handle) == 0)
        device->architecture = 10 * major + minor;
    if (cuda->cuDeviceGetAttribute(&device->compute_mode, CU_COMPUTE_MODE, handle) != 0)
        device->compute_mode = 0;
    if (nvml && cuda->cuDeviceGetPCIBusId(bus_id, (int)sizeof bus_id, handle) == 0)
        ask_device(nvml, bus_id, device);
}

/* Whether NVML can be asked. */
static bool open_nvml(const struct doctor_host *host, struct nvml *nvml,
                      struct doctor_driver *driver) {
    char why[300];
    void *library = host->open("libnvidia-ml.so.1", why, sizeof why);
    if (!library || !load_nvml(host, library, nvml))
        return false;
    driver->nvml = nvml->nvmlInit_v2();
    if (driver->nvml != 0)
        return false;
    if (nvml->nvmlSystemGetDriverVersion(driver->version, sizeof driver->version) != 0)
        *driver->version = 0;
    return true;
}

void doctor_probe_driver(const struct doctor_host *host, struct doctor_driver *driver) {
    struct cuda cuda;
    struct nvml nvml;
    doctor_probe_bus(host, driver);
    void *library = host->open("libcuda.so.1", driver->why, sizeof driver->why);
    if (!library)
        return;
    driver->loaded = load_cuda(host, library, &cuda);
    if (!driver->loaded) {
        snprintf(driver->why, sizeof driver->why, "libcuda.so.1 lacks functions of CUDA 7.5");
        return;
    }
    bool asks = open_nvml(host, &nvml, driver);
    int count = 0;
    if (cuda.cuDriverGetVersion(&driver->cuda) != 0)
        driver->cuda = 0;
    driver->init = cuda.cuInit(0);
    if (driver->init == 0)
        driver->init = cuda.cuDeviceGetCount(&count);
    if (driver->init == 0)
        driver->ndevices = count < DOCTOR_DEVICES ? count : DOCTOR_DEVICES;
    for (int i = 0; i < driver->ndevices; i++)
        describe(&cuda, asks ? &nvml : NULL, i, &driver->device[i]);
    if (asks)
        nvml.nvmlShutdown();
}
