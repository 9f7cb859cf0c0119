#include "identity.h"

#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

void identity_open(struct identities *identities) {
    memset(identities, 0, sizeof *identities);
    pthread_mutex_init(&identities->lock, NULL);
}

void identity_close(struct identities *identities) {
    for (uint32_t i = 0; i < IDENTITY_BUCKETS; i++)
        for (struct identity *identity = identities->buckets[i], *next; identity; identity = next) {
            next = identity->next;
            free(identity);
        }
    free(identities->policy);
    pthread_mutex_destroy(&identities->lock);
}

/* ---- Policies ---- */

static void apply(struct identity *identity, const struct policy_rule *rule) {
    for (int quota = 0; quota < QUOTAS; quota++)
        atomic_store(&identity->most[quota], rule->limits.most[quota]);
    atomic_store(&identity->rate, rule->limits.rate);
    atomic_store(&identity->burst, rule->limits.burst);
    atomic_store(&identity->priority, rule->limits.priority);
    atomic_store(&identity->role, (int)rule->role);
}

static const struct policy_rule *rule_named(const struct policy *policy, const char *name) {
    for (uint32_t i = 0; i < policy->nrules; i++)
        if (strcmp(policy->rules[i].name, name) == 0)
            return &policy->rules[i];
    return NULL;
}

enum xop_status identity_load(struct identities *identities, const struct policy *policy,
                              struct xop_error *error) {
    struct policy *copy = malloc(sizeof *copy), *before;
    if (!copy)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for policies");
    *copy = *policy;
    pthread_mutex_lock(&identities->lock);
    before = identities->policy;
    identities->policy = copy;
    for (uint32_t i = 0; i < IDENTITY_BUCKETS; i++)
        for (struct identity *at = identities->buckets[i]; at; at = at->next) {
            const struct policy_rule *rule = rule_named(copy, at->policy);
            if (rule)
                apply(at, rule);
        }
    pthread_mutex_unlock(&identities->lock);
    free(before);
    return XOP_OK;
}

bool identity_is_default(struct identities *identities) {
    pthread_mutex_lock(&identities->lock);
    bool is_default = identities->policy->is_default;
    pthread_mutex_unlock(&identities->lock);
    return is_default;
}

/* ---- Joining and leaving ---- */

/* FNV-1a. */
static uint32_t bucket_of(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (hash ^ hash >> 16) % IDENTITY_BUCKETS;
}

static bool is_over(const struct identity *identity, uint64_t now) {
    for (int quota = 0; quota < QUOTAS; quota++)
        if (atomic_load(&identity->used[quota]) > 0)
            return false;
    return atomic_load(&identity->full_ns) <= now;
}

/* Frees what is over in a bucket: only who joins makes more of it, and passes here first. */
static void sweep(struct identity **at, uint64_t now) {
    while (*at) {
        struct identity *identity = *at;
        if (is_over(identity, now)) {
            *at = identity->next;
            free(identity);
        } else {
            at = &identity->next;
        }
    }
}

static struct identity *find_or_add(struct identity **bucket, const struct policy_rule *rule,
                                    const char *name) {
    struct identity *identity = *bucket;
    while (identity &&
           (strcmp(identity->policy, rule->name) != 0 || strcmp(identity->name, name) != 0))
        identity = identity->next;
    if (identity || !(identity = calloc(1, sizeof *identity)))
        return identity;
    strcpy(identity->policy, rule->name);
    strcpy(identity->name, name); /* both have the sizes of where they come from */
    apply(identity, rule);
    identity->next = *bucket;
    return *bucket = identity;
}

static enum xop_status exhausted(const struct identity *identity, enum policy_quota quota,
                                 uint64_t n, uint64_t most, uint64_t used,
                                 struct xop_error *error) {
    return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                    "%.200s may have %llu %s (policy %s.%s), of which %llu are used: no %llu more",
                    identity->name, (unsigned long long)most, policy_quota_unit(quota),
                    identity->policy, policy_quota_key(quota), (unsigned long long)used,
                    (unsigned long long)n);
}

static enum xop_status refuse(const struct policy_peer *peer, const struct policy_rule *rule,
                              const char *identity, struct xop_error *error) {
    if (rule)
        return xop_fail(error, XOP_PERMISSION_DENIED, "%.200s may not use this server (policy %s)",
                        identity, rule->name);
    if (peer->is_local || peer->token || peer->subject)
        return xop_fail(error, XOP_PERMISSION_DENIED,
                        "%.200s may not use this server: no policy is about it", identity);
    return xop_fail(error, XOP_UNAUTHENTICATED,
                    "this server wants to know who connects: give a token, or a certificate where "
                    "it listens on tls:");
}

/* Finds who it is; a token that is given has to be right, whatever else fits: whoever gives one
 * wants to be taken for its owner. Where there are no tokens, nobody looks at it. */
static enum xop_status find_token(const struct policy *policy, struct policy_peer *peer,
                                  const unsigned char *digest, struct xop_error *error) {
    peer->token = digest ? policy_token_name(policy, digest) : NULL;
    if (digest && !peer->token && policy->ntokens > 0)
        return xop_fail(error, XOP_UNAUTHENTICATED, "the token is not one that this server knows");
    return XOP_OK;
}

