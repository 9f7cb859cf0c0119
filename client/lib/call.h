/*
 * A call: one request from its encoding to its result. Calls belong to their client and are touched
 * under its lock only.
 *
 * A tensor that is put or got in several pieces has a call for each piece, and one that is their
 * `whole`: nothing of it is sent, and it is finished when all its pieces are.
 */
#ifndef CLIENT_CALL_H
#define CLIENT_CALL_H

#include "outcome.h"

#include <sys/uio.h>

#define CALL_PARTS (1 + 2 * XOP_MAX_INPUTS)
/* A header, and the body behind it where all of it fits: such a call is one part, and keeps no hold
 * of the caller's memory. */
#define CALL_SMALL 2048u

struct call {
    struct call *next; /* in the queue that it is in */
    struct call *same_hash;
    struct call *older, *newer; /* among all of the client */
    struct call *whole;
    uint32_t pieces; /* of a whole: not finished */
    uint64_t id;
    uint64_t deadline_ns; /* 0: none */
    /* What is left to send; parts point into the header, the caller's tensors, or `copy`. */
    unsigned char *large, *copy;
    uint32_t nparts, part;
    int descriptor; /* goes with the first byte, and stays the caller's; -1: none */
    bool begun, sent;
    bool answered;  /* before it was sent whole: it ends when it is */
    bool abandoned; /* its result was given away; the server's is still to come */
    bool finished;
    bool is_internal; /* nobody waits for it */
    bool is_urgent;   /* a cancel: it goes first, and the server answers it at once */
    bool waiter;      /* a thread in a blocking call does */
    xop_done_fn done;
    void *arg;
    struct expected expected;
    struct xop_result *result;
    /* What follows is not cleared for every call. */
    struct iovec parts[CALL_PARTS];
    struct xop_tensor wanted[XOP_MAX_OUTPUTS];
    unsigned char small[CALL_SMALL];
};

/* Calls that are free to be used again. */
struct call_pool {
    struct call *free;
    uint32_t count;
};

/* A call without anything to send, with a result that says nothing yet. NULL where memory runs out.
 */
struct call *call_take(struct call_pool *pool);
/* Frees what it still has; its result too. */
void call_give(struct call_pool *pool, struct call *call);
void call_pool_clear(struct call_pool *pool);

/* Encodes a message with the body that follows, of `n` pieces of the caller's memory at `offsets`:
 * what is between them is padding. */
struct call_body {
    uint64_t bytes; /* in all */
    uint32_t n;
    struct {
        uint64_t offset, bytes;
        const void *data;
    } runs[XOP_MAX_INPUTS];
};
enum xop_status call_encode(struct call *call, const struct message *message,
                            const struct call_body *body, struct xop_error *error);

/* The result so far, or a failure in its place. */
void call_fail(struct call *call, enum xop_status status, const char *text);

/* Makes what is left to send independent of the caller's memory; false where memory runs out. */
bool call_detach_memory(struct call *call);

#endif
