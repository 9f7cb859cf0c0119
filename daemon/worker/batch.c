#include "batch.h"

#include "outbox.h"
#include "queue.h"

#include <stdlib.h>
#include <string.h>

/* So many tasks may take space after one that found none; then what it waits for is left to it. */
#define MAX_PASSES 64
/* So many of a queue's tasks are looked at behind one that finds no space. */
#define MAX_LOOKS 64
/* Groups whose ends are seen to at once. */
#define MAX_DONE 16

/* ---- Publishing ---- */

static void put_outputs(const struct worker *worker, const struct task *task,
                        struct seam_result *result) {
    const struct xop_signature *signature = task_signature(task);
    result->nout = signature->nout;
    result->block_offset = task->block_offset;
    result->block_bytes = task->block_bytes;
    for (uint32_t i = 0; i < signature->nout; i++) {
        const struct xop_tensor *from = &task->out[i];
        struct seam_tensor *to = &result->out[i];
        to->place = SEAM_NOWHERE;
        to->dtype = XOP_DTYPE_NONE;
        if (!task->wanted[i] && !task->shapes)
            continue;
        to->dtype = (uint8_t)from->dtype;
        to->rank = (uint8_t)from->rank;
        memcpy(to->shape, from->shape, sizeof to->shape);
        if (task->shapes)
            continue;
        to->place = task->in_block[i] ? SEAM_OUTBOX : SEAM_MEMORY;
        to->offset = task->in_block[i] && from->data
                         ? (uint64_t)((const unsigned char *)from->data - worker->outbox.base)
                         : 0;
    }
}

void batch_complete(struct worker *worker, struct task *task, enum xop_status status,
                    const char *message, uint64_t copy_ns, uint64_t run_ns) {
    struct seam_lane *lane = &worker->lanes[task->lane];
    struct seam_result *result = &lane->results[task->index];
    result->status = (uint32_t)status;
    result->tag = task->tag;
    result->nout = 0;
    result->block_offset = result->block_bytes = 0;
    result->queue_ns =
        task->launched_ns > task->accepted_ns ? task->launched_ns - task->accepted_ns : 0;
    result->copy_ns = copy_ns;
    result->run_ns = run_ns;
    result->batch = task->batch;
    if (status == XOP_OK && task->op) {
        put_outputs(worker, task, result);
    } else if (status != XOP_OK) {
        snprintf(result->message, sizeof result->message, "%s", message);
        if (task->block_bytes > 0)
            outbox_give(&worker->outbox, task->block_offset);
    }
    task->busy = false;
    worker->clients[task->client].busy--;
    worker->few -= task->few;
    worker->many -= task->many;
    /* There are as many slots as records, so only a faulty front can have filled them. */
    if (ring_push(&lane->complete, task->index) != RING_OK)
        log_error("lane %u: its completion ring is not usable", task->lane);
    worker->lane_rings[task->lane] = true;
}

/* ---- Launching ---- */

static bool is_late(const struct task *task, uint64_t now) {
    return task->deadline_ns != 0 && now >= task->deadline_ns;
}

static bool is_dropped(const struct worker *worker, const struct task *task) {
    const struct seam_request *record = &worker->lanes[task->lane].requests[task->index];
    return atomic_load_explicit(&record->dropped, memory_order_relaxed) != 0;
}

/* Whether it is not to be started any more. */
static bool is_over(const struct worker *worker, const struct task *task, uint64_t now) {
    return is_late(task, now) || is_dropped(worker, task);
}

static void complete_over(struct worker *worker, struct task *task) {
    if (is_dropped(worker, task))
        batch_complete(worker, task, XOP_CANCELLED, "dropped before it was started", 0, 0);
    else
        batch_complete(worker, task, XOP_DEADLINE_EXCEEDED,
                       "the deadline passed before it was started", 0, 0);
}

/* Notes whether the task's client has few. */
static void note_client(struct worker *worker, struct task *task) {
    struct worker_client *client = &worker->clients[task->client];
    if (client->busy > WORKER_FEW)
        client->crowded = WORKER_FEW_AGAIN;
    else if (client->crowded > 0)
        client->crowded--;
    task->few = client->crowded == 0;
    task->many = !task->few;
    worker->few += task->few;
    worker->many += task->many;
    if (task->few)
        worker->few_ns = worker->now;
}

