/*
 * The verb run: what was asked for, and what becomes of it (run.c); which tensor is which input
 * (run_place.c). Single-threaded.
 */
#ifndef XOPCTL_RUN_H
#define XOPCTL_RUN_H

#include "attrs.h"
#include "session.h"
#include "share.h"
#include "value.h"

/* A tensor that was given, by name or by position. */
struct given {
    const char *name; /* NULL: by position */
    size_t name_bytes;
    const char *file;
    struct value value;
    bool used;
};

struct arguments {
    const char *op;
    bool backward, check, bf16, no_shm;
    uint64_t deadline_ms;
    struct given in[XOP_MAX_INPUTS], grad[XOP_MAX_OUTPUTS];
    uint32_t nin, ngrad, nattrs, nout;
    const char *attrs[XOP_MAX_ATTRS];
    const char *out[XOP_MAX_OUTPUTS];
};

/* What is made of them. */
struct job {
    struct session *session;
    struct arguments *arguments;
    json_t *document, *op, *pass; /* pass: the one that is run */
    struct attrs attrs;
    struct xop_result *forward; /* run first, where backward needs its outputs */
    struct share shares[2];     /* of forward and backward; shared: of what ran last */
    bool shared;
    struct xop_tensor in[XOP_MAX_INPUTS];
    uint32_t nin;
    int exit_status;
};

/* Tells a failure, notes its exit status, and returns false. */
bool run_fail(struct job *job, int exit_status, enum xop_status status, const char *message);

/* Fill in and nin for a pass; they fail with what is missing or too much. */
bool run_place_forward(struct job *job);
bool run_place_backward(struct job *job);
/* Whether backward takes an output of forward that was not given: forward has to be run first. */
bool run_needs_forward(struct job *job);

#endif
