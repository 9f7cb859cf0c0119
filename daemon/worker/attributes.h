/*
 * Attributes of a task: from the bytes of a record to the operator's own order, with defaults.
 */
#ifndef WORKER_ATTRIBUTES_H
#define WORKER_ATTRIBUTES_H

#include "state.h"

/* Fills task->attrs and attrs_hash; the attributes point into bytes, which must stay and are the
 * task's own: lists of integers become floats in place. */
enum xop_status attributes_read(struct task *task, unsigned char *bytes, size_t length,
                                uint32_t count, struct xop_error *error);

/* Whether two tasks of one operator have the same attributes. A hash alone will not do: clients
 * could make two different ones collide. */
bool attributes_equal(const struct task *a, const struct task *b);

#endif
