#include "thread.h"

#include "admit.h"
#include "answer.h"
#include "complete.h"
#include "connection.h"
#include "dispatch.h"
#include "drain.h"
#include "handle.h"
#include "input.h"
#include "operands.h"
#include "request.h"
#include "shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Most launches take less than this; to wake a core that has slept as long takes a good part of it.
 */
#define AWAITING_NS UINT64_C(5000000)
#define TICK_MS 100

struct command {
    struct command *next;
    enum thread_command type;
    int fd;
    uint64_t number;
    bool tls;
    char peer[96];
    struct generation *generation;
};

static bool post(struct io_thread *thread, const struct command *filled) {
    struct command *command = malloc(sizeof *command);
    if (!command)
        return false;
    *command = *filled;
    pthread_mutex_lock(&thread->commands_lock);
    *thread->commands_tail = command;
    thread->commands_tail = &command->next;
    pthread_mutex_unlock(&thread->commands_lock);
    uint64_t one = 1;
    if (write(thread->commands_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        log_error("cannot wake an I/O thread: %m");
    return true;
}

bool thread_post(struct io_thread *thread, enum thread_command type,
                 struct generation *generation) {
    const struct command command = {.type = type, .fd = -1, .generation = generation};
    return post(thread, &command);
}

bool thread_post_adopt(struct io_thread *thread, int fd, const char *peer, bool tls) {
    struct command command = {.type = THREAD_ADOPT, .fd = fd, .tls = tls};
    snprintf(command.peer, sizeof command.peer, "%s", peer);
    return post(thread, &command);
}

bool thread_post_export(struct io_thread *thread, int fd, uint64_t number) {
    const struct command command = {.type = THREAD_EXPORTED, .fd = fd, .number = number};
    return post(thread, &command);
}

void thread_wake_waiting(struct front *front) {
    for (uint32_t i = 0; i < front->nthreads; i++)
        thread_post(&front->threads[i], THREAD_SPACE, NULL);
}

/* ---- Generations ---- */

static void on_lane(evutil_socket_t fd, short what, void *arg) {
    uint64_t count;
    (void)what, (void)arg;
    /* Only clears it: the loop looks at the lane in every round. */
    if (read(fd, &count, sizeof count) < 0 && errno != EAGAIN)
        log_error("cannot read an eventfd: %m");
}

static void on_ready(struct io_thread *thread, const struct command *command) {
    struct generation *generation = command->generation;
    seam_view(generation->seam, thread->index, generation->records, &thread->lane);
    thread->generation = generation;
    catalogue_drop(thread->catalogue);
    thread->catalogue = catalogue_hold(generation->catalogue);
    thread->nfree = 0;
    for (uint32_t i = generation->records; i > 0; i--)
        thread->free_records[thread->nfree++] = i - 1;
    thread->nreleases = 0;
    thread->lane_event = event_new(thread->base, generation->lane_fds[thread->index],
                                   EV_READ | EV_PERSIST, on_lane, thread);
    if (!thread->lane_event || event_add(thread->lane_event, NULL) < 0)
        shared_report(thread, generation, "out of memory for its events");
    for (struct connection *c = thread->connections; c; c = c->next) {
        if (c->ended || c->state == CONNECTION_CLOSING)
            continue;
        if (c->greeted && generation->number > 1)
            answer_generation(c, generation->number);
        handle_worker_changed(c);
    }
}

static void on_gone(struct io_thread *thread, const struct command *command) {
    (void)command;
    complete_gone(thread);
    if (thread->lane_event)
        event_free(thread->lane_event);
    thread->lane_event = NULL;
    struct generation *generation = thread->generation;
    thread->generation = NULL;
    generation_drop(generation);
}

static void on_unavailable(struct io_thread *thread, const struct command *command) {
    struct worker_info info;
    (void)command;
    shared_info(thread->front, &info);
    dispatch_refuse_all(thread, info.reason);
    for (struct connection *c = thread->connections; c; c = c->next)
        if (!c->ended && c->state != CONNECTION_CLOSING)
            handle_worker_changed(c);
}

/* ---- The other commands ---- */

static void on_adopt(struct io_thread *thread, const struct command *command) {
    connection_open(thread, command->fd, command->peer, command->tls);
}

static void on_space(struct io_thread *thread, const struct command *command) {
    (void)thread, (void)command; /* the loop tries in every round */
}

static void on_exported(struct io_thread *thread, const struct command *command) {
    memory_exported(thread, command->number, command->fd);
}

static void on_config(struct io_thread *thread, const struct command *command) {
    (void)command;
    pthread_mutex_lock(&thread->front->lock);
    config_apply(&thread->config, thread->front->config, NULL);
    pthread_mutex_unlock(&thread->front->lock);
}

static void on_policy(struct io_thread *thread, const struct command *command) {
    struct xop_error error;
    (void)command;
    for (struct connection *c = thread->connections; c; c = c->next) {
        if (!c->greeted || c->ended || c->state == CONNECTION_CLOSING ||
            admit_again(c, &error) == XOP_OK)
            continue;
        connection_log(c, 0, LOG_LEVEL_INFO, "may not stay: %s", error.message);
        connection_refuse(c, &error);
        connection_visit(c);
    }
}

static void on_drain(struct io_thread *thread, const struct command *command) {
    (void)command;
    thread->draining = true;
    for (struct connection *c = thread->connections; c; c = c->next) {
        if (c->ended || c->state == CONNECTION_CLOSING)
            continue;
        if (c->greeted)
            answer_goaway(c);
        handle_worker_changed(c); /* there will be none to wait for */
    }
}

static void on_leave(struct io_thread *thread, const struct command *command) {
    (void)command;
    thread->leaving = true;
    for (struct connection *c = thread->connections; c; c = c->next)
        connection_leave(c);
}

static void on_stop(struct io_thread *thread, const struct command *command) {
    (void)command;
    for (struct connection *c = thread->connections; c; c = c->next)
        connection_end(c, "the server stops");
    thread->stop = true;
}

static void (*const handlers[])(struct io_thread *, const struct command *) = {
    [THREAD_ADOPT] = on_adopt,       [THREAD_READY] = on_ready,
    [THREAD_GONE] = on_gone,         [THREAD_UNAVAILABLE] = on_unavailable,
    [THREAD_EXPORTED] = on_exported, [THREAD_SPACE] = on_space,
    [THREAD_CONFIG] = on_config,     [THREAD_POLICY] = on_policy,
    [THREAD_DRAIN] = on_drain,       [THREAD_LEAVE] = on_leave,
    [THREAD_STOP] = on_stop,
};

static void on_commands(evutil_socket_t fd, short what, void *arg) {
    struct io_thread *thread = arg;
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) < 0 && errno != EAGAIN)
        log_error("cannot read an eventfd: %m");
    pthread_mutex_lock(&thread->commands_lock);
    struct command *command = thread->commands;
    thread->commands = NULL;
    thread->commands_tail = &thread->commands;
    pthread_mutex_unlock(&thread->commands_lock);
    while (command) {
        struct command *next = command->next;
        handlers[command->type](thread, command);
        free(command);
        command = next;
    }
}

