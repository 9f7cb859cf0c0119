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
    facts.driver.device[0] = (struct doctor_device){.name = "NVIDIA H200", .architecture = 90};
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
