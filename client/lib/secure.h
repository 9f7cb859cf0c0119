/*
 * TLS 1.3 on a connected socket, for a client whose lock is held. What is sent is copied a record
 * at a time, so that the caller's memory and the order of what it has yet to send are its own
 * again.
 */
#ifndef CLIENT_SECURE_H
#define CLIENT_SECURE_H

#include "address.h"

#include <sys/uio.h>
#include <xop/client.h>

struct secure;

/* Shakes hands before deadline_ns and verifies the server's name. The socket stays the caller's. */
enum xop_status secure_open(const struct address *address, int fd,
                            const struct xop_client_options *options, uint64_t deadline_ns,
                            struct secure **secure, struct xop_error *error);
/* As sendmsg and recv on a non-blocking socket; errno is EPROTO for what TLS refuses. */
ssize_t secure_send(struct secure *secure, const struct iovec *parts, uint32_t n);
ssize_t secure_receive(struct secure *secure, void *to, size_t length);
/* Whether a record that was taken is still to be sent, by secure_send with or without parts; and
 * whether there are bytes to read that the socket does not announce. */
bool secure_wants_write(const struct secure *secure);
bool secure_has_pending(const struct secure *secure);
/* What TLS refused; NULL: nothing. */
const char *secure_reason(const struct secure *secure);
void secure_free(struct secure *secure); /* NULL is allowed */

#endif
