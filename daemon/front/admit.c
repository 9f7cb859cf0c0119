#include "admit.h"

#include "connection.h"
#include "identity.h"
#include "shared.h"
#include "thread.h"
#include "tls.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MOST_GROUPS 65536u /* the kernel's NGROUPS_MAX */

/* What a connection has shown of itself, kept for policies to come. */
struct shown {
    struct policy_peer peer; /* its certificate is the TLS session's */
    gid_t *groups;
    char address[NI_MAXHOST];
    bool has_token;
    unsigned char digest[POLICY_DIGEST]; /* of the token */
};

/* ---- Who it is ---- */

/* Supplementary groups at the time of connecting; none where the kernel does not tell. */
static gid_t *read_groups(int fd, uint32_t *count) {
    socklen_t bytes = 64 * sizeof(gid_t);
    gid_t *groups = malloc(bytes);
    *count = 0;
    if (groups && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0) {
        bool longer = errno == ERANGE && bytes <= MOST_GROUPS * sizeof(gid_t);
        free(groups);
        groups = longer ? malloc(bytes) : NULL; /* bytes: what it takes */
        if (groups && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0) {
            free(groups);
            groups = NULL;
        }
    }
    if (groups)
        *count = (uint32_t)(bytes / sizeof(gid_t));
    return groups;
}

static enum xop_status read_local(int fd, struct shown *shown, struct xop_error *error) {
    struct ucred who;
    socklen_t bytes = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) < 0)
        return xop_fail(error, XOP_UNAUTHENTICATED, "the kernel does not say who connected: %s",
                        strerror(errno));
    shown->peer.is_local = true;
    shown->peer.uid = who.uid;
    shown->peer.gid = who.gid;
    shown->peer.groups = shown->groups = read_groups(fd, &shown->peer.ngroups);
    return XOP_OK;
}

static enum xop_status read_remote(const struct connection *c, struct shown *shown,
                                   struct xop_error *error) {
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    if (getpeername(c->fd, (struct sockaddr *)&address, &bytes) < 0 ||
        getnameinfo((const struct sockaddr *)&address, bytes, shown->address, sizeof shown->address,
                    NULL, 0, NI_NUMERICHOST) != 0)
        return xop_fail(error, XOP_UNAUTHENTICATED, "the kernel does not say who connected");
    shown->peer.address = shown->address;
    if (c->tls) {
        shown->peer.subject = tls_subject(c->tls);
        shown->peer.names = tls_names(c->tls);
    }
    return XOP_OK;
}

static void forget(struct shown *shown) {
    if (shown)
        free(shown->groups);
    free(shown);
}

/* Joins the identity that what was shown stands for. Statistics read a connection's identity under
 * the thread's lock, and one that was left may be freed at once. */
static enum xop_status join(struct connection *c, struct xop_error *error) {
    struct shown *shown = c->shown;
    struct io_thread *thread = c->thread;
    pthread_mutex_lock(&thread->lock);
    struct identity *identity =
        identity_join(&thread->front->identities, &shown->peer,
                      shown->has_token ? shown->digest : NULL, c->identity, io_now(), error);
    if (identity)
        c->identity = identity;
    pthread_mutex_unlock(&thread->lock);
    return identity ? XOP_OK : error->status;
}

enum xop_status admit_connection(struct connection *c, const char *token, struct xop_error *error) {
    struct shown *shown = c->shown = calloc(1, sizeof *shown);
    if (!shown)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
    if ((c->is_unix ? read_local(c->fd, shown, error) : read_remote(c, shown, error)) != XOP_OK)
        return error->status;
    if (token) {
        shown->has_token = true;
        policy_digest(token, shown->digest);
        if (!c->is_unix && !c->tls)
            connection_log(c, 0, LOG_LEVEL_WARN,
                           "its token came in the clear: whoever listened has it");
    }
    return join(c, error);
}

enum xop_status admit_again(struct connection *c, struct xop_error *error) {
    return join(c, error);
}

void admit_leave(struct connection *c) {
    struct io_thread *thread = c->thread;
    pthread_mutex_lock(&thread->lock);
    struct identity *identity = c->identity;
    c->identity = NULL;
    pthread_mutex_unlock(&thread->lock);
    if (identity)
        identity_leave(&thread->front->identities, identity);
    forget(c->shown);
    c->shown = NULL;
}

enum xop_status admit_load(struct front *front, const struct policy *policy,
                           struct xop_error *error) {
    if (identity_load(&front->identities, policy, error) != XOP_OK)
        return error->status;
    for (uint32_t i = 0; i < front->nthreads; i++)
        if (!thread_post(&front->threads[i], THREAD_POLICY, NULL))
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                            "out of memory: connections that were there keep their identities");
    return XOP_OK;
}

/* ---- What it may do ---- */

#define BIT(type) (1u << (type))
/* What changes the server for everybody. */
#define ADMINISTRATION                                                                             \
    (BIT(MESSAGE_DEFINE) | BIT(MESSAGE_LOAD) | BIT(MESSAGE_DRAIN) | BIT(MESSAGE_RELOAD))
/* What makes use less is never one too many. */
#define UNRATED (BIT(MESSAGE_FREE) | BIT(MESSAGE_CANCEL) | BIT(MESSAGE_DETACH))

static enum policy_role role_of(const struct connection *c) {
    return (enum policy_role)atomic_load_explicit(&c->identity->role, memory_order_relaxed);
}

enum xop_status admit_message(const struct connection *c, enum message_type type,
                              struct xop_error *error) {
    struct identity *identity = c->identity;
    if ((BIT(type) & ADMINISTRATION) && role_of(c) != POLICY_ADMIN)
        return xop_fail(error, XOP_PERMISSION_DENIED,
                        "\"%s\" is for administrators: %.200s has the role \"%s\" (policy %s)",
                        message_type_name(type), identity->name, policy_role_name(role_of(c)),
                        identity->policy);
    if (BIT(type) & UNRATED || atomic_load_explicit(&identity->rate, memory_order_relaxed) == 0)
        return XOP_OK;
    return identity_request(identity, io_now(), error);
}

bool admit_sees_all(const struct connection *c) {
    return role_of(c) == POLICY_ADMIN || identity_is_default(&c->thread->front->identities);
}

int8_t admit_priority(const struct connection *c, int32_t priority) {
    int64_t most = atomic_load_explicit(&c->identity->priority, memory_order_relaxed);
    return (int8_t)(priority < most ? priority : most);
}

static uint64_t lower(const struct connection *c, enum policy_quota quota, uint64_t all) {
    uint64_t own = atomic_load_explicit(&c->identity->most[quota], memory_order_relaxed);
    return own > 0 && own < all ? own : all;
}

uint64_t admit_max_in_flight(const struct connection *c) {
    return lower(c, QUOTA_IN_FLIGHT, shared_config(c->thread)->max_in_flight);
}

uint64_t admit_max_body(const struct connection *c) {
    return lower(c, QUOTA_INBOX, shared_max_body(c->thread));
}
