/* xopctl doctor: what it says of machines that are made up, through fake drivers and files. */
#include "client/xopctl/doctor.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/xopctl/cuda_versions.h"
#include "kernels/build_note.h"

/* This program's own note, which the probe reads through a link named xop-cuda.so. */
BUILD_NOTE("xopd=9.9\ntoolkit=13000\nmachine=75,90\nptx=90\n");

static struct doctor_facts facts;
static struct doctor_report report;

/* A machine with a GPU where all is well. */
static int good(void **state) {
    (void)state;
    memset(&facts, 0, sizeof facts);
    facts.driver =
        (struct doctor_driver){.on_bus = 1, .loaded = true, .cuda = 13000, .ndevices = 1};
    facts.driver.device[0] = (struct doctor_device){
        .name = "NVIDIA H200", .architecture = 90, .persistence = 1, .ecc = 1, .ecc_next = 1};
    facts.build = (struct doctor_build){.found = true, .noted = true, .toolkit = 13000};
    strcpy(facts.build.machine, "75,90");
    strcpy(facts.build.ptx, "90");
    strcpy(facts.build.cublaslt, "13.1.0");
    facts.build.has_cublaslt = true;
    facts.daemon = (struct doctor_daemon){.answers = true, .ready = true};
    strcpy(facts.daemon.backend, "cuda");
    facts.limits.memlock = UINT64_MAX;
    return 0;
}

/* That the worst is of that grade, from that check alone, with these words and advice. */
static void expect(enum doctor_grade grade, const char *check, const char *found,
                   const char *advice) {
    assert_int_equal(doctor_judge(&facts, &report), grade);
    bool seen = false;
    for (int i = 0; i < report.n; i++) {
        const struct doctor_finding *finding = &report.finding[i];
        if (finding->grade != grade)
            continue;
        assert_string_equal(finding->check, check);
        assert_non_null(strstr(finding->found, found));
        assert_non_null(strstr(finding->advice, advice));
        seen = true;
    }
    assert_true(seen);
}

static void a_machine_where_all_is_well_is_ok(void **state) {
    (void)state;
    assert_int_equal(doctor_judge(&facts, &report), DOCTOR_OK);
    assert_true(report.n > 4);
}

static void a_gpu_without_a_driver_is_a_problem(void **state) {
    (void)state;
    facts.driver = (struct doctor_driver){.on_bus = 1};
    expect(DOCTOR_PROBLEM, "driver", "no driver", "580.65.06");
}

static void a_machine_without_a_gpu_needs_no_driver(void **state) {
    (void)state;
    facts.driver = (struct doctor_driver){.on_bus = 0};
    assert_int_equal(doctor_judge(&facts, &report), DOCTOR_OK);
}

static void a_driver_that_is_too_old_is_a_problem(void **state) {
    (void)state;
    facts.driver.cuda = 12080;
    expect(DOCTOR_PROBLEM, "compatibility", "for CUDA 12.8", "580.65.06");
}

static void an_architecture_without_code_is_a_problem(void **state) {
    (void)state;
    facts.driver.device[0].architecture = 70;
    expect(DOCTOR_PROBLEM, "architecture", "no code", "CUDA_ARCHS=70");
}

static void ptx_alone_is_a_warning_and_a_problem_with_an_older_driver(void **state) {
    (void)state;
    facts.driver.device[0].architecture = 100;
    expect(DOCTOR_WARNING, "architecture", "only PTX", "CUDA_ARCHS=100");
    facts.build.toolkit = 13010;
    expect(DOCTOR_PROBLEM, "architecture", "cannot translate", "CUDA_ARCHS=100");
}

static void a_device_that_is_not_shown_is_a_problem(void **state) {
    (void)state;
    facts.driver.ndevices = 0;
    facts.driver.init = 100;
    expect(DOCTOR_PROBLEM, "driver", "CUDA error 100", "permissions of /dev/nvidia");
}

static void a_daemon_that_is_down_is_a_problem(void **state) {
    static const char *const nowhere[] = {NULL};
    struct doctor_host host = {.root = "", .address = "unix:/nonexistent/s", .backends = nowhere};
    (void)state;
    doctor_probe_daemon(&host, &facts.daemon);
    expect(DOCTOR_PROBLEM, "daemon", "/nonexistent/s: No such file", "start xopd");
}

static void a_daemon_on_the_cpu_beside_a_gpu_is_a_warning(void **state) {
    (void)state;
    strcpy(facts.daemon.backend, "cpu");
    strcpy(facts.daemon.fallback_reason, "because");
    expect(DOCTOR_WARNING, "daemon", "though there is a GPU: because", "start xopd again");
}

