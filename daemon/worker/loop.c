#include "loop.h"

#include "batch.h"
#include "daemon/shared/channel.h"
#include "helper.h"
#include "intake.h"
#include "memories.h"
#include "outbox.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Records taken from one lane before the others have their turn. */
#define TURN 64
/* The same while steps are small, and for how long they are after a client with few had work here.
 */
#define GENTLE_TURN 16
#define GENTLE_NS UINT64_C(10000000)
/* The heartbeat's longest pause, and how long a loop sleeps at most that has to ask its backend. */
#define BEAT_NS UINT64_C(100000000)
#define ASK_NS UINT64_C(50000)
#define INFO_NS UINT64_C(1000000000)
/* Most launches take less than this; to wake a core that has slept as long takes a good part of it.
 */
#define ASKING_NS UINT64_C(5000000)

enum xop_status loop_open(struct worker *worker, struct xop_error *error) {
    size_t n = (size_t)worker->setup.lanes * worker->setup.records;
    worker->tasks = calloc(n, sizeof *worker->tasks);
    if (!worker->tasks)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for requests");
    for (size_t i = 0; i < n; i++) {
        worker->tasks[i].lane = (uint32_t)(i / worker->setup.records);
        worker->tasks[i].index = (uint32_t)(i % worker->setup.records);
    }
    if (batch_open(worker, error) != XOP_OK)
        return error->status;
    return helper_open(worker, error);
}

void loop_close(struct worker *worker) {
    size_t n = (size_t)worker->setup.lanes * worker->setup.records;
    for (size_t i = 0; worker->tasks && i < n; i++)
        free(worker->tasks[i].long_arguments);
    free(worker->tasks);
    helper_close(worker);
    memories_close(worker);
    batch_close(worker);
}

/* ---- Taking in ---- */

static void tune(struct worker *worker, const unsigned char *payload) {
    struct seam_tuning *tuning = &worker->setup.tuning;
    memcpy(tuning, payload, sizeof *tuning);
    log_set_level((enum log_level)tuning->log_level);
    log_debug("device.poll_us is %u, batch.max_delay_us is %u", tuning->poll_us,
              tuning->batch_max_delay_us);
}

/* What the front says: stop, other settings, or here is a client's memory. False where there is
 * nothing. */
static bool read_control(struct worker *worker) {
    unsigned char packet[CHANNEL_BYTES];
    struct seam_control head;
    struct seam_memory memory;
    struct xop_error error;
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    int fd = -1;
    enum xop_status status =
        channel_receive(worker->control, packet, &bytes, &fd, 1, &nfds, &would_block, &error);
    if (would_block)
        return false;
    if (status != XOP_OK || bytes < sizeof head) {
        log_debug("the front is gone");
        worker->stop = true;
        return false;
    }
    memcpy(&head, packet, sizeof head);
    if (head.type == SEAM_GIVE && bytes == sizeof head + sizeof memory && fd >= 0) {
        memcpy(&memory, packet + sizeof head, sizeof memory);
        memories_given(worker, &memory, fd);
    } else if (fd >= 0) {
        close(fd);
    }
    if (head.type == SEAM_TUNE && bytes == sizeof head + sizeof worker->setup.tuning)
        tune(worker, packet + sizeof head);
    worker->stop |= head.type == SEAM_STOP;
    return true;
}

static void start(struct worker *worker, struct task *task) {
    switch (task->kind) {
    case SEAM_ADOPT:
        /* A client's descriptor was sent before the record was. */
        while (read_control(worker))
            ;
        memories_adopt(worker, task);
        break;
    case SEAM_RELEASE: memories_release(worker, task); break;
    case SEAM_PROBE: memories_probe(worker, task); break;
    default:
        if (task->shapes)
            batch_complete(worker, task, XOP_OK, "", 0, 0);
        else
            batch_add(worker, task);
    }
}

