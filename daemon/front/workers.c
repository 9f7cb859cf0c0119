#include "workers.h"

#include "daemon/shared/channel.h"
#include "drain.h"
#include "memory.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCH_MS 100
#define FIRST_PAUSE_MS 50
#define LAST_PAUSE_MS 5000
#define READY_PAUSE_MS 400 /* after one that could serve */
/* So many ends in a row soon after a start are no request's doing any more: each is convicted after
 * a few. */
#define MAX_QUICK_ENDS 20
/* A worker that lives for less is counted as a failure to start. */
#define SETTLED_NS UINT64_C(2000000000)
/* How long a worker may take until it is ready: a driver may still be loading for 30 s. */
#define START_NS UINT64_C(90000000000)
/* How long a worker that was ended may take to be gone: a driver gives its device back first. */
#define END_NS UINT64_C(60000000000)
#define MAX_CATALOGUE (64u << 20)

struct workers {
    struct generation *current; /* NULL between a reaped worker and the next */
    bool ready;                 /* I/O threads were told that it serves */
    bool killed;                /* we had it ended */
    bool stopping;
    uint64_t started_ns, killed_ns;
    uint64_t number;
    uint32_t failures; /* ends in a row, each before the worker had settled */
    char told[512];    /* in the log, why the last that never served ended; empty: it served */
    char backend[16];  /* what `auto` decided the first time */
    char directory[CONFIG_STRING];
    struct event *control_event, *report_event, *watch, *pause;
};

static void tell_parent(struct front *front, enum parent_message_type type, uint64_t generation,
                        const char *text, const int *fds, uint32_t nfds) {
    struct parent_message message = {.type = type, .generation = generation};
    struct xop_error error;
    snprintf(message.text, sizeof message.text, "%s", text);
    if (channel_send(front->parent, &message, sizeof message, NULL, 0, fds, nfds, &error) != XOP_OK)
        log_error("cannot reach the parent: %s", error.message);
}

/* Whether one serves, or why not, for whoever asks. */
static void set_ready(struct front *front, bool ready, const char *reason) {
    pthread_mutex_lock(&front->lock);
    front->info.ready = ready;
    snprintf(front->info.reason, sizeof front->info.reason, "%s", reason);
    pthread_mutex_unlock(&front->lock);
}

/* Keeps a reason; the first one known is the best. */
static void note_fault(struct generation *generation, bool blame, const char *text) {
    if (generation->fault[0])
        return;
    snprintf(generation->fault, sizeof generation->fault, "%s", text);
    generation->blame = blame;
}

static void end_worker(struct front *front, bool blame, const char *why) {
    struct workers *w = front->workers;
    if (!w->current || w->killed)
        return;
    log_error("worker generation %llu is ended: %s", (unsigned long long)w->current->number, why);
    note_fault(w->current, blame, why);
    set_ready(front, false, w->current->fault);
    atomic_store(&w->current->closed, true);
    w->killed = true;
    w->killed_ns = io_now();
    tell_parent(front, PARENT_KILL, w->current->number, why, NULL, 0);
}

/* ---- The worker's messages ---- */

/* Copies the catalogue out of the worker's memfd. */
static char *read_catalogue(int fd, uint32_t bytes) {
    struct stat info;
    if (bytes == 0 || bytes > MAX_CATALOGUE || fstat(fd, &info) < 0 || info.st_size < bytes)
        return NULL;
    char *text = malloc(bytes);
    for (uint32_t at = 0; text && at < bytes;) {
        ssize_t n = pread(fd, text + at, bytes - at, at);
        if (n <= 0) {
            free(text);
            return NULL;
        }
        at += (uint32_t)n;
    }
    return text;
}

static struct seam_tuning tuning_of(const struct config *config) {
    return (struct seam_tuning){.poll_us = (uint32_t)config->poll_us,
                                .batch_max_delay_us = (uint32_t)config->batch_max_delay_us,
                                .log_level = (uint32_t)config->log_level};
}

void workers_reconfigure(struct front *front) {
    const struct config *config = front->config;
    struct workers *w = front->workers;
    struct seam_control head = {SEAM_TUNE, sizeof(struct seam_tuning)};
    struct seam_tuning tuning = tuning_of(config);
    struct xop_error error;
    if (!w->ready || w->killed)
        return;
    atomic_store(&front->resident_limit,
                 config->resident_bytes ? config->resident_bytes : front->info.memory_total / 2);
    if (channel_send(w->current->control, &head, sizeof head, &tuning, sizeof tuning, NULL, 0,
                     &error) != XOP_OK)
        log_warn("the worker keeps its settings: %s", error.message);
}

