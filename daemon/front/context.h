/*
 * Contexts: what a forward kept for its backward. For each input that backward takes over from
 * forward, a context has the resident tensor that it was, with the version that it had, or a copy
 * on the device, or its shape alone.
 *
 * An object with counted references, the table's and those of requests. All on the connection's I/O
 * thread.
 */
#ifndef FRONT_CONTEXT_H
#define FRONT_CONTEXT_H

#include "catalogue.h"
#include "resident.h"

struct context_tensor {
    bool given; /* forward had it */
    bool copy;  /* the context's own */
    struct xop_tensor type;
    struct resident *resident; /* held; NULL where the shape is all that is needed */
    uint64_t version;
};

struct context {
    struct object object;
    struct connection *connection; /* while it is named */
    uint64_t id;
    bool named, made;
    char op[XOP_MAX_NAME + 1];
    uint32_t nneeds;
    struct catalogue_need needs[XOP_MAX_INPUTS]; /* backward's inputs */
    struct context_tensor tensors[XOP_MAX_INPUTS];
    unsigned char *attrs; /* as in a record */
    uint32_t nattrs, attr_bytes;
};

/* In the connection's table: ALREADY_EXISTS where the id is taken. The first reference is the
 * table's. NULL with error. */
struct context *context_new(struct connection *connection, uint64_t id, const char *op,
                            const struct catalogue *catalogue, uint32_t op_index,
                            struct xop_error *error);
struct context *context_find(const struct connection *connection, uint64_t id);
void context_unname(struct context *context);

/* Forward is done: versions are taken, and the context can be used. */
void context_made(struct context *context);

/* Whether tensor i is as it was: FAILED_PRECONDITION or DATA_LOSS else. */
enum xop_status context_check(const struct context *context, uint32_t i, struct xop_error *error);

void context_close_all(struct connection *connection);

#endif
