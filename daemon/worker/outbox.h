/*
 * The outbox: shared memory that results are written to, allocated by the worker alone. A task's
 * outputs share one block, each on a multiple of 64 bytes. A part is kept for small results, so
 * that large ones never hold them up. With `check`, guard bytes surround every output and the
 * outputs are poisoned, so that what an operator writes too much or too little shows.
 */
#ifndef WORKER_OUTBOX_H
#define WORKER_OUTBOX_H

#include "state.h"

#define OUTBOX_GUARD 256u
#define OUTBOX_SMALL (UINT64_C(64) << 10) /* a small result has no more bytes */

enum xop_status outbox_open(struct outbox *outbox, void *base, uint64_t bytes,
                            struct xop_error *error);
void outbox_close(struct outbox *outbox);

/* Sets task->block_needed; RESOURCE_EXHAUSTED where the task's outputs could never fit, naming the
 * largest. */
enum xop_status outbox_check(const struct outbox *outbox, struct task *task,
                             struct xop_error *error);

/* Takes the block and sets task->out[].data of what is wanted; false where there is no space now,
 * or none in the part for small results where only that may be used. */
bool outbox_take(struct outbox *outbox, struct task *task, bool small_only);
/* Gives a block back; false where none starts there. */
bool outbox_give(struct outbox *outbox, uint64_t offset);

/* INTERNAL where guard bytes of a checked task were overwritten. */
enum xop_status outbox_verify(const struct outbox *outbox, const struct task *task,
                              struct xop_error *error);

#endif
