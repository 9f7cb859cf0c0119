#include "tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RECORD 16384u          /* of plain bytes, the most that one may have */
#define WRITE_BYTES (1u << 20) /* that one call writes before others have their turn */

static const unsigned char protocol[] = "\5xop/1";

struct tls {
    pthread_mutex_t lock;
    SSL_CTX *context; /* under lock; sessions hold a reference of their own */
};

struct tls_session {
    SSL *ssl;
    bool has_certificate; /* which the client showed, and which was verified */
    char subject[TLS_SUBJECT];
    char *names; /* alternative ones, a line each; NULL: none */
};

/* The oldest of OpenSSL's errors, and the queue empty for the next call. */
static const char *reason(void) {
    const char *text = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return text ? text : "it cannot be read";
}

/* ---- The context ---- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *bytes,
                           const unsigned char *offered, unsigned int length, void *arg) {
    unsigned char *chosen;
    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, bytes, protocol, sizeof protocol - 1, offered, length) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* A daemon has nobody to ask for a pass phrase. */
static int no_pass_phrase(char *out, int size, int writes, void *arg) {
    (void)out, (void)size, (void)writes, (void)arg;
    return 0;
}

static enum xop_status load_clients(SSL_CTX *context, const struct config *config,
                                    struct xop_error *error) {
    const char *authority = config->tls_client_ca, *revoked = config->tls_crl;
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    if (!*authority)
        return XOP_OK;
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(authority);
    if (!names || SSL_CTX_load_verify_file(context, authority) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return xop_fail(error, XOP_INVALID_ARGUMENT, "tls.client_ca %.200s: %s", authority,
                        reason());
    }
    SSL_CTX_set_client_CA_list(context, names);
    if (*revoked) {
        X509_LOOKUP *lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
        if (!lookup || X509_load_crl_file(lookup, revoked, X509_FILETYPE_PEM) < 1 ||
            X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK) != 1)
            return xop_fail(error, XOP_INVALID_ARGUMENT, "tls.crl %.200s: %s", revoked, reason());
    }
    SSL_CTX_set_verify(context,
                       SSL_VERIFY_PEER |
                           (config->tls_require_client_cert ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
    return XOP_OK;
}

static SSL_CTX *load(const struct config *config, struct xop_error *error) {
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_session_id_context(context, protocol, sizeof protocol - 1) != 1) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "TLS cannot be set up: %s", reason());
        goto fail;
    }
    SSL_CTX_set_options(context, SSL_OP_ENABLE_KTLS | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    SSL_CTX_set_default_passwd_cb(context, no_pass_phrase);
    if (SSL_CTX_use_certificate_chain_file(context, config->tls_cert) != 1) {
        xop_fail(error, XOP_INVALID_ARGUMENT, "tls.cert %.200s: %s", config->tls_cert, reason());
        goto fail;
    }
    /* Which also checks that it is the certificate's. */
    if (SSL_CTX_use_PrivateKey_file(context, config->tls_key, SSL_FILETYPE_PEM) != 1) {
        xop_fail(error, XOP_INVALID_ARGUMENT, "tls.key %.200s: %s", config->tls_key, reason());
        goto fail;
    }
    if (load_clients(context, config, error) == XOP_OK)
        return context;
fail:
    SSL_CTX_free(context);
    return NULL;
}

struct tls *tls_open(const struct config *config, struct xop_error *error) {
    struct tls *tls = calloc(1, sizeof *tls);
    if (!tls) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
        return NULL;
    }
    tls->context = load(config, error);
    if (!tls->context) {
        free(tls);
        return NULL;
    }
    pthread_mutex_init(&tls->lock, NULL);
    return tls;
}

enum xop_status tls_reload(struct tls *tls, const struct config *config, struct xop_error *error) {
    SSL_CTX *fresh = load(config, error);
    if (!fresh)
        return error->status;
    pthread_mutex_lock(&tls->lock);
    SSL_CTX *before = tls->context;
    tls->context = fresh;
    pthread_mutex_unlock(&tls->lock);
    SSL_CTX_free(before);
    return XOP_OK;
}