static void publish(struct front *front, const struct seam_ready *ready) {
    struct workers *w = front->workers;
    char status[256];
    pthread_mutex_lock(&front->lock);
    struct worker_info *info = &front->info;
    snprintf(info->backend, sizeof info->backend, "%s", ready->backend);
    snprintf(info->device, sizeof info->device, "%s", ready->device);
    snprintf(info->runtime, sizeof info->runtime, "%s", ready->runtime);
    snprintf(info->fallback_reason, sizeof info->fallback_reason, "%s", ready->fallback_reason);
    info->memory_total = ready->memory_total;
    info->generation = w->current->number;
    info->restarts = w->current->number - 1;
    info->ready = true;
    info->reason[0] = 0;
    pthread_mutex_unlock(&front->lock);
    atomic_store(&front->unavailable, false);
    w->ready = true;
    workers_reconfigure(front); /* it was started with what held then */
    for (uint32_t i = 0; i < front->nthreads; i++)
        if (!thread_post(&front->threads[i], THREAD_READY, generation_hold(w->current)))
            abort();
    log_info("ready: %s on %s (%s), %u operators, generation %llu%s%s", ready->backend,
             ready->device, ready->runtime, ready->operators,
             (unsigned long long)w->current->number,
             *ready->fallback_reason ? "; no GPU is used: " : "", ready->fallback_reason);
    snprintf(status, sizeof status, "serving on %.100s%s%.120s", ready->device,
             *ready->fallback_reason ? "; no GPU is used: " : "", ready->fallback_reason);
    tell_parent(front, PARENT_STATUS, w->current->number, status, NULL, 0);
}

static void on_ready(struct front *front, const void *payload, int *fds) {
    struct workers *w = front->workers;
    struct generation *g = w->current;
    struct seam_ready ready;
    struct xop_error error = {0};
    memcpy(&ready, payload, sizeof ready);
    ready.backend[sizeof ready.backend - 1] = ready.device[sizeof ready.device - 1] = 0;
    ready.runtime[sizeof ready.runtime - 1] = 0;
    ready.fallback_reason[sizeof ready.fallback_reason - 1] = 0;
    char *json = g->catalogue ? NULL : read_catalogue(fds[0], ready.catalogue_bytes);
    if (!json || catalogue_new(json, ready.catalogue_bytes, ready.operators, &g->catalogue,
                               &error) != XOP_OK) {
        free(json);
        end_worker(front, false, *error.message ? error.message : "it sent no usable catalogue");
        return;
    }
    free(json);
    g->apart = ready.apart != 0;
    for (uint32_t i = 0; i < ready.operators; i++)
        catalogue_set_slot(g->catalogue, i, shared_op_slot(front, catalogue_name(g->catalogue, i)));
    /* What `auto` found once is not decided anew: a GPU that fails later is a failure, and no
     * reason to go on in silence on the CPU. */
    snprintf(w->backend, sizeof w->backend, "%s", ready.backend);
    publish(front, &ready);
}

/* Whether one after the other fails to start for this reason: that is said once. */
static bool is_told(const struct workers *w, const char *why) {
    return !w->ready && *why && strcmp(w->told, why) == 0;
}

static void on_fault(struct front *front, const void *payload, int *fds) {
    struct seam_fault fault;
    (void)fds;
    memcpy(&fault, payload, sizeof fault);
    fault.message[sizeof fault.message - 1] = 0;
    log_write(is_told(front->workers, fault.message) ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR,
              "worker generation %llu: %s", (unsigned long long)front->workers->current->number,
              fault.message);
    note_fault(front->workers->current, fault.status == XOP_DEVICE_FAULT, fault.message);
    atomic_store(&front->workers->current->closed, true);
}

/* A memory's descriptor for a client: on to the I/O thread whose it is. */
static void on_exported(struct front *front, const void *payload, int *fds) {
    struct seam_memory memory;
    memcpy(&memory, payload, sizeof memory);
    uint32_t thread = memory_thread(memory.number);
    if (thread < front->nthreads &&
        thread_post_export(&front->threads[thread], fds[0], memory.number))
        fds[0] = -1; /* the thread's now */
}

static const struct {
    void (*handle)(struct front *, const void *payload, int *fds);
    size_t bytes;
    uint32_t fds;
} from_worker[SEAM_CONTROL_TYPES] = {
    [SEAM_READY] = {on_ready, sizeof(struct seam_ready), 1},
    [SEAM_FAULT] = {on_fault, sizeof(struct seam_fault), 0},
    [SEAM_EXPORTED] = {on_exported, sizeof(struct seam_memory), 1},
};

