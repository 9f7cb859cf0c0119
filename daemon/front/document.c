#include "document.h"

#include "shared.h"

#include <jansson.h>
#include <stdlib.h>

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

static json_t *quantiles(const struct histogram *histogram) {
    return json_pack("{s:f, s:f, s:f, s:f}", "p50", stats_histogram_quantile_us(histogram, 0.5),
                     "p90", stats_histogram_quantile_us(histogram, 0.9), "p99",
                     stats_histogram_quantile_us(histogram, 0.99), "max",
                     (double)stats_get(histogram->max_ns) / 1000);
}

static void merge_op(struct op_stats *into, const struct op_stats *from) {
    stats_add(into->requests, stats_get(from->requests));
    stats_add(into->errors, stats_get(from->errors));
    stats_add(into->bytes_in, stats_get(from->bytes_in));
    stats_add(into->bytes_out, stats_get(from->bytes_out));
    stats_add(into->batches, stats_get(from->batches));
    stats_add(into->batched, stats_get(from->batched));
    stats_max(&into->batch_max, stats_get(from->batch_max));
    stats_histogram_merge(&into->queue, &from->queue);
    stats_histogram_merge(&into->run, &from->run);
}

static json_t *describe_op(const char *name, enum xop_pass pass, const struct op_stats *op,
                           struct totals *totals) {
    double batches = (double)stats_get(op->batches) / 4294967296.0;
    totals->requests += stats_get(op->requests);
    totals->errors += stats_get(op->errors);
    totals->bytes_in += stats_get(op->bytes_in);
    totals->bytes_out += stats_get(op->bytes_out);
    totals->batches += batches;
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:I, s:f, s:o, s:o, s:o}", "name", name,
                     "pass", pass == XOP_FORWARD ? "forward" : "backward", "requests",
                     number(stats_get(op->requests)), "errors", number(stats_get(op->errors)),
                     "bytes_in", number(stats_get(op->bytes_in)), "bytes_out",
                     number(stats_get(op->bytes_out)), "batches", (json_int_t)(batches + 0.5),
                     "batch_mean", batches > 0 ? (double)stats_get(op->batched) / batches : 0.0,
                     "batch_max", number(stats_get(op->batch_max)), "queue_us",
                     quantiles(&op->queue), "run_us", quantiles(&op->run));
}

static json_t *operators(struct front *front, struct totals *totals) {
    json_t *list = json_array();
    pthread_mutex_lock(&front->lock);
    uint32_t names = front->nop_names;
    pthread_mutex_unlock(&front->lock);
    struct op_stats *sum = malloc(sizeof *sum);
    for (uint32_t slot = 0; sum && slot < names; slot++)
        for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
            *sum = (struct op_stats){0};
            for (uint32_t t = 0; t < front->nthreads; t++)
                merge_op(sum, &front->threads[t].ops[slot][pass]);
            if (stats_get(sum->requests) > 0)
                json_array_append_new(
                    list, describe_op(front->op_names[slot], (enum xop_pass)pass, sum, totals));
        }
    free(sum);
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

static json_t *server(struct front *front) {
    struct worker_info info;
    uint64_t in_flight = 0;
    shared_info(front, &info);
    for (uint32_t t = 0; t < front->nthreads; t++)
        in_flight += atomic_load(&front->threads[t].in_flight);
    return json_pack("{s:s, s:f, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:o, s:o, s:o, "
                     "s:o, s:o, s:o, s:o}",
                     "version", XOP_VERSION, "uptime_s", seconds_since(front->started_ns),
                     "backend", info.backend, "device", info.device, "runtime", info.runtime,
                     "fallback_reason", text_or_null(info.fallback_reason), "memory_total",
                     number(info.memory_total), "memory_free",
                     number(atomic_load(&front->memory_free)), "generation",
                     number(info.generation), "restarts", number(info.restarts), "ready",
                     info.ready, "connections", (json_int_t)atomic_load(&front->nconnections),
                     "in_flight", number(in_flight), "inbox_bytes", number(front->inbox.bytes),
                     "inbox_used", number(atomic_load(&front->inbox.used)), "outbox_bytes",
                     number(front->config->outbox_bytes), "resident_bytes",
                     number(atomic_load(&front->resident_bytes)), "resident_limit",
                     number(atomic_load(&front->resident_limit)), "attached_bytes",
                     number(atomic_load(&front->attached_bytes)));
}

char *document_stats(struct front *front, const struct identity *only) {
    struct totals totals = {0};
    json_t *ops = operators(front, &totals);
    json_t *document =
        json_pack("{s:o, s:{s:o, s:o, s:o, s:o, s:I}, s:o, s:o, s:o}", "server", server(front),
                  "totals", "requests", number(totals.requests), "errors", number(totals.errors),
                  "bytes_in", number(totals.bytes_in), "bytes_out", number(totals.bytes_out),
                  "batches", (json_int_t)(totals.batches + 0.5), "operators", ops, "clients",
                  clients(front, only), "identities", identity_list(&front->identities, only));
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    return text;
}
