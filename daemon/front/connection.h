/*
 * A connection: its beginning, its socket's events, its deadlines and its end. It belongs to one
 * I/O thread for life. What it receives is in input.c, what it sends in answer.c.
 */
#ifndef FRONT_CONNECTION_H
#define FRONT_CONNECTION_H

#include "io.h"

/* How long a peer is read that was sent all there is, so that it arrives. */
#define CONNECTION_LINGER_MS 2000u

/* Takes over an accepted, non-blocking socket, or closes it where that fails. tls: it begins with a
 * handshake. */
void connection_open(struct io_thread *thread, int fd, const char *peer, bool tls);

/* Ends it now: nothing more is read or sent. reason is for the log. The memory is freed in the next
 * round of the event loop, by connection_bury, when nobody looks at it any more. */
void connection_end(struct connection *connection, const char *reason);
void connection_bury(struct connection *connection);

/* Has answer_flush_all come by in this round: there is output, or reading may go on, or it ended.
 */
void connection_visit(struct connection *connection);

/* Answers an error about the connection, sends what is queued, reads to the end and closes. */
void connection_close(struct connection *connection, const struct xop_error *error);
/* The same for who may not be here. */
void connection_refuse(struct connection *connection, const struct xop_error *error);

/* The server stops: answers what has come until now, then closes in order. Requests that are not
 * finished get an error. */
void connection_leave(struct connection *connection);

/* For answer.c: arms or disarms writing; called when output was sent. */
void connection_want_write(struct connection *connection, bool want);
void connection_sent(struct connection *connection);

/* For request.c: a request of it was answered. */
void connection_answered(struct connection *connection);

/* A line about it, or about its request of that id where id is not 0. */
void connection_log(const struct connection *connection, uint64_t id, enum log_level level,
                    const char *format, ...) XOP_PRINTF(4, 5);

/* Deadlines of stages; called a few times a second. */
void connection_check_deadlines(struct io_thread *thread);

#endif
