/*
 * A connection: reading frames, receiving bodies where they will be used, and its end. It belongs
 * to one I/O thread for life. The state machine is connection_read and the functions it calls, from
 * top to bottom in connection.c; what the frames mean is in handle.c.
 */
#ifndef FRONT_CONNECTION_H
#define FRONT_CONNECTION_H

#include "io.h"

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

/* For answer.c: arms or disarms writing; called when output was sent. */
void connection_want_write(struct connection *connection, bool want);
void connection_sent(struct connection *connection);

/* For request.c: a request of it was answered; one whose body is being received is gone. */
void connection_answered(struct connection *connection);
void connection_forget(struct connection *connection, const struct request *request);

/* The oldest descriptor that came, the caller's; -1: none. */
int connection_take_fd(struct connection *connection);

struct inbox *connection_inbox(struct io_thread *thread);
/* Space in the inbox was freed: whoever waits for it tries again. */
void connection_space_freed(struct io_thread *thread, bool for_all);
void connection_retry_waiting(struct io_thread *thread);

/* Deadlines of stages; called a few times a second. */
void connection_check_deadlines(struct io_thread *thread);

#endif
