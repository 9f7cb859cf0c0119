/*
 * Listening sockets that a service manager made and passes on (LISTEN_FDS, sd_listen_fds(3)): it
 * keeps them while xopd restarts, so that who connects meanwhile waits instead of being refused.
 * The parent takes them out of its environment, the front finds out what they are for.
 */
#ifndef DAEMON_PASSED_H
#define DAEMON_PASSED_H

#include "config.h"

#include <sys/socket.h>

#define PASSED_SOCKETS 32u

struct passed {
    struct passed_socket {
        int fd;
        char name[64]; /* as FileDescriptorName= says */
        struct sockaddr_storage address;
        socklen_t length;
        char text[160]; /* the address, for people */
    } list[PASSED_SOCKETS];
    uint32_t count;
};

/* All that were passed to this process; UNAVAILABLE where one is no stream socket that listens.
 * They are non-blocking and close-on-exec then. */
enum xop_status passed_take(struct passed *passed, struct xop_error *error);
void passed_close(struct passed *passed);

/* Whether it is where a listener of the configuration is to be. */
bool passed_matches(const struct passed_socket *socket, const char *listener);

/* What is spoken there: on a Unix socket always the same; on others what the name says, tls or tcp,
 * or else the listener of the configuration with that address. UNAVAILABLE where neither says it,
 * or the configuration does not allow it. */
enum xop_status passed_scheme(const struct passed_socket *socket, const struct config *config,
                              enum config_scheme *scheme, struct xop_error *error);

#endif
