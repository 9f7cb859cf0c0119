/*
 * The orderly end, on the main thread. First nothing new is taken: listeners close, clients are
 * told, and every I/O thread finishes what it has accepted. When all say that they have, or when
 * server.drain_timeout_ms is over, they take leave of their connections: what has come until then
 * is answered, the write side is shut, and the peer is read to its end, since a socket that is
 * closed with input unread takes answers back that are still under way. Then the front's loop ends.
 */
#ifndef FRONT_DRAIN_H
#define FRONT_DRAIN_H

#include "shared.h"

enum xop_status drain_open(struct front *front, struct xop_error *error);
void drain_begin(struct front *front);
void drain_close(struct front *front);

/* Whether every I/O thread has handled THREAD_DRAIN and has nothing left to answer. */
bool drain_is_settled(const struct front *front);

/* Whether the worker is still at a request, as the I/O threads last saw it. */
bool drain_is_running(const struct front *front);

/* For I/O threads, after each of their rounds: tells the main thread how far this one is. */
void drain_note(struct io_thread *thread);

#endif
