/*
 * Who may do what, and how much of it: the [policy NAME] sections of the configuration and the
 * file of tokens, as one plain struct that can be copied. Filled while the configuration is read,
 * by one thread; identity.h has the one that is in force, and counts what identities use of their
 * quotas.
 *
 * A connection is compared with the rules in the order in which the file has them; the first rule
 * of which one match fits gives it its role and its quotas. Which of the things a connection has
 * shown is its identity, says the match that fitted: see policy_find.
 */
#ifndef FRONT_POLICY_H
#define FRONT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <xop/types.h>

#define POLICY_RULES 64u
#define POLICY_MATCHES 256u
#define POLICY_TOKENS 256u
#define POLICY_NAME 40u      /* bytes of a rule's or token's name, with its end */
#define POLICY_TEXT 200u     /* of a match: no line of the configuration is longer */
#define POLICY_IDENTITY 320u /* of "cert:" and a certificate's subject */
#define POLICY_DIGEST 32u    /* SHA-256 */
#define POLICY_PRIORITY 7    /* the highest that there is */

enum policy_role { POLICY_NONE, POLICY_USE, POLICY_ADMIN, POLICY_ROLES };

/* What is counted: what all connections of one identity have at a time. */
enum policy_quota {
    QUOTA_CONNECTIONS,
    QUOTA_IN_FLIGHT,
    QUOTA_INBOX,
    QUOTA_RESIDENT,
    QUOTA_ATTACHED,
    QUOTAS
};

/* Of an identity; 0: no limit. */
struct policy_limits {
    uint64_t most[QUOTAS];
    uint64_t rate, burst; /* requests a second, and at once; burst 0: those of a second */
    int64_t priority;     /* higher ones are lowered to it */
};

struct policy_rule {
    char name[POLICY_NAME];
    bool has_role, has_match;
    enum policy_role role;
    uint64_t given; /* bits: keys that its section has had, see config.c */
    struct policy_limits limits;
};

enum policy_kind {
    MATCH_UID,
    MATCH_GID,
    MATCH_TOKEN,
    MATCH_CERT,
    MATCH_SAN,
    MATCH_ANONYMOUS,
    MATCH_ANY
};

struct policy_match {
    uint32_t rule;
    enum policy_kind kind;
    uint32_t number;        /* of a user or group */
    char text[POLICY_TEXT]; /* a token's name, a subject or a part of it, an alternative name */
};

struct policy_token {
    char name[POLICY_NAME];
    unsigned char digest[POLICY_DIGEST];
};

struct policy {
    bool is_default; /* nothing was configured */
    uint32_t nrules, nmatches, ntokens;
    struct policy_rule rules[POLICY_RULES];
    struct policy_match matches[POLICY_MATCHES];
    struct policy_token tokens[POLICY_TOKENS];
};

/* What a connection has shown of itself. */
struct policy_peer {
    bool is_local; /* a Unix socket: the kernel says who is at the other end */
    uid_t uid;
    gid_t gid;
    const gid_t *groups; /* supplementary ones */
    uint32_t ngroups;
    const char *subject; /* of its verified certificate, as RFC 2253 writes it; NULL: it has none */
    const char *names;   /* alternative ones of that, "DNS:a" and the like, a line each */
    const char *token;   /* the name of the token that it gave; NULL: none */
    const char *address; /* of the host, where it is not local */
};

const char *policy_role_name(enum policy_role role);

/* The key of a quota in the configuration, and what it counts. */
const char *policy_quota_key(enum policy_quota quota);
const char *policy_quota_unit(enum policy_quota quota);

/* ---- While the configuration is read ---- */

/* Whether it can be the name of a policy or a token. */
bool policy_is_name(const char *name);

/* The rule of that name, a new one behind the others where there is none; NULL with error. */
struct policy_rule *policy_rule(struct policy *policy, const char *name, struct xop_error *error);

/* uid:N, user:NAME, gid:N, group:NAME, token:NAME, cert:SUBJECT, san:TYPE:NAME, anonymous or any.
 */
enum xop_status policy_add_match(struct policy *policy, const struct policy_rule *rule,
                                 const char *text, struct xop_error *error);
enum xop_status policy_set_role(struct policy_rule *rule, const char *text,
                                struct xop_error *error);

/* A file with a line "NAME TOKEN" or "NAME sha256:DIGEST" for each token, which nobody but its
 * owner and group can read and nobody but its owner can change. Only digests are kept, in place of
 * those that were read before. */
enum xop_status policy_read_tokens(struct policy *policy, const char *path,
                                   struct xop_error *error);

/* Sees that every rule has a role, a match and known tokens. Without any rule there are those that
 * everybody expects: root and this process's user are administrators, and who can connect may use.
 */
enum xop_status policy_finish(struct policy *policy, struct xop_error *error);

/* ---- Looking up ---- */

void policy_digest(const char *token, unsigned char digest[static POLICY_DIGEST]);
/* The name of the token with that digest, NULL where there is none. Takes the same time for each.
 */
const char *policy_token_name(const struct policy *policy,
                              const unsigned char digest[static POLICY_DIGEST]);

/* The first rule that fits, NULL where none does, and the identity as which it fits: "uid:1000" by
 * user or group, "token:NAME", "cert:SUBJECT", "san:TYPE:NAME", "address:HOST" for who has shown
 * nothing; by `any` the first of token, subject, uid and address that there is. */
const struct policy_rule *policy_find(const struct policy *policy, const struct policy_peer *peer,
                                      char identity[static POLICY_IDENTITY]);

#endif
