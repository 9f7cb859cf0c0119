/*
 * The table of keys: what config.c reads and checks, config_change.c compares and lists. For these
 * alone.
 */
#ifndef DAEMON_CONFIG_KEYS_H
#define DAEMON_CONFIG_KEYS_H

#include "config.h"

#include <string.h>

enum config_kind {
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
enum config_apply { RESTART, LIVE };

struct config_key {
    const char *section, *name;
    enum config_kind kind;
    size_t offset;
    uint64_t fallback, min, max;
    const char *unit, *doc;
    enum config_apply apply;
};

/* The section of a policy's keys, of which there may be many: their offsets are those in a struct
 * policy_rule. */
#define CONFIG_POLICY "policy NAME"
#define CONFIG_POLICY_BYTES strlen("policy ")

#define CONFIG_MAX_KEYS 64 /* policy_rule.given has a bit for each */

extern const struct config_key config_keys[];
extern const size_t config_nkeys;

/* Of the configuration, or of a policy for its keys. */
static inline void *config_member(void *whole, const struct config_key *key) {
    return (char *)whole + key->offset;
}

static inline bool config_is_policy(const char *section) {
    return strncmp(section, CONFIG_POLICY, CONFIG_POLICY_BYTES) == 0;
}

#endif
