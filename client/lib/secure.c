#include "secure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define RECORD 16384u /* of plain bytes, the most that one may have */

struct secure {
    SSL_CTX *context;
    SSL *ssl;
    BIO_METHOD *method;
    int fd;
    char reason[128];
    size_t start, end; /* what of the record is not yet sent */
    unsigned char record[RECORD];
};

static const char *openssl_reason(void) {
    const char *text = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return text ? text : "it cannot be used";
}

/* ---- The socket: OpenSSL's own BIO raises SIGPIPE ---- */

static int after(BIO *bio, ssize_t done, int retry) {
    BIO_clear_retry_flags(bio);
    if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)done;
}

static int bio_write(BIO *bio, const char *bytes, int length) {
    const struct secure *secure = BIO_get_data(bio);
    return after(bio, send(secure->fd, bytes, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT),
                 BIO_FLAGS_WRITE);
}

static int bio_read(BIO *bio, char *to, int length) {
    const struct secure *secure = BIO_get_data(bio);
    return after(bio, recv(secure->fd, to, (size_t)length, MSG_DONTWAIT), BIO_FLAGS_READ);
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static bool attach(struct secure *secure) {
    secure->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "xop");
    if (!secure->method || BIO_meth_set_write(secure->method, bio_write) != 1 ||
        BIO_meth_set_read(secure->method, bio_read) != 1 ||
        BIO_meth_set_ctrl(secure->method, bio_control) != 1)
        return false;
    BIO *bio = BIO_new(secure->method);
    if (!bio)
        return false;
    BIO_set_data(bio, secure);
    BIO_set_init(bio, 1);
    SSL_set_bio(secure->ssl, bio, bio);
    return true;
}

/* ---- Opening ---- */

static enum xop_status load(SSL_CTX *context, const struct xop_client_options *options,
                            struct xop_error *error) {
    const char *key = options->key ? options->key : options->cert;
    if (options->ca ? SSL_CTX_load_verify_file(context, options->ca) != 1
                    : SSL_CTX_set_default_verify_paths(context) != 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "ca %.200s: %s",
                        options->ca ? options->ca : "of the system", openssl_reason());
    if (options->cert && SSL_CTX_use_certificate_chain_file(context, options->cert) != 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "cert %.200s: %s", options->cert,
                        openssl_reason());
    if (options->cert && SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "key %.200s: %s", key, openssl_reason());
    return XOP_OK;
}

static bool expect_name(SSL *ssl, const char *host) {
    unsigned char number[16];
    if (inet_pton(AF_INET, host, number) == 1 || inet_pton(AF_INET6, host, number) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static enum xop_status shake_hands(struct secure *secure, const struct address *address,
                                   uint64_t deadline_ns, struct xop_error *error) {
    for (;;) {
        struct pollfd ready = {secure->fd, POLLIN, 0};
        uint64_t now = address_now();
        ERR_clear_error();
        errno = 0;
        int done = SSL_connect(secure->ssl), failed = errno;
        if (done == 1)
            return XOP_OK;
        int kind = SSL_get_error(secure->ssl, done);
        if (kind == SSL_ERROR_WANT_WRITE)
            ready.events = POLLOUT;
        else if (kind == SSL_ERROR_SSL) {
            long verified = SSL_get_verify_result(secure->ssl);
            return xop_fail(error, XOP_UNAUTHENTICATED, "%.200s: TLS: %s", address->text,
                            verified == X509_V_OK ? openssl_reason()
                                                  : X509_verify_cert_error_string(verified));
        } else if (kind != SSL_ERROR_WANT_READ)
            return xop_fail(error, XOP_UNAVAILABLE, "%.200s: the TLS handshake broke off: %s",
                            address->text, failed ? strerror(failed) : "closed");
        if (now >= deadline_ns)
            return xop_fail(error, XOP_UNAVAILABLE, "%.200s: no TLS handshake in time",
                            address->text);
        uint64_t ms = (deadline_ns - now) / 1000000 + 1;
        if (poll(&ready, 1, ms > 60000 ? 60000 : (int)ms) < 0 && errno != EINTR)
            return xop_fail(error, XOP_INTERNAL, "poll: %s", strerror(errno));
    }
}

enum xop_status secure_open(const struct address *address, int fd,
                            const struct xop_client_options *options, uint64_t deadline_ns,
                            struct secure **out, struct xop_error *error) {
    static const unsigned char protocol[] = "\5xop/1";
    struct secure *secure = calloc(1, sizeof *secure);
    *out = NULL;
    if (!secure)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    secure->fd = fd;
    ERR_clear_error();
    secure->context = SSL_CTX_new(TLS_client_method());
    if (!secure->context || SSL_CTX_set_min_proto_version(secure->context, TLS1_3_VERSION) != 1) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "TLS cannot be set up: %s", openssl_reason());
        goto fail;
    }
    SSL_CTX_set_options(secure->context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_verify(secure->context, SSL_VERIFY_PEER, NULL);
    if (load(secure->context, options, error) != XOP_OK)
        goto fail;
    secure->ssl = SSL_new(secure->context);
    if (!secure->ssl || !attach(secure) || !expect_name(secure->ssl, address->host) ||
        SSL_set_alpn_protos(secure->ssl, protocol, sizeof protocol - 1) != 0) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "TLS cannot be set up: %s", openssl_reason());
        goto fail;
    }
    if (shake_hands(secure, address, deadline_ns, error) == XOP_OK) {
        *out = secure;
        return XOP_OK;
    }
