/* daemon/front/tls.c: certificates that change under a running server, and bytes in parts. */
#include "daemon/front/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/xopd-test-tls-XXXXXX";
static struct config config;

struct pair {
    int fds[2];
    struct tls_session *server;
    SSL_CTX *context;
    SSL *client;
};

/* A certificate of that name, and its key, in the files that the configuration names. */
static void issue(const char *name) {
    char command[1024];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
             "-subj /CN=%s -keyout %s -out %s 2>/dev/null",
             name, config.tls_key, config.tls_cert);
    assert_int_equal(system(command), 0);
}

static void connect_pair(struct tls *tls, struct pair *pair, SSL_SESSION *session) {
    struct xop_error error;
    enum tls_step step = TLS_WANTS_READ;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fds), 0);
    pair->server = tls_accept(tls, pair->fds[0]);
    assert_non_null(pair->server);
    pair->context = SSL_CTX_new(TLS_client_method());
    pair->client = SSL_new(pair->context);
    assert_non_null(pair->client);
    assert_int_equal(SSL_set_fd(pair->client, pair->fds[1]), 1);
    if (session)
        assert_int_equal(SSL_set_session(pair->client, session), 1);
    /* Each side has all that the other sent: a handshake takes two turns. */
    for (int turn = 0; turn < 4 && step != TLS_DONE; turn++) {
        SSL_connect(pair->client);
        step = tls_handshake(pair->server, &error);
        assert_int_not_equal(step, TLS_REFUSED);
    }
    assert_int_equal(step, TLS_DONE);
}

static void close_pair(struct pair *pair) {
    tls_free(pair->server);
    SSL_free(pair->client);
    SSL_CTX_free(pair->context);
    close(pair->fds[0]);
    close(pair->fds[1]);
}

static void serves_as(const struct pair *pair, const char *name) {
    char found[64] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(SSL_get0_peer_certificate(pair->client)),
                              NID_commonName, found, sizeof found);
    assert_string_equal(found, name);
}

static void talks(struct pair *pair) {
    struct iovec out[] = {{"ab", 2}, {"", 0}, {"cde", 3}};
    char got[16];
    struct iovec in[] = {{got, 2}, {got + 2, sizeof got - 2}};
    assert_int_equal(tls_write(pair->server, out, 3), 5);
    assert_int_equal(SSL_read(pair->client, got, sizeof got), 5);
    assert_memory_equal(got, "abcde", 5);
    assert_int_equal(SSL_write(pair->client, "12345", 5), 5);
    assert_int_equal(tls_read(pair->server, in, 2), 5);
    assert_memory_equal(got, "12345", 5);
    assert_int_equal(tls_read(pair->server, in, 2), -1);
    assert_int_equal(errno, EAGAIN);
}

static void reloading_serves_new_files_and_drops_nobody(void **state) {
    struct xop_error error;
    struct pair old, new, last;
    (void)state;
    issue("first");
    struct tls *tls = tls_open(&config, &error);
    assert_non_null(tls);
    connect_pair(tls, &old, NULL);
    serves_as(&old, "first");
    talks(&old);
    SSL_SESSION *session = SSL_get1_session(old.client);

    issue("second");
    assert_int_equal(tls_reload(tls, &config, &error), XOP_OK);
    talks(&old);
    connect_pair(tls, &new, session);
    serves_as(&new, "second");
    assert_false(SSL_session_reused(new.client));

    FILE *key = fopen(config.tls_key, "w");
    assert_non_null(key);
    fclose(key);
    assert_int_equal(tls_reload(tls, &config, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, config.tls_key));
    connect_pair(tls, &last, NULL);
    serves_as(&last, "second");
    talks(&last);

    SSL_SESSION_free(session);
    close_pair(&old);
    close_pair(&new);
    close_pair(&last);
    tls_close(tls);
}

static void the_end_is_told_and_seen(void **state) {
    struct xop_error error;
    struct pair pair;
    char byte;
    struct iovec part = {&byte, 1};
    (void)state;
    issue("end");
    struct tls *tls = tls_open(&config, &error);
    assert_non_null(tls);
    connect_pair(tls, &pair, NULL);
    talks(&pair);
    SSL_shutdown(pair.client);
    assert_int_equal(tls_read(pair.server, &part, 1), 0);
    assert_true(tls_has_pending(pair.server)); /* the socket is open: it says nothing */
    tls_shutdown(pair.server);
    assert_int_equal(SSL_shutdown(pair.client), 1);
    close_pair(&pair);
    tls_close(tls);
}

static int set_up(void **state) {
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    config_defaults(&config);
    config.tls_require_client_cert = false;
    snprintf(config.tls_cert, sizeof config.tls_cert, "%s/cert.pem", directory);
    snprintf(config.tls_key, sizeof config.tls_key, "%s/key.pem", directory);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(config.tls_cert);
    unlink(config.tls_key);
    return rmdir(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reloading_serves_new_files_and_drops_nobody),
        cmocka_unit_test(the_end_is_told_and_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
