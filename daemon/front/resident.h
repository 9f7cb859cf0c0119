/*
 * Resident tensors: the device's memory under a handle that a client chose, or a copy that belongs
 * to a context. One has its dtype and shape from the first that writes it, knows which of its bytes
 * hold something, and has a version that every write raises.
 *
 * An object with counted references: the connection's table holds one until the handle is freed,
 * contexts and requests hold others. It counts against its connection's quota until it is gone. All
 * on the connection's I/O thread.
 */
#ifndef FRONT_RESIDENT_H
#define FRONT_RESIDENT_H

#include "memory.h"

#define RESIDENT_MAX 65536u /* handles and copies of one connection */

struct resident_span {
    uint64_t begin, end;
};

struct resident {
    struct object object;
    struct connection *connection; /* NULL once it ended */
    struct resident *next, *previous;
    uint64_t handle; /* 0: a context's copy */
    bool named;      /* it is in the connection's table */
    bool typed;      /* dtype, shape and bytes are known */
    bool lost;       /* a worker died that may have been writing it */
    enum xop_dtype dtype;
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
    uint64_t bytes, version;
    struct memory *memory;  /* NULL: it has no place, or needs none */
    struct identity *payer; /* who pays for its bytes, see identity_take */
    uint64_t offset;
    struct resident_span *written; /* in order, none touching */
    uint32_t nwritten, capacity;
};

/* A new one without dtype and shape, in the connection's table where handle is not 0. Its first
 * reference is the table's, or the caller's. NULL with error. */
struct resident *resident_new(struct connection *connection, uint64_t handle,
                              struct xop_error *error);
struct resident *resident_find(const struct connection *connection, uint64_t handle);

/* Gives it dtype and shape, or checks that it has these: INVALID_ARGUMENT else. */
enum xop_status resident_type(struct resident *resident, const struct xop_tensor *type,
                              struct xop_error *error);
/* Gives it memory, if it has none, within the quota. alone: see memory_take. */
enum xop_status resident_place(struct resident *resident, bool alone, struct xop_error *error);

/* What a request did to the bytes: wrote them, or may have, so that nobody knows what they hold;
 * lost: because a worker died. */
void resident_wrote(struct resident *resident, uint64_t begin, uint64_t end);
void resident_spoilt(struct resident *resident, uint64_t begin, uint64_t end, bool lost);

/* Whether the bytes can be read: DATA_LOSS, FAILED_PRECONDITION or NOT_FOUND else. */
enum xop_status resident_readable(const struct resident *resident, uint64_t begin, uint64_t end,
                                  struct xop_error *error);

/* Takes the handle from the table. */
void resident_unname(struct resident *resident);
/* One whose first writer failed is as if it had never been, if nobody else waits for it. */
void resident_settle(struct resident *resident);

/* "resident 7" or "a copy", for sentences. Returns buffer. */
char *resident_text(const struct resident *resident, char *buffer, size_t capacity);

/* The connection ends: nothing is named any more, and nothing counts for it. */
void resident_close_all(struct connection *connection);

#endif
