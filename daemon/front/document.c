#include "document.h"

#include "collect.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *text_or_null(const char *text) { return *text ? json_string(text) : json_null(); }

static json_t *number(uint64_t n) { return json_integer((json_int_t)n); }

static double seconds_since(uint64_t ns) { return (double)(io_now() - ns) / 1e9; }

char *document_ping(struct front *front) {
    struct worker_info info;
    shared_info(front, &info);
    json_t *document = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:I, s:f, s:b, s:o}", "version", XOP_VERSION, "backend",
        info.backend, "device", info.device, "runtime", info.runtime, "fallback_reason",
        text_or_null(info.fallback_reason), "generation", (json_int_t)info.generation, "uptime_s",
        seconds_since(front->started_ns), "ready", info.ready, "reason", text_or_null(info.reason));
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    return text;
}

char *document_probe(struct front *front, uint64_t bytes_in, uint64_t bytes_out,
                     const struct seam_probe *probe) {
    struct worker_info info;
    shared_info(front, &info);
    json_t *document =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "backend", info.backend, "device",
                  info.device, "bytes_in", number(bytes_in), "bytes_out", number(bytes_out),
                  "launch_ns", number(probe->launch_ns), "direct_ns", number(probe->direct_ns),
                  "copy_ns", number(probe->copy_ns), "device_ns", number(probe->device_ns));
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    return text;
}

/* ---- Operators ---- */

struct totals {
    uint64_t requests, errors, bytes_in, bytes_out;
    double batches;
};

/* By the nanoseconds in a bucket's middle, so that who reads twice has the quantiles in between. */
static json_t *counts(const struct histogram *histogram) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < STATS_BUCKETS; i++) {
        uint64_t n = stats_get(histogram->buckets[i]);
        char ns[32];
        if (n == 0)
            continue;
        snprintf(ns, sizeof ns, "%.0f", stats_histogram_middle_ns(i));
        json_object_set_new(object, ns, number(n));
    }
    return object;
}

static json_t *quantiles(const struct histogram *histogram) {
    return json_pack("{s:f, s:f, s:f, s:f, s:o}", "p50",
                     stats_histogram_quantile_us(histogram, 0.5), "p90",
                     stats_histogram_quantile_us(histogram, 0.9), "p99",
                     stats_histogram_quantile_us(histogram, 0.99), "max",
                     (double)stats_get(histogram->max_ns) / 1000, "counts", counts(histogram));
}

static json_t *describe_op(const struct collected_op *op, struct totals *totals) {
    const struct op_stats *stats = &op->stats;
    double batches = (double)stats_get(stats->batches) / 4294967296.0;
    uint64_t requests = stats_op_requests(stats), errors = stats_op_errors(stats);
    totals->requests += requests;
    totals->errors += errors;
    totals->bytes_in += stats_get(stats->bytes_in);
    totals->bytes_out += stats_get(stats->bytes_out);
    totals->batches += batches;
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:I, s:f, s:o, s:o, s:o}", "name", op->name,
                     "pass", op->pass == XOP_FORWARD ? "forward" : "backward", "requests",
                     number(requests), "errors", number(errors), "bytes_in",
                     number(stats_get(stats->bytes_in)), "bytes_out",
                     number(stats_get(stats->bytes_out)), "batches", (json_int_t)(batches + 0.5),
                     "batch_mean", batches > 0 ? (double)stats_get(stats->batched) / batches : 0.0,
                     "batch_max", number(stats_get(stats->batch_max)), "queue_us",
                     quantiles(&stats->queue), "run_us", quantiles(&stats->run));
}

/* What belongs to no operator is not told here. */
static json_t *operators(const struct collected *collected, struct totals *totals) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < collected->nops; i++)
        if (strcmp(collected->ops[i].name, SHARED_NO_OP) != 0)
            json_array_append_new(list, describe_op(&collected->ops[i], totals));
    return list;
}

/* ---- Clients and the whole ---- */

static json_t *client(const struct connection *c) {
    const struct identity *identity = c->identity;
    return json_pack(
        "{s:I, s:s, s:s, s:s?, s:s?, s:s?, s:o, s:o, s:I, s:o, s:o, s:I, s:o, s:I, s:o, s:f}", "id",
        (json_int_t)c->number, "peer", c->peer, "agent", c->agent, "identity",
        identity ? identity->name : NULL, "policy", identity ? identity->policy : NULL, "role",
        identity ? policy_role_name((enum policy_role)atomic_load(&identity->role)) : NULL,
        "requests", number(stats_get(c->stats.requests)), "errors",
        number(stats_get(c->stats.errors)), "in_flight", (json_int_t)stats_get(c->stats.in_flight),
        "bytes_in", number(stats_get(c->stats.bytes_in)), "bytes_out",
        number(stats_get(c->stats.bytes_out)), "residents",
        (json_int_t)stats_get(c->stats.residents), "resident_bytes",
        number(stats_get(c->stats.resident_bytes)), "contexts",
        (json_int_t)stats_get(c->stats.contexts), "attached_bytes",
        number(stats_get(c->stats.attached_bytes)), "connected_s", seconds_since(c->connected_ns));
}

static json_t *clients(struct front *front, const struct identity *only) {
    json_t *list = json_array();
    for (uint32_t t = 0; t < front->nthreads; t++) {
        struct io_thread *thread = &front->threads[t];
        pthread_mutex_lock(&thread->lock);
        for (struct connection *c = thread->connections; c; c = c->next)
            if (!only || c->identity == only)
                json_array_append_new(list, client(c));
        pthread_mutex_unlock(&thread->lock);
    }
    return list;
}

static json_t *server(const struct collected *c) {
    const struct worker_info *info = &c->info;
    return json_pack("{s:s, s:f, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, "
                     "s:o, s:o, s:o, "
                     "s:o}",
                     "version", XOP_VERSION, "uptime_s", c->uptime_s, "backend", info->backend,
                     "device", info->device, "runtime", info->runtime, "fallback_reason",
                     text_or_null(info->fallback_reason), "memory_total",
                     number(info->memory_total), "memory_free", number(c->memory_free),
                     "generation", number(info->generation), "restarts", number(info->restarts),
                     "ready", info->ready, "connections", number(c->connections), "in_flight",
                     number(c->in_flight), "inbox_bytes", number(c->inbox_bytes), "inbox_used",
                     number(c->inbox_used), "outbox_bytes", number(c->outbox_bytes),
                     "resident_bytes", number(c->resident_bytes), "resident_limit",
                     number(c->resident_limit), "attached_bytes", number(c->attached_bytes));
}

char *document_stats(struct front *front, const struct identity *only) {
    struct totals totals = {0};
    struct collected collected;
    json_t *document = NULL;
    if (collect(front, &collected)) {
        json_t *ops = operators(&collected, &totals);
        document = json_pack(
            "{s:o, s:{s:o, s:o, s:o, s:o, s:I}, s:o, s:o, s:o}", "server", server(&collected),
            "totals", "requests", number(totals.requests), "errors", number(totals.errors),
            "bytes_in", number(totals.bytes_in), "bytes_out", number(totals.bytes_out), "batches",
            (json_int_t)(totals.batches + 0.5), "operators", ops, "clients", clients(front, only),
            "identities", identity_list(&front->identities, only));
    }
    collect_free(&collected);
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    return text;
}
