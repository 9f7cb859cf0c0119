/*
 * A call: one request from its encoding to its result. Calls belong to their client and are touched
 * under its lock only.
 */
#ifndef CLIENT_CALL_H
#define CLIENT_CALL_H

#include "reader.h"

#include <sys/uio.h>
#include <xop/client.h>

#define CALL_PARTS (1 + 2 * XOP_MAX_INPUTS)

struct call {
    struct call *next; /* in the queue that it is in */
    struct call *same_hash;
    struct call *older, *newer; /* among all of the client */
    uint64_t id;
    uint64_t deadline_ns; /* 0: none */
    /* What is left to send; parts point into the header, the caller's tensors, or `copy`. */
    unsigned char *header, *copy;
    struct iovec parts[CALL_PARTS];
    uint32_t nparts, part;
    bool begun, sent;
    bool answered;  /* before it was sent whole: it ends when it is */
    bool is_run;    /* it has outputs; else its answer is a document */
    bool abandoned; /* its result was given away; the server's is still to come */
    bool finished;
    bool is_internal; /* nobody waits for it */
    bool waiter;      /* a thread in a blocking call does */
    xop_done_fn done;
    void *arg;
    /* Where the caller wants its outputs; dtype NONE: allocated. */
    struct xop_tensor wanted[XOP_MAX_OUTPUTS];
    uint32_t nwanted;
    struct xop_result *result;
};

/* A call for a message whose body is the given tensors; NULL with error where that cannot be. */
struct call *call_new(const struct message *message, const struct xop_tensor *in, uint32_t nin,
                      uint64_t body_bytes, struct xop_error *error);
void call_free(struct call *call);

/* Fills a message from a request: places its inputs in a body whose size is returned. */
enum xop_status call_message(const struct xop_request *request, struct message *message,
                             uint64_t *body_bytes, struct xop_error *error);

/* Prepares the result for what a server's message says, with segments for its outputs or document.
 * Failures that are the caller's or memory's are in the result, and the body is dropped. */
void call_receive(struct call *call, const struct message *message, uint64_t body_bytes,
                  struct reader_segment *segments, uint32_t *nsegments);

/* The result so far, or a failure in its place. */
void call_fail(struct call *call, enum xop_status status, const char *text);

/* Makes what is left to send independent of the caller's memory; false where memory runs out. */
bool call_detach_memory(struct call *call);

#endif
