/*
 * What the messages of clients mean: a table with a row for each type. Called on the connection's
 * I/O thread, with the frame's header decoded into thread->message.
 */
#ifndef FRONT_HANDLE_H
#define FRONT_HANDLE_H

#include "io.h"

/* Handles the message. Where it is a request with a body to be received, it is returned, attached;
 * NULL where there is none, or the body is to be dropped. */
struct request *handle_message(struct connection *connection, const struct message *message,
                               uint64_t body_bytes);

/* A worker is ready, or there is none for now: answers what waited for that. */
void handle_worker_changed(struct connection *connection);

#endif
