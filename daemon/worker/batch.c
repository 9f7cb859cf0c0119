#include "batch.h"

#include "attributes.h"
#include "outbox.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that a group moves at most, unless one task alone moves more: large ones never share. */
#define GROUP_BYTES (UINT64_C(8) << 20)
/* So many launches may pass by a task that waits for outbox space; then nothing goes before it. */
#define MAX_PASSES 64

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
        *to = (struct seam_tensor){.place = SEAM_NOWHERE};
        if (!task->wanted[i])
            continue;
        to->dtype = (uint8_t)from->dtype;
        to->rank = (uint8_t)from->rank;
        to->place = SEAM_OUTBOX;
        memcpy(to->shape, from->shape, sizeof to->shape);
        if (from->data)
            to->offset = (uint64_t)((const unsigned char *)from->data - worker->outbox.base);
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
    if (status == XOP_OK) {
        put_outputs(worker, task, result);
    } else {
        snprintf(result->message, sizeof result->message, "%s", message);
        if (task->block_bytes > 0)
            outbox_give(&worker->outbox, task->block_offset);
    }
    task->busy = false;
    /* There are as many slots as records, so only a faulty front can have filled them. */
    if (ring_push(&lane->complete, task->index) != RING_OK)
        log_error("lane %u: its completion ring is not usable", task->lane);
    worker->lane_rings[task->lane] = true;
}

/* ---- Queues ---- */

static bool belongs(const struct queue *queue, const struct task *task) {
    return queue->op == task->op && queue->pass == task->pass && queue->dtype == task->dtype &&
           queue->group == task->plan.group && queue->priority == task->priority &&
           queue->check == task->check && attributes_equal(queue->first, task);
}

static struct queue *new_queue(struct worker *worker, const struct task *task) {
    struct queue *queue = worker->spare_queues;
    if (queue)
        worker->spare_queues = queue->next;
    else if (!(queue = malloc(sizeof *queue)))
        return NULL;
    *queue = (struct queue){.next = worker->queues,
                            .op = task->op,
                            .pass = task->pass,
                            .dtype = task->dtype,
                            .group = task->plan.group,
                            .priority = task->priority,
                            .check = task->check};
    queue->last = &queue->first;
    worker->queues = queue;
    return queue;
}

void batch_add(struct worker *worker, struct task *task) {
    task->next = NULL;
    task->sequence = ++worker->sequence;
    if (task->alone) {
        *worker->alone_last = task;
        worker->alone_last = &task->next;
        return;
    }
    struct queue *queue = worker->queues;
    while (queue && !belongs(queue, task))
        queue = queue->next;
    if (!queue && !(queue = new_queue(worker, task))) {
        batch_complete(worker, task, XOP_RESOURCE_EXHAUSTED, "the worker is out of memory", 0, 0);
        return;
    }
    *queue->last = task;
    queue->last = &task->next;
    queue->count++;
    worker->pending++;
}

static struct task *pop(struct worker *worker, struct queue *queue) {
    struct task *task = queue->first;
    queue->first = task->next;
    if (!queue->first)
        queue->last = &queue->first;
    queue->count--;
    worker->pending--;
    return task;
}

static void drop_empty(struct worker *worker) {
    for (struct queue **at = &worker->queues; *at;) {
        struct queue *queue = *at;
        if (queue->first) {
            at = &queue->next;
            continue;
        }
        *at = queue->next;
        queue->next = worker->spare_queues;
        worker->spare_queues = queue;
    }
}

static uint32_t group_limit(const struct worker *worker, const struct queue *queue) {
    uint32_t limit = queue->op->pass[queue->pass].max_group;
    if (limit == 0 || queue->check)
        limit = 1; /* what writes outside its output must be found out by name */
    return limit < worker->setup.batch_max ? limit : worker->setup.batch_max;
}

/* Whether a group may go now, or still waits for company. */
static bool is_due(const struct worker *worker, const struct queue *queue, uint64_t now) {
    uint64_t delay = (uint64_t)worker->setup.batch_max_delay_us * 1000;
    return delay == 0 || queue->count >= group_limit(worker, queue) ||
           now >= queue->first->accepted_ns + delay;
}

