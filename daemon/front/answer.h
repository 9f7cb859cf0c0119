/*
 * What goes back to a client: responses are queued at a connection and sent, many in one system
 * call, straight from the worker's outbox. All on the connection's I/O thread.
 */
#ifndef FRONT_ANSWER_H
#define FRONT_ANSWER_H

#include "io.h"

/* Beyond this much unsent output a client is not read from and its queued requests wait. */
#define ANSWER_HIGH_BYTES (UINT64_C(8) << 20)
#define ANSWER_HIGH_COUNT 2048u
/* What one turn sends of a connection before others have theirs. */
#define ANSWER_TURN_BYTES (UINT64_C(4) << 20)

void answer_hello(struct connection *connection);
/* A request's failure; the connection goes on. */
void answer_failure(struct connection *connection, uint64_t id, const struct xop_error *error,
                    bool started);
void answer_ok(struct connection *connection, uint64_t id);
/* A tensor was exported: the memory's descriptor goes along, and is the memory's no longer. */
void answer_export(struct connection *connection, uint64_t id, struct memory *memory);
/* A JSON document, which this takes and frees; NULL: there was no memory for it. */
void answer_document_take(struct connection *connection, uint64_t id, char *json);
/* What came of a request in the worker: outputs are sent from the generation's outbox, whose block
 * (claimed before) is released when they are. result is a checked copy. */
void answer_result(struct connection *connection, const struct request *request,
                   struct generation *generation, const struct seam_result *result);
/* About the connection: an error after which it is closed, or a notice. */
void answer_error(struct connection *connection, const struct xop_error *error);
void answer_goaway(struct connection *connection);
void answer_generation(struct connection *connection, uint64_t generation);

/* Sends what the socket takes now; the rest follows when it takes more. */
void answer_flush(struct connection *connection);
/* Flushes every connection of the thread that has new output. */
void answer_flush_all(struct io_thread *thread);
/* Drops everything unsent. */
void answer_drop(struct connection *connection);

static inline bool answer_is_high(const struct connection *connection) {
    return connection->out_bytes > ANSWER_HIGH_BYTES || connection->out_count > ANSWER_HIGH_COUNT;
}

#endif
