/*
 * The life of the worker, on the main thread: a generation is made, its process asked of the
 * parent, watched, and when it ends it is replaced, with growing pauses if that keeps failing. I/O
 * threads are told of every change, in order.
 */
#ifndef FRONT_WORKERS_H
#define FRONT_WORKERS_H

#include "daemon/parent.h"
#include "shared.h"

enum xop_status workers_open(struct front *front, struct xop_error *error);
/* Starts the first generation. */
void workers_start(struct front *front);
/* A message of the parent about a worker. */
void workers_on_parent(struct front *front, const struct parent_message *message);
/* The configuration has changed: what of it the worker may use at once is sent to it. */
void workers_reconfigure(struct front *front);
/* Why there is no worker and none is on its way; NULL: there is or will be one. */
const char *workers_stuck(const struct front *front, uint64_t now);
/* Has the worker exit, at once where it is still at a request, and starts no other. */
void workers_stop(struct front *front);
void workers_close(struct front *front);

#endif
