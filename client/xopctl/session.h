/*
 * What every verb of xopctl shares: the address, the connection, how failures are told and which
 * exit status they give. Results go to standard output, everything else to standard error.
 */
#ifndef XOPCTL_SESSION_H
#define XOPCTL_SESSION_H

#include "token.h"

#include <jansson.h>
#include <xop/client.h>

struct session {
    const char *address;         /* as -s gave it; NULL: looked up */
    const char *ca, *cert, *key; /* files for TLS; NULL: none */
    char token[TOKEN_BYTES];     /* empty: none */
    bool insecure_token;
    bool json;
    bool color, progress; /* standard output and error are terminals */
    struct xop_client *client;
};

/* One verb: usage is what follows its name. Returns the exit status. */
struct verb {
    const char *name, *usage, *summary, *details;
    int (*run)(struct session *session, int argc, char **argv);
};

extern const struct verb verb_ops, verb_run, verb_verify, verb_stats, verb_ping, verb_bench,
    verb_doctor, verb_top, verb_op;

/* The exit status that a status gives: one table, documented in xopctl(1). */
int session_exit(enum xop_status status);

/* What connections of xopctl are opened with; a verb may change what is its own. */
struct xop_client_options session_options(const struct session *session);

/* Connects; on failure it has told the user, and *exit_status is set. */
bool session_connect(struct session *session, int *exit_status);

/* From so many bytes of inputs and outputs on, tensors go through memory shared with the daemon:
 * for less, setting it up takes longer than sending them. */
#define SHARE_FROM_BYTES (64 * 1024)
/* Whether memory can be shared with the server at an address as xop_client_address says it. */
bool session_shares_memory(const char *address);

/* Tells a failure and returns exit_status. */
int session_fail(struct session *session, int exit_status, enum xop_status status,
                 const char *format, ...) XOP_PRINTF(4, 5);

/* Wrong usage: tells what, and where to read more. Returns 64. */
int session_usage(const struct verb *verb, const char *format, ...) XOP_PRINTF(2, 3);

/* A whole number without sign from least to most, and nothing behind it. */
bool session_count(const char *text, uint64_t least, uint64_t most, uint64_t *number);

/* Parses the document of a result; NULL where the result is a failure or no JSON (told then). */
json_t *session_document(struct session *session, struct xop_result *result, int *exit_status);

/* The ping document. */
json_t *session_ping(struct session *session, int *exit_status);

/* Prints a document, indented, and frees it. */
int session_print_json(json_t *document);

/* Whether all output arrived: 0, or 74 having told it. */
int session_finish_output(void);

#endif
