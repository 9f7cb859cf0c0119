/*
 * Outcomes: results, and how a server's answer becomes one. Stateless; a result belongs to whoever
 * holds it.
 */
#ifndef CLIENT_OUTCOME_H
#define CLIENT_OUTCOME_H

#include "reader.h"

#include <xop/client.h>

/* What an answer has to be, and where it goes. */
enum outcome_kind {
    OUTCOME_RUN,      /* outputs */
    OUTCOME_DOCUMENT, /* text */
    OUTCOME_PLAIN,    /* nothing but a status */
    OUTCOME_BYTES,    /* so many bytes, to one place */
    OUTCOME_EXPORT    /* a length and a descriptor */
};

struct expected {
    enum outcome_kind kind;
    uint32_t told;                   /* outputs of which the request said something; 0: any */
    uint32_t nwanted;                /* outputs that have a place: in `wanted` */
    uint32_t in_memory, in_resident; /* bits of outputs that the request placed there */
    unsigned char *to;               /* BYTES */
    uint64_t bytes;
};

/* A result that says OK and nothing else; NULL where memory runs out. */
struct xop_result *outcome_new(void);

/* Prepares the result for what a server's message says, with segments for its outputs or document.
 * wanted: where the caller wants outputs. Failures that are the caller's or memory's are in the
 * result, and the body is dropped. */
void outcome_receive(struct xop_result *result, const struct expected *expected,
                     const struct xop_tensor *wanted, const struct message *message,
                     uint64_t body_bytes, struct reader_segment *segments, uint32_t *nsegments);

/* Adds what came of a piece to the result of its whole; the first failure stays. */
void outcome_add(struct xop_result *whole, const struct xop_result *piece);

/* The descriptor that came with an export: the result owns it until it is taken. -1: none. */
void outcome_give_descriptor(struct xop_result *result, int descriptor);
int outcome_take_descriptor(struct xop_result *result, uint64_t *bytes);

#endif