uint64_t batch_due_ns(const struct worker *worker) {
    uint64_t due = 0, delay = (uint64_t)worker->setup.batch_max_delay_us * 1000;
    if (delay == 0)
        return 0;
    for (const struct queue *queue = worker->queues; queue; queue = queue->next)
        if (queue->first && (due == 0 || queue->first->accepted_ns + delay < due))
            due = queue->first->accepted_ns + delay;
    return due;
}

/* The queue whose turn it is: by priority, then by its oldest task. Left out are those that had no
 * space in this round. */
static struct queue *choose(const struct worker *worker, uint64_t now) {
    struct queue *best = NULL;
    for (struct queue *queue = worker->queues; queue; queue = queue->next) {
        if (!queue->first || queue->blocked == worker->round || !is_due(worker, queue, now))
            continue;
        if (!best || queue->priority > best->priority ||
            (queue->priority == best->priority && queue->first->sequence < best->first->sequence))
            best = queue;
    }
    return best;
}

/* ---- Launching ---- */

static bool is_late(const struct task *task, uint64_t now) {
    return task->deadline_ns != 0 && now >= task->deadline_ns;
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
    flight->calls[n] = (struct xop_call){
        .in = task->in, .out = task->out, .attrs = task->attrs, .bad_index = &task->bad_index};
}

