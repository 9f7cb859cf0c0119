/*
 * The configuration: read by the parent from defaults, a file in INI form and the command line, in
 * this order, at its start and again on SIGHUP, and handed to the roles as a plain struct. The
 * table in config_keys.c is the one list of keys, from which parsing, ranges, messages and
 * --help-config come.
 */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include "daemon/front/policy.h"
#include "log.h"

#define CONFIG_LISTENERS 16
#define CONFIG_STRING 256

/* Of a listener's address, before its first colon. */
enum config_scheme { CONFIG_UNIX, CONFIG_TCP, CONFIG_TLS, CONFIG_NO_SCHEME };

struct config {
    char listen[CONFIG_LISTENERS][CONFIG_STRING];
    uint64_t nlisten;
    bool listens_by_default; /* none was given */
    bool insecure_tcp;
    uint64_t socket_mode;
    char socket_group[CONFIG_STRING];
    uint64_t io_threads;
    uint64_t max_connections;
    uint64_t max_in_flight; /* a connection's requests not yet answered */
    uint64_t hello_timeout_ms, frame_timeout_ms, write_timeout_ms;
    uint64_t min_rate; /* bytes a second that a body must come at */
    uint64_t drain_timeout_ms;
    uint64_t io_poll_us; /* how long an I/O thread looks for more work before it sleeps */

    char backend[CONFIG_STRING]; /* auto, cpu, cuda */
    uint64_t device;
    uint64_t inbox_bytes, outbox_bytes;
    uint64_t resident_bytes, attached_bytes; /* 0: half of the device's or the host's memory */
    uint64_t records;                        /* requests that a worker holds, for each I/O thread */
    uint64_t streams, threads, poll_us;

    uint64_t quota_resident_bytes,
        quota_attached_bytes;   /* a connection's; 0: no limit of its own */
    char tokens[CONFIG_STRING]; /* file; empty: none */
    struct policy policy;       /* with tokens as they were read, see policy.h */

    uint64_t batch_max, batch_max_delay_us;
    uint64_t watchdog_heartbeat_ms, watchdog_request_ms;
    char tls_cert[CONFIG_STRING], tls_key[CONFIG_STRING];
    char tls_client_ca[CONFIG_STRING], tls_crl[CONFIG_STRING];
    bool tls_require_client_cert;
    uint64_t tls_handshake_timeout_ms;
    char http_listen[CONFIG_STRING]; /* empty: off */
    uint64_t http_max_connections, http_timeout_ms;
    char operators_path[CONFIG_STRING];
    enum log_level log_level;
};

void config_defaults(struct config *config);

/* Reads a file over what config holds. INVALID_ARGUMENT with "file:line: key: what is allowed";
 * config is then partly changed and not to be used. */
enum xop_status config_read(struct config *config, const char *path, struct xop_error *error);

/* Sets "section.key" from text. */
enum xop_status config_set(struct config *config, const char *section, const char *key,
                           const char *value, struct xop_error *error);

enum config_scheme config_scheme(const char *address);
/* Splits "host:port" or "[v6]:port" in place; false where it is neither. */
bool config_split(char *text, char **host, char **port);

/* What no single key shows: combinations, tokens, and the listener and policies where none are
 * given. */
enum xop_status config_finish(struct config *config, struct xop_error *error);

/* Takes from fresh what may change while xopd runs, and has every key noted that differs: applied,
 * or waiting for a restart. note may be NULL. */
typedef void config_noter(const char *change, bool applied);
void config_apply(struct config *config, const struct config *fresh, config_noter *note);

/* Whether there is what TLS at that listener needs. */
enum xop_status config_check_tls(const struct config *config, const char *listener,
                                 struct xop_error *error);

/* Every key with its type, unit, default, range and meaning, for people. */
void config_print_help(FILE *out);

#endif
