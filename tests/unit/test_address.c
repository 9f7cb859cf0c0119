/* client/lib/address.c */
#include "client/lib/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void addresses_are_understood(void **state) {
    struct address a;
    struct xop_error error;
    (void)state;
    assert_int_equal(address_parse("/run/a b.sock", &a, &error), XOP_OK);
    assert_true(a.is_unix);
    assert_string_equal(a.path.sun_path, "/run/a b.sock");
    assert_string_equal(a.text, "unix:/run/a b.sock");
    assert_int_equal(address_parse("unix:@name", &a, &error), XOP_OK);
    assert_int_equal(a.path.sun_path[0], 0);
    assert_memory_equal(a.path.sun_path + 1, "name", 4);
    assert_int_equal(a.path_bytes, offsetof(struct sockaddr_un, sun_path) + 5);
    assert_int_equal(address_parse("tcp:host.example:7000", &a, &error), XOP_OK);
    assert_string_equal(a.host, "host.example");
    assert_string_equal(a.port, "7000");
    assert_int_equal(address_parse("tcp:[::1]:65535", &a, &error), XOP_OK);
    assert_string_equal(a.host, "::1");
    assert_false(a.is_tls);
    assert_int_equal(address_parse("tls:host.example:7000", &a, &error), XOP_OK);
    assert_true(a.is_tls);
    assert_string_equal(a.text, "tls:host.example:7000");
}

static void what_is_no_address_is_named(void **state) {
    static const char *const wrong[] = {
        "",         "localhost:7000", "http://x",   "unix:",       "tcp:",
        "tcp:host", "tcp::7000",      "tcp:host:0", "tcp:h:99999", "tcp:h:7000x",
        "tcp:h:-1", "tcp:::1:7000",   "tcp:h:",     "tcp:[]:1",
    };
    char longer[300];
    struct address a;
    struct xop_error error;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (address_parse(wrong[i], &a, &error) != XOP_INVALID_ARGUMENT)
            fail_msg("%s is taken", wrong[i]);
    memset(longer, 'x', sizeof longer);
    memcpy(longer, "unix:/", 6);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(address_parse(longer, &a, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "107"));
}

static void all_that_was_tried_is_listed(void **state) {
    struct address used;
    struct xop_error error;
    int fd;
    (void)state;
    unsetenv("XOP_ADDRESS");
    setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
    if (access("/run/xopd/xopd.sock", F_OK) == 0)
        skip();
    assert_int_equal(address_connect_any(NULL, address_now() + 1000000000, &used, &fd, &error),
                     XOP_UNAVAILABLE);
    assert_non_null(strstr(error.message, "/nonexistent/xopd/xopd.sock: No such file"));
    assert_non_null(strstr(error.message, "/run/xopd/xopd.sock: No such file"));
    setenv("XOP_ADDRESS", "unix:/elsewhere", 1);
    assert_int_equal(address_connect_any(NULL, address_now() + 1000000000, &used, &fd, &error),
                     XOP_UNAVAILABLE);
    assert_non_null(strstr(error.message, "/elsewhere"));
    assert_null(strstr(error.message, "/run/xopd"));
    assert_int_equal(
        address_connect_any("tcp:127.0.0.1:1", address_now() + 1000000000, &used, &fd, &error),
        XOP_UNAVAILABLE);
    assert_non_null(strstr(error.message, "refused"));
}

static void lists_are_taken_apart(void **state) {
    static const struct {
        const char *list, *parts[4];
    } lists[] = {
        {"/a,b", {"/a,b"}},
        {"unix:/a,tcp:[::1]:7,tls:h:8", {"unix:/a", "tcp:[::1]:7", "tls:h:8"}},
        {"unix:/a,/b,unix:/c", {"unix:/a,/b", "unix:/c"}},
        {"unix:/a,,tcp:h:1", {"unix:/a,", "tcp:h:1"}},
    };
    char one[ADDRESS_MAX], longer[2 * ADDRESS_MAX];
    struct xop_error error;
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *rest = lists[i].list;
        uint32_t n = address_count(rest), found = 0;
        for (; *rest && found < 4; found++) {
            assert_int_equal(address_first(&rest, one, &error), XOP_OK);
            assert_string_equal(one, lists[i].parts[found]);
        }
        assert_int_equal(found, n);
    }
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    const char *rest = longer;
    assert_int_equal(address_first(&rest, one, &error), XOP_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_understood),
        cmocka_unit_test(what_is_no_address_is_named),
        cmocka_unit_test(lists_are_taken_apart),
        cmocka_unit_test(all_that_was_tried_is_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
