/*
 * Requests: their pool, the table of ids, their deadline, and how they end. Everything here is
 * called on the I/O thread that owns the request.
 */
#ifndef FRONT_REQUEST_H
#define FRONT_REQUEST_H

#include "io.h"

/* NULL where memory runs out. */
struct request *request_new(struct io_thread *thread);

/* What every request costs besides the bytes that it moves, in bytes. */
#define REQUEST_COST 4096u

/* Adds the bytes that it moves to its cost. */
void request_charge(struct request *request, uint64_t bytes);

/* What every request has of its message. */
void request_begin(struct request *request, const struct message *message, uint64_t body);

/* Fills one that runs an operator (op, operands, attributes), and puts it in order. A status other
 * than OK is the client's mistake, or a limit. */
enum xop_status request_fill(struct request *request, struct connection *connection,
                             const struct message *message, struct xop_error *error);

/* Makes it its connection's, found by id, with its deadline running. */
void request_attach(struct request *request, struct connection *connection, uint64_t deadline_ms);
struct request *request_find(const struct connection *connection, uint64_t id);

/* Takes it from its connection: it was answered, or nobody waits for the answer any more. It is
 * freed here unless the worker still has it. */
void request_detach(struct request *request);

/* Answers with a failure and detaches. */
void request_fail(struct request *request, enum xop_status status, const char *format, ...)
    XOP_PRINTF(3, 4);

/* Frees a request that is in no queue, no record and at no connection. */
void request_free(struct request *request);
/* One that was never attached to its connection: it leaves the order at once, and is freed when
 * those that it was to wait for know nothing of it any more. */
void request_drop(struct request *request);

/* Whether the worker has begun with it, as far as the worker says. */
bool request_launched(const struct request *request);

#endif