void batch_add(struct worker *worker, struct task *task) {
    task->next = NULL;
    task->sequence = ++worker->sequence;
    note_client(worker, task);
    if (task->alone) {
        *worker->alone_last = task;
        worker->alone_last = &task->next;
    } else if (!queue_add(worker, task)) {
        batch_complete(worker, task, XOP_RESOURCE_EXHAUSTED, "the worker is out of memory", 0, 0);
    }
}

uint64_t batch_due_ns(const struct worker *worker, uint64_t now) {
    return queue_due_ns(worker, now);
}

static struct flight *free_flight(struct worker *worker) {
    for (uint32_t i = 0; i < worker->nflights; i++)
        if (!worker->flights[i].busy)
            return &worker->flights[i];
    return NULL;
}

static void add_to_flight(struct flight *flight, struct task *task) {
    uint32_t n = flight->group.ncalls++;
    flight->tasks[n] = task;
    flight->plans[n] = &task->plan;
    flight->keeps[n] = task->has_keeps ? task->keeps : NULL;
    if (task->has_keeps)
        flight->group.keeps = flight->keeps;
    flight->large |= task->bytes >= WORKER_LARGE;
    flight->few |= task->few;
    flight->calls[n] = (struct xop_call){
        .in = task->in, .out = task->out, .attrs = task->attrs, .bad_index = &task->bad_index};
}

static void begin_flight(struct flight *flight, const struct task *task) {
    flight->group = (struct xop_group){.op = task->op,
                                       .pass = task->pass,
                                       .calls = flight->calls,
                                       .plans = flight->plans,
                                       .owner = flight};
    flight->large = flight->few = false;
}

static void mark_launched(struct worker *worker, const struct flight *flight, uint64_t now) {
    for (uint32_t i = 0; i < flight->group.ncalls; i++) {
        struct task *task = flight->tasks[i];
        struct seam_result *result = &worker->lanes[task->lane].results[task->index];
        task->launched_ns = now;
        task->batch = flight->group.ncalls;
        atomic_store_explicit(&result->launched_ns, now, memory_order_relaxed);
        atomic_store_explicit(&result->launched, 1, memory_order_release);
    }
}

/* The backend did not take the flight: nothing of it was started after all. */
static void unmark_launched(struct worker *worker, const struct flight *flight) {
    for (uint32_t i = 0; i < flight->group.ncalls; i++) {
        struct task *task = flight->tasks[i];
        struct seam_result *result = &worker->lanes[task->lane].results[task->index];
        task->launched_ns = 0;
        task->batch = 0;
        atomic_store_explicit(&result->launched, 0, memory_order_relaxed);
        atomic_store_explicit(&result->launched_ns, 0, memory_order_relaxed);
    }
}

/* A flight is on its way (by 1), or no more (by -1). */
static void count_flight(struct worker *worker, struct flight *flight, int by) {
    flight->busy = by > 0;
    worker->in_flight += (uint32_t)by;
    if (flight->large)
        worker->large_in_flight += (uint32_t)by;
    if (flight->few)
        worker->few_in_flight += (uint32_t)by;
    if (!flight->few && !flight->large)
        worker->crowd_in_flight += (uint32_t)by;
}

/* Submits a flight; false where the device is lost. What a group is too large for is tried one by
 * one. */
static bool submit(struct worker *worker, struct flight *flight, struct xop_error *error) {
    uint32_t n = flight->group.ncalls;
    mark_launched(worker, flight, worker_now());
    xop_error_clear(error);
    enum xop_status status = worker->api->submit(worker->backend, &flight->group, error);
    if (status == XOP_OK) {
        count_flight(worker, flight, 1);
        return true;
    }
    if (error->status != status)
        xop_fail(error, status, "operator %s could not be launched", flight->group.op->name);
    if (status == XOP_DEVICE_FAULT)
        return false;
    unmark_launched(worker, flight);
    for (uint32_t i = n; i > 0; i--) {
        struct task *task = flight->tasks[i - 1];
        if (status != XOP_RESOURCE_EXHAUSTED || n == 1) {
            batch_complete(worker, task, status, error->message, 0, 0);
            continue;
        }
        task->next = worker->again;
        worker->again = task;
    }
    return true;
}

