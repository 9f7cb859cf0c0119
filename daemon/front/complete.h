/*
 * What comes back from a worker, and what happens when it does not. Everything the worker wrote is
 * copied, then checked, then used; a worker that breaks the rules of the seam is reported and
 * replaced. All on the I/O thread that owns the lane.
 *
 * After a worker's death its requests are run again. Those that it had launched are suspects: they
 * run alone, so that the next death shows which one is guilty.
 */
#ifndef FRONT_COMPLETE_H
#define FRONT_COMPLETE_H

#include "io.h"

/* Answers what the worker has completed; returns how many that was. */
uint32_t complete_drain(struct io_thread *thread);

/* Gives a block of an outbox back, to the worker that made it if it still lives. */
void complete_release(struct io_thread *thread, struct generation *generation, uint64_t offset,
                      uint64_t bytes);

/* The worker was reaped: takes what it had finished, and queues the rest to be run again. */
void complete_gone(struct io_thread *thread);

/* Reports requests that have run for too long; called now and then. */
void complete_watch(struct io_thread *thread);

#endif
