#include "config.h"

#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum kind {
    NUMBER,
    BYTES,
    OCTAL,
    BOOLEAN,
    STRING,
    LISTENER,
    BACKEND,
    LEVEL,
    MATCH,
    ROLE,
    PRIORITY
};

/* Whether a change takes effect while xopd runs, or at its next start. */
enum apply { RESTART, LIVE };

struct key {
    const char *section, *name;
    enum kind kind;
    size_t offset;
    uint64_t fallback, min, max;
    const char *unit, *doc;
    enum apply apply;
};

#define AT(member) offsetof(struct config, member)
/* Keys of a policy, of which there may be many: their offsets are those in a struct policy_rule. */
#define POLICY "policy NAME"
#define POLICY_BYTES strlen("policy ")
#define LIMIT(member) offsetof(struct policy_rule, limits.member)
#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define TIB (GIB * 1024)

static const struct key keys[] = {
    {"server", "listen", LISTENER, AT(listen), 0, 0, 0, "",
     "unix:/path, unix:@abstract, tls:host:port or tcp:host:port; may be given several times",
     RESTART},
    {"server", "insecure_tcp", BOOLEAN, AT(insecure_tcp), 0, 0, 1, "",
     "allow TCP without TLS, loopback included: every local user and container can then connect",
     RESTART},
    {"server", "socket_mode", OCTAL, AT(socket_mode), 0660, 0, 0777, "",
     "permissions of Unix sockets", RESTART},
    {"server", "socket_group", STRING, AT(socket_group), 0, 0, 0, "",
     "group of Unix sockets; empty: the process's", RESTART},
    {"server", "io_threads", NUMBER, AT(io_threads), 1, 1, 64, "", "threads that serve connections",
     RESTART},
    {"server", "max_connections", NUMBER, AT(max_connections), 1024, 1, 100000, "",
     "connections at once", LIVE},
    {"server", "max_in_flight", NUMBER, AT(max_in_flight), 4096, 1, 65536, "",
     "unanswered requests of one connection", LIVE},
    {"server", "hello_timeout_ms", NUMBER, AT(hello_timeout_ms), 5000, 10, 3600000, "ms",
     "from connecting to hello", LIVE},
    {"server", "frame_timeout_ms", NUMBER, AT(frame_timeout_ms), 10000, 10, 3600000, "ms",
     "from a frame's first byte to the end of its header", LIVE},
    {"server", "write_timeout_ms", NUMBER, AT(write_timeout_ms), 30000, 10, 3600000, "ms",
     "grace for a client to take its responses; then they go at min_rate at least", LIVE},
    {"server", "min_rate", BYTES, AT(min_rate), 64 * KIB, 1, GIB, "bytes/s",
     "a body that comes slower, or responses taken slower, end the connection", LIVE},
    {"server", "drain_timeout_ms", NUMBER, AT(drain_timeout_ms), 10000, 0, 3600000, "ms",
     "to finish accepted requests after SIGTERM", LIVE},
    {"server", "poll_us", NUMBER, AT(io_poll_us), 0, 0, 1000000, "us",
     "how long an I/O thread polls while requests are frequent; 0 on machines with few cores",
     LIVE},
    {"server", "tokens", STRING, AT(tokens), 0, 0, 0, "",
     "file with a name and a token in each line, for policies to match; empty: none", LIVE},
    {"tls", "cert", STRING, AT(tls_cert), 0, 0, 0, "",
     "file of the server's certificate and those between it and its CA, PEM", LIVE},
    {"tls", "key", STRING, AT(tls_key), 0, 0, 0, "", "file of its private key, PEM, not encrypted",
     LIVE},
    {"tls", "client_ca", STRING, AT(tls_client_ca), 0, 0, 0, "",
     "file of the CA certificates that clients' are verified with, PEM", LIVE},
    {"tls", "crl", STRING, AT(tls_crl), 0, 0, 0, "",
     "file of the client CA's revocation list, PEM; empty: none", LIVE},
    {"tls", "require_client_cert", BOOLEAN, AT(tls_require_client_cert), 1, 0, 1, "",
     "refuse clients that show no certificate", LIVE},
    {"tls", "handshake_timeout_ms", NUMBER, AT(tls_handshake_timeout_ms), 5000, 10, 3600000, "ms",
     "from connecting to the end of the TLS handshake", LIVE},
    {"http", "listen", STRING, AT(http_listen), 0, 0, 0, "",
     "host:port, in numbers, or unix:/path for metrics, health and the status page; empty: off",
     RESTART},
    {"http", "max_connections", NUMBER, AT(http_max_connections), 32, 1, 1024, "",
     "HTTP connections at once; more wait", RESTART},
    {"http", "timeout_ms", NUMBER, AT(http_timeout_ms), 10000, 10, 3600000, "ms",
     "from an HTTP client's connecting to the end of the answer", RESTART},
    {"device", "backend", BACKEND, AT(backend), 0, 0, 0, "",
     "auto (a GPU where there is one, otherwise the CPU), cpu or cuda", RESTART},
    {"device", "index", NUMBER, AT(device), 0, 0, 1023, "", "number of the GPU", RESTART},
    {"device", "inbox", BYTES, AT(inbox_bytes), GIB, 16 * MIB, 16 * TIB, "bytes",
     "shared memory for requests; pinned with CUDA", RESTART},
    {"device", "outbox", BYTES, AT(outbox_bytes), GIB, 16 * MIB, 16 * TIB, "bytes",
     "shared memory for results; pinned with CUDA", RESTART},
    {"device", "resident", BYTES, AT(resident_bytes), 0, 0, 16 * TIB, "bytes",
     "device memory for resident tensors; 0: half of the device's", LIVE},
    {"device", "attached", BYTES, AT(attached_bytes), 0, 0, 16 * TIB, "bytes",
     "clients' memory that may be attached, which pins it with CUDA; 0: half of the host's", LIVE},
    {"quota", "resident", BYTES, AT(quota_resident_bytes), 0, 0, 16 * TIB, "bytes",
     "resident tensors of one connection; 0: no limit but device.resident", LIVE},
    {"quota", "attached", BYTES, AT(quota_attached_bytes), 0, 0, 16 * TIB, "bytes",
     "memory that one connection attaches; 0: no limit but device.attached", LIVE},
    {"device", "records", NUMBER, AT(records), 1024, 16, 65536, "",
     "requests handed to a worker at once by each I/O thread; a power of two", RESTART},
    {"device", "streams", NUMBER, AT(streams), 0, 0, 64, "",
     "groups that run at once; 0: the backend's choice", RESTART},
    {"device", "threads", NUMBER, AT(threads), 0, 0, 1024, "",
     "compute threads of the CPU backend; 0: one less than the cores", RESTART},
    {"device", "poll_us", NUMBER, AT(poll_us), 100, 0, 1000000, "us",
     "how long a worker polls for more work before it sleeps, while work is frequent", LIVE},
    {POLICY, "match", MATCH, 0, 0, 0, 0, "",
     "uid:N, user:NAME, gid:N, group:NAME, token:NAME, cert:SUBJECT, san:TYPE:NAME, anonymous or "
     "any; may be given several times",
     LIVE},
    {POLICY, "role", ROLE, 0, 0, 0, 0, "", "use, admin or none", LIVE},
    {POLICY, "connections", NUMBER, LIMIT(most[QUOTA_CONNECTIONS]), 0, 0, 100000, "",
     "connections of an identity; 0: no limit", LIVE},
    {POLICY, "in_flight", NUMBER, LIMIT(most[QUOTA_IN_FLIGHT]), 0, 0, 1000000, "",
     "unanswered requests of an identity; 0: no limit", LIVE},
    {POLICY, "inbox", BYTES, LIMIT(most[QUOTA_INBOX]), 0, 0, 16 * TIB, "bytes",
     "of an identity's requests in the inbox; 0: no limit", LIVE},
    {POLICY, "resident", BYTES, LIMIT(most[QUOTA_RESIDENT]), 0, 0, 16 * TIB, "bytes",
     "resident tensors of an identity; 0: no limit", LIVE},
    {POLICY, "attached", BYTES, LIMIT(most[QUOTA_ATTACHED]), 0, 0, 16 * TIB, "bytes",
     "memory that an identity attaches; 0: no limit", LIVE},
    {POLICY, "rate", NUMBER, LIMIT(rate), 0, 0, 1000000000, "requests/s",
     "requests of an identity; 0: no limit", LIVE},
    {POLICY, "burst", NUMBER, LIMIT(burst), 0, 0, 1000000000, "",
     "requests that it may send at once; 0: those of a second", LIVE},
    {POLICY, "priority", PRIORITY, LIMIT(priority), 0, 0, 0, "",
     "highest priority of an identity's requests, to which higher ones are lowered", LIVE},
    {"batch", "max", NUMBER, AT(batch_max), 256, 1, 4096, "", "requests in one launch at most",
     RESTART},
    {"batch", "max_delay_us", NUMBER, AT(batch_max_delay_us), 0, 0, 1000000, "us",
     "how long a request may wait for company", LIVE},
    {"watchdog", "heartbeat_ms", NUMBER, AT(watchdog_heartbeat_ms), 5000, 100, 3600000, "ms",
     "a worker whose loop stands still for longer is replaced", LIVE},
    {"watchdog", "request_ms", NUMBER, AT(watchdog_request_ms), 60000, 10, 86400000, "ms",
     "a request that runs longer has its worker replaced", LIVE},
    {"operators", "path", STRING, AT(operators_path), 0, 0, 0, "",
     "directory of operator libraries to load; empty: none", RESTART},
    {"log", "level", LEVEL, AT(log_level), LOG_LEVEL_INFO, 0, 0, "", "error, warn, info or debug",
     LIVE},
};
#define KEYS (sizeof keys / sizeof *keys)
_Static_assert(sizeof keys / sizeof *keys <= 64, "policy_rule.given has a bit for each key");

