#include "front.h"

#include "admit.h"
#include "alive.h"
#include "daemon/parent.h"
#include "daemon/shared/channel.h"
#include "drain.h"
#include "http.h"
#include "listen.h"
#include "reconfigure.h"
#include "shared.h"
#include "thread.h"
#include "tls.h"
#include "workers.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sysexits.h>
#include <unistd.h>

/* ---- Ending ---- */

static void end(struct front *front, int status) {
    front->exit_status = status;
    event_base_loopbreak(front->base);
}

/* ---- The parent's messages ---- */

static void on_terminate(struct front *front, const struct parent_message *message, int fd) {
    (void)fd;
    if (atomic_load(&front->draining) || message->value != 0)
        end(front, 0);
    else
        drain_begin(front);
}

static void on_worker(struct front *front, const struct parent_message *message, int fd) {
    (void)fd;
    workers_on_parent(front, message);
}

static void on_reload(struct front *front, const struct parent_message *message, int fd) {
    (void)message;
    reconfigure(front, fd);
}

static const struct {
    void (*handle)(struct front *, const struct parent_message *, int fd);
    uint32_t fds;
} from_parent[PARENT_MESSAGE_TYPES] = {
    [PARENT_STARTED] = {on_worker, 0},
    [PARENT_REAPED] = {on_worker, 0},
    [PARENT_TERMINATE] = {on_terminate, 0},
    [PARENT_RELOAD] = {on_reload, 1},
};

static void on_parent(evutil_socket_t fd, short what, void *arg) {
    struct front *front = arg;
    unsigned char packet[CHANNEL_BYTES];
    struct parent_message message;
    struct xop_error error;
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    int came = -1;
    (void)what;
    if (channel_receive(fd, packet, &bytes, &came, 1, &nfds, &would_block, &error) != XOP_OK) {
        if (!would_block)
            end(front, EX_SOFTWARE);
        return;
    }
    if (bytes == 0) {
        log_error("the parent is gone");
        end(front, EX_SOFTWARE);
        return;
    }
    if (bytes == sizeof message) {
        memcpy(&message, packet, sizeof message);
        message.text[sizeof message.text - 1] = 0;
        if (message.type < PARENT_MESSAGE_TYPES && from_parent[message.type].handle &&
            nfds == from_parent[message.type].fds)
            from_parent[message.type].handle(front, &message, came);
    }
    if (came >= 0)
        close(came);
}

/* ---- Starting ---- */

static enum xop_status open_all(struct front *front, struct xop_error *error) {
    const struct config *config = front->config;
    front->threads = calloc(config->io_threads, sizeof *front->threads);
    front->op_names = calloc(STATS_SLOTS, sizeof *front->op_names);
    front->base = event_base_new();
    if (!front->threads || !front->op_names || !front->base)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    /* The last slot counts for operators that got none. */
    strcpy(front->op_names[STATS_SLOTS - 1], SHARED_NO_OP);
    if (admit_load(front, &config->policy, error) != XOP_OK ||
        inbox_open(&front->inbox, config->inbox_bytes, (uint32_t)config->io_threads, error) !=
            XOP_OK ||
        drain_open(front, error) != XOP_OK || listen_open(front, error) != XOP_OK ||
        workers_open(front, error) != XOP_OK)
        return error->status;
    for (uint32_t i = 0; i < config->io_threads; i++) {
        if (thread_start(front, i, error) != XOP_OK)
            return error->status;
        front->nthreads++;
    }
    /* Last, for it looks at all of these from a thread of its own. */
    return http_open(front, error);
}

static void close_all(struct front *front) {
    http_close(front);
    listen_close(front);
    for (uint32_t i = 0; i < front->nthreads; i++)
        thread_post(&front->threads[i], THREAD_STOP, NULL);
    for (uint32_t i = 0; i < front->nthreads; i++)
        thread_join(&front->threads[i]);
    workers_close(front);
    tls_close(front->tls);
    inbox_close(&front->inbox);
    drain_close(front);
    alive_close(front);
    identity_close(&front->identities);
    if (front->base)
        event_base_free(front->base);
    free(front->threads);
    free(front->op_names);
    pthread_mutex_destroy(&front->lock);
}

int front_main(const struct front_start *start) {
    struct config config = *start->config;
    int parent = start->parent;
    struct front front = {.config = &config,
                          .parent = parent,
                          .passed = start->passed,
                          .started_ns = io_now(),
                          .started = time(NULL)};
    struct xop_error error;
    struct event *parent_event = NULL;
    log_init("front", config.log_level);
    prctl(PR_SET_NAME, "xopd-front");
    /* Signals are the parent's to handle; a group's Ctrl-C must not end the front before it drains.
     */
    signal(SIGPIPE, SIG_IGN);
    front.inbox.fd = -1;
    pthread_mutex_init(&front.lock, NULL);
    identity_open(&front.identities);
    if (open_all(&front, &error) != XOP_OK ||
        alive_open(&front, start->watchdog_us, &error) != XOP_OK) {
        log_error("cannot start: %s", error.message);
        front.exit_status = EX_UNAVAILABLE;
    } else if (!(parent_event =
                     event_new(front.base, parent, EV_READ | EV_PERSIST, on_parent, &front)) ||
               event_add(parent_event, NULL) < 0) {
        log_error("cannot start: out of memory");
        front.exit_status = EX_OSERR;
    } else {
        workers_start(&front);
        if (event_base_dispatch(front.base) < 0)
            front.exit_status = EX_SOFTWARE;
        workers_stop(&front);
    }
    if (parent_event)
        event_free(parent_event);
    close_all(&front);
    close(parent);
    return front.exit_status;
}