static void code_runs_where_nvidia_says(void **state) {
    (void)state;
    assert_int_equal(cuda_fit("80", "80", 86), CUDA_MACHINE);
    assert_int_equal(cuda_fit("86", "86", 80), CUDA_NO_CODE);
    assert_int_equal(cuda_fit("80", "80", 90), CUDA_PTX);
    assert_int_equal(cuda_fit("90a", "90a", 100), CUDA_NO_CODE);
    assert_true(cuda_runs(12000, 12080));
    assert_false(cuda_runs(12080, 13000));
    assert_false(cuda_runs(8000, 9000));
    assert_string_equal(cuda_driver_of(7050), "352.31");
    assert_null(cuda_driver_of(7000));
}

static void a_build_says_what_it_is_for(void **state) {
    char directory[] = "/tmp/xop-doctor.XXXXXX", program[300], path[340];
    const char *const places[] = {directory, NULL};
    struct doctor_host host = {.root = "", .backends = places};
    (void)state;
    assert_non_null(mkdtemp(directory));
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(n > 0);
    program[n] = 0;
    snprintf(path, sizeof path, "%s/xop-cuda.so", directory);
    doctor_probe_build(&host, &facts.build);
    assert_false(facts.build.found);
    assert_int_equal(symlink(program, path), 0);
    doctor_probe_build(&host, &facts.build);
    assert_true(facts.build.noted);
    assert_int_equal(facts.build.toolkit, 13000);
    assert_string_equal(facts.build.machine, "75,90");
    assert_string_equal(facts.build.ptx, "90");
    unlink(path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs("no ELF", file);
    fclose(file);
    doctor_probe_build(&host, &facts.build);
    assert_true(facts.build.found && !facts.build.noted);
    unlink(path);
    rmdir(directory);
}

static int deny(const char *path) {
    errno = strcmp(path, "/fake/dev/nvidia-uvm") == 0 ? EACCES : ENOENT;
    return -1;
}

static void a_device_file_without_permission_is_a_problem(void **state) {
    struct doctor_host host = {.root = "/fake", .may_use = deny};
    (void)state;
    doctor_probe_limits(&host, &facts.limits);
    facts.limits.memlock = UINT64_MAX;
    expect(DOCTOR_PROBLEM, "permissions", "/dev/nvidia-uvm: Permission denied", "group");
}

static void little_lockable_memory_is_a_warning(void **state) {
    (void)state;
    facts.limits.memlock = 8 << 20;
    expect(DOCTOR_WARNING, "memlock", "8192 KiB", "LimitMEMLOCK=infinity");
}

static void *open_nothing(const char *library, char *why, size_t size) {
    snprintf(why, size, "%s is not there", library);
    return NULL;
}

static void what_keeps_the_driver_from_opening_is_told(void **state) {
    struct doctor_host host = {.root = "/nonexistent", .open = open_nothing};
    (void)state;
    doctor_probe_driver(&host, &facts.driver);
    assert_false(facts.driver.loaded);
    assert_string_equal(facts.driver.why, "libcuda.so.1 is not there");
}

/* ---- Certificates ---- */

static void certificate(int days) {
    facts.certificates.n = 1;
    facts.certificates.certificate[0] = (struct doctor_certificate){
        .whose = "the server's certificate", .path = "/c.pem", .read = true, .days = days};
}

static void a_certificate_that_ends_soon_is_a_warning_and_one_that_ended_a_problem(void **state) {
    (void)state;
    certificate(30);
    assert_int_equal(doctor_judge(&facts, &report), DOCTOR_OK);
    certificate(29);
    expect(DOCTOR_WARNING, "certificates", "/c.pem () expires in 29 days", "renewed");
    certificate(0);
    expect(DOCTOR_WARNING, "certificates", "expires in 0 days", "renewed");
    certificate(-1);
    expect(DOCTOR_PROBLEM, "certificates", "expired 1 days ago", "renewed");
    certificate(100);
    facts.certificates.certificate[0].future = true;
    expect(DOCTOR_PROBLEM, "certificates", "not valid yet", "clock");
}

static void a_certificate_that_cannot_be_read_is_told(void **state) {
    struct xop_client_options options = {.size = sizeof options, .cert = "/nonexistent/c.pem"};
    struct doctor_host host = {.root = "", .config = "/nonexistent/c.conf", .options = &options};
    (void)state;
    doctor_probe_certificates(&host, &facts.certificates);
    assert_non_null(strstr(facts.certificates.why, "No such file"));
    facts.certificates.why[0] = 0;
    expect(DOCTOR_PROBLEM, "certificates", "--cert, /nonexistent/c.pem: No such file", "PEM");
    options.cert = "/dev/null";
    host.config = NULL;
    host.root = "/nonexistent";
    doctor_probe_certificates(&host, &facts.certificates);
    assert_string_equal(facts.certificates.why, "");
    facts.certificates.certificate[0].error = EACCES;
    expect(DOCTOR_WARNING, "certificates", "--cert", "may read");
}

/* ---- systemd ---- */

static const char *systemctl_says;

static bool ask(char *text, size_t size) {
    snprintf(text, size, "%s", systemctl_says ? systemctl_says : "");
    return systemctl_says;
}

static void service(const char *says) {
    char root[] = "/tmp/xop-doctor.XXXXXX", path[100];
    static const char *const parts[] = {"/run", "/run/systemd", "/run/systemd/system"};
    assert_non_null(mkdtemp(root));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", root, parts[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    struct doctor_host host = {.root = root, .ask_systemd = ask};
    systemctl_says = says;
    doctor_probe_service(&host, &facts.service);
    for (int i = 2; i >= 0; i--) {
        snprintf(path, sizeof path, "%s%s", root, parts[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(root), 0);
    assert_true(facts.service.systemd);
}

static void what_systemd_says_of_the_service_is_judged(void **state) {
    (void)state;
    service(
        "Result=success\nNRestarts=0\nLoadState=loaded\nActiveState=active\nSubState=running\n");
    assert_int_equal(doctor_judge(&facts, &report), DOCTOR_OK);
    service("NRestarts=3\nLoadState=loaded\nActiveState=active\nSubState=running\n");
    expect(DOCTOR_WARNING, "service", "restarted 3 times", "journalctl");
    service("Result=exit-code\nLoadState=loaded\nActiveState=failed\n");
    expect(DOCTOR_PROBLEM, "service", "failed: exit-code", "systemctl restart");
    service("LoadState=masked\nActiveState=inactive\n");
    expect(DOCTOR_PROBLEM, "service", "masked", "unmask");
    service("LoadState=not-found\nActiveState=inactive\n");
    assert_int_equal(doctor_judge(&facts, &report), DOCTOR_OK);
    service("LoadState=loaded\nActiveState=inactive\n");
    assert_int_equal(doctor_judge(&facts, &report), DOCTOR_OK);
    service("LoadState=loaded\nActiveState=activating\nSubState=auto-restart\n");
    expect(DOCTOR_WARNING, "service", "activating (auto-restart)", "journalctl");
    service(NULL);
    expect(DOCTOR_WARNING, "service", "does not say", "systemctl status");
}

/* ---- What NVML says of a device ---- */

static unsigned fake_ecc[2], fake_persistence;

static int version_13(int *version) { return *version = 13000, 0; }
static int init(unsigned flags) { return (int)flags; }
static int one(int *n) { return *n = 1, 0; }
static int get_device(int *device, int ordinal) { return *device = ordinal, 0; }
static int get_name(char *name, int size, int device) {
    return snprintf(name, (size_t)size, "H%d", device) < 0;
}
static int get_attribute(int *value, int attribute, int device) {
    return *value = attribute == 75 ? 9 : attribute == 20 ? 3 : 0, device;
}
static int get_bus_id(char *id, int size, int device) {
    return snprintf(id, (size_t)size, "0000:1B:00.%d", device) < 0;
}
static int nothing(void) { return 0; }
static int get_version(char *version, unsigned size) { return snprintf(version, size, "580") < 0; }
static int get_handle(const char *id, void **device) {
    *device = &fake_persistence;
    return strcmp(id, "0000:1B:00.0") == 0 ? 0 : 1;
}
static int get_errors(void *device, int type, int counter, unsigned long long *n) {
    return *n = 0, device != &fake_persistence || type != 1 || counter != 0;
}
static int get_mig(void *device, unsigned *now, unsigned *next) {
    return *now = *next = 0, device != &fake_persistence;
}
static int get_ecc(void *device, unsigned *now, unsigned *next) {
    return *now = fake_ecc[0], *next = fake_ecc[1], device != &fake_persistence;
}
static int get_persistence(void *device, unsigned *mode) {
    return *mode = fake_persistence, device != &fake_persistence;
}

static void *find_function(void *library, const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } functions[] = {
        {"cuDriverGetVersion", (void (*)(void))version_13},
        {"cuInit", (void (*)(void))init},
        {"cuDeviceGetCount", (void (*)(void))one},
        {"cuDeviceGet", (void (*)(void))get_device},
        {"cuDeviceGetName", (void (*)(void))get_name},
        {"cuDeviceGetAttribute", (void (*)(void))get_attribute},
        {"cuDeviceGetPCIBusId", (void (*)(void))get_bus_id},
        {"nvmlInit_v2", (void (*)(void))nothing},
        {"nvmlShutdown", (void (*)(void))nothing},
        {"nvmlSystemGetDriverVersion", (void (*)(void))get_version},
        {"nvmlDeviceGetHandleByPciBusId_v2", (void (*)(void))get_handle},
        {"nvmlDeviceGetTotalEccErrors", (void (*)(void))get_errors},
        {"nvmlDeviceGetMigMode", (void (*)(void))get_mig},
        {"nvmlDeviceGetEccMode", (void (*)(void))get_ecc},
        {"nvmlDeviceGetPersistenceMode", (void (*)(void))get_persistence},
    };
    void *found = NULL;
    (void)library;
    /* ISO C has no conversion from a function's pointer to an object's. */
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            memcpy(&found, &functions[i].function, sizeof found);
    return found;
}

static void *open_anything(const char *library, char *why, size_t size) {
    (void)library;
    snprintf(why, size, "%s", "");
    return &facts;
}

static void modes_of_a_device_that_nvml_tells_are_judged(void **state) {
    struct doctor_host host = {
        .root = "/nonexistent", .open = open_anything, .symbol = find_function};
    (void)state;
    fake_ecc[0] = fake_ecc[1] = fake_persistence = 1;
    doctor_probe_driver(&host, &facts.driver);
    assert_string_equal(facts.driver.version, "580");
    assert_int_equal(facts.driver.device[0].architecture, 90);
    assert_int_equal(doctor_judge(&facts, &report), DOCTOR_OK);
    fake_persistence = 0;
    doctor_probe_driver(&host, &facts.driver);
    expect(DOCTOR_WARNING, "devices", "H0: persistence mode is off", "nvidia-persistenced");
    fake_persistence = 1;
    fake_ecc[0] = 0;
    doctor_probe_driver(&host, &facts.driver);
    expect(DOCTOR_WARNING, "devices", "ECC is off", "restart the machine: it is on");
    fake_ecc[0] = 1;
    fake_ecc[1] = 0;
    doctor_probe_driver(&host, &facts.driver);
    expect(DOCTOR_WARNING, "devices", "ECC ends", "nvidia-smi -i 0 -e 1");
}

static void huge_pages_that_are_never_given_are_mentioned(void **state) {
    (void)state;
    strcpy(facts.limits.huge, "never");
    assert_int_equal(doctor_judge(&facts, &report), DOCTOR_OK);
    assert_string_equal(report.finding[report.n - 1].check, "huge pages");
    assert_non_null(strstr(report.finding[report.n - 1].advice, "shmem_enabled"));
}

#define TEST(name) cmocka_unit_test_setup(name, good)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_machine_where_all_is_well_is_ok),
        TEST(a_gpu_without_a_driver_is_a_problem),
        TEST(a_machine_without_a_gpu_needs_no_driver),
        TEST(a_driver_that_is_too_old_is_a_problem),
        TEST(an_architecture_without_code_is_a_problem),
        TEST(ptx_alone_is_a_warning_and_a_problem_with_an_older_driver),
        TEST(a_device_that_is_not_shown_is_a_problem),
        TEST(a_daemon_that_is_down_is_a_problem),
        TEST(a_daemon_on_the_cpu_beside_a_gpu_is_a_warning),
        TEST(code_runs_where_nvidia_says),
        TEST(a_build_says_what_it_is_for),
        TEST(a_device_file_without_permission_is_a_problem),
        TEST(little_lockable_memory_is_a_warning),
        TEST(what_keeps_the_driver_from_opening_is_told),
        TEST(a_certificate_that_ends_soon_is_a_warning_and_one_that_ended_a_problem),
        TEST(a_certificate_that_cannot_be_read_is_told),
        TEST(what_systemd_says_of_the_service_is_judged),
        TEST(modes_of_a_device_that_nvml_tells_are_judged),
        TEST(huge_pages_that_are_never_given_are_mentioned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
