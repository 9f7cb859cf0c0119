#include "metrics.h"

#include "collect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of histograms of durations: powers of two, 1 us to 17 s. A value that is one of these exactly is
 * counted in the next bucket, for the histogram behind them is of half-open ranges. */
#define FIRST_LOG 10u
#define LAST_LOG 34u

struct writer {
    struct evbuffer *out;
    const struct collected *c;
    bool failed;
};

struct family {
    const char *name, *type, *help;
    void (*samples)(struct writer *w, const struct family *family);
    size_t which; /* for `number`: its offset in struct collected; for sensors: the sensor */
};

static void XOP_PRINTF(2, 3) put(struct writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (evbuffer_add_vprintf(w->out, format, args) < 0)
        w->failed = true;
    va_end(args);
}

/* Backslashes, quotes and ends of lines have to be escaped in a label's value. */
static const char *escape(char *out, size_t capacity, const char *text) {
    size_t n = 0;
    for (; *text && n + 3 < capacity; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            out[n++] = '\\';
        out[n++] = *text == '\n' ? 'n' : *text;
    }
    out[n] = 0;
    return out;
}

/* operator="...",pass="..." */
static const char *op_labels(char *out, size_t capacity, const struct collected_op *op) {
    char name[2 * sizeof op->name];
    snprintf(out, capacity, "operator=\"%s\",pass=\"%s\"", escape(name, sizeof name, op->name),
             op->pass == XOP_FORWARD ? "forward" : "backward");
    return out;
}

#define OP_LABELS (2 * sizeof(((struct collected_op *)0)->name) + 64)

/* ---- Samples ---- */

static void number(struct writer *w, const struct family *family) {
    const void *at = (const char *)w->c + family->which;
    put(w, "%s %" PRIu64 "\n", family->name, *(const uint64_t *)at);
}

static void requests(struct writer *w, const struct family *family) {
    char labels[OP_LABELS];
    enum xop_status status;
    for (uint32_t i = 0; i < w->c->nops; i++)
        for (uint32_t slot = 0; slot < STATS_STATUSES; slot++) {
            uint64_t n = stats_get(w->c->ops[i].stats.statuses[slot]);
            if (!stats_status(slot, &status) || (n == 0 && status != XOP_OK))
                continue;
            put(w, "%s{%s,status=\"%s\"} %" PRIu64 "\n", family->name,
                op_labels(labels, sizeof labels, &w->c->ops[i]), xop_status_name(status), n);
        }
}