/* In the configuration or in a policy. */
static void *member(void *whole, const struct key *key) { return (char *)whole + key->offset; }

static bool is_policy(const char *section) { return strncmp(section, POLICY, POLICY_BYTES) == 0; }

void config_defaults(struct config *config) {
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < KEYS; i++) {
        if (is_policy(keys[i].section))
            continue; /* policy_rule has theirs */
        switch (keys[i].kind) {
        case NUMBER:
        case BYTES:
        case OCTAL: *(uint64_t *)member(config, &keys[i]) = keys[i].fallback; break;
        case BOOLEAN: *(bool *)member(config, &keys[i]) = keys[i].fallback != 0; break;
        case LEVEL: config->log_level = (enum log_level)keys[i].fallback; break;
        case BACKEND: strcpy(config->backend, "auto"); break;
        case STRING:
        case LISTENER:
        case MATCH:
        case ROLE:
        case PRIORITY: break;
        }
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    config->io_threads = cores >= 8 ? 4 : cores >= 4 ? 2 : 1;
    /* Where a core can be spared; where not, polling takes it from whoever has the answer. */
    config->io_poll_us = cores >= 8 ? 100 : 0;
}

static enum xop_status set_number(uint64_t *out, const struct key *key, const char *value,
                                  struct xop_error *error) {
    char *end;
    errno = 0;
    uint64_t number = 0, unit = 1;
    bool digits = value[0] >= '0' && value[0] <= '9';
    number = strtoull(value, &end, key->kind == OCTAL ? 8 : 10);
    if (key->kind == BYTES && *end) {
        static const char suffixes[] = "KMGT";
        const char *suffix = strchr(suffixes, *end);
        if (suffix) {
            unit = UINT64_C(1) << (10 * (suffix - suffixes + 1));
            end++;
        }
    }
    if (digits && !*end && !errno && !__builtin_mul_overflow(number, unit, &number) &&
        number >= key->min && number <= key->max) {
        *out = number;
        return XOP_OK;
    }
    if (key->kind == OCTAL)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s.%s is \"%.40s\": an octal number up to %" PRIo64 " is allowed",
                        key->section, key->name, value, key->max);
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "%s.%s is \"%.40s\": a number%s from %" PRIu64 " to %" PRIu64 " is allowed",
                    key->section, key->name, value,
                    key->kind == BYTES ? " of bytes (K, M, G, T for powers of 1024)" : "", key->min,
                    key->max);
}

