/*
 * Identities: the policies in force, and what all connections of one identity have at a time,
 * against its quotas.
 *
 * An identity is a name under a policy. It begins with its first connection, and ends when nothing
 * is counted for it any more, which may be with its last connection or later: a worker may still
 * have a request's memory, and its bucket of requests may not be full again (to connect anew must
 * not fill it). So whoever counted something may give it back at any time, without a reference.
 *
 * What has no limit is not counted, so that it costs nothing: identity_take says whether it
 * counted, and what it did not count must not be given back. After policies changed, a limit counts
 * what is taken from then on.
 *
 * Threads: any. Counting is atomic, without a lock; to join, to leave, to list and to change the
 * policies takes the lock.
 */
#ifndef FRONT_IDENTITY_H
#define FRONT_IDENTITY_H

#include "policy.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#define IDENTITY_BUCKETS 256u

struct identity {
    struct identity *next; /* in its bucket */
    char name[POLICY_IDENTITY], policy[POLICY_NAME];
    _Atomic int role; /* enum policy_role */
    _Atomic int64_t priority;
    _Atomic uint64_t most[QUOTAS], rate, burst; /* as struct policy_limits has them */
    _Atomic uint64_t used[QUOTAS];
    _Atomic uint64_t full_ns; /* when the bucket of requests will be full again */
};

struct identities {
    pthread_mutex_t lock;
    struct policy *policy; /* under lock */
    struct identity *buckets[IDENTITY_BUCKETS];
};

void identity_open(struct identities *identities);
/* When no thread counts any more. */
void identity_close(struct identities *identities);

/* Puts a copy of these policies in force. Identities there are get their policy's new role and
 * limits; whether it is still theirs is asked by joining again. RESOURCE_EXHAUSTED: nothing
 * changed.
 */
enum xop_status identity_load(struct identities *identities, const struct policy *policy,
                              struct xop_error *error);

/* A connection of this peer, which gave a token with that digest (NULL: none), joins its identity;
 * peer->token is found here, and means nothing afterwards. NULL with error where the policies do
 * not let it in, or its connections are too many. instead: the identity that it leaves for this
 * one, where it had one already; it is never one too many then, and where it is refused it stays
 * where it was. `now` is monotonic nanoseconds here and below. */
struct identity *identity_join(struct identities *identities, struct policy_peer *peer,
                               const unsigned char *digest, struct identity *instead, uint64_t now,
                               struct xop_error *error);
/* A connection less. */
void identity_leave(struct identities *identities, struct identity *identity);

/* Takes n of a quota; RESOURCE_EXHAUSTED with the sentence where that exceeds it. counted: the
 * identity, for identity_give, or NULL where nothing was counted. */
enum xop_status identity_take(struct identity *identity, enum policy_quota quota, uint64_t n,
                              struct identity **counted, struct xop_error *error);
/* Gives back what was counted; the caller does not touch the identity for it afterwards. NULL:
 * nothing was. */
void identity_give(struct identity *counted, enum policy_quota quota, uint64_t n);

/* One request more, now. */
enum xop_status identity_request(struct identity *identity, uint64_t now, struct xop_error *error);

/* A list for stats of those for whom anything is counted: who, under which policy, and of what is
 * limited, how much. only: this one alone, or NULL for all. */
json_t *identity_list(struct identities *identities, const struct identity *only);

/* Whether the default policies are in force: nothing was configured. */
bool identity_is_default(struct identities *identities);

#endif
