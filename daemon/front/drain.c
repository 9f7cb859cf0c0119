#include "drain.h"

#include "connection.h"
#include "listen.h"
#include "request.h"
#include "thread.h"

#include <stdlib.h>

#define LOOK_MS 20
/* More than a connection is read for after its write side was shut. */
#define LEAVE_MS (CONNECTION_LINGER_MS + 500)

/* How long a drain waits for the hello of who has connected. */
#define GREETING_NS UINT64_C(1000000000)

struct drain {
    bool leaving;
    uint64_t deadline_ns; /* of the step that it is in */
    struct event *timer;
};

bool drain_is_settled(const struct front *front) {
    for (uint32_t i = 0; i < front->nthreads; i++)
        if (!atomic_load(&front->threads[i].settled))
            return false;
    return true;
}

static bool has_left(const struct front *front) {
    for (uint32_t i = 0; i < front->nthreads; i++)
        if (!atomic_load(&front->threads[i].left))
            return false;
    return true;
}

/* Whether somebody has connected just now and not said hello yet: what this would be answered with
 * tells more than an end. */
static bool is_greeting(const struct io_thread *thread) {
    uint64_t now = io_now();
    for (const struct connection *c = thread->connections; c; c = c->next)
        if (!c->greeted && !c->ended && c->state != CONNECTION_CLOSING &&
            now - c->connected_ns < GREETING_NS)
            return true;
    return false;
}

bool drain_is_running(const struct front *front) {
    for (uint32_t i = 0; i < front->nthreads; i++)
        if (atomic_load(&front->threads[i].running))
            return true;
    return false;
}

/* Whether the worker is at something of it: what was cancelled and nobody waits for counts too. */
static bool is_running(const struct io_thread *thread) {
    for (uint32_t i = 0; thread->generation && i < thread->generation->records; i++) {
        const struct request *request = thread->records[i];
        if (request && !request->is_internal && request_launched(request))
            return true;
    }
    return false;
}

/* Only the thread itself sees its counters of one moment: between a request's end and its answer
 * another would find both at 0. */
void drain_note(struct io_thread *thread) {
    if (thread->draining)
        atomic_store(&thread->running, is_running(thread));
    if (thread->draining)
        atomic_store(&thread->settled, atomic_load(&thread->in_flight) == 0 &&
                                           atomic_load(&thread->unsent) == 0 &&
                                           !is_greeting(thread));
    if (thread->leaving)
        atomic_store(&thread->left, !thread->connections);
}

static void end(struct front *front) { event_base_loopbreak(front->base); }

static void post_all(struct front *front, enum thread_command command) {
    for (uint32_t i = 0; i < front->nthreads; i++) {
        if (thread_post(&front->threads[i], command, NULL))
            continue;
        log_error("out of memory: the server stops at once");
        end(front);
    }
}

static void leave(struct front *front) {
    struct drain *drain = front->drain;
    uint64_t unfinished = 0;
    for (uint32_t i = 0; i < front->nthreads; i++)
        unfinished += atomic_load(&front->threads[i].in_flight);
    if (unfinished > 0)
        log_warn("requests that are not finished after server.drain_timeout_ms = %llu: %llu",
                 (unsigned long long)front->config->drain_timeout_ms,
                 (unsigned long long)unfinished);
    drain->leaving = true;
    drain->deadline_ns = io_after_ms(LEAVE_MS);
    post_all(front, THREAD_LEAVE);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    struct front *front = arg;
    bool late = io_now() > front->drain->deadline_ns;
    (void)fd, (void)what;
    if (!front->drain->leaving && (late || drain_is_settled(front)))
        leave(front);
    else if (front->drain->leaving && (late || has_left(front)))
        end(front);
}

void drain_begin(struct front *front) {
    struct timeval often = {0, LOOK_MS * 1000};
    front->draining = true;
    front->drain->deadline_ns = io_after_ms(front->config->drain_timeout_ms);
    listen_finish(front);
    listen_close(front);
    post_all(front, THREAD_DRAIN);
    log_info("draining");
    if (event_add(front->drain->timer, &often) < 0)
        end(front);
}

enum xop_status drain_open(struct front *front, struct xop_error *error) {
    struct drain *drain = front->drain = calloc(1, sizeof *drain);
    if (!drain || !(drain->timer = event_new(front->base, -1, EV_PERSIST, on_timer, front)))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    return XOP_OK;
}

void drain_close(struct front *front) {
    if (front->drain && front->drain->timer)
        event_free(front->drain->timer);
    free(front->drain);
}