void tls_close(struct tls *tls) {
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

/* ---- Sessions ---- */

struct tls_session *tls_accept(struct tls *tls, int fd) {
    struct tls_session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    pthread_mutex_lock(&tls->lock);
    session->ssl = SSL_new(tls->context);
    pthread_mutex_unlock(&tls->lock);
    if (!session->ssl || SSL_set_fd(session->ssl, fd) != 1) {
        ERR_clear_error();
        tls_free(session);
        return NULL;
    }
    SSL_set_accept_state(session->ssl);
    return session;
}

/* A subject that does not fit is refused: cut short it might be somebody else's. */
static bool keep_subject(struct tls_session *session, X509 *certificate) {
    BIO *text = BIO_new(BIO_s_mem());
    bool fits = false;
    if (text &&
        X509_NAME_print_ex(text, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253) >= 0) {
        char *bytes;
        long length = BIO_get_mem_data(text, &bytes);
        fits = length >= 0 && (size_t)length < sizeof session->subject;
        if (fits)
            memcpy(session->subject, bytes, (size_t)length);
    }
    BIO_free(text);
    return fits;
}

/* Writes a line where the name is nothing but printable: what else there is might pass for two, or
 * for another. */
static void write_name(BIO *text, const char *type, const ASN1_STRING *name) {
    const unsigned char *bytes = ASN1_STRING_get0_data(name);
    int length = ASN1_STRING_length(name);
    for (int i = 0; i < length; i++)
        if (bytes[i] <= ' ' || bytes[i] > '~')
            return;
    if (length > 0)
        BIO_printf(text, "%s%.*s\n", type, length, (const char *)bytes);
}

static void write_ip(BIO *text, const ASN1_OCTET_STRING *address) {
    char line[INET6_ADDRSTRLEN];
    int length = ASN1_STRING_length(address), family = length == 4 ? AF_INET : AF_INET6;
    if ((length == 4 || length == 16) &&
        inet_ntop(family, ASN1_STRING_get0_data(address), line, sizeof line))
        BIO_printf(text, "IP:%s\n", line);
}

static bool keep_names(struct tls_session *session, X509 *certificate) {
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    BIO *text = BIO_new(BIO_s_mem());
    bool kept = text != NULL;
    for (int i = 0; kept && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        switch (name->type) {
        case GEN_DNS: write_name(text, "DNS:", name->d.dNSName); break;
        case GEN_URI: write_name(text, "URI:", name->d.uniformResourceIdentifier); break;
        case GEN_EMAIL: write_name(text, "email:", name->d.rfc822Name); break;
        case GEN_IPADD: write_ip(text, name->d.iPAddress); break;
        default: break;
        }
    }
    if (kept && BIO_write(text, "", 1) == 1) {
        char *bytes;
        BIO_get_mem_data(text, &bytes);
        session->names = strdup(bytes);
    }
    kept = session->names != NULL;
    GENERAL_NAMES_free(names);
    BIO_free(text);
    return kept;
}

static enum xop_status keep_certificate(struct tls_session *session, struct xop_error *error) {
    X509 *certificate = SSL_get0_peer_certificate(session->ssl);
    if (!certificate)
        return XOP_OK;
    session->has_certificate = true;
    if (!keep_subject(session, certificate))
        return xop_fail(error, XOP_UNAUTHENTICATED,
                        "its certificate's subject has more than %d bytes", TLS_SUBJECT - 1);
    if (!keep_names(session, certificate))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
    return XOP_OK;
}

enum tls_step tls_handshake(struct tls_session *session, struct xop_error *error) {
    ERR_clear_error();
    int done = SSL_do_handshake(session->ssl);
    if (done == 1) {
        enum xop_status kept = keep_certificate(session, error);
        ERR_clear_error();
        return kept == XOP_OK ? TLS_DONE : TLS_REFUSED;
    }
    int failed = errno;
    switch (SSL_get_error(session->ssl, done)) {
    case SSL_ERROR_WANT_READ: return TLS_WANTS_READ;
    case SSL_ERROR_WANT_WRITE: return TLS_WANTS_WRITE;
    case SSL_ERROR_SSL: break;
    default:
        xop_fail(error, XOP_UNAVAILABLE, "it closed within the handshake%s%s", failed ? ": " : "",
                 failed ? strerror(failed) : "");
        return TLS_REFUSED;
    }
    long verified = SSL_get_verify_result(session->ssl);
    xop_fail(error, XOP_UNAUTHENTICATED, "TLS: %s",
             verified == X509_V_OK ? reason() : X509_verify_cert_error_string(verified));
    return TLS_REFUSED;
}

/* What SSL_get_error says of a call that failed, as a system call would. */
static ssize_t failure(struct tls_session *session) {
    int failed = errno;
    int kind = SSL_get_error(session->ssl, 0);
    ERR_clear_error();
    switch (kind) {
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_SYSCALL: errno = failed ? failed : ECONNRESET; return -1;
    default: errno = EPROTO; return -1;
    }
}

ssize_t tls_read(struct tls_session *session, const struct iovec *parts, uint32_t n) {
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (size_t at = 0, got; at < parts[i].iov_len; at += got, total += got) {
            ERR_clear_error();
            if (SSL_read_ex(session->ssl, (char *)parts[i].iov_base + at, parts[i].iov_len - at,
                            &got) == 1)
                continue;
            /* The end or a failure is met again by the next call. */
            ssize_t failed = failure(session);
            return total > 0 ? (ssize_t)total : failed;
        }
    }
    return (ssize_t)total;
}

