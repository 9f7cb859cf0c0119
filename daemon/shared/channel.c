#include "channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum xop_status channel_pair(int sockets[2], bool nonblocking, struct xop_error *error) {
    int type = SOCK_SEQPACKET | SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0);
    if (socketpair(AF_UNIX, type, 0, sockets) < 0)
        return xop_fail(error, XOP_INTERNAL, "socketpair: %s", strerror(errno));
    return XOP_OK;
}

enum xop_status channel_send(int socket, const void *head, size_t head_bytes, const void *payload,
                             size_t payload_bytes, const int *fds, uint32_t nfds,
                             struct xop_error *error) {
    struct iovec parts[2] = {{(void *)(uintptr_t)head, head_bytes},
                             {(void *)(uintptr_t)payload, payload ? payload_bytes : 0}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(CHANNEL_FDS * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = payload && payload_bytes ? 2 : 1};
    if (nfds > CHANNEL_FDS || head_bytes + parts[1].iov_len > CHANNEL_BYTES)
        return xop_fail(error, XOP_INTERNAL, "a control packet of %zu bytes and %u descriptors",
                        head_bytes + parts[1].iov_len, nfds);
    if (nfds > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return xop_fail(error, XOP_UNAVAILABLE, "control socket: %s", strerror(errno));
    return XOP_OK;
}

/* Keeps up to max descriptors of the packet and closes the others. */
static uint32_t collect(struct msghdr *message, int *fds, uint32_t max) {
    uint32_t kept = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (kept < max)
                fds[kept++] = fd;
            else
                close(fd);
        }
    }
    return kept;
}

enum xop_status channel_receive(int socket, void *buffer, size_t *bytes, int *fds, uint32_t max_fds,
                                uint32_t *nfds, bool *would_block, struct xop_error *error) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(CHANNEL_FDS * sizeof(int))];
    } control;
    struct iovec part = {buffer, CHANNEL_BYTES};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control};
    ssize_t received;
    *nfds = 0;
    *bytes = 0;
    *would_block = false;
    do
        received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received < 0) {
        *would_block = errno == EAGAIN || errno == EWOULDBLOCK;
        return xop_fail(error, XOP_UNAVAILABLE, "control socket: %s", strerror(errno));
    }
    *nfds = collect(&message, fds, max_fds);
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        for (uint32_t i = 0; i < *nfds; i++)
            close(fds[i]);
        *nfds = 0;
        return xop_fail(error, XOP_UNAVAILABLE,
                        "control socket: a packet is larger than any that xopd sends");
    }
    *bytes = (size_t)received;
    return XOP_OK;
}
