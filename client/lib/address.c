#include "address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t address_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t address_after_ms(uint64_t ms) {
    const uint64_t century = UINT64_C(100) * 366 * 24 * 3600 * 1000;
    return address_now() + (ms < century ? ms : century) * 1000000;
}

/* ---- Parsing ---- */

static enum xop_status parse_unix(const char *name, struct address *address,
                                  struct xop_error *error) {
    size_t bytes = strlen(name);
    bool abstract = name[0] == '@';
    if (bytes == 0 || bytes >= sizeof address->path.sun_path)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "unix:%.80s%s: a path has 1 to %zu bytes, this one %zu", name,
                        bytes > 80 ? "..." : "", sizeof address->path.sun_path - 1, bytes);
    address->is_unix = true;
    address->path.sun_family = AF_UNIX;
    memcpy(address->path.sun_path, name, bytes);
    if (abstract)
        address->path.sun_path[0] = 0;
    address->path_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + !abstract);
    snprintf(address->text, sizeof address->text, "unix:%s", name);
    return XOP_OK;
}

static enum xop_status parse_tcp(const char *scheme, const char *text, struct address *address,
                                 struct xop_error *error) {
    const char *host = text, *colon = strrchr(text, ':');
    char *end;
    size_t bytes = colon ? (size_t)(colon - text) : 0;
    if (colon && host[0] == '[' && bytes >= 2 && host[bytes - 1] == ']') {
        host++;
        bytes -= 2;
    } else if (colon && memchr(host, ':', bytes)) {
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s:%.100s: an IPv6 address is written in brackets, as %s:[::1]:7000",
                        scheme, text, scheme);
    }
    if (bytes == 0 || bytes >= sizeof address->host)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s:%.100s: %s:host:port is expected", scheme,
                        text, scheme);
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end || port < 1 || port > 65535)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s:%.100s: the port is a number from 1 to 65535", scheme, text);
    memcpy(address->host, host, bytes);
    address->host[bytes] = 0;
    snprintf(address->port, sizeof address->port, "%lu", port);
    snprintf(address->text, sizeof address->text, "%s:%s", scheme, text);
    return XOP_OK;
}

enum xop_status address_parse(const char *text, struct address *address, struct xop_error *error) {
    memset(address, 0, sizeof *address);
    if (text[0] == '/')
        return parse_unix(text, address, error);
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text + 5, address, error);
    if (strncmp(text, "tcp:", 4) == 0)
        return parse_tcp("tcp", text + 4, address, error);
    address->is_tls = strncmp(text, "tls:", 4) == 0;
    if (address->is_tls)
        return parse_tcp("tls", text + 4, address, error);
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "\"%.100s\" is no address: unix:/path, unix:@name, /path, tls:host:port or "
                    "tcp:host:port is",
                    text);
}

/* ---- Connecting ---- */

/* Waits until a connect that is under way ends; 0 or its errno. */
static int finish_connect(int fd, uint64_t deadline_ns) {
    for (;;) {
        struct pollfd ready = {fd, POLLOUT, 0};
        uint64_t now = address_now();
        if (now >= deadline_ns)
            return ETIMEDOUT;
        uint64_t ms = (deadline_ns - now) / 1000000 + 1;
        int n = poll(&ready, 1, ms > 60000 ? 60000 : (int)ms);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0) {
            int failed = 0;
            socklen_t bytes = sizeof failed;
            return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) < 0 ? errno : failed;
        }
    }
}

static int connect_one(int family, const struct sockaddr *to, socklen_t bytes, uint64_t deadline_ns,
                       int *fd) {
    *fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return errno;
    int failed = connect(*fd, to, bytes) < 0 ? errno : 0;
    if (failed == EINPROGRESS || failed == EINTR)
        failed = finish_connect(*fd, deadline_ns);
    if (failed) {
        close(*fd);
        *fd = -1;
    }
    return failed;
}