/* Space for a task's outputs. The first that finds none waits; what comes after it may take space
 * only so often, and then only such as the one that waits has no use for. */
static bool take_space(struct worker *worker, struct task *task, struct task **waiting) {
    bool held_up = *waiting && (*waiting)->passed_by >= MAX_PASSES;
    if (task->block_needed == 0)
        return outbox_take(&worker->outbox, task, false);
    if (held_up && (*waiting)->block_needed <= OUTBOX_SMALL)
        return false;
    if (!outbox_take(&worker->outbox, task, held_up)) {
        if (!*waiting)
            *waiting = task;
        return false;
    }
    if (*waiting)
        (*waiting)->passed_by++;
    return true;
}

/* Fills a flight from a queue, as far as company, bytes and outbox allow. Returns how many tasks
 * that concerned, those that were over included. */
static uint32_t gather(struct worker *worker, struct queue *queue, struct flight *flight,
                       struct task **waiting) {
    uint64_t bytes = 0, now = worker_now();
    uint32_t limit = queue_group_limit(worker, queue), over = 0, looks = 0;
    struct task **at = &queue->first;
    begin_flight(flight, queue->first);
    while (*at && flight->group.ncalls < limit && looks < MAX_LOOKS) {
        struct task *task = *at;
        if (is_over(worker, task, now)) {
            complete_over(worker, queue_remove(queue, at));
            over++;
            continue;
        }
        if (flight->group.ncalls > 0 && task->bytes > WORKER_LARGE - bytes)
            break;
        if (!take_space(worker, task, waiting)) {
            at = &task->next;
            looks++;
            continue;
        }
        add_to_flight(flight, queue_remove(queue, at));
        if (task->bytes >= WORKER_LARGE)
            break;
        bytes += task->bytes;
    }
    return flight->group.ncalls + over;
}

/* One task by itself: a suspect, or one of a group that was too large. */
static void launch_one(struct worker *worker, struct task *task, bool *fault,
                       struct xop_error *error) {
    struct flight *flight = free_flight(worker);
    if (is_over(worker, task, worker_now())) {
        complete_over(worker, task);
        return;
    }
    begin_flight(flight, task);
    add_to_flight(flight, task);
    *fault = !submit(worker, flight, error);
}

/* Suspects run with nothing else on the device, and nothing starts while there are any. */
static uint32_t launch_alone(struct worker *worker, bool *fault, struct xop_error *error) {
    struct task *task = worker->alone;
    if (worker->in_flight > 0)
        return 0;
    if (!is_over(worker, task, worker_now()) && !outbox_take(&worker->outbox, task, false))
        return 0;
    worker->alone = task->next;
    if (!worker->alone)
        worker->alone_last = &worker->alone;
    launch_one(worker, task, fault, error);
    worker->alone_runs = worker->in_flight > 0;
    return 1;
}

/* Those of a split group hold their space already. */
static void launch_again(struct worker *worker, bool *fault, struct xop_error *error) {
    struct task *task = worker->again;
    worker->again = task->next;
    launch_one(worker, task, fault, error);
}

/* The next group of a queue, if it can have space. */
static uint32_t launch_group(struct worker *worker, struct queue *queue, struct flight *flight,
                             struct task **waiting, bool *fault, struct xop_error *error) {
    uint32_t n = gather(worker, queue, flight, waiting);
    if (n == 0)
        queue->blocked = worker->round;
    if (flight->group.ncalls > 0)
        *fault = !submit(worker, flight, error);
    return n;
}

uint32_t batch_launch(struct worker *worker, bool few, bool *fault, struct xop_error *error) {
    struct task *waiting = NULL; /* the oldest of this round that found no space */
    bool others = false;         /* a group of clients with many has gone */
    struct flight *flight;
    struct queue *queue;
    uint32_t launched = 0;
    *fault = false;
    worker->alone_runs &= worker->in_flight > 0;
    if (worker->alone_runs)
        return 0;
    worker->round++;
    while (!*fault && worker->api->free_lanes(worker->backend) > 0 &&
           (flight = free_flight(worker))) {
        if (worker->again) {
            launch_again(worker, fault, error);
            launched++;
        } else if (worker->alone) {
            /* After those of a split group, whose space it might wait for. */
            launched += launch_alone(worker, fault, error);
            break;
        } else if ((queue = queue_choose(worker, worker_now()))) {
            /* What has come or ended meanwhile is first seen to. */
            if (!queue->few && (few || (others && worker->gently)))
                break;
            others |= !queue->few;
            launched += launch_group(worker, queue, flight, &waiting, fault, error);
        } else {
            break;
        }
    }
    queue_drop_empty(worker);
    return launched;
}