static enum xop_status set_boolean(bool *out, const struct key *key, const char *value,
                                   struct xop_error *error) {
    static const char *const words[2][4] = {{"no", "false", "off", "0"},
                                            {"yes", "true", "on", "1"}};
    for (int truth = 0; truth < 2; truth++)
        for (int i = 0; i < 4; i++)
            if (strcmp(value, words[truth][i]) == 0) {
                *out = truth;
                return XOP_OK;
            }
    return xop_fail(error, XOP_INVALID_ARGUMENT, "%s.%s is \"%.40s\": yes or no is allowed",
                    key->section, key->name, value);
}

static enum xop_status set_string(char *out, const struct key *key, const char *value,
                                  struct xop_error *error) {
    if (strlen(value) >= CONFIG_STRING)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s.%s has %zu bytes: %d are allowed",
                        key->section, key->name, strlen(value), CONFIG_STRING - 1);
    strcpy(out, value);
    return XOP_OK;
}

enum config_scheme config_scheme(const char *address) {
    static const char *const schemes[] = {"unix:", "tcp:", "tls:"};
    int i = 0;
    while (i < CONFIG_NO_SCHEME && strncmp(address, schemes[i], strlen(schemes[i])) != 0)
        i++;
    return (enum config_scheme)i;
}

bool config_split(char *text, char **host, char **port) {
    char *colon = strrchr(text, ':');
    if (!colon || colon == text || !colon[1])
        return false;
    *colon = 0;
    *port = colon + 1;
    *host = text;
    if (text[0] == '[') {
        if (colon[-1] != ']')
            return false;
        colon[-1] = 0;
        *host = text + 1;
    }
    char *end;
    unsigned long number = strtoul(*port, &end, 10);
    return **port >= '0' && **port <= '9' && !*end && number <= 65535;
}

