/* The checks of xopctl doctor, and their table. */
#include "doctor.h"

#include "cuda_versions.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct doctor_finding *doctor_found(struct doctor_report *report, enum doctor_grade grade,
                                    const char *format, ...) {
    int last = DOCTOR_FINDINGS - 1;
    struct doctor_finding *finding = &report->finding[report->n < last ? report->n++ : last];
    va_list args;
    finding->grade = grade;
    finding->check = report->check;
    finding->advice[0] = 0;
    va_start(args, format);
    vsnprintf(finding->found, sizeof finding->found, format, args);
    va_end(args);
    return finding;
}

void doctor_advise(struct doctor_finding *finding, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(finding->advice, sizeof finding->advice, format, args);
    va_end(args);
}

static void check_driver(const struct doctor_facts *facts, struct doctor_report *report) {
    const struct doctor_driver *driver = &facts->driver;
    const char *needed = facts->build.noted ? cuda_driver_of(facts->build.toolkit) : NULL;
    if (!driver->loaded) {
        if (driver->on_bus == 0) {
            doctor_found(report, DOCTOR_OK, "no NVIDIA GPU and no driver: xopd uses the CPU");
            return;
        }
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM, "%d NVIDIA GPU(s), but no driver: %s",
                                   driver->on_bus, driver->why),
                      "install NVIDIA's driver, %s or later; in a container, pass the GPUs in",
                      needed ? needed : cuda_oldest_driver(12000));
    } else if (driver->nvml == 18) {
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM,
                                   "the driver's libraries are not of the kernel module's version "
                                   "(%s)",
                                   driver->module),
                      "restart the machine, so that the new module is loaded");
    } else if (driver->init != 0 || driver->ndevices == 0) {
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM,
                                   "the driver shows no device to this user: CUDA error %d",
                                   driver->init),
                      "see nvidia-smi, the permissions of /dev/nvidia*%s%s",
                      *driver->visible ? ", and CUDA_VISIBLE_DEVICES=" : "", driver->visible);
    } else {
        doctor_found(report, DOCTOR_OK, "%s, for CUDA %d.%d",
                     *driver->version ? driver->version : driver->module, CUDA_MAJOR(driver->cuda),
                     CUDA_MINOR(driver->cuda));
    }
}

static void check_build(const struct doctor_facts *facts, struct doctor_report *report) {
    const struct doctor_build *build = &facts->build;
    bool gpu = facts->driver.on_bus > 0 || facts->driver.ndevices > 0;
    if (!build->found && gpu)
        doctor_advise(
            doctor_found(report, DOCTOR_WARNING, "there is no xop-cuda.so: xopd uses the CPU"),
            "build xopd with CUDA=yes where nvcc is");
    else if (!build->found)
        doctor_found(report, DOCTOR_OK, "there is no xop-cuda.so: xopd uses the CPU");
    else if (!build->noted)
        doctor_advise(doctor_found(report, DOCTOR_WARNING, "%s: %s", build->path, build->why),
                      "install the xop-cuda.so of this version");
    else
        doctor_found(report, DOCTOR_OK, "CUDA %d.%d, machine code for %s, PTX for %s",
                     CUDA_MAJOR(build->toolkit), CUDA_MINOR(build->toolkit), build->machine,
                     build->ptx);
}

static void check_age(const struct doctor_facts *facts, struct doctor_report *report) {
    int driver = facts->driver.cuda, toolkit = facts->build.toolkit;
    const char *oldest = cuda_oldest_driver(toolkit);
    if (!facts->build.noted || !facts->driver.loaded || !driver)
        return;
    if (cuda_runs(driver, toolkit))
        doctor_found(report, DOCTOR_OK, "the driver runs code of CUDA %d.%d", CUDA_MAJOR(toolkit),
                     CUDA_MINOR(toolkit));
    else
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM,
                                   "the driver is for CUDA %d.%d, this build of CUDA %d.%d",
                                   CUDA_MAJOR(driver), CUDA_MINOR(driver), CUDA_MAJOR(toolkit),
                                   CUDA_MINOR(toolkit)),
                      "install driver %s or later, or build with an older toolkit",
                      oldest ? oldest : "of that version");
}