static void on_tick(evutil_socket_t fd, short what, void *arg) {
    struct io_thread *thread = arg;
    (void)fd, (void)what;
    atomic_store_explicit(&thread->beat_ns, io_now(), memory_order_relaxed);
    atomic_store_explicit(&thread->recent_frames, thread->frames, memory_order_relaxed);
    thread->frames = 0;
    connection_check_deadlines(thread);
    complete_watch(thread);
}

/* ---- The loop ---- */

/* Whether the worker has requests of this thread. */
static bool is_awaiting(const struct io_thread *thread) {
    return thread->generation && thread->nfree < thread->generation->records;
}

/* Keeps the mean time for which there was nothing, neither here nor with the worker. */
static void note_work(struct io_thread *thread, uint64_t now, bool idle) {
    uint64_t gap = now - thread->last_work_ns, most = UINT64_C(1000000000);
    if (idle)
        thread->gap_ns = (7 * thread->gap_ns + (gap < most ? gap : most)) / 8;
    thread->last_work_ns = now;
}

/* Whether to look again at once instead of sleeping: while the next work is likely to come before a
 * sleeper would be awake, and while the worker has some for a device that needs no core. */
static bool is_polling(const struct io_thread *thread, uint64_t now) {
    uint64_t poll_ns = thread->config.io_poll_us * 1000, idle = now - thread->last_work_ns;
    if (is_awaiting(thread) && thread->generation->apart)
        return idle < AWAITING_NS;
    return thread->gap_ns < poll_ns && idle < poll_ns;
}

/* Whether the loop may sleep: not if somebody may go on who waited for space, nor if there are
 * completions that nobody will ring for. */
static bool may_sleep(struct io_thread *thread, struct ring_bell *bell) {
    bool space = thread->space_freed && thread->waiting;
    thread->space_freed = false;
    if (bell)
        bell_arm(bell);
    return !space && !thread->flush && !(bell && ring_waiting(&thread->lane.complete) > 0);
}

