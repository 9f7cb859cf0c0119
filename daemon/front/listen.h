/*
 * Listening sockets, on the main thread: they accept and hand connections to I/O threads in turn.
 */
#ifndef FRONT_LISTEN_H
#define FRONT_LISTEN_H

#include "shared.h"

/* Takes the sockets that were passed, and opens every configured address that is not among them.
 * UNAVAILABLE with the address and the reason. */
enum xop_status listen_open(struct front *front, struct xop_error *error);
/* Hands over those who have connected already; at sockets that were passed they are the next
 * server's. */
void listen_finish(struct front *front);
/* Closes them and removes the socket files that are ours. */
void listen_close(struct front *front);

#endif
