#include "queue.h"

#include "attributes.h"
#include "outbox.h"

#include <stdlib.h>

/* Calls of a launch while clients with few wait: what a loop does for so many takes about as long
 * as a small launch. */
#define GENTLE_GROUP 48u
/* Tasks of clients with few pass so many of others, no more: many clients with few must not keep
 * these from ever going. */
#define HEAD_START 1024u

static bool belongs(const struct queue *queue, const struct task *task) {
    return queue->op == task->op && queue->pass == task->pass && queue->dtype == task->dtype &&
           queue->group == task->plan.group && queue->priority == task->priority &&
           queue->check == task->check && queue->small == (task->block_needed <= OUTBOX_SMALL) &&
           queue->large == (task->bytes >= WORKER_LARGE) && queue->few == task->few &&
           queue->first && attributes_equal(queue->first, task);
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
                            .check = task->check,
                            .small = task->block_needed <= OUTBOX_SMALL,
                            .large = task->bytes >= WORKER_LARGE,
                            .few = task->few};
    queue->last = &queue->first;
    worker->queues = queue;
    return queue;
}

bool queue_add(struct worker *worker, struct task *task) {
    struct queue *queue = worker->queues;
    while (queue && !belongs(queue, task))
        queue = queue->next;
    if (!queue && !(queue = new_queue(worker, task)))
        return false;
    task->next = NULL;
    *queue->last = task;
    queue->last = &task->next;
    queue->count++;
    return true;
}

struct task *queue_remove(struct queue *queue, struct task **at) {
    struct task *task = *at;
    *at = task->next;
    if (!*at)
        queue->last = at;
    queue->count--;
    return task;
}

uint32_t queue_group_limit(const struct worker *worker, const struct queue *queue) {
    uint32_t limit = queue->op->pass[queue->pass].max_group;
    if (limit == 0 || queue->check)
        limit = 1; /* what writes outside its output must be found out by name */
    if (worker->gently && !queue->few && limit > GENTLE_GROUP)
        limit = GENTLE_GROUP;
    return limit < worker->setup.batch_max ? limit : worker->setup.batch_max;
}

static uint64_t due_ns(const struct worker *worker, const struct queue *queue) {
    uint64_t delay = (uint64_t)worker->setup.tuning.batch_max_delay_us * 1000;
    if (delay == 0 || queue->count >= queue_group_limit(worker, queue))
        return 0;
    return queue->first->accepted_ns + delay;
}

uint64_t queue_due_ns(const struct worker *worker, uint64_t now) {
    uint64_t next = 0;
    for (const struct queue *queue = worker->queues; queue; queue = queue->next) {
        uint64_t due = queue->first ? due_ns(worker, queue) : 0;
        if (due > now && (next == 0 || due < next))
            next = due;
    }
    return next;
}

/* Whether it may have a lane now. */
static bool may_go(const struct worker *worker, const struct queue *queue) {
    uint32_t others = worker->in_flight - worker->few_in_flight;
    /* Two large ones keep a bus busy: more would only lengthen its queue for those beside them that
     * take microseconds. */
    if (queue->large && worker->nflights >= 2 &&
        worker->large_in_flight >= (worker->nflights + 1) / 2)
        return false;
    if (queue->few)
        return true;
    /* One after the other, crowds' launches grow, and fewer of them take the loop less time. */
    if (!queue->large && worker->gently && worker->api->apart && worker->crowd_in_flight > 0)
        return false;
    /* Of three lanes and more one is left to clients with few. */
    return worker->nflights < 3 || others + 1 < worker->nflights;
}

/* Lower comes first. */
static uint64_t turn_of(const struct queue *queue) {
    return queue->first->sequence + (queue->few ? 0 : HEAD_START);
}

struct queue *queue_choose(const struct worker *worker, uint64_t now) {
    struct queue *best = NULL;
    for (struct queue *queue = worker->queues; queue; queue = queue->next) {
        if (!queue->first || queue->blocked == worker->round || due_ns(worker, queue) > now ||
            !may_go(worker, queue))
            continue;
        if (!best || queue->priority > best->priority ||
            (queue->priority == best->priority && turn_of(queue) < turn_of(best)))
            best = queue;
    }
    return best;
}

void queue_drop_empty(struct worker *worker) {
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

static void free_list(struct queue *queue) {
    while (queue) {
        struct queue *next = queue->next;
        free(queue);
        queue = next;
    }
}

void queue_close(struct worker *worker) {
    free_list(worker->queues);
    free_list(worker->spare_queues);
    worker->queues = worker->spare_queues = NULL;
}
