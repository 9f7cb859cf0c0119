#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static const struct {
    enum xop_status status;
    int exit_status;
} exits[] = {
    {XOP_OK, 0},
    {XOP_INVALID_ARGUMENT, EX_DATAERR},
    {XOP_NOT_FOUND, EX_USAGE},
    {XOP_ALREADY_EXISTS, EX_DATAERR},
    {XOP_FAILED_PRECONDITION, EX_PROTOCOL},
    {XOP_UNIMPLEMENTED, EX_USAGE},
    {XOP_UNAVAILABLE, EX_UNAVAILABLE},
    {XOP_DEADLINE_EXCEEDED, EX_TEMPFAIL},
    {XOP_RESOURCE_EXHAUSTED, EX_TEMPFAIL},
    {XOP_CANCELLED, EX_TEMPFAIL},
    {XOP_ABORTED, EX_TEMPFAIL},
    {XOP_PERMISSION_DENIED, EX_NOPERM},
    {XOP_UNAUTHENTICATED, EX_NOPERM},
};

int session_exit(enum xop_status status) {
    for (size_t i = 0; i < sizeof exits / sizeof *exits; i++)
        if (exits[i].status == status)
            return exits[i].exit_status;
    return EX_SOFTWARE; /* INTERNAL, DATA_LOSS, DEVICE_FAULT */
}

int session_fail(struct session *session, int exit_status, enum xop_status status,
                 const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "xopctl: %s\n", text);
    if (session->json) {
        json_t *document = json_pack("{s:{s:s, s:s}}", "error", "status", xop_status_name(status),
                                     "message", text);
        session_print_json(document);
    }
    return exit_status;
}

int session_usage(const struct verb *verb, const char *format, ...) {
    va_list args;
    fprintf(stderr, "xopctl%s%s: ", verb ? " " : "", verb ? verb->name : "");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nsee: xopctl %s%s--help\n", verb ? verb->name : "", verb ? " " : "");
    return EX_USAGE;
}

struct xop_client_options session_options(const struct session *session) {
    return (struct xop_client_options){.size = sizeof(struct xop_client_options),
                                       .agent = "xopctl " XOP_VERSION,
                                       .token = *session->token ? session->token : NULL,
                                       .insecure_token = session->insecure_token,
                                       .ca = session->ca,
                                       .cert = session->cert,
                                       .key = session->key};
}

bool session_connect(struct session *session, int *exit_status) {
    struct xop_error error;
    struct xop_client_options options = session_options(session);
    enum xop_status status = xop_client_open(session->address, &options, &session->client, &error);
    if (status == XOP_OK)
        return true;
    int code = status == XOP_INVALID_ARGUMENT ? EX_USAGE : session_exit(status);
    *exit_status = session_fail(session, code, status, "%s", error.message);
    return false;
}

bool session_shares_memory(const char *address) { return strncmp(address, "unix:", 5) == 0; }

bool session_count(const char *text, uint64_t least, uint64_t most, uint64_t *number) {
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *number >= least && *number <= most;
}

json_t *session_document(struct session *session, struct xop_result *result, int *exit_status) {
    json_t *document = NULL;
    json_error_t wrong;
    if (!result) {
        *exit_status = session_fail(session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    } else if (result->error.status != XOP_OK) {
        *exit_status = session_fail(session, session_exit(result->error.status),
                                    result->error.status, "%s", result->error.message);
    } else {
        document = json_loads(result->text ? result->text : "", 0, &wrong);
        if (!document)
            *exit_status = session_fail(session, EX_PROTOCOL, XOP_INTERNAL,
                                        "the server's document is no JSON: %s", wrong.text);
    }
    xop_result_free(result);
    return document;
}

json_t *session_ping(struct session *session, int *exit_status) {
    struct xop_result *result;
    xop_ping(session->client, &result);
    return session_document(session, result, exit_status);
}

int session_print_json(json_t *document) {
    char *text = document ? json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(document);
    if (!text) {
        fprintf(stderr, "xopctl: out of memory\n");
        return EX_OSERR;
    }
    puts(text);
    free(text);
    return session_finish_output();
}

int session_finish_output(void) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "xopctl: standard output: %s\n", errno ? strerror(errno) : "write failed");
    return EX_IOERR;
}
