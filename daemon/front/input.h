/*
 * What a connection receives: frames are read into its buffer and worked off there, bodies go
 * straight to where they will be used, in the inbox, for whose space a connection may have to wait.
 * The state machine is input_read and the functions it calls, from top to bottom in input.c; what
 * the frames mean is in handle.c. All on the I/O thread of the connection.
 */
#ifndef FRONT_INPUT_H
#define FRONT_INPUT_H

#include "io.h"

/* Reads and works off one turn; false where nothing came. */
bool input_read(struct connection *connection);

/* Watches the socket, or does not: as the connection wants to be read from or not. */
void input_arm(struct connection *connection);

/* Whether nothing is taken for now: output, requests in flight or a missing worker hold it back. */
bool input_is_paused(const struct connection *connection);
/* What was held back goes on. */
void input_resume(struct connection *connection);

/* The oldest descriptor that came, the caller's; -1: none. */
int input_take_fd(struct connection *connection);

/* A request whose body is being received is gone. */
void input_forget(struct connection *connection, const struct request *request);

struct inbox *input_inbox(struct io_thread *thread);
/* Space in the inbox was freed: whoever waits for it tries again. */
void input_space_freed(struct io_thread *thread, bool for_all);
void input_retry_waiting(struct io_thread *thread);

/* The connection ends: its descriptors are closed, and it waits for nothing. */
void input_end(struct connection *connection);

#endif
