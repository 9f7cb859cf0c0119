/* daemon/front/metrics.c: what the text says, byte for byte where that matters. */
#include "daemon/front/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct config config = {.outbox_bytes = 4096};
static struct io_thread threads[2];
static struct front front = {
    .config = &config, .threads = threads, .nthreads = 2, .lock = PTHREAD_MUTEX_INITIALIZER};

static int open_front(void **state) {
    (void)state;
    front.op_names = calloc(STATS_SLOTS, sizeof *front.op_names);
    for (int i = 0; i < 2; i++)
        threads[i].ops = calloc(STATS_SLOTS, sizeof *threads[i].ops);
    strcpy(front.op_names[STATS_SLOTS - 1], SHARED_NO_OP);
    return 0;
}

static int close_front(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++)
        free(threads[i].ops);
    free(front.op_names);
    return 0;
}

/* The text, NUL-terminated; the caller's. */
static char *write_text(void) {
    struct evbuffer *out = evbuffer_new();
    assert_true(metrics_write(&front, out));
    size_t bytes = evbuffer_get_length(out);
    char *text = calloc(1, bytes + 1);
    assert_int_equal(evbuffer_remove(out, text, bytes), bytes);
    evbuffer_free(out);
    return text;
}

static void assert_has(const char *line) {
    char *text = write_text();
    if (!strstr(text, line))
        fail_msg("%s is not in\n%s", line, text);
    free(text);
}

static void assert_has_not(const char *part) {
    char *text = write_text();
    if (strstr(text, part))
        fail_msg("%s is in\n%s", part, text);
    free(text);
}

static void labels_are_escaped(void **state) {
    (void)state;
    assert_has_not("xopd_device_info{");
    strcpy(front.info.backend, "cpu");
    strcpy(front.info.device, "a \"b\" \\ c\nd");
    assert_has(
        "\nxopd_device_info{backend=\"cpu\",device=\"a \\\"b\\\" \\\\ c\\nd\",runtime=\"\"} 1\n");
}

static void threads_are_added_up(void **state) {
    (void)state;
    strcpy(front.op_names[0], "square");
    front.nop_names = 1;
    stats_op_ended(&threads[0].ops[0][XOP_FORWARD], XOP_OK);
    stats_op_ended(&threads[1].ops[0][XOP_FORWARD], XOP_OK);
    stats_op_ended(&threads[1].ops[0][XOP_FORWARD], XOP_DEVICE_FAULT);
    stats_histogram_add(&threads[0].ops[0][XOP_FORWARD].run, 1023);
    stats_histogram_add(&threads[1].ops[0][XOP_FORWARD].run, 1000000000);
    stats_add(front.stats.ended[ENDED_LIMIT], 2);
    stats_add(threads[1].stats.ended[ENDED_LIMIT], 3);
#define LABELS "operator=\"square\",pass=\"forward\""
    assert_has("\nxopd_requests_total{" LABELS ",status=\"OK\"} 2\n"
               "xopd_requests_total{" LABELS ",status=\"DEVICE_FAULT\"} 1\n#");
    assert_has("\nxopd_request_run_seconds_bucket{" LABELS ",le=\"1.024e-06\"} 1\n");
    assert_has("\nxopd_request_run_seconds_bucket{" LABELS ",le=\"0.536870912\"} 1\n"
               "xopd_request_run_seconds_bucket{" LABELS ",le=\"1.073741824\"} 2\n");
    assert_has(",le=\"17.179869184\"} 2\nxopd_request_run_seconds_bucket{" LABELS
               ",le=\"+Inf\"} 2\nxopd_request_run_seconds_sum{" LABELS
               "} 1.000001023\nxopd_request_run_seconds_count{" LABELS "} 2\n#");
    assert_has("\nxopd_connections_rejected_total{reason=\"limit\"} 5\n");
    assert_has("\nxopd_outbox_bytes 4096\n");
}

static void sensors_are_told_in_base_units_where_known(void **state) {
    (void)state;
    assert_has_not("\nxopd_gpu_");
    atomic_store(&front.sensors[SEAM_GPU_BUSY], 93 + 1);
    atomic_store(&front.sensors[SEAM_GPU_MEMORY_BUSY], 0 + 1);
    atomic_store(&front.sensors[SEAM_GPU_MEMORY_USED], UINT64_C(150754820096) + 1);
    atomic_store(&front.sensors[SEAM_GPU_TEMPERATURE], 41 + 1);
    atomic_store(&front.sensors[SEAM_GPU_POWER], 123456 + 1);
    atomic_store(&front.sensors[SEAM_GPU_ECC_CORRECTED], 17 + 1);
    assert_has("\nxopd_gpu_utilization_ratio 0.93\n");
    assert_has("\nxopd_gpu_memory_utilization_ratio 0\n");
    assert_has("\nxopd_gpu_memory_used_bytes 150754820096\n");
    assert_has("\nxopd_gpu_temperature_celsius 41\n");
    assert_has("\nxopd_gpu_power_watts 123.456\n");
    assert_has("\nxopd_gpu_ecc_errors_total{kind=\"corrected\"} 17\n");
    assert_has_not("\nxopd_gpu_power_limit_watts ");
    assert_has_not("kind=\"uncorrected\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(threads_are_added_up),
        cmocka_unit_test(sensors_are_told_in_base_units_where_known),
    };
    return cmocka_run_group_tests(tests, open_front, close_front);
}