/* ---- Finishing ---- */

/* A value of an index operand is out of range. */
static enum xop_status fail_index(const struct task *task, struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    const char *name = signature->in[signature->index_operand].name;
    unsigned long long at = task->bad_index.at, limit = task->plan.index_limit;
    long long value = task->bad_index.value;
    if (limit == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "input %s of %s is %lld at its element %llu, which is out of range", name,
                        task->op->name, value, at);
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "input %s of %s is %lld at its element %llu: it must be from 0 to %llu", name,
                    task->op->name, value, at, limit - 1);
}

static void finish_task(struct worker *worker, const struct xop_group *group, struct task *task) {
    const struct xop_signature *signature = task_signature(task);
    struct xop_error error;
    enum xop_status status = group->status;
    xop_error_clear(&error);
    if (status != XOP_OK)
        error = group->error;
    if (status != XOP_OK && error.status != status)
        xop_fail(&error, status, "operator %s failed without giving a reason", task->op->name);
    if (status == XOP_OK && task->bad_index.at != UINT64_MAX && signature->index_operand >= 0)
        status = fail_index(task, &error);
    if (status == XOP_OK)
        status = outbox_verify(&worker->outbox, task, &error);
    batch_complete(worker, task, status, error.message, group->copy_ns, group->run_ns);
}

/* Of those that are done and not faulty, the ones of clients with few, or the others. */
static uint32_t finish_flights(struct worker *worker, struct xop_group *const *done, uint32_t count,
                               bool few) {
    uint32_t finished = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct flight *flight = done[i]->owner;
        if (flight->few != few || done[i]->status == XOP_DEVICE_FAULT)
            continue;
        for (uint32_t k = 0; k < done[i]->ncalls; k++)
            finish_task(worker, done[i], flight->tasks[k]);
        finished += done[i]->ncalls;
        count_flight(worker, flight, -1);
    }
    return finished;
}

uint32_t batch_finish(struct worker *worker, bool *fault, struct xop_error *error) {
    struct xop_group *done[MAX_DONE];
    uint32_t count = 0, finished;
    *fault = false;
    if (worker->in_flight == 0)
        return 0;
    if (worker->api->poll(worker->backend, done, MAX_DONE, &count, error) == XOP_DEVICE_FAULT) {
        *fault = true;
        return 0;
    }
    finished = finish_flights(worker, done, count, true);
    finished += finish_flights(worker, done, count, false);
    for (uint32_t i = 0; i < count && !*fault; i++)
        if (done[i]->status == XOP_DEVICE_FAULT) {
            *error = done[i]->error;
            *fault = true;
        }
    return finished;
}

/* ---- Opening and closing ---- */

enum xop_status batch_open(struct worker *worker, struct xop_error *error) {
    uint32_t n = worker->setup.batch_max;
    worker->alone_last = &worker->alone;
    worker->nflights = worker->info.lanes > 0 ? worker->info.lanes : 1;
    worker->flights = calloc(worker->nflights, sizeof *worker->flights);
    bool whole = worker->flights != NULL;
    for (uint32_t i = 0; whole && i < worker->nflights; i++) {
        struct flight *flight = &worker->flights[i];
        flight->tasks = calloc(n, sizeof(struct task *));
        flight->calls = calloc(n, sizeof *flight->calls);
        flight->plans = calloc(n, sizeof(struct xop_plan *));
        flight->keeps = calloc(n, sizeof *flight->keeps);
        whole = flight->tasks && flight->calls && flight->plans && flight->keeps;
    }
    return whole ? XOP_OK : xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for launches");
}

void batch_close(struct worker *worker) {
    for (uint32_t i = 0; worker->flights && i < worker->nflights; i++) {
        free(worker->flights[i].tasks);
        free(worker->flights[i].calls);
        free(worker->flights[i].plans);
        free(worker->flights[i].keeps);
    }
    free(worker->flights);
    queue_close(worker);
}
