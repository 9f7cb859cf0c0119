/* Connections with requests in flight: one thread each, which counts for itself. */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_MS 50
#define WARM_UP_S 0.5

enum phase { WARM_UP, MEASURE, STOP };

struct bench_race {
    _Atomic int phase;
};

volatile sig_atomic_t bench_interrupted;

uint64_t bench_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int phase_of(const struct bench_client *client) {
    return atomic_load_explicit(&client->race->phase, memory_order_relaxed);
}

/* ---- One client's thread ---- */

static void count_error(struct bench_client *client, const struct xop_error *error) {
    if (client->errors++ == 0)
        client->error = *error;
    /* Either the connection is gone or there is no worker: neither is worth a measurement. */
    if (error->status == XOP_UNAVAILABLE)
        atomic_store_explicit(&client->is_over, true, memory_order_relaxed);
}

static void count(struct bench_client *client, const struct xop_result *result, uint64_t ns) {
    static const struct xop_error no_memory = {XOP_RESOURCE_EXHAUSTED, "out of memory"};
    if (!result || result->error.status != XOP_OK) {
        count_error(client, result ? &result->error : &no_memory);
    } else {
        histogram_add(&client->latency, ns);
        histogram_add(&client->queue, result->queue_ns);
        histogram_add(&client->run, result->run_ns);
        client->launches += result->batch > 1 ? 1.0 / (double)result->batch : 1;
    }
    atomic_store_explicit(&client->answered, client->latency.total + client->errors,
                          memory_order_relaxed);
}

static void run_one_by_one(struct bench_client *client) {
    uint64_t start = bench_now_ns();
    while (phase_of(client) != STOP && !client->is_over) {
        struct xop_result *result;
        xop_run(client->connection, &client->slots[0].request, &result);
        uint64_t now = bench_now_ns();
        if (phase_of(client) == MEASURE)
            count(client, result, now - start);
        else if (!result || result->error.status == XOP_UNAVAILABLE)
            client->is_over = true;
        xop_result_free(result);
        start = now;
    }
}

static void on_done(void *arg, struct xop_result *result);

static void submit(struct bench_slot *slot) {
    struct bench_client *client = slot->client;
    struct xop_error error;
    if (xop_submit(client->connection, &slot->request, on_done, slot, NULL, &error) == XOP_OK) {
        client->flying++;
        return;
    }
    count_error(client, &error);
    client->is_over = true;
}

static void on_done(void *arg, struct xop_result *result) {
    struct bench_slot *slot = arg;
    struct bench_client *client = slot->client;
    uint64_t now = bench_now_ns();
    int phase = phase_of(client);
    client->flying--;
    if (phase == MEASURE)
        count(client, result, now - slot->started_ns);
    else if (result->error.status == XOP_UNAVAILABLE)
        client->is_over = true;
    xop_result_free(result);
    slot->started_ns = now;
    if (phase != STOP && !client->is_over)
        submit(slot);
}

static void *run_client(void *arg) {
    struct bench_client *client = arg;
    if (client->nslots == 1) {
        run_one_by_one(client);
        return NULL;
    }
    for (uint32_t i = 0; i < client->nslots && !client->is_over; i++) {
        client->slots[i].started_ns = bench_now_ns();
        submit(&client->slots[i]);
    }
    while (client->flying > 0 && xop_client_wait(client->connection, 0, NULL) == XOP_OK)
        continue;
    return NULL;
}

/* ---- The main thread's view ---- */

/* Whether there is anything to measure yet, and anybody left who could. */
static uint64_t look(struct bench_client *clients, uint32_t n, bool *all_over) {
    uint64_t answered = 0;
    *all_over = true;
    for (uint32_t i = 0; i < n; i++) {
        answered += atomic_load_explicit(&clients[i].answered, memory_order_relaxed);
        *all_over &= atomic_load_explicit(&clients[i].is_over, memory_order_relaxed);
    }
    return answered;
}

static void show(const struct bench_load *load, double elapsed, uint64_t answered) {
    char bar[31];
    double share = elapsed < load->seconds ? elapsed / load->seconds : 1;
    size_t full = (size_t)(share * (double)(sizeof bar - 1));
    if (!load->progress)
        return;
    memset(bar, ' ', sizeof bar - 1);
    memset(bar, '#', full);
    bar[sizeof bar - 1] = 0;
    fprintf(stderr, "\r\033[K%s [%s] %.1f of %.1f s, %llu requests", load->name, bar, elapsed,
            load->seconds, (unsigned long long)answered);
}