/* The next bytes to write: a large part as it is, small ones together, so that they share a
 * record. */
static size_t next_piece(const struct iovec *parts, uint32_t n, size_t skip,
                         unsigned char together[RECORD], const unsigned char **from) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < n && bytes < RECORD; i++) {
        size_t left = parts[i].iov_len > skip ? parts[i].iov_len - skip : 0;
        const unsigned char *at = (const unsigned char *)parts[i].iov_base + skip;
        skip -= skip < parts[i].iov_len ? skip : parts[i].iov_len;
        if (left == 0)
            continue;
        if (bytes == 0 && left >= RECORD) {
            *from = at;
            return left;
        }
        left = left < RECORD - bytes ? left : RECORD - bytes;
        memcpy(together + bytes, at, left);
        bytes += left;
    }
    *from = together;
    return bytes;
}

ssize_t tls_write(struct tls_session *session, const struct iovec *parts, uint32_t n) {
    unsigned char together[RECORD];
    const unsigned char *from;
    size_t total = 0, bytes, written;
    while (total < WRITE_BYTES && (bytes = next_piece(parts, n, total, together, &from)) > 0) {
        ERR_clear_error();
        if (SSL_write_ex(session->ssl, from, bytes, &written) != 1) {
            if (total > 0)
                break;
            ssize_t failed = failure(session);
            if (failed == 0)
                errno = EPIPE;
            return -1;
        }
        total += written;
    }
    return (ssize_t)total;
}

bool tls_has_pending(const struct tls_session *session) {
    /* A peer may say that it ends and leave its socket open. */
    return SSL_has_pending(session->ssl) == 1 ||
           (SSL_get_shutdown(session->ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}

void tls_shutdown(struct tls_session *session) {
    ERR_clear_error();
    if (SSL_is_init_finished(session->ssl))
        SSL_shutdown(session->ssl);
    ERR_clear_error();
}

void tls_free(struct tls_session *session) {
    if (!session)
        return;
    SSL_free(session->ssl);
    free(session->names);
    free(session);
}

const char *tls_subject(const struct tls_session *session) {
    return session->has_certificate ? session->subject : NULL;
}

const char *tls_names(const struct tls_session *session) { return session->names; }

void tls_describe(const struct tls_session *session, char *out, size_t capacity) {
    snprintf(out, capacity, "%s %s%s%s%s%s", SSL_get_version(session->ssl),
             SSL_get_cipher_name(session->ssl), SSL_session_reused(session->ssl) ? ", resumed" : "",
             BIO_get_ktls_send(SSL_get_wbio(session->ssl)) ? ", kTLS" : "",
             *session->subject ? ", " : "", session->subject);
}
