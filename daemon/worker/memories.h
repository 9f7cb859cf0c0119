/*
 * The memories that requests name besides inbox and outbox: clients' memfds and the device's own.
 * The loop's thread holds the table; mapping, pinning and making them is the helper's. Of the
 * device's, the parent keeps the descriptors (daemon/shared/keeper.h), so that the worker after
 * this one has them too.
 */
#ifndef WORKER_MEMORIES_H
#define WORKER_MEMORIES_H

#include "state.h"

void memories_close(struct worker *worker);

/* A client's descriptor came, for an adoption that follows; it is taken over. */
void memories_given(struct worker *worker, const struct seam_memory *memory, int fd);

/* The three kinds of task that are the helper's: each completes its task, in time. */
void memories_adopt(struct worker *worker, struct task *task);
void memories_release(struct worker *worker, struct task *task);
void memories_probe(struct worker *worker, struct task *task);

/* Where bytes from offset on lie; NULL, and why, where the memory is not adopted, has not got them,
 * or is not to be written. */
void *memories_find(const struct worker *worker, uint64_t number, uint64_t offset, uint64_t bytes,
                    bool write, const char **why);

#endif
