#include "listen.h"

#include "thread.h"
#include "tls.h"

#include <errno.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024
#define TURN 64 /* connections accepted before other events have their turn */
#define PAUSE_MS 100

struct listener {
    int fd;
    enum config_scheme scheme;
    struct event *event;
    bool passed; /* it outlives us, and what is in its queue with it */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* to be removed; empty: none */
    dev_t device; /* of the socket file, to remove no other's */
    ino_t inode;
};

struct listeners {
    struct front *front;
    struct listener list[CONFIG_LISTENERS * 4];
    uint32_t count;
    struct event *pause;
    uint32_t turn;
    bool refused_logged;
};

/* ---- Accepting ---- */

static void describe_peer(const struct listener *listener, int fd,
                          const struct sockaddr_storage *address, socklen_t length, char *out,
                          size_t capacity) {
    if (listener->scheme == CONFIG_UNIX) {
        struct ucred peer;
        socklen_t bytes = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0)
            snprintf(out, capacity, "unix uid %u gid %u pid %d", peer.uid, peer.gid, peer.pid);
        else
            snprintf(out, capacity, "unix");
        return;
    }
    char host[64] = "?", port[16] = "?";
    getnameinfo((const struct sockaddr *)address, length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, capacity, "%s %s port %s", listener->scheme == CONFIG_TLS ? "tls" : "tcp", host,
             port);
}

/* The thread that has least to do: by frames of late and by connections, of which one that is
 * silent counts as a few frames. Among equals they take turns. */
static struct io_thread *choose_thread(struct listeners *ls) {
    struct front *front = ls->front;
    struct io_thread *best = NULL;
    uint64_t least = UINT64_MAX;
    uint32_t first = ls->turn++;
    for (uint32_t i = 0; i < front->nthreads; i++) {
        struct io_thread *thread = &front->threads[(first + i) % front->nthreads];
        uint64_t load =
            64 * (uint64_t)atomic_load(&thread->nconnections) + atomic_load(&thread->recent_frames);
        if (load < least) {
            least = load;
            best = thread;
        }
    }
    return best;
}