static enum xop_status connect_tcp(const struct address *address, uint64_t deadline_ns, int *fd,
                                   struct xop_error *error) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int on = 1, unknown = getaddrinfo(address->host, address->port, &hints, &found);
    int failed = EHOSTUNREACH;
    if (unknown)
        return xop_fail(error, XOP_UNAVAILABLE, "%s: %s", address->text, gai_strerror(unknown));
    for (const struct addrinfo *info = found; info && failed; info = info->ai_next)
        failed = connect_one(info->ai_family, info->ai_addr, info->ai_addrlen, deadline_ns, fd);
    freeaddrinfo(found);
    if (failed)
        return xop_fail(error, XOP_UNAVAILABLE, "%s: %s", address->text, strerror(failed));
    setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return XOP_OK;
}

enum xop_status address_connect(const struct address *address, uint64_t deadline_ns, int *fd,
                                struct xop_error *error) {
    *fd = -1;
    if (!address->is_unix)
        return connect_tcp(address, deadline_ns, fd, error);
    int failed;
    do {
        failed = connect_one(AF_UNIX, (const struct sockaddr *)&address->path, address->path_bytes,
                             deadline_ns, fd);
        /* A full queue of a listening Unix socket is told at once, not by waiting. */
        if (failed == EAGAIN)
            poll(NULL, 0, 5);
    } while (failed == EAGAIN && address_now() < deadline_ns);
    if (failed)
        return xop_fail(error, XOP_UNAVAILABLE, "%s: %s", address->text, strerror(failed));
    return XOP_OK;
}

/* Where the next address of a list begins; its end where there is none. */
static const char *behind(const char *list) {
    static const char *const schemes[] = {",unix:", ",tcp:", ",tls:"};
    const char *next = list + strlen(list);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const char *found = strstr(list, schemes[i]);
        if (found && found < next)
            next = found;
    }
    return *next ? next + 1 : next;
}

uint32_t address_count(const char *list) {
    uint32_t n = 1;
    while (*(list = behind(list)))
        n++;
    return n;
}

enum xop_status address_first(const char **list, char one[ADDRESS_MAX], struct xop_error *error) {
    const char *next = behind(*list);
    size_t n = (size_t)(next - *list) - (*next ? 1 : 0);
    if (n >= ADDRESS_MAX)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "an address of %zu bytes: %.60s...", n, *list);
    memcpy(one, *list, n);
    one[n] = 0;
    *list = next;
    return XOP_OK;
}

static void append(char *list, size_t capacity, const char *text) {
    size_t used = strlen(list);
    if (used + 3 < capacity)
        snprintf(list + used, capacity - used, "%s%.180s", used ? "; " : "", text);
}

enum xop_status address_connect_any(const char *text, uint64_t deadline_ns, struct address *used,
                                    int *fd, struct xop_error *error) {
    char own[ADDRESS_MAX], tried[400] = "";
    const char *candidates[2];
    uint32_t n = 0;
    if (!text) {
        text = getenv("XOP_ADDRESS");
        text = text && *text ? text : NULL;
    }
    if (text)
        return address_parse(text, used, error) != XOP_OK
                   ? error->status
                   : address_connect(used, deadline_ns, fd, error);
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime && *runtime == '/') {
        snprintf(own, sizeof own, "unix:%.200s/xopd/xopd.sock", runtime);
        candidates[n++] = own;
    }
    candidates[n++] = "unix:/run/xopd/xopd.sock";
    for (uint32_t i = 0; i < n; i++) {
        struct xop_error why;
        if (address_parse(candidates[i], used, &why) == XOP_OK &&
            address_connect(used, deadline_ns, fd, &why) == XOP_OK)
            return XOP_OK;
        append(tried, sizeof tried, why.message);
    }
    return xop_fail(error, XOP_UNAVAILABLE, "no xopd answers (XOP_ADDRESS is not set): %.390s",
                    tried);
}
