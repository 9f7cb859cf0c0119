#include "config.h"

#include "config_keys.h"

#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void config_defaults(struct config *config) {
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < config_nkeys; i++) {
        if (config_is_policy(config_keys[i].section))
            continue; /* policy_rule has theirs */
        switch (config_keys[i].kind) {
        case NUMBER:
        case BYTES:
        case OCTAL:
            *(uint64_t *)config_member(config, &config_keys[i]) = config_keys[i].fallback;
            break;
        case BOOLEAN:
            *(bool *)config_member(config, &config_keys[i]) = config_keys[i].fallback != 0;
            break;
        case LEVEL: config->log_level = (enum log_level)config_keys[i].fallback; break;
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

static enum xop_status set_number(uint64_t *out, const struct config_key *key, const char *value,
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

static enum xop_status set_boolean(bool *out, const struct config_key *key, const char *value,
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

static enum xop_status set_string(char *out, const struct config_key *key, const char *value,
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

static enum xop_status add_listener(struct config *config, const struct config_key *key,
                                    const char *value, struct xop_error *error) {
    if (config_scheme(value) == CONFIG_NO_SCHEME)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s.%s is \"%.40s\": unix:/path, tls:host:port or tcp:host:port is allowed",
                        key->section, key->name, value);
    if (config->nlisten == CONFIG_LISTENERS)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s.%s is given more than %d times",
                        key->section, key->name, CONFIG_LISTENERS);
    return set_string(config->listen[config->nlisten++], key, value, error);
}

static enum xop_status set_level(struct config *config, const struct config_key *key,
                                 const char *value, struct xop_error *error) {
    for (int level = 0; level < LOG_LEVELS; level++)
        if (strcmp(value, log_level_name((enum log_level)level)) == 0) {
            config->log_level = (enum log_level)level;
            return XOP_OK;
        }
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "%s.%s is \"%.40s\": error, warn, info or debug is allowed", key->section,
                    key->name, value);
}

static enum xop_status set_backend(struct config *config, const struct config_key *key,
                                   const char *value, struct xop_error *error) {
    if (strcmp(value, "auto") != 0 && strcmp(value, "cpu") != 0 && strcmp(value, "cuda") != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s.%s is \"%.40s\": auto, cpu or cuda is allowed", key->section, key->name,
                        value);
    return set_string(config->backend, key, value, error);
}

static enum xop_status set_priority(int64_t *out, const struct config_key *key, const char *value,
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

static enum xop_status set(struct config *config, const struct config_key *key, const char *value,
                           struct xop_error *error) {
    switch (key->kind) {
    case NUMBER:
    case BYTES:
    case OCTAL: return set_number(config_member(config, key), key, value, error);
    case BOOLEAN: return set_boolean(config_member(config, key), key, value, error);
    case STRING: return set_string(config_member(config, key), key, value, error);
    case LISTENER: return add_listener(config, key, value, error);
    case BACKEND: return set_backend(config, key, value, error);
    case LEVEL: return set_level(config, key, value, error);
    case MATCH:
    case ROLE:
    case PRIORITY: break; /* a policy's */
    }
    return XOP_INTERNAL;
}

static const struct config_key *find(const char *section, const char *name) {
    for (size_t i = 0; i < config_nkeys; i++)
        if (strcmp(config_keys[i].section, section) == 0 && strcmp(config_keys[i].name, name) == 0)
            return &config_keys[i];
    return NULL;
}

enum xop_status config_set(struct config *config, const char *section, const char *name,
                           const char *value, struct xop_error *error) {
    const struct config_key *key = find(section, name);
    if (!key || config_is_policy(section))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%.60s.%.60s is no key", section, name);
    return set(config, key, value, error);
}

/* A key of a policy, for which section names it. */
static enum xop_status set_policy(struct config *config, const char *section, const char *name,
                                  const char *value, struct xop_error *error) {
    const struct config_key *key = find(CONFIG_POLICY, name);
    struct policy_rule *rule = policy_rule(&config->policy, section + CONFIG_POLICY_BYTES, error);
    if (!rule)
        return error->status;
    if (!key)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%.60s.%.60s is no key (xopd --help-config lists them)", section, name);
    if (key->kind == MATCH)
        return policy_add_match(&config->policy, rule, value, error);
    struct config_key own = *key; /* as messages are to name it */
    own.section = section;
    if (rule->given >> (key - config_keys) & 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s.%s is given twice", section, name);
    rule->given |= UINT64_C(1) << (key - config_keys);
    switch (key->kind) {
    case ROLE: return policy_set_role(rule, value, error);
    case PRIORITY: return set_priority(config_member(rule, key), &own, value, error);
    default: return set_number(config_member(rule, key), &own, value, error);
    }
}

struct reading {
    struct config *config;
    struct xop_error error; /* of the first line that is wrong */
    bool failed;
    bool seen[CONFIG_MAX_KEYS];
};

static int read_line(void *user, const char *section, const char *name, const char *value) {
    struct reading *reading = user;
    struct xop_error error = {0};
    enum xop_status status;
    const struct config_key *key = find(section, name);
    if (reading->failed)
        return 1;
    if (config_is_policy(section))
        status = set_policy(reading->config, section, name, value, &error);
    else if (!key)
        status = xop_fail(&error, XOP_INVALID_ARGUMENT,
                          "%.60s.%.60s is no key (xopd --help-config lists them)", section, name);
    else if (reading->seen[key - config_keys] && key->kind != LISTENER)
        status = xop_fail(&error, XOP_INVALID_ARGUMENT, "%s.%s is given twice", section, name);
    else
        status = set(reading->config, key, value, &error);
    if (key && !config_is_policy(section))
        reading->seen[key - config_keys] = true;
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