static void hand_over(struct listeners *ls, int fd, const char *peer, bool tls) {
    struct front *front = ls->front;
    if (atomic_fetch_add(&front->nconnections, 1) >= front->config->max_connections) {
        atomic_fetch_sub(&front->nconnections, 1);
        if (!ls->refused_logged)
            log_warn("%s: refused: there are %llu connections already", peer,
                     (unsigned long long)front->config->max_connections);
        ls->refused_logged = true;
        /* Best effort: the socket is new, so that a short message fits. */
        struct message message = {.type = MESSAGE_ERROR,
                                  .status = XOP_UNAVAILABLE,
                                  .device = -1,
                                  .error = "this server has as many connections as it may have"};
        unsigned char bytes[512];
        size_t n = message_encode(&message, 0, bytes, sizeof bytes);
        if (!tls && n > 0 && send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            log_debug("%s: could not be told", peer);
        close(fd);
        return;
    }
    ls->refused_logged = false;
    struct io_thread *thread = choose_thread(ls);
    /* Counted here, so that of many that come at once each thread gets its part. */
    atomic_fetch_add(&thread->nconnections, 1);
    if (!thread_post_adopt(thread, fd, peer, tls)) {
        atomic_fetch_sub(&thread->nconnections, 1);
        atomic_fetch_sub(&front->nconnections, 1);
        close(fd);
    }
}

static void set_accepting(struct listeners *ls, bool accepting) {
    for (uint32_t i = 0; i < ls->count; i++)
        if ((accepting ? event_add(ls->list[i].event, NULL) : event_del(ls->list[i].event)) < 0)
            log_error("cannot change what is listened to");
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    set_accepting(arg, true);
}

/* Returns whether there may be more. */
static bool accept_some(struct listeners *ls, const struct listener *listener) {
    for (int i = 0; i < TURN; i++) {
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        char peer[96];
        int client = accept4(listener->fd, (struct sockaddr *)&address, &length,
                             SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client >= 0) {
            describe_peer(listener, client, &address, length, peer, sizeof peer);
            hand_over(ls, client, peer, listener->scheme == CONFIG_TLS);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* Those there are go on; who comes waits in the kernel's queue. */
            struct timeval after = {0, PAUSE_MS * 1000};
            log_warn("cannot accept: %m: trying again in %d ms", PAUSE_MS);
            set_accepting(ls, false);
            event_add(ls->pause, &after);
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return false;
    }
    return true;
}

static void on_accept(evutil_socket_t fd, short what, void *arg) {
    struct listeners *ls = arg;
    (void)what;
    for (uint32_t i = 0; i < ls->count; i++)
        if (ls->list[i].fd == fd)
            accept_some(ls, &ls->list[i]);
}

/* ---- Opening ---- */

static enum xop_status add(struct listeners *ls, int fd, enum config_scheme scheme,
                           struct xop_error *error) {
    struct listener *listener = &ls->list[ls->count];
    if (ls->count == sizeof ls->list / sizeof *ls->list)
        return xop_fail(error, XOP_UNAVAILABLE, "too many addresses");
    listener->fd = fd;
    listener->scheme = scheme;
    listener->path[0] = 0;
    listener->passed = false;
    listener->event = event_new(ls->front->base, fd, EV_READ | EV_PERSIST, on_accept, ls);
    if (!listener->event || event_add(listener->event, NULL) < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for events");
    ls->count++;
    return XOP_OK;
}

/* Removes a socket file that nobody listens on any more; refuses anything else. */
static enum xop_status clear_path(const struct sockaddr_un *address, socklen_t length,
                                  struct xop_error *error) {
    struct stat info;
    if (lstat(address->sun_path, &info) < 0)
        return errno == ENOENT
                   ? XOP_OK
                   : xop_fail(error, XOP_UNAVAILABLE, "%s: %s", address->sun_path, strerror(errno));
    if (!S_ISSOCK(info.st_mode))
        return xop_fail(error, XOP_UNAVAILABLE, "%s exists and is no socket", address->sun_path);
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return xop_fail(error, XOP_UNAVAILABLE, "socket: %s", strerror(errno));
    int refused = connect(probe, (const struct sockaddr *)address, length) < 0 ? errno : 0;
    close(probe);
    if (refused != ECONNREFUSED)
        return xop_fail(error, XOP_UNAVAILABLE, "%s is in use by a server that runs",
                        address->sun_path);
    if (unlink(address->sun_path) < 0)
        return xop_fail(error, XOP_UNAVAILABLE, "%s: cannot be removed: %s", address->sun_path,
                        strerror(errno));
    return XOP_OK;
}

/* The directory of a socket is made where only it is missing. */
static void make_directory(const char *path) {
    char directory[sizeof(((struct sockaddr_un *)0)->sun_path)];
    snprintf(directory, sizeof directory, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash && slash != directory) {
        *slash = 0;
        if (mkdir(directory, 0755) == 0)
            log_info("made the directory %s", directory);
    }
}

static enum xop_status set_owner(const struct config *config, const char *path,
                                 struct xop_error *error) {
    if (*config->socket_group) {
        struct group *group = getgrnam(config->socket_group);
        if (!group || chown(path, (uid_t)-1, group->gr_gid) < 0)
            return xop_fail(error, XOP_UNAVAILABLE, "%s: cannot give it to group %s: %s", path,
                            config->socket_group, group ? strerror(errno) : "no such group");
    }
    if (chmod(path, (mode_t)config->socket_mode) < 0)
        return xop_fail(error, XOP_UNAVAILABLE, "%s: chmod: %s", path, strerror(errno));
    return XOP_OK;
}

static enum xop_status open_unix(struct listeners *ls, const char *name, struct xop_error *error) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(name);
    bool abstract = name[0] == '@';
    struct stat info;
    if (bytes == 0 || bytes >= sizeof address.sun_path)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "unix:%.60s...: the path has %zu bytes, 1 to %zu are possible", name, bytes,
                        sizeof address.sun_path - 1);
    memcpy(address.sun_path, name, bytes);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + !abstract);
    if (abstract) {
        address.sun_path[0] = 0;
    } else {
        make_directory(name);
        if (clear_path(&address, length, error) != XOP_OK)
            return error->status;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Nobody may connect before the mode is set: there is no listen() yet. */
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0) {
        xop_fail(error, XOP_UNAVAILABLE, "unix:%s: %s", name, strerror(errno));
        goto fail;
    }
    if (!abstract && set_owner(ls->front->config, name, error) != XOP_OK)
        goto fail;
    if (listen(fd, BACKLOG) < 0) {
        xop_fail(error, XOP_UNAVAILABLE, "unix:%s: listen: %s", name, strerror(errno));
        goto fail;
    }
    if (add(ls, fd, CONFIG_UNIX, error) != XOP_OK)
        goto fail;
    if (!abstract && lstat(name, &info) == 0) {
        struct listener *listener = &ls->list[ls->count - 1];
        memcpy(listener->path, name, bytes + 1);
        listener->device = info.st_dev;
        listener->inode = info.st_ino;
    }
    log_info("listening on unix:%s", name);
    return XOP_OK;
fail:
    if (fd >= 0)
        close(fd);
    return error->status;
}