static enum xop_status add_listener(struct config *config, const struct key *key, const char *value,
                                    struct xop_error *error) {
    if (config_scheme(value) == CONFIG_NO_SCHEME)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s.%s is \"%.40s\": unix:/path, tls:host:port or tcp:host:port is allowed",
                        key->section, key->name, value);
    if (config->nlisten == CONFIG_LISTENERS)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s.%s is given more than %d times",
                        key->section, key->name, CONFIG_LISTENERS);
    return set_string(config->listen[config->nlisten++], key, value, error);
}

static enum xop_status set_level(struct config *config, const struct key *key, const char *value,
                                 struct xop_error *error) {
    for (int level = 0; level < LOG_LEVELS; level++)
        if (strcmp(value, log_level_name((enum log_level)level)) == 0) {
            config->log_level = (enum log_level)level;
            return XOP_OK;
        }
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "%s.%s is \"%.40s\": error, warn, info or debug is allowed", key->section,
                    key->name, value);
}

static enum xop_status set_backend(struct config *config, const struct key *key, const char *value,
                                   struct xop_error *error) {
    if (strcmp(value, "auto") != 0 && strcmp(value, "cpu") != 0 && strcmp(value, "cuda") != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s.%s is \"%.40s\": auto, cpu or cuda is allowed", key->section, key->name,
                        value);
    return set_string(config->backend, key, value, error);
}

static enum xop_status set_priority(int64_t *out, const struct key *key, const char *value,
                                    struct xop_error *error) {
    char *end;
    long number = strtol(value, &end, 10);
    if (end == value || *end || number < -8 || number > POLICY_PRIORITY)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s.%s is \"%.40s\": a number from -8 to %d is allowed", key->section,
                        key->name, value, POLICY_PRIORITY);
    *out = number;
    return XOP_OK;
}

