#include "config_keys.h"

#include <inttypes.h>

/* ---- Changes ---- */

static bool is_equal(const struct config *a, const struct config *b, const struct config_key *key) {
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

static void copy_value(struct config *to, const struct config *from, const struct config_key *key) {
    const void *value = (const char *)from + key->offset;
    switch (key->kind) {
    case NUMBER:
    case BYTES:
    case OCTAL: *(uint64_t *)config_member(to, key) = *(const uint64_t *)value; break;
    case BOOLEAN: *(bool *)config_member(to, key) = *(const bool *)value; break;
    case LEVEL: to->log_level = from->log_level; break;
    case STRING:
    case BACKEND: strcpy(config_member(to, key), value); break;
    case LISTENER:
        memcpy(to->listen, from->listen, sizeof to->listen);
        to->nlisten = from->nlisten;
        break;
    case MATCH:
    case ROLE:
    case PRIORITY: break;
    }
}

static void write_value(const struct config *config, const struct config_key *key, char *out,
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
    for (size_t i = 0; i < config_nkeys; i++) {
        char text[2 * CONFIG_STRING + 128], before[CONFIG_STRING] = "", after[CONFIG_STRING] = "";
        if (config_is_policy(config_keys[i].section) || is_equal(config, fresh, &config_keys[i]))
            continue;
        write_value(config, &config_keys[i], before, sizeof before);
        write_value(fresh, &config_keys[i], after, sizeof after);
        snprintf(text, sizeof text, "%s.%s: \"%s\", was \"%s\"", config_keys[i].section,
                 config_keys[i].name, after, before);
        if (note)
            note(text, config_keys[i].apply == LIVE);
        if (config_keys[i].apply == LIVE)
            copy_value(config, fresh, &config_keys[i]);
    }
    /* Also what the file of tokens holds. */
    if (memcmp(&config->policy, &fresh->policy, sizeof fresh->policy) != 0) {
        if (note)
            note("policies and tokens", true);
        config->policy = fresh->policy;
    }
}

/* ---- Help ---- */

static void print_default(FILE *out, const struct config_key *key) {
    switch (key->kind) {
    case NUMBER:
        fprintf(out, "default %" PRIu64 ", %" PRIu64 " to %" PRIu64, key->fallback, key->min,
                key->max);
        break;
    case BYTES:
        fprintf(out, "default %" PRIu64 "K, %" PRIu64 " to %" PRIu64, key->fallback / 1024,
                key->min, key->max);
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
    for (size_t i = 0; i < config_nkeys; i++) {
        if (strcmp(section, config_keys[i].section) != 0)
            fprintf(out, "%s[%s]\n", i ? "\n" : "", section = config_keys[i].section);
        fprintf(out, "# %s%s%s%s\n#   ", config_keys[i].doc, *config_keys[i].unit ? " (" : "",
                config_keys[i].unit, *config_keys[i].unit ? ")" : "");
        print_default(out, &config_keys[i]);
        fprintf(out, "%s\n# %s =\n", config_keys[i].apply == LIVE ? "" : "; needs a restart",
                config_keys[i].name);
    }
}
