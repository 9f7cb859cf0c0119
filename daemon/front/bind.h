/*
 * Sockets that listen, by the addresses that configurations name: their making, with permissions
 * and owner, and their end, with which a socket file that is still theirs is removed.
 */
#ifndef FRONT_BIND_H
#define FRONT_BIND_H

#include "daemon/config.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <xop/types.h>

#define BIND_BACKLOG 1024 /* connections that wait to be accepted */

struct bound {
    int fd;
    char address[160]; /* for people: unix:path, host:port or [host]:port, as it really is */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* to be removed; empty: none */
    dev_t device; /* of the socket file, to remove no other's */
    ino_t inode;
};

/* name: a path, or @ and an abstract name. What fails leaves nothing bound. */
enum xop_status bind_unix(const struct config *config, const char *name, struct bound *bound,
                          struct xop_error *error);
/* name: what was configured, for messages. */
enum xop_status bind_tcp(const struct addrinfo *info, const char *name, struct bound *bound,
                         struct xop_error *error);
void bind_close(struct bound *bound);

#endif
