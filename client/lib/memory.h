/*
 * Memory that clients share with their server, and what of it is attached to a client.
 *
 * An attachment is in two lists, its memory's and its client's, and changes with both locks held:
 * the memory's first, then the client's. What a client has attached is ordered by address, and read
 * under the client's lock alone. A memory's struct outlives xop_memory_free as long as a client
 * that is being closed looks at it.
 */
#ifndef CLIENT_MEMORY_H
#define CLIENT_MEMORY_H

#include "proto/message.h"

#include <xop/client.h>

struct attachment;

struct attached {
    struct attachment **list; /* by address */
    uint32_t n, capacity;
    uint64_t ids; /* given so far */
};

/* Whether bytes at data lie in attached memory, at a multiple of 64 from its start, which the
 * server may write if `write`; then their place is filled in. */
bool attached_find(const struct attached *attached, const void *data, uint64_t bytes, bool write,
                   struct message_tensor *to);

/* Takes all from a client that is being closed: nothing is sent. */
void attached_drop_all(struct xop_client *client);

#endif