static void take_in(struct worker *worker, uint32_t lane, uint64_t index) {
    struct xop_error error;
    if (index >= worker->setup.records) {
        log_error("lane %u: there is no record %llu", lane, (unsigned long long)index);
        return;
    }
    struct task *task = &worker->tasks[(size_t)lane * worker->setup.records + index];
    if (task->busy) {
        log_error("lane %u: record %llu is in use already", lane, (unsigned long long)index);
        return;
    }
    task->busy = true;
    task->client = (uint8_t)(worker->lanes[lane].requests[index].client % WORKER_CLIENTS);
    task->few = task->many = false;
    worker->clients[task->client].busy++;
    xop_error_clear(&error);
    enum xop_status status = intake_read(worker, task, &error);
    if (status == XOP_OK)
        start(worker, task);
    else
        batch_complete(worker, task, status, error.message, 0, 0);
    if (status == XOP_INTERNAL && !worker->told_internal) {
        log_error("lane %u, record %llu: %s", lane, (unsigned long long)index, error.message);
        worker->told_internal = true; /* a faulty front may send any number of them */
    }
}

/* Said once: a lane whose positions are impossible stays so. */
static void tell_broken(struct worker *worker, uint32_t lane) {
    if (!worker->lane_broken[lane])
        log_error("lane %u: its rings have impossible positions, the front is faulty", lane);
    worker->lane_broken[lane] = true;
}

static uint32_t take_releases(struct worker *worker, uint32_t index) {
    struct seam_lane *lane = &worker->lanes[index];
    enum ring_outcome outcome = RING_OK;
    uint32_t n = 0, most = lane->release.capacity;
    uint64_t offset;
    while (n < most && (outcome = ring_pop(&lane->release, &offset)) == RING_OK) {
        n++;
        if (!outbox_give(&worker->outbox, offset))
            log_error("a block at %llu was released that is not held", (unsigned long long)offset);
    }
    if (outcome == RING_CORRUPT)
        tell_broken(worker, index);
    return n;
}

static uint32_t take_submissions(struct worker *worker, uint32_t lane) {
    enum ring_outcome outcome = RING_OK;
    uint32_t n = 0, turn = worker->gently ? GENTLE_TURN : TURN;
    uint64_t index;
    while (n < turn && (outcome = ring_pop(&worker->lanes[lane].submit, &index)) == RING_OK) {
        take_in(worker, lane, index);
        n++;
    }
    if (outcome == RING_CORRUPT)
        tell_broken(worker, lane);
    return n;
}

static uint32_t take_lanes(struct worker *worker) {
    uint32_t n = 0, lanes = worker->setup.lanes, first = worker->first_lane;
    for (uint32_t i = 0; i < worker->setup.lanes; i++)
        n += take_releases(worker, i);
    for (uint32_t i = 0; i < worker->setup.lanes; i++)
        n += take_submissions(worker, first + i < lanes ? first + i : first + i - lanes);
    if (++worker->first_lane >= worker->setup.lanes)
        worker->first_lane = 0;
    return n;
}

static void ring_bells(struct worker *worker) {
    for (uint32_t i = 0; i < worker->setup.lanes; i++) {
        if (!worker->lane_rings[i])
            continue;
        worker->lane_rings[i] = false;
        bell_ring(worker->lanes[i].bell, worker->lane_fds[i]);
    }
}

/* ---- Sleeping ---- */

static bool is_waiting(const struct worker *worker) {
    for (uint32_t i = 0; i < worker->setup.lanes; i++)
        if (ring_waiting(&worker->lanes[i].submit) || ring_waiting(&worker->lanes[i].release))
            return true;
    return false;
}

/* Whether to look again at once instead of sleeping: while the next work is likely to come before a
 * sleeper would be awake, and while a launch is under way on a device that needs no core. */
static bool is_polling(const struct worker *worker, uint64_t now) {
    uint64_t poll_ns = (uint64_t)worker->setup.tuning.poll_us * 1000,
             idle = now - worker->last_work_ns;
    if (worker->in_flight > 0)
        return worker->api->apart && poll_ns > 0 && idle < ASKING_NS;
    return worker->gap_ns < poll_ns && idle < poll_ns;
}

/* Keeps the mean time for which there was nothing, neither here nor on the device. */
static void note_work(struct worker *worker, bool idle) {
    uint64_t gap = worker->now - worker->last_work_ns;
    if (idle)
        worker->gap_ns = (7 * worker->gap_ns + (gap < INFO_NS ? gap : INFO_NS)) / 8;
    worker->last_work_ns = worker->now;
}