fail:
    secure_free(secure);
    return error->status;
}

void secure_free(struct secure *secure) {
    if (!secure)
        return;
    SSL_free(secure->ssl);
    SSL_CTX_free(secure->context);
    BIO_meth_free(secure->method);
    free(secure);
}

/* ---- Bytes ---- */

static ssize_t failure(struct secure *secure, int failed) {
    switch (SSL_get_error(secure->ssl, 0)) {
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_SYSCALL: errno = failed ? failed : ECONNRESET; return -1;
    default:
        snprintf(secure->reason, sizeof secure->reason, "%s", openssl_reason());
        errno = EPROTO;
        return -1;
    }
}

/* 1 where the record is sent; else as failure. */
static ssize_t flush(struct secure *secure) {
    size_t written;
    if (secure->start == secure->end)
        return 1;
    ERR_clear_error();
    errno = 0;
    if (SSL_write_ex(secure->ssl, secure->record, secure->end, &written) != 1) {
        ssize_t failed = failure(secure, errno);
        if (failed == 0)
            errno = EPIPE;
        return -1;
    }
    secure->start = secure->end = 0;
    return 1;
}

ssize_t secure_send(struct secure *secure, const struct iovec *parts, uint32_t n) {
    if (flush(secure) < 0)
        return -1;
    for (uint32_t i = 0; i < n && secure->end < RECORD; i++) {
        size_t room = RECORD - secure->end;
        size_t bytes = parts[i].iov_len < room ? parts[i].iov_len : room;
        memcpy(secure->record + secure->end, parts[i].iov_base, bytes);
        secure->end += bytes;
    }
    size_t taken = secure->end;
    if (flush(secure) < 0 && errno != EAGAIN)
        return -1;
    return (ssize_t)taken;
}

ssize_t secure_receive(struct secure *secure, void *to, size_t length) {
    size_t total = 0, got;
    while (total < length) {
        ERR_clear_error();
        errno = 0;
        if (SSL_read_ex(secure->ssl, (char *)to + total, length - total, &got) != 1) {
            ssize_t failed = failure(secure, errno);
            return total > 0 ? (ssize_t)total : failed;
        }
        total += got;
    }
    return (ssize_t)total;
}

bool secure_wants_write(const struct secure *secure) { return secure->end > secure->start; }

bool secure_has_pending(const struct secure *secure) { return SSL_has_pending(secure->ssl) == 1; }

const char *secure_reason(const struct secure *secure) {
    return *secure->reason ? secure->reason : NULL;
}
