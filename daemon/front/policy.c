#include "policy.h"

#include <errno.h>
#include <grp.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const roles[POLICY_ROLES] = {"none", "use", "admin"};

static const struct {
    const char *key, *unit;
} quotas[QUOTAS] = {
    [QUOTA_CONNECTIONS] = {"connections", "connections"},
    [QUOTA_IN_FLIGHT] = {"in_flight", "requests in flight"},
    [QUOTA_INBOX] = {"inbox", "bytes of requests"},
    [QUOTA_RESIDENT] = {"resident", "bytes of resident tensors"},
    [QUOTA_ATTACHED] = {"attached", "bytes of attached memory"},
};

const char *policy_role_name(enum policy_role role) { return roles[role]; }

const char *policy_quota_key(enum policy_quota quota) { return quotas[quota].key; }

const char *policy_quota_unit(enum policy_quota quota) { return quotas[quota].unit; }

/* ---- Reading ---- */

bool policy_is_name(const char *name) {
    size_t length = strlen(name);
    return length > 0 && length < POLICY_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-") ==
               length;
}

struct policy_rule *policy_rule(struct policy *policy, const char *name, struct xop_error *error) {
    if (!policy_is_name(name)) {
        xop_fail(error, XOP_INVALID_ARGUMENT,
                 "a policy's name has 1 to %u letters, digits, dots, dashes and the like",
                 POLICY_NAME - 1);
        return NULL;
    }
    for (uint32_t i = 0; i < policy->nrules; i++)
        if (strcmp(policy->rules[i].name, name) == 0)
            return &policy->rules[i];
    if (policy->nrules == POLICY_RULES) {
        xop_fail(error, XOP_INVALID_ARGUMENT, "there are more than %u policies", POLICY_RULES);
        return NULL;
    }
    struct policy_rule *rule = &policy->rules[policy->nrules++];
    *rule = (struct policy_rule){.limits.priority = POLICY_PRIORITY};
    strcpy(rule->name, name);
    return rule;
}

enum xop_status policy_set_role(struct policy_rule *rule, const char *text,
                                struct xop_error *error) {
    for (int role = 0; role < POLICY_ROLES; role++)
        if (strcmp(text, roles[role]) == 0) {
            rule->role = (enum policy_role)role;
            rule->has_role = true;
            return XOP_OK;
        }
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "policy %s.role is \"%.40s\": use, admin or none is allowed", rule->name, text);
}

static enum xop_status parse_number(const char *text, uint32_t *number, struct xop_error *error) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    /* The last one means "nobody" to the kernel. */
    if (*text < '0' || *text > '9' || *end || errno || value >= UINT32_MAX)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "\"%.40s\" is no number of a user or group",
                        text);
    *number = (uint32_t)value;
    return XOP_OK;
}

static enum xop_status parse_user(const char *text, uint32_t *number, struct xop_error *error) {
    const struct passwd *user = getpwnam(text);
    if (!user)
        return xop_fail(error, XOP_NOT_FOUND, "there is no user \"%.40s\"", text);
    *number = user->pw_uid;
    return XOP_OK;
}

static enum xop_status parse_group(const char *text, uint32_t *number, struct xop_error *error) {
    const struct group *group = getgrnam(text);
    if (!group)
        return xop_fail(error, XOP_NOT_FOUND, "there is no group \"%.40s\"", text);
    *number = group->gr_gid;
    return XOP_OK;
}

/* The kinds of alternative names that tls.c keeps. */
static enum xop_status parse_san(const char *text, uint32_t *number, struct xop_error *error) {
    static const char *const types[] = {"DNS:", "URI:", "email:", "IP:"};
    (void)number;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strncmp(text, types[i], strlen(types[i])) == 0 && text[strlen(types[i])])
            return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "\"san:%.40s\" is no alternative name: san:DNS:NAME, san:URI:NAME, "
                    "san:email:NAME or san:IP:ADDRESS is",
                    text);
}