static void check_architecture(const struct doctor_facts *facts, struct doctor_report *report) {
    const struct doctor_build *build = &facts->build;
    for (int i = 0; build->noted && i < facts->driver.ndevices; i++) {
        const struct doctor_device *device = &facts->driver.device[i];
        int arch = device->architecture;
        enum cuda_fit fit = cuda_fit(build->machine, build->ptx, arch);
        bool translates = cuda_translates(facts->driver.cuda, build->toolkit);
        struct doctor_finding *finding;
        if (fit == CUDA_MACHINE) {
            doctor_found(report, DOCTOR_OK, "%s (%d): machine code", device->name, arch);
            continue;
        }
        if (fit == CUDA_PTX && translates)
            finding =
                doctor_found(report, DOCTOR_WARNING,
                             "%s (%d): only PTX, which is translated at start", device->name, arch);
        else
            finding = doctor_found(report, DOCTOR_PROBLEM, "%s (%d): %s", device->name, arch,
                                   fit == CUDA_PTX ? "only PTX, which this older driver cannot "
                                                     "translate"
                                                   : "no code for its architecture");
        doctor_advise(finding, "build with CUDA_ARCHS=%d", arch);
    }
}

static void check_libraries(const struct doctor_facts *facts, struct doctor_report *report) {
    const struct doctor_build *build = &facts->build;
    if (!build->noted || facts->driver.ndevices == 0)
        return;
    if (!*build->cublaslt)
        doctor_found(report, DOCTOR_WARNING,
                     "built without cuBLASLt: linear and matmul are not offered");
    else if (build->has_cublaslt)
        doctor_found(report, DOCTOR_OK, "cuBLASLt, built against %s", build->cublaslt);
    else
        doctor_advise(doctor_found(report, DOCTOR_WARNING, "linear and matmul are not offered: %s",
                                   build->cublaslt_why),
                      "install cuBLASLt %.*s and start xopd again",
                      (int)strcspn(build->cublaslt, "."), build->cublaslt);
}

static void check_devices(const struct doctor_facts *facts, struct doctor_report *report) {
    for (int i = 0; i < facts->driver.ndevices; i++) {
        const struct doctor_device *device = &facts->driver.device[i];
        if (device->compute_mode == 2)
            doctor_advise(
                doctor_found(report, DOCTOR_PROBLEM, "%s: compute mode prohibited", device->name),
                "nvidia-smi -i %d -c DEFAULT", i);
        if (device->memory_errors > 0)
            doctor_advise(doctor_found(report, DOCTOR_WARNING,
                                       "%s: %lld uncorrectable memory errors", device->name,
                                       (long long)device->memory_errors),
                          "reset the GPU; if they come again, have it replaced");
        if (device->compute_mode == 3)
            doctor_found(report, DOCTOR_OK,
                         "%s: exclusive to one process: no program beside xopd can use it",
                         device->name);
        if (device->persistence == 0)
            doctor_advise(doctor_found(report, DOCTOR_WARNING,
                                       "%s: persistence mode is off: each start of xopd waits for "
                                       "the device",
                                       device->name),
                          "systemctl enable --now nvidia-persistenced, or nvidia-smi -i %d -pm 1",
                          i);
        if (device->ecc == 0)
            doctor_advise(doctor_found(report, DOCTOR_WARNING,
                                       "%s: ECC is off: memory errors go unnoticed", device->name),
                          device->ecc_next == 1 ? "restart the machine: it is on from then"
                                                : "nvidia-smi -i %d -e 1, and restart the machine",
                          i);
        else if (device->ecc == 1 && device->ecc_next == 0)
            doctor_advise(doctor_found(report, DOCTOR_WARNING,
                                       "%s: ECC ends with the machine's next start", device->name),
                          "nvidia-smi -i %d -e 1 where that is not wanted", i);
        if (device->mig == 1)
            doctor_advise(doctor_found(report, DOCTOR_WARNING, "%s: MIG is on", device->name),
                          "CUDA_VISIBLE_DEVICES of xopd names the instance to use");
    }
    if (*facts->driver.mps)
        doctor_advise(doctor_found(report, DOCTOR_WARNING, "MPS listens in %s", facts->driver.mps),
                      "without MPS, a fault of another program does not reach xopd");
}

