#include "alive.h"

#include "daemon/parent.h"
#include "daemon/shared/channel.h"
#include "workers.h"

#include <stdlib.h>

struct alive {
    struct event *timer;
    uint64_t limit_ns;
    bool told; /* in the log, that something stands still */
};

const char *alive_stuck(const struct front *front, uint64_t now, uint64_t limit_ns) {
    if (shared_stalled_thread(front, now, limit_ns) < front->nthreads)
        return "an I/O thread stands still";
    return front->draining ? NULL : workers_stuck(front, now);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    struct front *front = arg;
    struct alive *alive = front->alive;
    const struct parent_message message = {.type = PARENT_ALIVE};
    struct xop_error error;
    const char *stuck = alive_stuck(front, io_now(), alive->limit_ns);
    (void)fd, (void)what;
    if (stuck && !alive->told)
        log_error("the watchdog gets no sign of life: %s", stuck);
    else if (!stuck && alive->told)
        log_warn("the watchdog gets its signs of life again");
    alive->told = stuck != NULL;
    if (!stuck &&
        channel_send(front->parent, &message, sizeof message, NULL, 0, NULL, 0, &error) != XOP_OK)
        log_error("cannot reach the parent: %s", error.message);
}

enum xop_status alive_open(struct front *front, uint64_t watchdog_us, struct xop_error *error) {
    struct alive *alive = front->alive = calloc(1, sizeof *alive);
    /* More often than it is wanted, as one may be late; and something that stands still for less
     * than half of the time gets over it, as far as the service manager can see. */
    uint64_t every_us = watchdog_us / 4;
    struct timeval every = {(time_t)(every_us / 1000000), (suseconds_t)(every_us % 1000000)};
    if (!alive || !(alive->timer = event_new(front->base, -1, EV_PERSIST, on_timer, front)) ||
        (watchdog_us > 0 && event_add(alive->timer, &every) < 0))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    alive->limit_ns = watchdog_us / 2 * 1000;
    return XOP_OK;
}

void alive_close(struct front *front) {
    if (front->alive && front->alive->timer)
        event_free(front->alive->timer);
    free(front->alive);
}