static enum xop_status set(struct config *config, const struct key *key, const char *value,
                           struct xop_error *error) {
    switch (key->kind) {
    case NUMBER:
    case BYTES:
    case OCTAL: return set_number(member(config, key), key, value, error);
    case BOOLEAN: return set_boolean(member(config, key), key, value, error);
    case STRING: return set_string(member(config, key), key, value, error);
    case LISTENER: return add_listener(config, key, value, error);
    case BACKEND: return set_backend(config, key, value, error);
    case LEVEL: return set_level(config, key, value, error);
    case MATCH:
    case ROLE:
    case PRIORITY: break; /* a policy's */
    }
    return XOP_INTERNAL;
}

static const struct key *find(const char *section, const char *name) {
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

enum xop_status config_set(struct config *config, const char *section, const char *name,
                           const char *value, struct xop_error *error) {
    const struct key *key = find(section, name);
    if (!key || is_policy(section))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%.60s.%.60s is no key", section, name);
    return set(config, key, value, error);
}

/* A key of a policy, for which section names it. */
static enum xop_status set_policy(struct config *config, const char *section, const char *name,
                                  const char *value, struct xop_error *error) {
    const struct key *key = find(POLICY, name);
    struct policy_rule *rule = policy_rule(&config->policy, section + POLICY_BYTES, error);
    if (!rule)
        return error->status;
    if (!key)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%.60s.%.60s is no key (xopd --help-config lists them)", section, name);
    if (key->kind == MATCH)
        return policy_add_match(&config->policy, rule, value, error);
    struct key own = *key; /* as messages are to name it */
    own.section = section;
    if (rule->given >> (key - keys) & 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s.%s is given twice", section, name);
    rule->given |= UINT64_C(1) << (key - keys);
    switch (key->kind) {
    case ROLE: return policy_set_role(rule, value, error);
    case PRIORITY: return set_priority(member(rule, key), &own, value, error);
    default: return set_number(member(rule, key), &own, value, error);
    }
}

struct reading {
    struct config *config;
    struct xop_error error; /* of the first line that is wrong */
    bool failed;
    bool seen[KEYS];
};

static int read_line(void *user, const char *section, const char *name, const char *value) {
    struct reading *reading = user;
    struct xop_error error = {0};
    enum xop_status status;
    const struct key *key = find(section, name);
    if (reading->failed)
        return 1;
    if (is_policy(section))
        status = set_policy(reading->config, section, name, value, &error);
    else if (!key)
        status = xop_fail(&error, XOP_INVALID_ARGUMENT,
                          "%.60s.%.60s is no key (xopd --help-config lists them)", section, name);
    else if (reading->seen[key - keys] && key->kind != LISTENER)
        status = xop_fail(&error, XOP_INVALID_ARGUMENT, "%s.%s is given twice", section, name);
    else
        status = set(reading->config, key, value, &error);
    if (key && !is_policy(section))
        reading->seen[key - keys] = true;
    if (status != XOP_OK) {
        reading->failed = true;
        reading->error = error;
    }
    return status == XOP_OK;
}

enum xop_status config_read(struct config *config, const char *path, struct xop_error *error) {
    struct reading reading = {.config = config};
    errno = 0;
    int line = ini_parse(path, read_line, &reading);
    if (line == -1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    if (line == -2)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    if (line > 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s:%d: %s", path, line,
                        reading.failed
                            ? reading.error.message
                            : "neither a [section] nor key = value (of at most 199 bytes)");
    return XOP_OK;
}

static enum xop_status default_listener(struct config *config, struct xop_error *error) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char address[CONFIG_STRING];
    int n = geteuid() != 0 && runtime && runtime[0] == '/'
                ? snprintf(address, sizeof address, "unix:%s/xopd/xopd.sock", runtime)
                : snprintf(address, sizeof address, "unix:/run/xopd/xopd.sock");
    if (n < 0 || (size_t)n >= sizeof address)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "XDG_RUNTIME_DIR is too long");
    config->listens_by_default = true;
    return config_set(config, "server", "listen", address, error);
}

enum xop_status config_check_tls(const struct config *config, const char *listener,
                                 struct xop_error *error) {
    if (!*config->tls_cert || !*config->tls_key)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%.80s needs a certificate: set tls.cert and tls.key", listener);
    if (config->tls_require_client_cert && !*config->tls_client_ca)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%.80s needs tls.client_ca to verify clients with, or "
                        "tls.require_client_cert = no to let anybody in",
                        listener);
    if (*config->tls_crl && !*config->tls_client_ca)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "tls.crl is of no use without tls.client_ca");
    return XOP_OK;
}

