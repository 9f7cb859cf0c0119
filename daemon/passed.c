#include "passed.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

static void describe(struct passed_socket *socket) {
    char host[64] = "?", port[16] = "?";
    const struct sockaddr_un *local = (const void *)&socket->address;
    size_t head = offsetof(struct sockaddr_un, sun_path);
    if (socket->address.ss_family == AF_UNIX) {
        size_t bytes = socket->length > head ? socket->length - head : 0;
        bool abstract = bytes > 0 && !local->sun_path[0];
        snprintf(socket->text, sizeof socket->text, "unix:%s%.*s", abstract ? "@" : "",
                 (int)(bytes - abstract), local->sun_path + abstract);
        return;
    }
    getnameinfo((const struct sockaddr *)&socket->address, socket->length, host, sizeof host, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(socket->text, sizeof socket->text, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host,
             port);
}

static enum xop_status take(struct passed_socket *socket, int fd, const char *name,
                            struct xop_error *error) {
    *socket = (struct passed_socket){.fd = fd, .length = sizeof socket->address};
    snprintf(socket->name, sizeof socket->name, "%s", name ? name : "");
    int listens = sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1), flags = fcntl(fd, F_GETFL);
    if (listens <= 0)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "descriptor %d (%s) was passed and is no stream socket that listens", fd,
                        socket->name);
    if (getsockname(fd, (struct sockaddr *)&socket->address, &socket->length) < 0 || flags < 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return xop_fail(error, XOP_UNAVAILABLE, "descriptor %d (%s) was passed: %s", fd,
                        socket->name, strerror(errno));
    describe(socket);
    return XOP_OK;
}

enum xop_status passed_take(struct passed *passed, struct xop_error *error) {
    char **names = NULL;
    /* And takes the variables away, which are meant for this process alone. */
    int n = sd_listen_fds_with_names(1, &names);
    enum xop_status status = XOP_OK;
    if (n < 0)
        status = xop_fail(error, XOP_UNAVAILABLE, "LISTEN_FDS: %s", strerror(-n));
    else if (n > (int)PASSED_SOCKETS)
        status = xop_fail(error, XOP_UNAVAILABLE, "%d sockets were passed, %u may be", n,
                          PASSED_SOCKETS);
    passed->count = 0;
    for (int i = 0; status == XOP_OK && i < n; i++)
        status = take(&passed->list[passed->count++], SD_LISTEN_FDS_START + i, names[i], error);
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return status;
}

void passed_close(struct passed *passed) {
    for (uint32_t i = 0; i < passed->count; i++)
        close(passed->list[i].fd);
    passed->count = 0;
}

static bool same_address(const struct sockaddr_storage *there, const struct sockaddr *wanted) {
    const struct sockaddr_in *a4 = (const void *)there, *b4 = (const void *)wanted;
    const struct sockaddr_in6 *a6 = (const void *)there, *b6 = (const void *)wanted;
    if (there->ss_family != wanted->sa_family)
        return false;
    if (there->ss_family == AF_INET)
        return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    return there->ss_family == AF_INET6 && a6->sin6_port == b6->sin6_port &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
}

bool passed_matches(const struct passed_socket *socket, const char *listener) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char text[CONFIG_STRING], *host, *port;
    bool matches = false;
    if ((socket->address.ss_family == AF_UNIX) != (config_scheme(listener) == CONFIG_UNIX))
        return false;
    if (socket->address.ss_family == AF_UNIX)
        return strcmp(socket->text, listener) == 0;
    snprintf(text, sizeof text, "%s", listener + strlen("tls:"));
    if (!config_split(text, &host, &port) ||
        getaddrinfo(*host == '*' ? NULL : host, port, &hints, &found) != 0)
        return false;
    for (const struct addrinfo *info = found; info && !matches; info = info->ai_next)
        matches = same_address(&socket->address, info->ai_addr);
    freeaddrinfo(found);
    return matches;
}

enum xop_status passed_scheme(const struct passed_socket *socket, const struct config *config,
                              enum config_scheme *scheme, struct xop_error *error) {
    *scheme = CONFIG_NO_SCHEME;
    if (socket->address.ss_family == AF_UNIX)
        *scheme = CONFIG_UNIX;
    else if (strcmp(socket->name, "tls") == 0)
        *scheme = CONFIG_TLS;
    else if (strcmp(socket->name, "tcp") == 0)
        *scheme = CONFIG_TCP;
    for (uint64_t i = 0; *scheme == CONFIG_NO_SCHEME && i < config->nlisten; i++)
        if (passed_matches(socket, config->listen[i]))
            *scheme = config_scheme(config->listen[i]);
    if (*scheme == CONFIG_NO_SCHEME)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "the socket at %s was passed, and nothing says whether it is for TLS: "
                        "FileDescriptorName= is to be tls or tcp, or server.listen to name it",
                        socket->text);
    if (*scheme == CONFIG_TCP && !config->insecure_tcp)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "the socket at %s was passed for TCP without TLS: set "
                        "server.insecure_tcp = yes to allow it",
                        socket->text);
    if (*scheme == CONFIG_TLS)
        return config_check_tls(config, socket->text, error);
    return XOP_OK;
}