static void begin_flight(struct flight *flight, const struct task *task) {
    flight->group = (struct xop_group){.op = task->op,
                                       .pass = task->pass,
                                       .calls = flight->calls,
                                       .plans = flight->plans,
                                       .owner = flight};
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

static void fail_flight(struct worker *worker, struct flight *flight,
                        const struct xop_error *error) {
    for (uint32_t i = 0; i < flight->group.ncalls; i++)
        batch_complete(worker, flight->tasks[i], error->status, error->message, 0, 0);
}

/* Submits a flight. What a group is too large for is tried one by one. */
static bool submit(struct worker *worker, struct flight *flight, struct xop_error *error) {
    mark_launched(worker, flight, worker_now());
    enum xop_status status = worker->api->submit(worker->backend, &flight->group, error);
    if (status == XOP_OK) {
        flight->busy = true;
        worker->in_flight++;
        return true;
    }
    if (status == XOP_DEVICE_FAULT)
        return false;
    if (status == XOP_RESOURCE_EXHAUSTED && flight->group.ncalls > 1) {
        for (uint32_t i = flight->group.ncalls; i > 0; i--) {
            struct task *task = flight->tasks[i - 1];
            task->next = worker->again;
            worker->again = task;
        }
        return true;
    }
    error->status = status;
    fail_flight(worker, flight, error);
    return true;
}

/* Fills a flight from a queue, as far as company, bytes and outbox allow; false where not even the
 * first task has space. */
static bool gather(struct worker *worker, struct queue *queue, struct flight *flight) {
    uint64_t bytes = 0, now = worker_now();
    uint32_t limit = group_limit(worker, queue);
    begin_flight(flight, queue->first);
    while (queue->first && flight->group.ncalls < limit) {
        struct task *task = queue->first;
        if (is_late(task, now)) {
            pop(worker, queue);
            batch_complete(worker, task, XOP_DEADLINE_EXCEEDED,
                           "the deadline passed before it was started", 0, 0);
            continue;
        }
        bytes += task->plan.bytes;
        if (flight->group.ncalls > 0 && bytes > GROUP_BYTES)
            break;
        if (!outbox_take(&worker->outbox, task))
            return flight->group.ncalls > 0;
        add_to_flight(flight, pop(worker, queue));
    }
    return true;
}

/* One task alone: a suspect, or one of a group that was too large. */
static bool launch_one(struct worker *worker, struct task *task, bool *fault,
                       struct xop_error *error) {
    struct flight *flight = free_flight(worker);
    if (task->block_bytes == 0 && !outbox_take(&worker->outbox, task))
        return false;
    begin_flight(flight, task);
    add_to_flight(flight, task);
    *fault = !submit(worker, flight, error);
    return true;
}

/* Suspects run with nothing else on the device, and nothing starts while there are any. */
static uint32_t launch_alone(struct worker *worker, bool *fault, struct xop_error *error) {
    struct task *task = worker->alone;
    if (worker->in_flight > 0 || !launch_one(worker, task, fault, error))
        return 0;
    /* The task may be complete by now, but its link is as it was. */
    worker->alone = task->next;
    if (!worker->alone)
        worker->alone_last = &worker->alone;
    return 1;
}

static uint32_t launch_again(struct worker *worker, bool *fault, struct xop_error *error) {
    struct task *task = worker->again, *next = task->next;
    if (!launch_one(worker, task, fault, error))
        return 0;
    worker->again = next;
    return 1;
}

/* The next group of a queue; false where it has no space for its first task. */
static bool launch_group(struct worker *worker, struct queue *queue, struct flight *flight,
                         uint32_t *launched, bool *fault, struct xop_error *error) {
    if (!gather(worker, queue, flight)) {
        queue->blocked = worker->round;
        return false;
    }
    if (flight->group.ncalls > 0) { /* else all were late */
        *launched += flight->group.ncalls;
        *fault = !submit(worker, flight, error);
    }
    return true;
}

uint32_t batch_launch(struct worker *worker, bool *fault, struct xop_error *error) {
    uint32_t launched = 0;
    bool blocked = false;
    worker->round++;
    *fault = false;
    if (worker->alone)
        return launch_alone(worker, fault, error);
    while (!*fault && worker->api->free_lanes(worker->backend) > 0) {
        struct flight *flight = free_flight(worker);
        struct queue *queue = worker->pending > 0 ? choose(worker, worker_now()) : NULL;
        if (!flight)
            break;
        if (worker->again) {
            if (launch_again(worker, fault, error) == 0)
                break;
            launched++;
            continue;
        }
        if (!queue)
            break;
        if (launch_group(worker, queue, flight, &launched, fault, error)) {
            /* It went past one that waits for space: not for ever. */
            worker->passed_by += blocked;
            continue;
        }
        blocked = true;
        if (worker->passed_by >= MAX_PASSES)
            break;
    }
    if (!blocked)
        worker->passed_by = 0;
    drop_empty(worker);
    return launched;
}

/* ---- Finishing ---- */

static void finish_task(struct worker *worker, const struct xop_group *group, struct task *task) {
    const struct xop_signature *signature = task_signature(task);
    struct xop_error error = group->error;
    enum xop_status status = group->status;
    if (status == XOP_OK && task->bad_index != UINT64_MAX && signature->index_operand >= 0)
        status = xop_fail(&error, XOP_INVALID_ARGUMENT,
                          "input %s of %s is out of range at its element %llu",
                          signature->in[signature->index_operand].name, task->op->name,
                          (unsigned long long)task->bad_index);
    if (status == XOP_OK)
        status = outbox_verify(&worker->outbox, task, &error);
    batch_complete(worker, task, status, error.message, group->copy_ns, group->run_ns);
}

uint32_t batch_finish(struct worker *worker, bool *fault, struct xop_error *error) {
    struct xop_group *done[16];
    uint32_t count = 0, finished = 0;
    *fault = false;
    if (worker->in_flight == 0)
        return 0;
    if (worker->api->poll(worker->backend, done, sizeof done / sizeof *done, &count, error) ==
        XOP_DEVICE_FAULT) {
        *fault = true;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct flight *flight = done[i]->owner;
        for (uint32_t k = 0; k < done[i]->ncalls; k++)
            finish_task(worker, done[i], flight->tasks[k]);
        finished += done[i]->ncalls;
        flight->busy = false;
        worker->in_flight--;
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
        whole = flight->tasks && flight->calls && flight->plans;
    }
    return whole ? XOP_OK : xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for launches");
}

void batch_close(struct worker *worker) {
    for (uint32_t i = 0; worker->flights && i < worker->nflights; i++) {
        free(worker->flights[i].tasks);
        free(worker->flights[i].calls);
        free(worker->flights[i].plans);
    }
    free(worker->flights);
    for (struct queue *queue = worker->queues, *next; queue; queue = next) {
        next = queue->next;
        free(queue);
    }
    for (struct queue *queue = worker->spare_queues, *next; queue; queue = next) {
        next = queue->next;
        free(queue);
    }
}