static const struct form {
    const char *prefix; /* ends in a colon where something follows */
    enum policy_kind kind;
    enum xop_status (*parse)(const char *text, uint32_t *number, struct xop_error *error);
} forms[] = {
    {"uid:", MATCH_UID, parse_number}, {"user:", MATCH_UID, parse_user},
    {"gid:", MATCH_GID, parse_number}, {"group:", MATCH_GID, parse_group},
    {"token:", MATCH_TOKEN, NULL},     {"cert:", MATCH_CERT, NULL},
    {"san:", MATCH_SAN, parse_san},    {"anonymous", MATCH_ANONYMOUS, NULL},
    {"any", MATCH_ANY, NULL},
};

static const struct form *find_form(const char *text) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t length = strlen(forms[i].prefix);
        bool takes = forms[i].prefix[length - 1] == ':';
        if (strncmp(text, forms[i].prefix, length) == 0 && takes == (text[length] != 0))
            return &forms[i];
    }
    return NULL;
}

enum xop_status policy_add_match(struct policy *policy, const struct policy_rule *rule,
                                 const char *text, struct xop_error *error) {
    const struct form *form = find_form(text);
    struct policy_match match = {.rule = (uint32_t)(rule - policy->rules)};
    struct xop_error why;
    if (!form)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "policy %s.match is \"%.40s\": uid:N, user:NAME, gid:N, group:NAME, "
                        "token:NAME, cert:SUBJECT, san:TYPE:NAME, anonymous or any is allowed",
                        rule->name, text);
    const char *rest = text + strlen(form->prefix);
    if (form->parse && form->parse(rest, &match.number, &why) != XOP_OK)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "policy %s.match: %s", rule->name,
                        why.message);
    if (policy->nmatches == POLICY_MATCHES || strlen(rest) >= POLICY_TEXT)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "policy %s.match: all policies together have %u matches at most, of %u "
                        "bytes each",
                        rule->name, POLICY_MATCHES, POLICY_TEXT - 1);
    match.kind = form->kind;
    strcpy(match.text, rest);
    policy->matches[policy->nmatches++] = match;
    policy->rules[match.rule].has_match = true;
    return XOP_OK;
}

static bool has_token(const struct policy *policy, const char *name) {
    for (uint32_t i = 0; i < policy->ntokens; i++)
        if (strcmp(policy->tokens[i].name, name) == 0)
            return true;
    return false;
}

/* What holds where nothing is said. */
static enum xop_status add_defaults(struct policy *policy, struct xop_error *error) {
    char self[32];
    policy->is_default = true;
    struct policy_rule *admin = policy_rule(policy, "administrators", error);
    snprintf(self, sizeof self, "uid:%u", geteuid());
    if (!admin || policy_set_role(admin, "admin", error) != XOP_OK ||
        policy_add_match(policy, admin, "uid:0", error) != XOP_OK ||
        policy_add_match(policy, admin, self, error) != XOP_OK)
        return error->status;
    struct policy_rule *everybody = policy_rule(policy, "everybody", error);
    if (!everybody || policy_set_role(everybody, "use", error) != XOP_OK)
        return error->status;
    return policy_add_match(policy, everybody, "any", error);
}

enum xop_status policy_finish(struct policy *policy, struct xop_error *error) {
    if (policy->nrules == 0 && policy->ntokens > 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "server.tokens names tokens, but no [policy NAME] says what they are for");
    if (policy->nrules == 0)
        return add_defaults(policy, error);
    for (uint32_t i = 0; i < policy->nrules; i++) {
        const struct policy_rule *rule = &policy->rules[i];
        if (!rule->has_role || !rule->has_match)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "[policy %s] has no %s: who is meant, and what they may do, has to be "
                            "said",
                            rule->name, rule->has_role ? "match" : "role");
    }
    for (uint32_t i = 0; i < policy->nmatches; i++) {
        const struct policy_match *match = &policy->matches[i];
        if (match->kind == MATCH_TOKEN && !has_token(policy, match->text))
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "policy %s.match: there is no token \"%.40s\" in the file that "
                            "server.tokens names",
                            policy->rules[match->rule].name, match->text);
    }
    return XOP_OK;
}

