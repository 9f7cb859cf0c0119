#include "bind.h"

#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The socket's own descriptor says nothing of the file: its name does, which is ours alone now. */
static void note_path(const char *name, struct bound *bound) {
    struct stat info;
    if (lstat(name, &info) < 0)
        return;
    snprintf(bound->path, sizeof bound->path, "%s", name);
    bound->device = info.st_dev;
    bound->inode = info.st_ino;
}

enum xop_status bind_unix(const struct config *config, const char *name, struct bound *bound,
                          struct xop_error *error) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(name);
    bool abstract = name[0] == '@';
    *bound = (struct bound){.fd = -1};
    snprintf(bound->address, sizeof bound->address, "unix:%s", name);
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
    bound->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Nobody may connect before the mode is set: there is no listen() yet. */
    if (bound->fd < 0 || bind(bound->fd, (struct sockaddr *)&address, length) < 0) {
        xop_fail(error, XOP_UNAVAILABLE, "unix:%s: %s", name, strerror(errno));
        goto fail;
    }
    if (!abstract)
        note_path(name, bound);
    if (!abstract && set_owner(config, name, error) != XOP_OK)
        goto fail;
    if (listen(bound->fd, BIND_BACKLOG) < 0) {
        xop_fail(error, XOP_UNAVAILABLE, "unix:%s: listen: %s", name, strerror(errno));
        goto fail;
    }
    return XOP_OK;
fail:
    bind_close(bound);
    return error->status;
}

enum xop_status bind_tcp(const struct addrinfo *info, const char *name, struct bound *bound,
                         struct xop_error *error) {
    struct sockaddr_storage there;
    socklen_t length = sizeof there;
    char host[64], port[16];
    int on = 1;
    *bound = (struct bound){
        .fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (bound->fd < 0 || setsockopt(bound->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (info->ai_family == AF_INET6 &&
         setsockopt(bound->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0) ||
        bind(bound->fd, info->ai_addr, info->ai_addrlen) < 0 ||
        listen(bound->fd, BIND_BACKLOG) < 0 ||
        getsockname(bound->fd, (struct sockaddr *)&there, &length) < 0) {
        xop_fail(error, XOP_UNAVAILABLE, "%s: %s", name, strerror(errno));
        bind_close(bound);
        return error->status;
    }
    snprintf(bound->address, sizeof bound->address, "%s", name);
    if (getnameinfo((struct sockaddr *)&there, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(bound->address, sizeof bound->address, strchr(host, ':') ? "[%s]:%s" : "%s:%s",
                 host, port);
    return XOP_OK;
}

void bind_close(struct bound *bound) {
    struct stat info;
    if (bound->fd >= 0)
        close(bound->fd);
    bound->fd = -1;
    if (*bound->path && lstat(bound->path, &info) == 0 && info.st_dev == bound->device &&
        info.st_ino == bound->inode)
        unlink(bound->path);
}