/* How long the loop may sleep: until its heart has to beat, a group has to go, or a backend that
 * does not say when it is done has to be asked. */
static uint64_t sleep_ns(const struct worker *worker, uint64_t now) {
    uint64_t ns = BEAT_NS, due = batch_due_ns(worker, now);
    if (worker->in_flight > 0 && worker->api->descriptor(worker->backend) < 0)
        ns = ASK_NS;
    if (due > 0)
        ns = due <= now ? 0 : due - now < ns ? due - now : ns;
    return ns;
}

static void sleep_until_work(struct worker *worker, uint64_t now) {
    int done = worker->api->descriptor(worker->backend);
    struct pollfd ready[] = {{worker->doorbell, POLLIN, 0},
                             {worker->control, POLLIN, 0},
                             {helper_descriptor(worker), POLLIN, 0},
                             {worker->in_flight > 0 ? done : -1, POLLIN, 0}};
    uint64_t ns = sleep_ns(worker, now), count;
    bell_arm(&worker->header->bell);
    if (is_waiting(worker))
        ns = 0;
    struct timespec wait = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    if (ppoll(ready, sizeof ready / sizeof *ready, &wait, NULL) < 0 && errno != EINTR)
        log_error("ppoll: %s", strerror(errno));
    bell_disarm(&worker->header->bell);
    if (ready[0].revents && read(worker->doorbell, &count, sizeof count) < 0 && errno != EAGAIN)
        log_error("the doorbell: %s", strerror(errno));
    if (ready[1].revents)
        read_control(worker);
    /* Its job may have been taken before this was written. */
    if (ready[2].revents && read(ready[2].fd, &count, sizeof count) < 0 && errno != EAGAIN)
        log_error("eventfd: %s", strerror(errno));
}

/* ---- The loop ---- */

/* A heart that stops is what the front sees, whoever hangs. */
static void beat(struct worker *worker, uint64_t now) {
    if (helper_hangs(worker, now))
        return;
    atomic_store_explicit(&worker->header->heartbeat_ns, now, memory_order_relaxed);
    if (now - worker->last_info_ns < INFO_NS)
        return;
    worker->last_info_ns = now;
    worker->api->info(worker->backend, &worker->info);
    atomic_store_explicit(&worker->header->memory_free, worker->info.memory_free,
                          memory_order_relaxed);
}

/* Whether steps have to be small, for the sake of those who wait for one task. */
static bool is_gentle(const struct worker *worker) {
    bool lately = worker->now < worker->few_ns + GENTLE_NS;
    return worker->many > 0 && (worker->few > 0 || lately);
}

uint32_t loop_turn(struct worker *worker, bool *fault, struct xop_error *error) {
    worker->now = worker_now();
    worker->gently = is_gentle(worker);
    uint32_t work = take_lanes(worker) + helper_finish(worker);
    *fault = false;
    if (worker->gently) /* who waits for one task need not wait for the ends of others' */
        work += batch_launch(worker, true, fault, error);
    if (!*fault)
        work += batch_finish(worker, fault, error);
    if (!*fault)
        work += batch_launch(worker, false, fault, error);
    if (!*fault) /* what the backend did at once */
        work += batch_finish(worker, fault, error);
    if (!*fault && worker->lost.status != XOP_OK) {
        *error = worker->lost;
        *fault = true;
    }
    ring_bells(worker);
    return work;
}

enum xop_status loop_run(struct worker *worker, struct xop_error *error) {
    uint32_t turns = 0;
    bool fault = false;
    while (!worker->stop) {
        bool idle = worker->in_flight == 0;
        uint32_t work = loop_turn(worker, &fault, error);
        uint64_t now = worker->now;
        beat(worker, now);
        if (fault)
            return XOP_DEVICE_FAULT;
        if (work > 0) {
            note_work(worker, idle);
            if (++turns % 1024 == 0)
                read_control(worker); /* also under a load that never lets it sleep */
            continue;
        }
        if (!is_polling(worker, now))
            sleep_until_work(worker, now);
    }
    return XOP_OK;
}