static void dispatch_message(struct front *front, const unsigned char *packet, size_t bytes,
                             int *fds, uint32_t nfds) {
    struct seam_control head;
    if (bytes >= sizeof head) {
        memcpy(&head, packet, sizeof head);
        if (head.type < SEAM_CONTROL_TYPES && from_worker[head.type].handle &&
            bytes == sizeof head + from_worker[head.type].bytes &&
            nfds == from_worker[head.type].fds) {
            from_worker[head.type].handle(front, packet + sizeof head, fds);
            return;
        }
    }
    end_worker(front, false, "it sent a control message that is not allowed");
}

static void on_control(evutil_socket_t fd, short what, void *arg) {
    struct front *front = arg;
    struct workers *w = front->workers;
    unsigned char packet[CHANNEL_BYTES];
    int fds[4];
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    struct xop_error error;
    (void)what;
    enum xop_status status =
        channel_receive(fd, packet, &bytes, fds, 4, &nfds, &would_block, &error);
    if (would_block)
        return;
    if (status != XOP_OK || bytes == 0) {
        /* Its end; the parent tells when it is reaped. Kill what may only have closed its socket.
         */
        event_del(w->control_event);
        set_ready(front, false, *w->current->fault ? w->current->fault : "the worker has ended");
        atomic_store(&w->current->closed, true);
        tell_parent(front, PARENT_KILL, w->current->number, "", NULL, 0);
        return;
    }
    dispatch_message(front, packet, bytes, fds, nfds);
    for (uint32_t i = 0; i < nfds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* ---- Start ---- */

static void set_unavailable(struct front *front, const char *reason) {
    char status[256];
    set_ready(front, false, reason);
    atomic_store(&front->unavailable, true);
    for (uint32_t i = 0; i < front->nthreads; i++)
        thread_post(&front->threads[i], THREAD_UNAVAILABLE, NULL);
    snprintf(status, sizeof status, "no worker, requests are refused: %.200s", reason);
    tell_parent(front, PARENT_STATUS, front->workers->number, status, NULL, 0);
}

/* The next try, after a pause that grows with every failure. */
static void start_later(struct front *front, bool was_ready) {
    struct workers *w = front->workers;
    uint64_t ms = 0;
    if (w->failures > 0)
        ms = w->failures > 8 ? LAST_PAUSE_MS : (uint64_t)FIRST_PAUSE_MS << (w->failures - 1);
    if (was_ready && ms > READY_PAUSE_MS)
        ms = READY_PAUSE_MS;
    if (ms > LAST_PAUSE_MS)
        ms = LAST_PAUSE_MS;
    struct timeval after = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
    if (event_add(w->pause, &after) < 0)
        log_error("cannot set a timer: the worker is not started again");
}

static void fill_setup(const struct front *front, struct seam_setup *setup) {
    const struct config *config = front->config;
    const struct workers *w = front->workers;
    *setup = (struct seam_setup){
        .abi = SEAM_ABI,
        .lanes = w->current->lanes,
        .records = w->current->records,
        .device = (int32_t)config->device,
        .generation = w->current->number,
        .inbox_bytes = front->inbox.bytes,
        .outbox_bytes = w->current->outbox_bytes,
        .batch_max = (uint32_t)config->batch_max,
        .streams = (uint32_t)config->streams,
        .threads = (uint32_t)config->threads,
        .tuning = tuning_of(config),
    };
    snprintf(setup->backend, sizeof setup->backend, "%.15s",
             *w->backend ? w->backend : config->backend);
    snprintf(setup->backend_path, sizeof setup->backend_path, "%s", w->directory);
    snprintf(setup->operators_path, sizeof setup->operators_path, "%s", config->operators_path);
}

static enum xop_status launch(struct front *front, struct xop_error *error) {
    struct workers *w = front->workers;
    const struct config *config = front->config;
    struct seam_control head = {SEAM_SETUP, sizeof(struct seam_setup)};
    struct seam_setup setup;
    int worker_control, fds[SEAM_MAX_LANES + 5];
    if (generation_new(w->number + 1, front->nthreads, (uint32_t)config->records,
                       config->outbox_bytes, &w->current, &worker_control, error) != XOP_OK)
        return error->status;
    struct generation *g = w->current;
    w->number = g->number;
    w->ready = w->killed = false;
    w->started_ns = io_now();
    event_assign(w->control_event, front->base, g->control, EV_READ | EV_PERSIST, on_control,
                 front);
    int first[] = {worker_control, g->seam_fd, front->inbox.fd, g->outbox_fd, g->doorbell};
    memcpy(fds, first, sizeof first);
    memcpy(fds + 5, g->lane_fds, g->lanes * sizeof *fds);
    fill_setup(front, &setup);
    enum xop_status status =
        channel_send(g->control, &head, sizeof head, &setup, sizeof setup, NULL, 0, error);
    if (status == XOP_OK && event_add(w->control_event, NULL) < 0)
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for events");
    if (status == XOP_OK)
        tell_parent(front, PARENT_START, g->number, "", fds, 5 + g->lanes);
    close(worker_control);
    return status;
}

void workers_start(struct front *front) {
    struct workers *w = front->workers;
    struct xop_error error;
    if (w->stopping || w->current)
        return;
    if (launch(front, &error) == XOP_OK)
        return;
    log_error("cannot start a worker: %s", error.message);
    generation_drop(w->current);
    w->current = NULL;
    w->failures++;
    set_unavailable(front, error.message);
    start_later(front, false);
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    workers_start(arg);
}

/* ---- End ---- */

/* What a wait status says, for people, and whether it says anything about what was running: a
 * signal from outside does not. */
static void explain_end(struct workers *w, int status) {
    char text[256];
    bool blame = true;
    if (WIFSIGNALED(status)) {
        int signal = WTERMSIG(status);
        blame = signal != SIGKILL && signal != SIGTERM && signal != SIGINT;
        snprintf(text, sizeof text, "the worker was ended by signal %d (%s)", signal,
                 strsignal(signal));
    } else {
        snprintf(text, sizeof text, "the worker exited with status %d", WEXITSTATUS(status));
    }
    note_fault(w->current, blame, text);
}

static void forget_current(struct front *front) {
    struct workers *w = front->workers;
    event_del(w->control_event);
    if (w->ready)
        for (uint32_t i = 0; i < front->nthreads; i++)
            if (!thread_post(&front->threads[i], THREAD_GONE, NULL))
                abort();
    for (int i = 0; i < SEAM_SENSORS; i++)
        atomic_store(&front->sensors[i], 0); /* nobody asks the device now */
    generation_drop(w->current);
    w->current = NULL;
    w->ready = false;
}

/* The reason is in the control socket even when the news of the end came first. */
static void drain_control(struct front *front) {
    struct workers *w = front->workers;
    for (int i = 0; i < 4 && event_pending(w->control_event, EV_READ, NULL); i++)
        on_control(w->current->control, EV_READ, front);
}

static void on_reaped(struct front *front, const struct parent_message *message) {
    struct workers *w = front->workers;
    if (!w->current || message->generation != w->current->number)
        return;
    drain_control(front);
    explain_end(w, message->value);
    bool settled = w->ready && io_now() - w->started_ns > SETTLED_NS;
    bool was_ready = w->ready, told;
    char why[512];
    snprintf(why, sizeof why, "%s", w->current->fault);
    told = is_told(w, why);
    snprintf(w->told, sizeof w->told, "%s", was_ready ? "" : why);
    w->failures = settled ? 0 : w->failures + 1;
    set_ready(front, false, why);
    forget_current(front);
    if (w->stopping)
        return;
    log_write(told ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN, "worker generation %llu ended: %s%s",
              (unsigned long long)message->generation, why,
              was_ready || told ? "" : "; others are tried, and this is not said of each");
    /* One that could serve and then died is likely a request's doing: the others wait for the next.
     */
    if (!was_ready || w->failures > MAX_QUICK_ENDS)
        set_unavailable(front, why);
    start_later(front, was_ready && w->failures <= MAX_QUICK_ENDS);
}

static void on_started(struct front *front, const struct parent_message *message) {
    struct workers *w = front->workers;
    if (!w->current || message->generation != w->current->number || message->value > 0)
        return;
    log_error("the parent cannot start a worker: %s", message->text);
    forget_current(front);
    w->failures++;
    set_unavailable(front, message->text);
    start_later(front, false);
}

void workers_on_parent(struct front *front, const struct parent_message *message) {
    if (message->type == PARENT_REAPED)
        on_reaped(front, message);
    else if (message->type == PARENT_STARTED)
        on_started(front, message);
}

/* ---- Watching ---- */

static void on_report(evutil_socket_t fd, short what, void *arg) {
    struct front *front = arg;
    struct workers *w = front->workers;
    uint64_t count;
    char why[512];
    (void)what;
    if (read(fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&front->lock);
    uint64_t generation = front->reported;
    snprintf(why, sizeof why, "%s", front->report);
    pthread_mutex_unlock(&front->lock);
    if (w->current && w->current->number == generation)
        end_worker(front, true, why);
}

static void on_watch(evutil_socket_t fd, short what, void *arg) {
    struct front *front = arg;
    struct workers *w = front->workers;
    (void)fd, (void)what;
    atomic_store_explicit(&front->beat_ns, io_now(), memory_order_relaxed);
    if (!w->current || w->killed)
        return;
    struct seam_header *header = generation_header(w->current);
    uint64_t beat = atomic_load(&header->heartbeat_ns), now = io_now();
    uint64_t limit = front->config->watchdog_heartbeat_ms * 1000000;
    atomic_store(&front->memory_free, atomic_load(&header->memory_free));
    for (int i = 0; i < SEAM_SENSORS; i++)
        atomic_store(&front->sensors[i], atomic_load(&header->sensors[i]));
    if (beat > 0 && beat < now && now - beat > limit)
        end_worker(front, true, "its loop stands still");
    else if (!w->ready && now - w->started_ns > START_NS)
        end_worker(front, false, "it did not become ready");
}

const char *workers_stuck(const struct front *front, uint64_t now) {
    const struct workers *w = front->workers;
    if (!w->current)
        return event_pending(w->pause, EV_TIMEOUT, NULL)
                   ? NULL
                   : "there is no worker and none is going to be started";
    /* One that lives is on_watch's to judge, which ends it if it stands still. */
    if (w->killed && now > w->killed_ns && now - w->killed_ns > END_NS)
        return "a worker that was ended is still there";
    return NULL;
}

/* ---- Opening and closing ---- */

/* Backends lie beside the executable (in a build tree), in ../lib/xopd (in an installed one,
 * wherever it was moved), or where they were meant to be installed. */
static void find_backends(struct workers *w) {
    static const char *const places[] = {"", "/../lib/xopd"};
    char executable[CONFIG_STRING], path[CONFIG_STRING + 64];
    ssize_t n = readlink("/proc/self/exe", executable, sizeof executable - 1);
    executable[n > 0 ? n : 0] = 0;
    char *slash = strrchr(executable, '/');
    if (slash)
        *slash = 0;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s/xop-cpu.so", executable, places[i]);
        if (access(path, R_OK) != 0)
            continue;
        snprintf(w->directory, sizeof w->directory, "%.200s%s", executable, places[i]);
        return;
    }
    snprintf(w->directory, sizeof w->directory, "%s", XOPD_LIBDIR);
}

enum xop_status workers_open(struct front *front, struct xop_error *error) {
    struct workers *w = front->workers = calloc(1, sizeof *w);
    struct timeval every = {0, WATCH_MS * 1000};
    front->report_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!w || front->report_fd < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    find_backends(w);
    w->control_event = event_new(front->base, -1, 0, on_control, front);
    w->report_event =
        event_new(front->base, front->report_fd, EV_READ | EV_PERSIST, on_report, front);
    w->watch = event_new(front->base, -1, EV_PERSIST, on_watch, front);
    w->pause = evtimer_new(front->base, on_pause_over, front);
    if (!w->control_event || !w->report_event || !w->watch || !w->pause ||
        event_add(w->report_event, NULL) < 0 || event_add(w->watch, &every) < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for events");
    return XOP_OK;
}

void workers_stop(struct front *front) {
    struct workers *w = front->workers;
    struct seam_control stop = {SEAM_STOP, 0};
    struct xop_error error;
    w->stopping = true;
    event_del(w->pause);
    if (!w->current)
        return;
    /* What it is at was given up, and might never end: nobody waits for an orderly exit. */
    if (drain_is_running(front)) {
        log_warn("the worker is still at a request and is ended");
        tell_parent(front, PARENT_KILL, w->current->number, "", NULL, 0);
    } else if (channel_send(w->current->control, &stop, sizeof stop, NULL, 0, NULL, 0, &error) !=
               XOP_OK)
        log_debug("the worker is gone already: %s", error.message);
}

void workers_close(struct front *front) {
    struct workers *w = front->workers;
    if (!w)
        return;
    struct event *events[] = {w->control_event, w->report_event, w->watch, w->pause};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            event_free(events[i]);
    generation_drop(w->current);
    close(front->report_fd);
    free(w);
}
