/*
 * Batching: tasks that may share a launch wait in one queue; when a lane of the backend is free,
 * the next group goes as one launch. While every lane is busy, requests collect: that is all the
 * waiting there is by default.
 *
 * Suspects (SEAM_ALONE) come first: one at a time, with nothing else on the device.
 */
#ifndef WORKER_BATCH_H
#define WORKER_BATCH_H

#include "state.h"

enum xop_status batch_open(struct worker *worker, struct xop_error *error);
void batch_close(struct worker *worker);

/* Queues a task that was read without error. */
void batch_add(struct worker *worker, struct task *task);

/* Submits what can go now, with `few` only tasks of clients that have few; returns how many tasks
 * that concerned. *fault is set where the device is lost, with its reason in error. */
uint32_t batch_launch(struct worker *worker, bool few, bool *fault, struct xop_error *error);

/* Takes what the backend has finished; returns how many tasks that were. */
uint32_t batch_finish(struct worker *worker, bool *fault, struct xop_error *error);

/* When the next group that waits for company at `now` has to go, in ns; 0 where none waits. */
uint64_t batch_due_ns(const struct worker *worker, uint64_t now);

/* Publishes a task's end: status and, where it is OK, its outputs. */
void batch_complete(struct worker *worker, struct task *task, enum xop_status status,
                    const char *message, uint64_t copy_ns, uint64_t run_ns);

#endif