static void histogram(struct writer *w, const struct family *family, const char *labels,
                      const struct histogram *h) {
    uint64_t count = stats_histogram_below(h, 64);
    for (uint32_t log = FIRST_LOG; log <= LAST_LOG; log++)
        put(w, "%s_bucket{%s,le=\"%.11g\"} %" PRIu64 "\n", family->name, labels,
            (double)(UINT64_C(1) << log) / 1e9, stats_histogram_below(h, log));
    put(w, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", family->name, labels, count);
    put(w, "%s_sum{%s} %.9f\n", family->name, labels, (double)stats_get(h->sum_ns) / 1e9);
    put(w, "%s_count{%s} %" PRIu64 "\n", family->name, labels, count);
}

static void queue_times(struct writer *w, const struct family *family) {
    char labels[OP_LABELS];
    for (uint32_t i = 0; i < w->c->nops; i++)
        histogram(w, family, op_labels(labels, sizeof labels, &w->c->ops[i]),
                  &w->c->ops[i].stats.queue);
}

static void run_times(struct writer *w, const struct family *family) {
    char labels[OP_LABELS];
    for (uint32_t i = 0; i < w->c->nops; i++)
        histogram(w, family, op_labels(labels, sizeof labels, &w->c->ops[i]),
                  &w->c->ops[i].stats.run);
}

static void batch_sizes(struct writer *w, const struct family *family) {
    char labels[OP_LABELS];
    for (uint32_t i = 0; i < w->c->nops; i++) {
        const struct op_stats *stats = &w->c->ops[i].stats;
        uint64_t sum = 0;
        op_labels(labels, sizeof labels, &w->c->ops[i]);
        for (uint32_t log = 0; log < STATS_BATCH_SIZES; log++) {
            sum += stats_get(stats->batch_sizes[log]);
            put(w, "%s_bucket{%s,le=\"%u\"} %" PRIu64 "\n", family->name, labels, 1u << log, sum);
        }
        put(w, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", family->name, labels, sum);
        put(w, "%s_sum{%s} %" PRIu64 "\n", family->name, labels, stats_get(stats->batch_sum));
        put(w, "%s_count{%s} %" PRIu64 "\n", family->name, labels, sum);
    }
}

/* Parts of launches that are still incomplete do not count: a counter of wholes. */
static void launches(struct writer *w, const struct family *family) {
    char labels[OP_LABELS];
    for (uint32_t i = 0; i < w->c->nops; i++)
        put(w, "%s{%s} %" PRIu64 "\n", family->name,
            op_labels(labels, sizeof labels, &w->c->ops[i]),
            (stats_get(w->c->ops[i].stats.batches) + (UINT64_C(1) << 31)) >> 32);
}

static void op_bytes(struct writer *w, const struct family *family) {
    char labels[OP_LABELS];
    for (uint32_t i = 0; i < w->c->nops; i++) {
        const struct op_stats *stats = &w->c->ops[i].stats;
        op_labels(labels, sizeof labels, &w->c->ops[i]);
        put(w, "%s{%s,direction=\"in\"} %" PRIu64 "\n", family->name, labels,
            stats_get(stats->bytes_in));
        put(w, "%s{%s,direction=\"out\"} %" PRIu64 "\n", family->name, labels,
            stats_get(stats->bytes_out));
    }
}

static void path_bytes(struct writer *w, const struct family *family) {
    static const char *const paths[STATS_PATHS] = {"inline", "shm", "resident"};
    static const char *const directions[STATS_DIRECTIONS] = {"in", "out"};
    for (uint32_t i = 0; i < STATS_PATHS; i++)
        for (uint32_t j = 0; j < STATS_DIRECTIONS; j++)
            put(w, "%s{path=\"%s\",direction=\"%s\"} %" PRIu64 "\n", family->name, paths[i],
                directions[j], stats_get(w->c->threads.bytes[i][j]));
}

static void reasons(struct writer *w, const struct family *family, const char *const *names,
                    const _Atomic uint64_t *counts, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        put(w, "%s{reason=\"%s\"} %" PRIu64 "\n", family->name, names[i], stats_get(counts[i]));
}

static void ended(struct writer *w, const struct family *family) {
    static const char *const names[STATS_ENDED] = {
        [ENDED_LIMIT] = "limit", [ENDED_TLS] = "tls",           [ENDED_HELLO] = "no_hello",
        [ENDED_SLOW] = "slow",   [ENDED_PROTOCOL] = "protocol", [ENDED_FORBIDDEN] = "forbidden",
    };
    reasons(w, family, names, w->c->threads.ended, STATS_ENDED);
}

static void refused(struct writer *w, const struct family *family) {
    static const char *const names[STATS_REFUSED] = {
        [REFUSED_DRAINING] = "draining",       [REFUSED_NO_WORKER] = "no_worker",
        [REFUSED_NO_OPERATOR] = "no_operator", [REFUSED_MALFORMED] = "malformed",
        [REFUSED_EXHAUSTED] = "exhausted",     [REFUSED_QUOTA] = "quota",
        [REFUSED_FORBIDDEN] = "forbidden",     [REFUSED_INVALID] = "invalid",
    };
    reasons(w, family, names, w->c->threads.refused, STATS_REFUSED);
}

static void ready(struct writer *w, const struct family *family) {
    put(w, "%s %d\n", family->name, w->c->ready);
}

static void build_info(struct writer *w, const struct family *family) {
    put(w, "%s{version=\"%s\"} 1\n", family->name, XOP_VERSION);
}

static void device_info(struct writer *w, const struct family *family) {
    const struct worker_info *info = &w->c->info;
    char backend[2 * sizeof info->backend], device[2 * sizeof info->device],
        runtime[2 * sizeof info->runtime];
    if (*info->backend)
        put(w, "%s{backend=\"%s\",device=\"%s\",runtime=\"%s\"} 1\n", family->name,
            escape(backend, sizeof backend, info->backend),
            escape(device, sizeof device, info->device),
            escape(runtime, sizeof runtime, info->runtime));
}

/* What is not known is not told. */
static void sensor(struct writer *w, const struct family *family, double unit) {
    uint64_t value = w->c->sensors[family->which];
    if (value > 0)
        put(w, "%s %.12g\n", family->name, (double)(value - 1) * unit);
}

static void whole(struct writer *w, const struct family *family) { sensor(w, family, 1); }

static void percent(struct writer *w, const struct family *family) { sensor(w, family, 0.01); }

static void milli(struct writer *w, const struct family *family) { sensor(w, family, 0.001); }

static void ecc_errors(struct writer *w, const struct family *family) {
    static const char *const kinds[] = {"corrected", "uncorrected"};
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t value = w->c->sensors[SEAM_GPU_ECC_CORRECTED + i];
        if (value > 0)
            put(w, "%s{kind=\"%s\"} %" PRIu64 "\n", family->name, kinds[i], value - 1);
    }
}

/* ---- The table ---- */

#define NUMBER(member) number, offsetof(struct collected, member)

static const struct family families[] = {
    {"xopd_build_info", "gauge", "Always 1, with the version of xopd.", build_info, 0},
    {"xopd_device_info", "gauge",
     "Always 1, with the device that runs operators; absent before the first worker is ready.",
     device_info, 0},
    {"process_start_time_seconds", "gauge", "When xopd started, in seconds since the epoch.",
     NUMBER(started)},
    {"xopd_ready", "gauge", "1 while requests are taken and a worker serves, else 0.", ready, 0},
    {"xopd_worker_restarts_total", "counter", "Workers that took the place of one that ended.",
     NUMBER(info.restarts)},
    {"xopd_connections", "gauge", "Connections of clients.", NUMBER(connections)},
    {"xopd_connections_total", "counter", "Connections that were taken.",
     NUMBER(connections_taken)},
    {"xopd_connections_rejected_total", "counter",
     "Connections that were not taken, or ended by the server, by reason.", ended, 0},
    {"xopd_requests_in_flight", "gauge", "Requests not yet answered.", NUMBER(in_flight)},
    {"xopd_requests_total", "counter",
     "Requests answered, by operator, pass and status; what runs no operator, as put and get, is "
     "of operator " SHARED_NO_OP ".",
     requests, 0},
    {"xopd_requests_rejected_total", "counter",
     "Requests refused before they were queued, by reason.", refused, 0},
    {"xopd_request_queue_seconds", "histogram",
     "From a request's arrival to its launch, of those that succeeded.", queue_times, 0},
    {"xopd_request_run_seconds", "histogram",
     "From a request's launch to its end, of those that succeeded.", run_times, 0},
    {"xopd_request_batch_size", "histogram",
     "Requests in the launch that a request was part of, itself included.", batch_sizes, 0},
    {"xopd_launches_total", "counter", "Launches, each of one request or many.", launches, 0},
    {"xopd_operator_bytes_total", "counter", "Bytes of tensors that operators read and wrote.",
     op_bytes, 0},
    {"xopd_tensor_bytes_total", "counter",
     "Bytes of tensors by the way they came and went: inline in messages, shm in memory shared "
     "with a client, resident on the device.",
     path_bytes, 0},
    {"xopd_inbox_bytes", "gauge", "Shared memory for requests.", NUMBER(inbox_bytes)},
    {"xopd_inbox_used_bytes", "gauge", "Shared memory that requests take up.", NUMBER(inbox_used)},
    {"xopd_outbox_bytes", "gauge", "Shared memory for results.", NUMBER(outbox_bytes)},
    {"xopd_resident_bytes", "gauge", "Device memory that was made for resident tensors.",
     NUMBER(resident_bytes)},
    {"xopd_resident_limit_bytes", "gauge", "Device memory allowed for resident tensors.",
     NUMBER(resident_limit)},
    {"xopd_attached_bytes", "gauge", "Memory that clients share with the server.",
     NUMBER(attached_bytes)},
    {"xopd_device_memory_bytes", "gauge", "Memory of the device.", NUMBER(info.memory_total)},
    {"xopd_device_memory_free_bytes", "gauge", "Memory of the device that is free.",
     NUMBER(memory_free)},
    {"xopd_gpu_memory_used_bytes", "gauge", "Memory of the GPU in use, by all processes.", whole,
     SEAM_GPU_MEMORY_USED},
    {"xopd_gpu_utilization_ratio", "gauge", "Part of the time in which a kernel ran on the GPU.",
     percent, SEAM_GPU_BUSY},
    {"xopd_gpu_memory_utilization_ratio", "gauge",
     "Part of the time in which memory of the GPU was read or written.", percent,
     SEAM_GPU_MEMORY_BUSY},
    {"xopd_gpu_temperature_celsius", "gauge", "Temperature of the GPU.", whole,
     SEAM_GPU_TEMPERATURE},
    {"xopd_gpu_power_watts", "gauge", "Power that the GPU draws.", milli, SEAM_GPU_POWER},
    {"xopd_gpu_power_limit_watts", "gauge", "Power that the GPU may draw.", milli,
     SEAM_GPU_POWER_LIMIT},
    {"xopd_gpu_ecc_errors_total", "counter",
     "Errors of the GPU's memory since its driver was loaded, by kind.", ecc_errors, 0},
};

bool metrics_write(struct front *front, struct evbuffer *out) {
    struct collected c;
    struct writer w = {out, &c, !collect(front, &c)};
    for (size_t i = 0; !w.failed && i < sizeof families / sizeof *families; i++) {
        const struct family *family = &families[i];
        put(&w, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
            family->type);
        family->samples(&w, family);
    }
    collect_free(&c);
    return !w.failed;
}
