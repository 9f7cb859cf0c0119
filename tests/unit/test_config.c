/* daemon/config.c: what is read from a file and the command line, and what is refused. */
#include "daemon/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/xopd-test-config-XXXXXX";

static enum xop_status read_text(struct config *config, const char *text, size_t bytes,
                                 struct xop_error *error) {
    strcpy(path, "/tmp/xopd-test-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
    config_defaults(config);
    enum xop_status status = config_read(config, path, error);
    unlink(path);
    return status;
}

static void a_file_sets_keys_in_their_units(void **state) {
    struct config config;
    struct xop_error error;
    const char *text = "[server]\n"
                       "listen = unix:/tmp/a.sock\n"
                       "listen = tcp:127.0.0.1:0\n"
                       "insecure_tcp = yes\n"
                       "socket_mode = 0600\n"
                       "[device]\n"
                       "inbox = 32M   ; a comment\n"
                       "backend = cpu\n"
                       "[log]\nlevel = debug\n";
    (void)state;
    assert_int_equal(read_text(&config, text, strlen(text), &error), XOP_OK);
    assert_int_equal(config.nlisten, 2);
    assert_string_equal(config.listen[1], "tcp:127.0.0.1:0");
    assert_true(config.insecure_tcp);
    assert_int_equal(config.socket_mode, 0600);
    assert_int_equal(config.inbox_bytes, 32 << 20);
    assert_string_equal(config.backend, "cpu");
    assert_int_equal(config.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(config_finish(&config, &error), XOP_OK);
}

static void what_is_wrong_is_named_with_its_line(void **state) {
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"[server]\nno_such = 1\n", ":2: server.no_such is no key"},
        {"[device]\ninbox = 1G\ninbox = 2G\n", ":3: device.inbox is given twice"},
        {"[device]\ninbox = 1\n", ":2: device.inbox is \"1\": a number of bytes"},
        {"[device]\ninbox = 99999999999999T\n", ":2: device.inbox is"},
        {"[device]\ninbox = -1\n", ":2: device.inbox is \"-1\""},
        {"[device]\ninbox = 1X\n", ":2: device.inbox is \"1X\""},
        {"[device]\nbackend = gpu\n", "auto, cpu or cuda"},
        {"[server]\ninsecure_tcp = maybe\n", "yes or no"},
        {"[server]\nsocket_mode = 999\n", "an octal number"},
        {"[server]\nlisten = /tmp/x\n", "unix:/path, tls:host:port or tcp:host:port"},
        {"[log]\nlevel = loud\n", "error, warn, info or debug"},
        {"[server\nlisten = unix:/x\n", ":1: "},
        {"what\n", ":1: "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config config;
        struct xop_error error = {0};
        assert_int_equal(read_text(&config, cases[i].text, strlen(cases[i].text), &error),
                         XOP_INVALID_ARGUMENT);
        if (!strstr(error.message, cases[i].expected))
            fail_msg("\"%s\" does not contain \"%s\"", error.message, cases[i].expected);
    }
}

static void a_missing_or_binary_file_is_an_error(void **state) {
    struct config config;
    struct xop_error error;
    static const char binary[] = "\x7f"
                                 "ELF\0\0\1\2\3\n\0\0\n";
    (void)state;
    config_defaults(&config);
    assert_int_equal(config_read(&config, "/nonexistent/xopd.conf", &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "/nonexistent/xopd.conf: No such file"));
    assert_int_equal(read_text(&config, binary, sizeof binary, &error), XOP_INVALID_ARGUMENT);
}

static void tcp_without_tls_has_to_be_allowed(void **state) {
    struct config config;
    struct xop_error error;
    (void)state;
    config_defaults(&config);
    assert_int_equal(config_set(&config, "server", "listen", "tcp:localhost:7000", &error), XOP_OK);
    assert_int_equal(config_finish(&config, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "insecure_tcp"));
    config.insecure_tcp = true;
    assert_int_equal(config_finish(&config, &error), XOP_OK);
}

static void tls_needs_a_certificate_and_somebody_to_verify_clients_with(void **state) {
    struct config config;
    struct xop_error error;
    (void)state;
    config_defaults(&config);
    assert_int_equal(config_set(&config, "server", "listen", "tls:localhost:7000", &error), XOP_OK);
    assert_int_equal(config_finish(&config, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "tls.cert and tls.key"));
    strcpy(config.tls_cert, "cert.pem");
    strcpy(config.tls_key, "key.pem");
    assert_int_equal(config_finish(&config, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "tls.client_ca"));
    config.tls_require_client_cert = false;
    assert_int_equal(config_finish(&config, &error), XOP_OK);
    strcpy(config.tls_crl, "crl.pem");
    assert_int_equal(config_finish(&config, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "tls.crl"));
}

static void there_is_a_listener_by_default(void **state) {
    struct config config;
    struct xop_error error;
    (void)state;
    config_defaults(&config);
    assert_int_equal(config_finish(&config, &error), XOP_OK);
    assert_int_equal(config.nlisten, 1);
    assert_memory_equal(config.listen[0], "unix:/", 6);
}

static void http_takes_numeric_addresses_and_paths(void **state) {
    static const struct {
        const char *address;
        enum xop_status expected;
    } cases[] = {
        {"", XOP_OK},
        {"127.0.0.1:9464", XOP_OK},
        {"0.0.0.0:0", XOP_OK},
        {"[::1]:9464", XOP_OK},
        {"unix:/run/xopd/http.sock", XOP_OK},
        {"localhost:9464", XOP_INVALID_ARGUMENT},
        {"127.0.0.1", XOP_INVALID_ARGUMENT},
        {"127.0.0.1:70000", XOP_INVALID_ARGUMENT},
        {"tls:127.0.0.1:9464", XOP_INVALID_ARGUMENT},
        {":9464", XOP_INVALID_ARGUMENT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config config;
        struct xop_error error;
        config_defaults(&config);
        assert_int_equal(config_set(&config, "http", "listen", cases[i].address, &error), XOP_OK);
        if (config_finish(&config, &error) != cases[i].expected)
            fail_msg("%s is taken otherwise", cases[i].address);
        assert_int_equal(config.nlisten, 1); /* clients' is another matter */
    }
}

static char changes[1024];

static void note(const char *change, bool applied) {
    size_t used = strlen(changes);
    snprintf(changes + used, sizeof changes - used, "%c %s\n", applied ? '+' : '-', change);
}

static void what_may_change_is_taken_over_and_the_rest_is_named(void **state) {
    struct config config, fresh;
    struct xop_error error;
    const char *before = "[server]\nlisten = unix:/a\nlisten = unix:/b\nsocket_mode = 0600\n"
                         "max_connections = 5\n[tls]\ncert = old\n[device]\nbackend = cpu\n"
                         "inbox = 16M\n[log]\nlevel = warn\n";
    const char *after = "[server]\nlisten = unix:/a\nsocket_mode = 0660\nmax_connections = 6\n"
                        "[tls]\ncert = new\nrequire_client_cert = no\n[device]\nbackend = cuda\n"
                        "inbox = 32M\n[log]\nlevel = debug\n";
    (void)state;
    assert_int_equal(read_text(&config, before, strlen(before), &error), XOP_OK);
    assert_int_equal(read_text(&fresh, after, strlen(after), &error), XOP_OK);
    config_apply(&config, &fresh, note);
    assert_string_equal(changes, "- server.listen: \"unix:/a\", was \"unix:/a unix:/b\"\n"
                                 "- server.socket_mode: \"0660\", was \"0600\"\n"
                                 "+ server.max_connections: \"6\", was \"5\"\n"
                                 "+ tls.cert: \"new\", was \"old\"\n"
                                 "+ tls.require_client_cert: \"no\", was \"yes\"\n"
                                 "- device.backend: \"cuda\", was \"cpu\"\n"
                                 "- device.inbox: \"33554432\", was \"16777216\"\n"
                                 "+ log.level: \"debug\", was \"warn\"\n");
    assert_int_equal(config.nlisten, 2);
    assert_int_equal(config.socket_mode, 0600);
    assert_int_equal(config.max_connections, 6);
    assert_string_equal(config.tls_cert, "new");
    assert_false(config.tls_require_client_cert);
    assert_string_equal(config.backend, "cpu");
    assert_int_equal(config.inbox_bytes, 16 << 20);
    assert_int_equal(config.log_level, LOG_LEVEL_DEBUG);
    /* What was taken over is no change any more. */
    changes[0] = 0;
    config_apply(&config, &fresh, note);
    assert_null(strchr(changes, '+'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_sets_keys_in_their_units),
        cmocka_unit_test(what_is_wrong_is_named_with_its_line),
        cmocka_unit_test(a_missing_or_binary_file_is_an_error),
        cmocka_unit_test(tcp_without_tls_has_to_be_allowed),
        cmocka_unit_test(tls_needs_a_certificate_and_somebody_to_verify_clients_with),
        cmocka_unit_test(there_is_a_listener_by_default),
        cmocka_unit_test(http_takes_numeric_addresses_and_paths),
        cmocka_unit_test(what_may_change_is_taken_over_and_the_rest_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