/* Sleeps for `seconds`, and with `patient` until there is something to tell. */
static void pass_time(const struct bench_load *load, struct bench_client *clients, double seconds,
                      bool patient) {
    uint64_t start = bench_now_ns(), answered = 0;
    bool all_over = false;
    while (!bench_interrupted && !all_over) {
        double elapsed = (double)(bench_now_ns() - start) / 1e9, left = seconds - elapsed;
        answered = look(clients, load->clients, &all_over);
        if (patient)
            show(load, elapsed, answered);
        if (left <= 0 && (!patient || answered > 0))
            break;
        double tick = left > 0 && left < TICK_MS / 1e3 ? left : TICK_MS / 1e3;
        struct timespec pause = {0, (long)(tick * 1e9)};
        nanosleep(&pause, NULL);
    }
    if (load->progress && patient)
        fprintf(stderr, "\r\033[K");
}

/* Those that are measured, and the one that floods behind them. */
static uint32_t connections(const struct bench_load *load) {
    return load->clients + (load->flood > 0);
}

static void gather(const struct bench_load *load, struct bench_client *clients, double seconds,
                   struct bench_figures *figures) {
    double launches = 0;
    for (uint32_t i = 0; i < connections(load); i++) {
        if (clients[i].errors > 0 && figures->errors == 0)
            figures->error = clients[i].error;
        figures->errors += clients[i].errors;
        if (i == load->clients)
            figures->flood_per_s = (double)clients[i].latency.total / seconds;
        if (i >= load->clients)
            continue;
        histogram_merge(&figures->latency, &clients[i].latency);
        histogram_merge(&figures->queue, &clients[i].queue);
        histogram_merge(&figures->run, &clients[i].run);
        launches += clients[i].launches;
    }
    figures->seconds = seconds;
    figures->requests = figures->latency.total;
    figures->requests_per_s = (double)figures->requests / seconds;
    figures->bytes_per_s =
        figures->requests_per_s * (double)(load->work->bytes_in + load->work->bytes_out);
    figures->batch_mean = launches > 0 ? (double)figures->requests / launches : 0;
}

static enum xop_status race(const struct bench_load *load, struct bench_client *clients,
                            struct bench_race *track, struct bench_figures *figures,
                            struct xop_error *error) {
    uint32_t started = 0, wanted = connections(load);
    pthread_t *threads = calloc(wanted, sizeof *threads);
    double warm_up = load->seconds / 4 < WARM_UP_S ? load->seconds / 4 : WARM_UP_S;
    if (!threads)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    while (started < wanted &&
           pthread_create(&threads[started], NULL, run_client, &clients[started]) == 0)
        started++;
    bool all = started == wanted;
    if (all)
        pass_time(load, clients, warm_up, false);
    uint64_t start = bench_now_ns();
    atomic_store(&track->phase, MEASURE);
    if (all)
        pass_time(load, clients, load->seconds, true);
    atomic_store(&track->phase, STOP);
    double seconds = (double)(bench_now_ns() - start) / 1e9;
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    if (!all)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no more than %u threads can be started",
                        started);
    gather(load, clients, seconds, figures);
    if (figures->requests > 0)
        return XOP_OK;
    if (figures->errors > 0)
        return xop_fail(error, figures->error.status, "%s", figures->error.message);
    return xop_fail(error, XOP_CANCELLED, "interrupted before anything was measured");
}

enum xop_status bench_measure(const struct bench_load *load, struct bench_figures *figures,
                              struct xop_error *error) {
    struct xop_client_options options = session_options(load->session);
    struct bench_race track = {WARM_UP};
    uint32_t n = connections(load);
    struct bench_client *clients = calloc(n, sizeof *clients);
    enum xop_status status = XOP_OK;
    memset(figures, 0, sizeof *figures);
    options.agent = "xopctl bench " XOP_VERSION;
    options.spin_us = load->spin_us;
    if (!clients)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t i = 0; i < n && status == XOP_OK; i++) {
        struct bench_client *client = &clients[i];
        client->work = load->work;
        client->race = &track;
        client->path = load->path;
        client->nslots = i < load->clients ? load->inflight : load->flood;
        status = bench_interrupted
                     ? xop_fail(error, XOP_CANCELLED, "interrupted before anything was measured")
                     : xop_client_open(load->address, &options, &client->connection, error);
        if (status == XOP_OK)
            status = bench_path_open(client, error);
    }
    if (status == XOP_OK)
        status = race(load, clients, &track, figures, error);
    for (uint32_t i = 0; i < n; i++) {
        bench_path_close(&clients[i]);
        xop_client_close(clients[i].connection);
    }
    free(clients);
    return status;
}
