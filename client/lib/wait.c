#include "state.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Polling without sleep saves the time that waking up takes, some tens of microseconds, where a
 * core is to spare. */
#define SPIN_CORES 8
#define SPIN_NS 50000u

uint64_t wait_spin_ns(uint32_t spin_us) {
    cpu_set_t cores;
    if (spin_us == XOP_SPIN_NEVER)
        return 0;
    if (spin_us > 0)
        return (uint64_t)spin_us * 1000;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) < SPIN_CORES
               ? 0
               : SPIN_NS;
}

void wait_wake(struct xop_client *client) {
    uint64_t one = 1;
    if (!client->has_leader)
        return;
    if (write(client->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        pump_kill(client, XOP_INTERNAL, "an eventfd cannot be written");
}

/* Waits without the lock for what is ready; sleeps only when nothing was for spin_ns. */
static int watch(struct pollfd ready[2], int timeout_ms, uint64_t spin_ns) {
    if (spin_ns > 0 && timeout_ms != 0) {
        uint64_t now = address_now(), until;
        if (timeout_ms > 0 && spin_ns > (uint64_t)timeout_ms * 1000000)
            spin_ns = (uint64_t)timeout_ms * 1000000;
        until = now + spin_ns;
        do {
            int n = poll(ready, 2, 0);
            if (n != 0)
                return n;
        } while (address_now() < until);
    }
    return poll(ready, 2, timeout_ms);
}

/* One turn of the thread that polls for all. The lock is held before and after. */
static void lead(struct xop_client *client, int timeout_ms) {
    int deadline = pump_timeout(client);
    uint64_t count;
    if (timeout_ms < 0 || (deadline >= 0 && deadline < timeout_ms))
        timeout_ms = deadline;
    struct pollfd ready[] = {
        {client->fd, (short)(POLLIN | (pump_wants_output(client) ? POLLOUT : 0)), 0},
        {client->wake, POLLIN, 0}};
    client->has_leader = true;
    pthread_mutex_unlock(&client->lock);
    int n = watch(ready, timeout_ms, client->spin_ns);
    int failed = n < 0 ? errno : 0;
    pthread_mutex_lock(&client->lock);
    client->has_leader = false;
    client->signals += failed == EINTR;
    if (failed && failed != EINTR)
        pump_kill(client, XOP_INTERNAL, "poll failed");
    if (n > 0 && ready[1].revents && read(client->wake, &count, sizeof count) < 0 &&
        errno != EAGAIN)
        pump_kill(client, XOP_INTERNAL, "an eventfd cannot be read");
    pump_turn(client, n > 0 && (ready[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0);
    pthread_cond_broadcast(&client->changed);
}

bool wait_change(struct xop_client *client, uint64_t until_ns) {
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    if (until_ns && address_now() >= until_ns)
        return false;
    if (until_ns)
        pthread_cond_timedwait(&client->changed, &client->lock, &until);
    else
        pthread_cond_wait(&client->changed, &client->lock);
    return true;
}

bool wait_turn(struct xop_client *client, uint64_t until_ns) {
    uint64_t now = until_ns ? address_now() : 0;
    if (client->has_leader)
        return wait_change(client, until_ns);
    if (until_ns && now >= until_ns)
        return false;
    uint64_t ms = until_ns ? (until_ns - now) / 1000000 + 1 : 0;
    lead(client, until_ns ? (ms > 3600000 ? 3600000 : (int)ms) : -1);
    pump_run_callbacks(client);
    return true;
}