/* In numbers, so that no name that somebody else answers for decides who can reach it. */
static enum xop_status check_http(const struct config *config, struct xop_error *error) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char text[CONFIG_STRING], *host, *port;
    snprintf(text, sizeof text, "%s", config->http_listen);
    if (!*text || config_scheme(text) == CONFIG_UNIX)
        return XOP_OK;
    bool numeric = config_split(text, &host, &port) && getaddrinfo(host, port, &hints, &found) == 0;
    if (numeric) {
        freeaddrinfo(found);
        return XOP_OK;
    }
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "http.listen is \"%.80s\": unix:/path, or a numeric address and port such as "
                    "127.0.0.1:9464 or [::1]:9464, is allowed",
                    config->http_listen);
}

enum xop_status config_finish(struct config *config, struct xop_error *error) {
    if (config->nlisten == 0 && default_listener(config, error) != XOP_OK)
        return error->status;
    for (uint64_t i = 0; i < config->nlisten; i++) {
        enum config_scheme scheme = config_scheme(config->listen[i]);
        if (scheme == CONFIG_TCP && !config->insecure_tcp)
            return xop_fail(
                error, XOP_INVALID_ARGUMENT,
                "%.80s is TCP without TLS, which any local user or container can reach: "
                "set server.insecure_tcp = yes or pass --insecure-tcp to allow it",
                config->listen[i]);
        if (scheme == CONFIG_TLS && config_check_tls(config, config->listen[i], error) != XOP_OK)
            return error->status;
    }
    if ((config->records & (config->records - 1)) != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "device.records is %" PRIu64 ": a power of two is allowed",
                        config->records);
    if (check_http(config, error) != XOP_OK)
        return error->status;
    if (*config->tokens && policy_read_tokens(&config->policy, config->tokens, error) != XOP_OK)
        return error->status;
    return policy_finish(&config->policy, error);
}

/* ---- Changes ---- */

static bool is_equal(const struct config *a, const struct config *b, const struct key *key) {
    const void *left = (const char *)a + key->offset, *right = (const char *)b + key->offset;
    switch (key->kind) {
    case NUMBER:
    case BYTES:
    case OCTAL: return *(const uint64_t *)left == *(const uint64_t *)right;
    case BOOLEAN: return *(const bool *)left == *(const bool *)right;
    case LEVEL: return a->log_level == b->log_level;
    case STRING:
    case BACKEND: return strcmp(left, right) == 0;
    case MATCH:
    case ROLE:
    case PRIORITY: /* policies are compared as a whole */
    case LISTENER: break;
    }
    for (uint64_t i = 0; i < a->nlisten && i < b->nlisten; i++)
        if (strcmp(a->listen[i], b->listen[i]) != 0)
            return false;
    return a->nlisten == b->nlisten;
}

static void copy_value(struct config *to, const struct config *from, const struct key *key) {
    const void *value = (const char *)from + key->offset;
    switch (key->kind) {
    case NUMBER:
    case BYTES:
    case OCTAL: *(uint64_t *)member(to, key) = *(const uint64_t *)value; break;
    case BOOLEAN: *(bool *)member(to, key) = *(const bool *)value; break;
    case LEVEL: to->log_level = from->log_level; break;
    case STRING:
    case BACKEND: strcpy(member(to, key), value); break;
    case LISTENER:
        memcpy(to->listen, from->listen, sizeof to->listen);
        to->nlisten = from->nlisten;
        break;
    case MATCH:
    case ROLE:
    case PRIORITY: break;
    }
}