static struct identity *join(struct identities *identities, struct policy_peer *peer,
                             const unsigned char *digest, bool force, uint64_t now,
                             struct xop_error *error) {
    char name[POLICY_IDENTITY];
    if (find_token(identities->policy, peer, digest, error) != XOP_OK)
        return NULL;
    const struct policy_rule *rule = policy_find(identities->policy, peer, name);
    if (!rule || rule->role == POLICY_NONE) {
        refuse(peer, rule, name, error);
        return NULL;
    }
    struct identity **bucket = &identities->buckets[bucket_of(name)];
    sweep(bucket, now);
    struct identity *identity = find_or_add(bucket, rule, name);
    if (!identity) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
        return NULL;
    }
    /* Connections are counted even without a limit: they are what keeps an identity. */
    uint64_t most = rule->limits.most[QUOTA_CONNECTIONS];
    uint64_t used = atomic_load(&identity->used[QUOTA_CONNECTIONS]);
    if (most > 0 && used >= most && !force) {
        exhausted(identity, QUOTA_CONNECTIONS, 1, most, used, error);
        return NULL;
    }
    atomic_fetch_add(&identity->used[QUOTA_CONNECTIONS], 1);
    return identity;
}

struct identity *identity_join(struct identities *identities, struct policy_peer *peer,
                               const unsigned char *digest, struct identity *instead, uint64_t now,
                               struct xop_error *error) {
    pthread_mutex_lock(&identities->lock);
    struct identity *identity = join(identities, peer, digest, instead != NULL, now, error);
    if (identity && instead)
        atomic_fetch_sub(&instead->used[QUOTA_CONNECTIONS], 1);
    pthread_mutex_unlock(&identities->lock);
    return identity;
}

void identity_leave(struct identities *identities, struct identity *identity) {
    pthread_mutex_lock(&identities->lock);
    atomic_fetch_sub(&identity->used[QUOTA_CONNECTIONS], 1);
    pthread_mutex_unlock(&identities->lock);
}

/* ---- Counting ---- */

enum xop_status identity_take(struct identity *identity, enum policy_quota quota, uint64_t n,
                              struct identity **counted, struct xop_error *error) {
    uint64_t most = atomic_load_explicit(&identity->most[quota], memory_order_relaxed);
    *counted = NULL;
    if (most == 0 || n == 0)
        return XOP_OK;
    uint64_t used = atomic_load(&identity->used[quota]);
    do
        if (n > most || used > most - n)
            return exhausted(identity, quota, n, most, used, error);
    while (!atomic_compare_exchange_weak(&identity->used[quota], &used, used + n));
    *counted = identity;
    return XOP_OK;
}

void identity_give(struct identity *counted, enum policy_quota quota, uint64_t n) {
    if (counted)
        atomic_fetch_sub(&counted->used[quota], n);
}

/* A bucket that fills at `rate` and holds `burst`, kept as the moment when it will be full: one
 * number, so that one exchange takes from it (the generic cell rate algorithm, ITU-T I.371). */
enum xop_status identity_request(struct identity *identity, uint64_t now, struct xop_error *error) {
    uint64_t rate = atomic_load_explicit(&identity->rate, memory_order_relaxed);
    if (rate == 0)
        return XOP_OK;
    uint64_t burst = atomic_load_explicit(&identity->burst, memory_order_relaxed);
    uint64_t each = SECOND_NS / rate, whole = (burst ? burst : rate) * each;
    uint64_t full = atomic_load(&identity->full_ns), next;
    do {
        next = (full > now ? full : now) + each;
        if (next - now > whole)
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                            "%.200s may send %llu requests a second, %llu at once (policy "
                            "%s.rate): try again in %llu ms",
                            identity->name, (unsigned long long)rate,
                            (unsigned long long)(burst ? burst : rate), identity->policy,
                            (unsigned long long)(next - now - whole + 999999) / 1000000);
    } while (!atomic_compare_exchange_weak(&identity->full_ns, &full, next));
    return XOP_OK;
}

/* ---- Telling ---- */

static json_t *describe(const struct identity *identity) {
    json_t *quotas = json_object();
    for (int quota = 0; quota < QUOTAS; quota++) {
        uint64_t most = atomic_load(&identity->most[quota]);
        if (most > 0)
            json_object_set_new(quotas, policy_quota_key((enum policy_quota)quota),
                                json_pack("{s:I, s:I}", "used",
                                          (json_int_t)atomic_load(&identity->used[quota]), "limit",
                                          (json_int_t)most));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "identity", identity->name, "policy",
                     identity->policy, "role",
                     policy_role_name((enum policy_role)atomic_load(&identity->role)),
                     "connections", (json_int_t)atomic_load(&identity->used[QUOTA_CONNECTIONS]),
                     "rate", (json_int_t)atomic_load(&identity->rate), "priority",
                     (json_int_t)atomic_load(&identity->priority), "quotas", quotas);
}

json_t *identity_list(struct identities *identities, const struct identity *only) {
    json_t *list = json_array();
    pthread_mutex_lock(&identities->lock);
    for (uint32_t i = 0; i < IDENTITY_BUCKETS; i++)
        for (const struct identity *it = identities->buckets[i]; it; it = it->next)
            if (!is_over(it, UINT64_MAX) && (!only || it == only))
                json_array_append_new(list, describe(it));
    pthread_mutex_unlock(&identities->lock);
    return list;
}
