/*
 * From queued requests to a worker's records. Requests that a dead worker left behind go first; the
 * others take turns by connection, each with a deficit of estimated cost (deficit round robin), so
 * that no client holds up another by sending much. So much cost as a worker takes a millisecond for
 * may be with it at once, and small requests besides. All on the I/O thread.
 */
#ifndef FRONT_DISPATCH_H
#define FRONT_DISPATCH_H

#include "io.h"

/* A request whose body is there goes on: it is queued at its connection, or waits for those that
 * block it. */
void dispatch_queue(struct request *request);
/* Queues one that was submitted before, or was about to be: it goes before others. */
void dispatch_again(struct request *request);
/* Takes a QUEUED request out of its queue. */
void dispatch_remove(struct request *request);
/* Lets a connection take part that was left out because of its unsent output. */
void dispatch_activate(struct connection *connection);
/* Takes a connection that ends out of the round. */
void dispatch_deactivate(struct connection *connection);
/* The worker has given back the record of a request: others may have their turn. */
void dispatch_returned(const struct request *request);
/* Hands over what the worker may have now, and rings its bell once. */
void dispatch_run(struct io_thread *thread);
/* Answers every queued request UNAVAILABLE. */
void dispatch_refuse_all(struct io_thread *thread, const char *reason);

#endif