static void write_value(const struct config *config, const struct key *key, char *out,
                        size_t capacity) {
    const void *value = (const char *)config + key->offset;
    switch (key->kind) {
    case NUMBER:
    case BYTES: snprintf(out, capacity, "%" PRIu64, *(const uint64_t *)value); break;
    case OCTAL: snprintf(out, capacity, "%04" PRIo64, *(const uint64_t *)value); break;
    case BOOLEAN: snprintf(out, capacity, "%s", *(const bool *)value ? "yes" : "no"); break;
    case LEVEL: snprintf(out, capacity, "%s", log_level_name(config->log_level)); break;
    case STRING:
    case BACKEND: snprintf(out, capacity, "%s", (const char *)value); break;
    case MATCH:
    case ROLE:
    case PRIORITY: break;
    case LISTENER:
        for (uint64_t i = 0; i < config->nlisten && strlen(out) + 1 < capacity; i++)
            snprintf(out + strlen(out), capacity - strlen(out), "%s%s", i ? " " : "",
                     config->listen[i]);
        break;
    }
}

void config_apply(struct config *config, const struct config *fresh, config_noter *note) {
    for (size_t i = 0; i < KEYS; i++) {
        char text[2 * CONFIG_STRING + 128], before[CONFIG_STRING] = "", after[CONFIG_STRING] = "";
        if (is_policy(keys[i].section) || is_equal(config, fresh, &keys[i]))
            continue;
        write_value(config, &keys[i], before, sizeof before);
        write_value(fresh, &keys[i], after, sizeof after);
        snprintf(text, sizeof text, "%s.%s: \"%s\", was \"%s\"", keys[i].section, keys[i].name,
                 after, before);
        if (note)
            note(text, keys[i].apply == LIVE);
        if (keys[i].apply == LIVE)
            copy_value(config, fresh, &keys[i]);
    }
    /* Also what the file of tokens holds. */
    if (memcmp(&config->policy, &fresh->policy, sizeof fresh->policy) != 0) {
        if (note)
            note("policies and tokens", true);
        config->policy = fresh->policy;
    }
}

/* ---- Help ---- */

static void print_default(FILE *out, const struct key *key) {
    switch (key->kind) {
    case NUMBER:
        fprintf(out, "default %" PRIu64 ", %" PRIu64 " to %" PRIu64, key->fallback, key->min,
                key->max);
        break;
    case BYTES:
        fprintf(out, "default %" PRIu64 "K, %" PRIu64 " to %" PRIu64, key->fallback / KIB, key->min,
                key->max);
        break;
    case OCTAL: fprintf(out, "default %04" PRIo64, key->fallback); break;
    case BOOLEAN: fprintf(out, "default %s", key->fallback ? "yes" : "no"); break;
    case BACKEND: fprintf(out, "default auto"); break;
    case LEVEL: fprintf(out, "default info"); break;
    case PRIORITY: fprintf(out, "default %d, -8 to %d", POLICY_PRIORITY, POLICY_PRIORITY); break;
    case STRING:
    case LISTENER: fprintf(out, "default none"); break;
    case MATCH:
    case ROLE: fprintf(out, "has to be given"); break;
    }
}

void config_print_help(FILE *out) {
    const char *section = "";
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(section, keys[i].section) != 0)
            fprintf(out, "%s[%s]\n", i ? "\n" : "", section = keys[i].section);
        fprintf(out, "# %s%s%s%s\n#   ", keys[i].doc, *keys[i].unit ? " (" : "", keys[i].unit,
                *keys[i].unit ? ")" : "");
        print_default(out, &keys[i]);
        fprintf(out, "%s\n# %s =\n", keys[i].apply == LIVE ? "" : "; needs a restart",
                keys[i].name);
    }
}
