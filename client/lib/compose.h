/*
 * Composing: from what a caller asks for to a message and the body that goes with it. What is wrong
 * whatever the server's state is told here, before anything is sent. Stateless; where attached
 * memory is looked at the client's lock has to be held.
 */
#ifndef CLIENT_COMPOSE_H
#define CLIENT_COMPOSE_H

#include "call.h"
#include "memory.h"

/* A message, the caller's memory that is its body, and what is expected of the answer. */
struct composed {
    struct expected expected;
    struct call_body body;
    struct message message;
};

/* One that says nothing but its type. */
void compose_plain(struct composed *to, enum message_type type, enum outcome_kind kind);

enum xop_status compose_run(struct composed *to, const struct attached *attached,
                            const struct xop_request *request, struct xop_error *error);

/* The bytes of a tensor that a caller wants to put or get. */
enum xop_status compose_check(const struct xop_tensor *tensor, bool data, uint64_t *bytes,
                              struct xop_error *error);

/* A put or get of all of a tensor in attached memory; false where it is not in such. */
bool compose_in_place(struct composed *to, const struct attached *attached, enum message_type type,
                      uint64_t handle, const struct xop_tensor *tensor, uint64_t bytes);

/* A put or get of `bytes` of it from `offset` on. */
void compose_piece(struct composed *to, enum message_type type, uint64_t handle,
                   const struct xop_tensor *tensor, uint64_t offset, uint64_t bytes);

/* A tensor's dtype and shape, and no bytes. */
void compose_type(struct message_tensor *to, const struct xop_tensor *tensor);

#endif
