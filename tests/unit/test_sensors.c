/* daemon/worker/sensors.c, with a stand-in for NVML. */
#include "daemon/worker/sensors.h"
#include "tests/fakes/nvml.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PLACE "0000:1B:00.0"
#define OFTEN_MS 1

static char library[1024];
static struct fake_nvml *fake;
static _Atomic uint64_t values[SEAM_SENSORS];

static int find_library(void **state) {
    char executable[900];
    ssize_t n = readlink("/proc/self/exe", executable, sizeof executable - 1);
    (void)state;
    if (n < 0)
        return -1;
    executable[n] = 0;
    char *slash = strrchr(executable, '/');
    *slash = 0;
    snprintf(library, sizeof library, "%s/../fakes/libnvidia-ml.so.1", executable);
    void *handle = dlopen(library, RTLD_NOW);
    fake = handle ? dlsym(handle, "fake_nvml") : NULL;
    return fake ? 0 : -1;
}

static int reset(void **state) {
    (void)state;
    pthread_mutex_lock(&fake->lock);
    fake->rounds = fake->begun = fake->ended = 0;
    fake->fails = fake->no_power = fake->lost = 0;
    fake->degrees = 41;
    pthread_mutex_unlock(&fake->lock);
    for (int i = 0; i < SEAM_SENSORS; i++)
        atomic_store(&values[i], 7); /* which nobody said */
    return 0;
}

/* Every sensor was read anew, and what it said is published: a round that had begun is not enough,
 * and the last one may still be publishing. */
static void wait_round(void) {
    pthread_mutex_lock(&fake->lock);
    int enough = fake->rounds + 3;
    while (fake->rounds < enough)
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

static void set(int *what, int value) {
    pthread_mutex_lock(&fake->lock);
    *what = value;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
}

static void assert_value(enum seam_sensor sensor, uint64_t expected) {
    assert_int_equal(atomic_load(&values[sensor]), expected + 1);
}

static void assert_nothing_known(void) {
    for (int i = 0; i < SEAM_SENSORS; i++)
        assert_int_equal(atomic_load(&values[i]), 0);
}

static void all_sensors_are_read_again_and_again(void **state) {
    (void)state;
    struct sensors *sensors = sensors_open(library, PLACE, OFTEN_MS, values);
    assert_non_null(sensors);
    wait_round();
    assert_value(SEAM_GPU_BUSY, 93);
    assert_value(SEAM_GPU_MEMORY_BUSY, 0);
    assert_value(SEAM_GPU_MEMORY_USED, 1000000000);
    assert_value(SEAM_GPU_TEMPERATURE, 41);
    assert_value(SEAM_GPU_POWER, 123456);
    assert_value(SEAM_GPU_POWER_LIMIT, 700000);
    assert_value(SEAM_GPU_ECC_CORRECTED, 17);
    assert_value(SEAM_GPU_ECC_UNCORRECTED, 0);
    pthread_mutex_lock(&fake->lock);
    fake->degrees = 88;
    pthread_mutex_unlock(&fake->lock);
    wait_round();
    assert_value(SEAM_GPU_TEMPERATURE, 88);
    sensors_close(sensors);
    assert_nothing_known();
    assert_int_equal(fake->begun, 1);
    assert_int_equal(fake->ended, 1);
}

static void what_a_device_lacks_is_not_known(void **state) {
    (void)state;
    fake->no_power = 1;
    struct sensors *sensors = sensors_open(library, PLACE, OFTEN_MS, values);
    wait_round();
    assert_int_equal(atomic_load(&values[SEAM_GPU_POWER]), 0);
    assert_int_equal(atomic_load(&values[SEAM_GPU_POWER_LIMIT]), 0);
    assert_value(SEAM_GPU_TEMPERATURE, 41);
    set(&fake->lost, 1);
    wait_round();
    assert_nothing_known();
    set(&fake->lost, 0);
    wait_round();
    assert_value(SEAM_GPU_TEMPERATURE, 41);
    sensors_close(sensors);
}

static void without_a_device_or_a_library_nothing_is_asked(void **state) {
    (void)state;
    assert_null(sensors_open(library, "", OFTEN_MS, values));
    sensors_close(NULL);
    sensors_close(sensors_open(library, "0000:FF:00.0", OFTEN_MS, values));
    assert_int_equal(fake->begun, 1);
    assert_int_equal(fake->ended, 1);
    sensors_close(sensors_open("/no/such/library.so", PLACE, OFTEN_MS, values));
    sensors_close(sensors_open("libm.so.6", PLACE, OFTEN_MS, values));
    fake->fails = 9;
    sensors_close(sensors_open(library, PLACE, OFTEN_MS, values));
    assert_int_equal(fake->rounds, 0);
    for (int i = 0; i < SEAM_SENSORS; i++)
        assert_int_equal(atomic_load(&values[i]), 7); /* untouched */
}

static void a_driver_that_hangs_holds_nobody(void **state) {
    (void)state;
    fake->hangs = 1;
    struct sensors *sensors = sensors_open(library, PLACE, OFTEN_MS, values);
    pthread_mutex_lock(&fake->lock);
    while (!fake->is_hanging)
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
    sensors_close(sensors); /* returns, though the thread is in the driver */
    assert_int_equal(fake->ended, 0);
    set(&fake->hangs, 0);
    pthread_mutex_lock(&fake->lock);
    while (fake->ended < 1) /* it finds out later that it was told to end */
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_sensors_are_read_again_and_again, reset),
        cmocka_unit_test_setup(what_a_device_lacks_is_not_known, reset),
        cmocka_unit_test_setup(without_a_device_or_a_library_nothing_is_asked, reset),
        cmocka_unit_test_setup(a_driver_that_hangs_holds_nobody, reset),
    };
    return cmocka_run_group_tests(tests, find_library, NULL);
}