static void wait_for_work(struct io_thread *thread) {
    struct ring_bell *bell = thread->generation ? thread->lane.bell : NULL;
    uint64_t number = bell ? thread->generation->number : 0;
    bool sleeps = may_sleep(thread, bell);
    if (event_base_loop(thread->base, EVLOOP_ONCE | (sleeps ? 0 : EVLOOP_NONBLOCK)) < 0)
        abort();
    /* The loop may have taken leave of that generation, and its memory with it. */
    if (bell && thread->generation && thread->generation->number == number)
        bell_disarm(bell);
}

static void *run(void *arg) {
    struct io_thread *thread = arg;
    while (!thread->stop) {
        bool polls = thread->config.io_poll_us > 0;
        uint64_t events = thread->events;
        bool idle = !is_awaiting(thread);
        uint32_t completed = complete_drain(thread);
        if (thread->waiting)
            input_retry_waiting(thread);
        dispatch_run(thread);
        answer_flush_all(thread);
        /* What flushing let through may have queued more. */
        dispatch_run(thread);
        drain_note(thread);
        uint64_t now = polls ? io_now() : 0;
        if (!polls || !is_polling(thread, now))
            wait_for_work(thread);
        else if (event_base_loop(thread->base, EVLOOP_NONBLOCK) < 0)
            abort();
        if (polls && (completed > 0 || thread->events != events))
            note_work(thread, io_now(), idle);
    }
    answer_flush_all(thread);
    return NULL;
}

static bool allocate(struct io_thread *thread, uint32_t records) {
    thread->records = calloc(records, sizeof *thread->records);
    thread->free_records = calloc(records, sizeof *thread->free_records);
    thread->scratch = calloc(records, sizeof *thread->scratch);
    thread->ops = calloc(STATS_SLOTS, sizeof *thread->ops);
    thread->decoder = message_decoder_new();
    thread->commands_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct event_config *config = event_config_new();
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
        thread->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (!thread->records || !thread->free_records || !thread->scratch || !thread->ops ||
        !thread->decoder || thread->commands_fd < 0 || !thread->base)
        return false;
    thread->commands_event =
        event_new(thread->base, thread->commands_fd, EV_READ | EV_PERSIST, on_commands, thread);
    thread->tick = event_new(thread->base, -1, EV_PERSIST, on_tick, thread);
    struct timeval every = {0, TICK_MS * 1000};
    return thread->commands_event && thread->tick && event_add(thread->commands_event, NULL) == 0 &&
           event_add(thread->tick, &every) == 0;
}

enum xop_status thread_start(struct front *front, uint32_t index, struct xop_error *error) {
    struct io_thread *thread = &front->threads[index];
    thread->front = front;
    thread->config = *front->config;
    thread->index = index;
    atomic_store(&thread->beat_ns, io_now());
    thread->commands_tail = &thread->commands;
    thread->again_tail = &thread->again;
    thread->internal_tail = &thread->internal;
    thread->unblocked_tail = &thread->unblocked;
    thread->active_tail = &thread->active;
    thread->waiting_tail = &thread->waiting;
    pthread_mutex_init(&thread->commands_lock, NULL);
    pthread_mutex_init(&thread->lock, NULL);
    if (!allocate(thread, (uint32_t)front->config->records))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for an I/O thread");
    int failed = pthread_create(&thread->pthread, NULL, run, thread);
    if (failed)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "pthread_create: %s", strerror(failed));
    return XOP_OK;
}

void thread_join(struct io_thread *thread) {
    pthread_join(thread->pthread, NULL);
    while (thread->connections)
        connection_bury(thread->connections);
    generation_drop(thread->generation);
    catalogue_drop(thread->catalogue);
    for (struct request *r = thread->internal, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    for (struct request *r = thread->free_requests, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    for (uint32_t i = 0; i < thread->config.records; i++) {
        if (thread->records[i])
            free(thread->records[i]->long_arguments);
        free(thread->records[i]);
    }
    for (struct response *r = thread->free_responses, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    memory_close(thread);
    operands_close(thread);
    order_close(thread);
    if (thread->lane_event)
        event_free(thread->lane_event);
    event_free(thread->tick);
    event_free(thread->commands_event);
    event_base_free(thread->base);
    close(thread->commands_fd);
    message_decoder_free(thread->decoder);
    free(thread->records);
    free(thread->free_records);
    free(thread->scratch);
    free(thread->releases);
    free(thread->ops);
}
