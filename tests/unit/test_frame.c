/* proto/frame.c */
#include "proto/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void a_prefix_is_as_specified_byte_for_byte(void **state) {
    static const unsigned char expected[FRAME_PREFIX] = {'X', 'O', 'P', '1', 0, 0, 0x12, 0x34,
                                                         0,   0,   0,   5,   6, 7, 8,    9};
    unsigned char bytes[FRAME_PREFIX];
    struct frame_prefix prefix;
    struct xop_error error;
    (void)state;
    frame_write_prefix(bytes, (struct frame_prefix){0x1234, UINT64_C(0x0506070809)});
    assert_memory_equal(bytes, expected, sizeof bytes);
    assert_int_equal(frame_read_prefix(bytes, PROTO_MAX_BODY, &prefix, &error), XOP_OK);
    assert_int_equal(prefix.header_bytes, 0x1234);
    assert_true(prefix.body_bytes == UINT64_C(0x0506070809));
}

static void impossible_prefixes_are_refused(void **state) {
    static const struct {
        const char *magic, *expected;
        uint32_t header;
        uint64_t body;
    } cases[] = {
        {"XOP2", "begins with", 10, 0},
        {"GET ", "47 45 54 20", 10, 0},
        {"XOP1", "1 to 65536", 0, 0},
        {"XOP1", "1 to 65536", PROTO_MAX_HEADER + 1, 0},
        {"XOP1", "1 to 65536", UINT32_MAX, 0},
        {"XOP1", "1000 are allowed", 10, 1001},
        {"XOP1", "1000 are allowed", 10, UINT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[FRAME_PREFIX];
        struct frame_prefix prefix;
        struct xop_error error = {0};
        frame_write_prefix(bytes, (struct frame_prefix){cases[i].header, cases[i].body});
        memcpy(bytes, cases[i].magic, 4);
        assert_int_equal(frame_read_prefix(bytes, 1000, &prefix, &error), XOP_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, cases[i].expected));
    }
}

static void limits_themselves_are_allowed(void **state) {
    unsigned char bytes[FRAME_PREFIX];
    struct frame_prefix prefix;
    struct xop_error error;
    (void)state;
    frame_write_prefix(bytes, (struct frame_prefix){PROTO_MAX_HEADER, 1000});
    assert_int_equal(frame_read_prefix(bytes, 1000, &prefix, &error), XOP_OK);
    /* Whatever a reader allows, the protocol's own limit holds. */
    frame_write_prefix(bytes, (struct frame_prefix){1, PROTO_MAX_BODY});
    assert_int_equal(frame_read_prefix(bytes, UINT64_MAX, &prefix, &error), XOP_OK);
    frame_write_prefix(bytes, (struct frame_prefix){1, PROTO_MAX_BODY + 1});
    assert_int_equal(frame_read_prefix(bytes, UINT64_MAX, &prefix, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "4611686018427387904 are allowed"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_as_specified_byte_for_byte),
        cmocka_unit_test(impossible_prefixes_are_refused),
        cmocka_unit_test(limits_themselves_are_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
