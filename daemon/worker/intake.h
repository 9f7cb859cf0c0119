/*
 * From a record to a task. Everything is copied out of shared memory before it is looked at, since
 * who wrote it may write it again meanwhile; then it is checked for what a correct front never
 * sends, and for what a client may have got wrong.
 */
#ifndef WORKER_INTAKE_H
#define WORKER_INTAKE_H

#include "state.h"

/* Fills the task of a record. INTERNAL for what only a faulty front sends, else the client's
 * mistake in a sentence. */
enum xop_status intake_read(struct worker *worker, struct task *task, struct xop_error *error);

#endif
