/*
 * TLS 1.3 for connections: certificates and keys as the configuration names them, and one session a
 * connection. A struct tls may be used by any thread; a session belongs to its connection's.
 *
 * tls_read and tls_write stand where recvmsg and sendmsg do and fail as they do: -1 with errno,
 * EAGAIN where the socket is not ready; tls_read returns 0 at the end.
 */
#ifndef FRONT_TLS_H
#define FRONT_TLS_H

#include "daemon/config.h"

#include <sys/uio.h>
#include <xop/types.h>

#define TLS_SUBJECT 256

struct tls;
struct tls_session;

enum tls_step { TLS_DONE, TLS_WANTS_READ, TLS_WANTS_WRITE, TLS_REFUSED };

/* Reads all files; INVALID_ARGUMENT names the file and what is wrong with it. */
struct tls *tls_open(const struct config *config, struct xop_error *error);
/* Reads them anew, as config names them now, for connections to come; those there are keep theirs,
 * and tickets from before resume nothing, so that what was revoked is asked for its certificate.
 * Where it fails, all stays as it was. */
enum xop_status tls_reload(struct tls *tls, const struct config *config, struct xop_error *error);
void tls_close(struct tls *tls); /* NULL is allowed */

/* A session on a non-blocking socket, which stays the caller's; NULL where memory runs out. */
struct tls_session *tls_accept(struct tls *tls, int fd);
/* As far as it goes now. TLS_REFUSED: error says why. */
enum tls_step tls_handshake(struct tls_session *session, struct xop_error *error);
ssize_t tls_read(struct tls_session *session, const struct iovec *parts, uint32_t n);
/* After EAGAIN the same bytes have to come first in the next call. */
ssize_t tls_write(struct tls_session *session, const struct iovec *parts, uint32_t n);
/* Whether there are bytes to read that the socket will not announce. */
bool tls_has_pending(const struct tls_session *session);
/* Tells the peer that nothing more is sent, as far as the socket takes it. */
void tls_shutdown(struct tls_session *session);
void tls_free(struct tls_session *session); /* NULL is allowed */

/* After the handshake, of the peer's verified certificate, as long as the session lives: the
 * subject as RFC 2253 writes it, and the alternative names, "DNS:a", "URI:b", "email:c" or
 * "IP:1.2.3.4", a line each. NULL: it showed no certificate. */
const char *tls_subject(const struct tls_session *session);
const char *tls_names(const struct tls_session *session);

/* After the handshake, for the log: what was agreed, and the subject of the peer's verified
 * certificate as RFC 2253 writes it, where it showed one. */
void tls_describe(const struct tls_session *session, char *out, size_t capacity);

#endif
