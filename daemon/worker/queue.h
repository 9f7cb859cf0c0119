/*
 * Queues of tasks that may share a launch: of one operator, pass, dtype, attributes, plan.group and
 * priority, small results apart from large ones, small work from large, and tasks of clients that
 * have few here from those of others, so that these never hold those up. A queue lives while it has
 * tasks, from one launching to the next, and its memory is used again.
 */
#ifndef WORKER_QUEUE_H
#define WORKER_QUEUE_H

#include "state.h"

/* Appends a task to its queue; false where memory runs out. */
bool queue_add(struct worker *worker, struct task *task);

/* Takes the task at a link of the queue's list. */
struct task *queue_remove(struct queue *queue, struct task **at);

/* The queue whose turn it is: by priority, then by its oldest task, with a head start for clients
 * with few. Left out are those that still wait for company, those that had no space in this round,
 * large ones where these have half of the lanes, and all but those of clients with few where one
 * lane is left. NULL where there is none. */
struct queue *queue_choose(const struct worker *worker, uint64_t now);

/* Tasks that a launch may take of the queue. */
uint32_t queue_group_limit(const struct worker *worker, const struct queue *queue);

/* When the next queue that waits for company at `now` has to go; 0 where none does. What is due
 * already waits for a lane or for space, and is woken by these. */
uint64_t queue_due_ns(const struct worker *worker, uint64_t now);

void queue_drop_empty(struct worker *worker);
void queue_close(struct worker *worker);

#endif
