#include "device.h"

#include "populate.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_WAIT_NS UINT64_C(30000000000)
#define DRIVER_RETRY_US 500000

static unsigned read_hex(const char *device, const char *file) {
    char path[300], text[32] = "";
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", device, file);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (!fgets(text, sizeof text, f))
        text[0] = 0;
    fclose(f);
    return (unsigned)strtoul(text, NULL, 16);
}

static bool is_gpu(unsigned class) { return class == 0x0300 || class == 0x0302; }

/* Whether the machine shows an NVIDIA display or 3D controller, whatever its driver does. */
static bool shows_nvidia(void) {
    bool found = access("/proc/driver/nvidia", F_OK) == 0;
    DIR *devices = opendir("/sys/bus/pci/devices");
    if (!devices)
        return found;
    for (struct dirent *entry; !found && (entry = readdir(devices));)
        found = entry->d_name[0] != '.' && read_hex(entry->d_name, "vendor") == 0x10de &&
                is_gpu(read_hex(entry->d_name, "class") >> 8);
    closedir(devices);
    return found;
}

/* Backends stay loaded for the process's life: nothing of them is freed safely while threads run.
 */
static const struct xop_backend_api *load(const struct worker *worker, const char *name,
                                          struct xop_error *error) {
    char path[sizeof worker->setup.backend_path + 32];
    snprintf(path, sizeof path, "%s/xop-%s.so", worker->setup.backend_path, name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        xop_fail(error, XOP_UNAVAILABLE, "the %s backend cannot be loaded: %.400s", name,
                 why ? why : path);
        return NULL;
    }
    xop_backend_entry_fn entry;
    *(void **)&entry = dlsym(handle, XOP_BACKEND_ENTRY);
    const struct xop_backend_api *api = entry ? entry(XOP_BACKEND_ABI) : NULL;
    if (api && api->abi != XOP_BACKEND_ABI)
        api = NULL;
    if (!api)
        xop_fail(error, XOP_UNAVAILABLE, "%s is no backend of this version", path);
    return api;
}

static enum xop_status open_loaded(struct worker *worker, struct xop_error *error) {
    struct xop_backend_config config = {.device = worker->setup.device,
                                        .lanes = worker->setup.streams,
                                        .threads = worker->setup.threads};
    return worker->api->open(&config, &worker->backend, error);
}

/* Makes the shared memory known to the backend, which is closed where that fails. */
static enum xop_status share_memory(struct worker *worker, struct xop_error *error) {
    const struct xop_backend_api *api = worker->api;
    void *inbox = (void *)(uintptr_t)worker->inbox;
    enum xop_status status =
        api->register_host(worker->backend, inbox, worker->setup.inbox_bytes, true, error);
    if (status == XOP_OK)
        status = api->register_host(worker->backend, worker->outbox.base,
                                    worker->setup.outbox_bytes, false, error);
    if (status != XOP_OK) {
        api->close(worker->backend);
        worker->backend = NULL;
    }
    return status;
}

static enum xop_status open_cpu(struct worker *worker, struct xop_error *error) {
    worker->api = load(worker, "cpu", error);
    if (!worker->api)
        return error->status;
    enum xop_status status = open_loaded(worker, error);
    return status == XOP_OK ? share_memory(worker, error) : status;
}

/* As open_loaded, while the shared memory gets its pages. */
static enum xop_status open_populating(struct worker *worker, struct xop_error *error) {
    bool likely = shows_nvidia(); /* else what is populated is not needed */
    struct populate *in = NULL, *out = NULL;
    if (likely) {
        in = populate_begin(worker->inbox, worker->setup.inbox_bytes, false);
        out = populate_begin(worker->outbox.base, worker->setup.outbox_bytes, true);
    }
    enum xop_status status = open_loaded(worker, error);
    populate_end(in);
    populate_end(out);
    return status;
}

/* Waits for a driver only: a library that cannot be loaded will not be there later either. */
static enum xop_status open_cuda(struct worker *worker, struct xop_error *error) {
    uint64_t until = worker_now() + (shows_nvidia() ? DRIVER_WAIT_NS : 0);
    bool told = false;
    worker->api = load(worker, "cuda", error);
    if (!worker->api)
        return error->status;
    for (;;) {
        enum xop_status status = open_populating(worker, error);
        if (status == XOP_OK)
            return share_memory(worker, error);
        if (worker_now() >= until)
            return status;
        if (!told)
            log_warn("waiting for the NVIDIA driver: %s", error->message);
        told = true;
        usleep(DRIVER_RETRY_US);
    }
}

static enum xop_status choose(struct worker *worker, struct xop_error *error) {
    const char *wanted = worker->setup.backend;
    if (strcmp(wanted, "cpu") == 0)
        return open_cpu(worker, error);
    if (strcmp(wanted, "cuda") != 0 && strcmp(wanted, "auto") != 0)
        return xop_fail(error, XOP_UNAVAILABLE, "there is no backend \"%s\": auto, cpu or cuda",
                        wanted);
    enum xop_status status = open_cuda(worker, error);
    if (status == XOP_OK || strcmp(wanted, "auto") != 0)
        return status;
    snprintf(worker->fallback_reason, sizeof worker->fallback_reason, "%s", error->message);
    return open_cpu(worker, error);
}

enum xop_status device_open(struct worker *worker, struct xop_error *error) {
    if (choose(worker, error) != XOP_OK)
        return error->status;
    worker->api->info(worker->backend, &worker->info);
    return XOP_OK;
}