static enum xop_status open_tcp_one(struct listeners *ls, const struct addrinfo *info,
                                    const char *name, struct xop_error *error) {
    int on = 1, fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    char host[64], port[16];
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (info->ai_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0) ||
        bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &length) < 0) {
        xop_fail(error, XOP_UNAVAILABLE, "%s: %s", name, strerror(errno));
        goto fail;
    }
    if (add(ls, fd, config_scheme(name), error) != XOP_OK)
        goto fail;
    if (getnameinfo((struct sockaddr *)&bound, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        log_info("listening on %.3s:%s%s%s:%s", name, strchr(host, ':') ? "[" : "", host,
                 strchr(host, ':') ? "]" : "", port);
    return XOP_OK;
fail:
    if (fd >= 0)
        close(fd);
    return error->status;
}

static enum xop_status open_tcp(struct listeners *ls, const char *name, struct xop_error *error) {
    char text[CONFIG_STRING], *host, *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    snprintf(text, sizeof text, "%s", name + 4);
    if (!config_split(text, &host, &port))
        return xop_fail(error, XOP_UNAVAILABLE,
                        "%s: %.3s:host:port with a port from 0 to 65535 is expected", name, name);
    int failed = getaddrinfo(*host == '*' ? NULL : host, port, &hints, &found);
    if (failed)
        return xop_fail(error, XOP_UNAVAILABLE, "%s: %s", name, gai_strerror(failed));
    enum xop_status status = XOP_OK;
    for (const struct addrinfo *info = found; info && status == XOP_OK; info = info->ai_next)
        status = open_tcp_one(ls, info, name, error);
    freeaddrinfo(found);
    return status;
}

static bool was_passed(const struct front *front, const char *listener) {
    for (uint32_t i = 0; i < front->passed->count; i++)
        if (passed_matches(&front->passed->list[i], listener))
            return true;
    return false;
}

static enum xop_status open_passed(struct listeners *ls, const struct passed_socket *socket,
                                   struct xop_error *error) {
    static const char *const prefixes[] = {"", "tcp:", "tls:"}; /* the text has that of unix */
    struct front *front = ls->front;
    enum config_scheme scheme;
    if (passed_scheme(socket, front->config, &scheme, error) != XOP_OK)
        return error->status;
    if (scheme == CONFIG_TLS && !front->tls && !(front->tls = tls_open(front->config, error)))
        return error->status;
    if (add(ls, socket->fd, scheme, error) != XOP_OK)
        return error->status;
    ls->list[ls->count - 1].passed = true;
    log_info("listening on %s%s, which was passed", prefixes[scheme], socket->text);
    return XOP_OK;
}

enum xop_status listen_open(struct front *front, struct xop_error *error) {
    struct listeners *ls = front->listeners = calloc(1, sizeof *ls);
    const struct config *config = front->config;
    if (!ls || !(ls->pause = evtimer_new(front->base, on_pause_over, ls)))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    ls->front = front;
    for (uint32_t i = 0; i < front->passed->count; i++)
        if (open_passed(ls, &front->passed->list[i], error) != XOP_OK)
            return error->status;
    for (uint64_t i = 0; i < config->nlisten; i++) {
        const char *name = config->listen[i];
        if (was_passed(front, name) || (config->listens_by_default && ls->count > 0))
            continue;
        enum config_scheme scheme = config_scheme(name);
        if (scheme == CONFIG_TLS && !front->tls && !(front->tls = tls_open(config, error)))
            return error->status;
        if ((scheme == CONFIG_UNIX ? open_unix(ls, name + 5, error) : open_tcp(ls, name, error)) !=
            XOP_OK)
            return error->status;
    }
    return XOP_OK;
}

void listen_finish(struct front *front) {
    struct listeners *ls = front->listeners;
    for (uint32_t i = 0; ls && i < ls->count; i++)
        for (int turn = 0;
             !ls->list[i].passed && turn < BACKLOG / TURN && accept_some(ls, &ls->list[i]); turn++)
            ;
}

void listen_close(struct front *front) {
    struct listeners *ls = front->listeners;
    if (!ls)
        return;
    for (uint32_t i = 0; i < ls->count; i++) {
        struct listener *listener = &ls->list[i];
        struct stat info;
        event_free(listener->event);
        close(listener->fd);
        if (*listener->path && lstat(listener->path, &info) == 0 &&
            info.st_dev == listener->device && info.st_ino == listener->inode)
            unlink(listener->path);
    }
    if (ls->pause)
        event_free(ls->pause);
    free(ls);
    front->listeners = NULL;
}