/* ---- Looking up ---- */

void policy_digest(const char *token, unsigned char digest[static POLICY_DIGEST]) {
    SHA256((const unsigned char *)token, strlen(token), digest);
}

const char *policy_token_name(const struct policy *policy,
                              const unsigned char digest[static POLICY_DIGEST]) {
    const char *found = NULL;
    for (uint32_t i = 0; i < policy->ntokens; i++)
        if (CRYPTO_memcmp(digest, policy->tokens[i].digest, POLICY_DIGEST) == 0)
            found = policy->tokens[i].name;
    return found;
}

static bool has_subject(const struct policy_peer *peer) { return peer->subject && *peer->subject; }

static bool in_group(const struct policy_peer *peer, gid_t gid) {
    if (peer->gid == gid)
        return true;
    for (uint32_t i = 0; i < peer->ngroups; i++)
        if (peer->groups[i] == gid)
            return true;
    return false;
}

/* Whether text is the subject, or one of its parts: "CN=a" of "CN=a,O=b" (RFC 2253, where a comma
 * that separates nothing is behind a backslash). */
static bool is_subject(const char *subject, const char *text) {
    size_t length = strlen(text);
    if (strcmp(subject, text) == 0)
        return true;
    for (const char *part = subject, *end; *part; part = *end ? end + 1 : end) {
        for (end = part; *end && *end != ','; end++)
            if (*end == '\\' && end[1])
                end++;
        if ((size_t)(end - part) == length && memcmp(part, text, length) == 0)
            return true;
    }
    return false;
}

static bool is_line(const char *lines, const char *text) {
    size_t length = strlen(text);
    while (lines && *lines) {
        size_t line = strcspn(lines, "\n");
        if (line == length && memcmp(lines, text, length) == 0)
            return true;
        lines += lines[line] ? line + 1 : line;
    }
    return false;
}

static bool fits(const struct policy_match *match, const struct policy_peer *peer) {
    switch (match->kind) {
    case MATCH_UID: return peer->is_local && peer->uid == match->number;
    case MATCH_GID: return peer->is_local && in_group(peer, match->number);
    case MATCH_TOKEN: return peer->token && strcmp(peer->token, match->text) == 0;
    case MATCH_CERT: return has_subject(peer) && is_subject(peer->subject, match->text);
    case MATCH_SAN: return is_line(peer->names, match->text);
    case MATCH_ANONYMOUS: return !peer->is_local && !peer->token && !peer->subject;
    case MATCH_ANY: return true;
    }
    return false;
}

static void name_identity(const struct policy_peer *peer, const struct policy_match *match,
                          char *identity) {
    size_t capacity = POLICY_IDENTITY;
    bool any = !match || match->kind == MATCH_ANY;
    if (match && match->kind == MATCH_SAN)
        snprintf(identity, capacity, "san:%s", match->text);
    else if ((match && match->kind == MATCH_TOKEN) || (any && peer->token))
        snprintf(identity, capacity, "token:%s", peer->token);
    else if ((match && match->kind == MATCH_CERT) || (any && has_subject(peer)))
        snprintf(identity, capacity, "cert:%s", peer->subject);
    else if (peer->is_local)
        snprintf(identity, capacity, "uid:%u", peer->uid);
    else
        snprintf(identity, capacity, "address:%s", peer->address ? peer->address : "?");
}

const struct policy_rule *policy_find(const struct policy *policy, const struct policy_peer *peer,
                                      char identity[static POLICY_IDENTITY]) {
    const struct policy_match *found = NULL;
    /* A section may go on behind another: the order of rules counts, not that of lines. */
    for (uint32_t i = 0; i < policy->nmatches; i++) {
        const struct policy_match *match = &policy->matches[i];
        if ((!found || match->rule < found->rule) && fits(match, peer))
            found = match;
    }
    name_identity(peer, found, identity);
    return found ? &policy->rules[found->rule] : NULL;
}