static void check_permissions(const struct doctor_facts *facts, struct doctor_report *report) {
    if (*facts->limits.node)
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM, "%s: %s", facts->limits.node,
                                   strerror(facts->limits.denied)),
                      "join the group that ls -l shows, or have udev allow it; what xopd may, "
                      "its own user has to ask");
}

/* xopd's defaults; pinning what is above the limit may be refused. */
static void check_memlock(const struct doctor_facts *facts, struct doctor_report *report) {
    const uint64_t pinned = UINT64_C(2) << 30;
    if (facts->driver.ndevices > 0 && facts->limits.memlock < pinned)
        doctor_advise(doctor_found(report, DOCTOR_WARNING,
                                   "this user may lock %llu KiB; inbox and outbox have 2 GiB by "
                                   "default",
                                   (unsigned long long)facts->limits.memlock / 1024),
                      "ulimit -l unlimited where xopd is started, or LimitMEMLOCK=infinity in its "
                      "unit, as the one that comes with it has");
}

/* The inbox asks for them; few distributions give them unasked, and all works without. */
static void check_huge(const struct doctor_facts *facts, struct doctor_report *report) {
    const char *huge = facts->limits.huge;
    if (facts->driver.ndevices == 0 || !*huge)
        return;
    struct doctor_finding *finding =
        doctor_found(report, DOCTOR_OK, "huge pages of shared memory: %s", huge);
    if (strcmp(huge, "never") == 0 || strcmp(huge, "deny") == 0)
        doctor_advise(finding, "for a faster start with a large inbox: echo advise > "
                               "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

static void check_daemon(const struct doctor_facts *facts, struct doctor_report *report) {
    const struct doctor_daemon *daemon = &facts->daemon;
    if (!daemon->answers)
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM, "%s", daemon->why),
                      "start xopd, or say where it is with -s; where permission is denied, "
                      "join the socket's group");
    else if (!daemon->ready)
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM, "xopd %s has no worker: %s",
                                   daemon->version, daemon->why),
                      "see its log");
    else if (strcmp(daemon->backend, "cpu") == 0 && facts->driver.ndevices > 0)
        doctor_advise(doctor_found(report, DOCTOR_WARNING,
                                   "xopd uses the CPU though there is a GPU: %s",
                                   *daemon->fallback_reason ? daemon->fallback_reason
                                                            : "device.backend says so"),
                      "solve what is named above or in the reason, and start xopd again");
    else
        doctor_found(report, DOCTOR_OK, "xopd %s on %s (%s)", daemon->version, daemon->device,
                     daemon->backend);
}

enum doctor_grade doctor_judge(const struct doctor_facts *facts, struct doctor_report *report) {
    static const struct {
        const char *name;
        void (*judge)(const struct doctor_facts *facts, struct doctor_report *report);
    } checks[] = {
        {"driver", check_driver},
        {"build", check_build},
        {"compatibility", check_age},
        {"architecture", check_architecture},
        {"libraries", check_libraries},
        {"devices", check_devices},
        {"permissions", check_permissions},
        {"memlock", check_memlock},
        {"daemon", check_daemon},
        {"service", doctor_check_service},
        {"certificates", doctor_check_certificates},
        {"huge pages", check_huge},
    };
    enum doctor_grade worst = DOCTOR_OK;
    report->n = 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        report->check = checks[i].name;
        checks[i].judge(facts, report);
    }
    for (int i = 0; i < report->n; i++)
        if (report->finding[i].grade > worst)
            worst = report->finding[i].grade;
    return worst;
}

const char *doctor_grade_name(enum doctor_grade grade) {
    static const char *const names[] = {"ok", "warning", "problem"};
    return names[grade];
}
