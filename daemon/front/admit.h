/*
 * Who a connection is, and what it may therefore do: the way from a socket to an identity, and the
 * checks that messages pass. Called on the I/O thread that owns the connection, but for admit_load.
 */
#ifndef FRONT_ADMIT_H
#define FRONT_ADMIT_H

#include "io.h"

/* Puts policies in force, at start and again whenever they were read anew: the connections that are
 * there are judged by the new ones, each by its own thread, and closed where they may not stay. On
 * the main thread; the policies are copied. */
enum xop_status admit_load(struct front *front, const struct policy *policy,
                           struct xop_error *error);

/* At hello: finds the connection's identity by its peer, its certificate and the token that hello
 * brought (NULL: none). UNAUTHENTICATED, PERMISSION_DENIED or RESOURCE_EXHAUSTED: it is refused. */
enum xop_status admit_connection(struct connection *connection, const char *token,
                                 struct xop_error *error);

/* The policies changed: the same again for one that has said hello. */
enum xop_status admit_again(struct connection *connection, struct xop_error *error);

/* The connection ends. */
void admit_leave(struct connection *connection);

/* A message that its role may not send, or one too many for its rate, is refused. */
enum xop_status admit_message(const struct connection *connection, enum message_type type,
                              struct xop_error *error);

/* Whether it may see what others have. */
bool admit_sees_all(const struct connection *connection);

/* The priority that its request gets which asks for one. */
int8_t admit_priority(const struct connection *connection, int32_t priority);

/* What it can have when it is its identity's only connection, for hello. */
uint64_t admit_max_in_flight(const struct connection *connection);
uint64_t admit_max_body(const struct connection *connection);

#endif
