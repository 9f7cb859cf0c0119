#include "daemon/front/resident.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A connection with nothing but what residents look at. */
static struct connection connection;
static struct io_thread thread;

static struct resident *vector(uint64_t handle, int64_t n) {
    struct xop_tensor type = {.dtype = XOP_F32, .rank = 1, .shape = {n}};
    struct xop_error error;
    struct resident *resident = resident_new(&connection, handle, &error);
    assert_non_null(resident);
    assert_int_equal(resident_type(resident, &type, &error), XOP_OK);
    return resident;
}

static int setup(void **state) {
    (void)state;
    memset(&connection, 0, sizeof connection);
    connection.thread = &thread;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    resident_close_all(&connection);
    return 0;
}

static enum xop_status readable(const struct resident *resident, uint64_t begin, uint64_t end) {
    struct xop_error error;
    return resident_readable(resident, begin, end, &error);
}

static void what_pieces_cover_is_readable_and_no_more(void **state) {
    struct resident *r = vector(1, 100);
    (void)state;
    assert_int_equal(readable(r, 0, 400), XOP_NOT_FOUND);
    resident_wrote(r, 100, 200);
    assert_int_equal(readable(r, 100, 200), XOP_OK);
    assert_int_equal(readable(r, 99, 200), XOP_FAILED_PRECONDITION);
    assert_int_equal(readable(r, 100, 201), XOP_FAILED_PRECONDITION);
    resident_wrote(r, 300, 400);
    assert_int_equal(readable(r, 100, 400), XOP_FAILED_PRECONDITION);
    resident_wrote(r, 200, 300); /* joins both */
    assert_int_equal(readable(r, 100, 400), XOP_OK);
    assert_int_equal(r->nwritten, 1);
    resident_wrote(r, 0, 150);
    assert_int_equal(readable(r, 0, 400), XOP_OK);
    assert_int_equal(r->nwritten, 1);
}

static void every_write_raises_the_version(void **state) {
    struct resident *r = vector(1, 100);
    uint64_t version = r->version;
    (void)state;
    resident_wrote(r, 0, 400);
    assert_true(r->version > version);
    version = r->version;
    resident_spoilt(r, 0, 4, false);
    assert_true(r->version > version);
}

static void what_was_spoilt_is_lost_until_it_is_written(void **state) {
    struct resident *r = vector(1, 100);
    (void)state;
    resident_wrote(r, 0, 400);
    resident_spoilt(r, 100, 200, true);
    assert_int_equal(readable(r, 0, 100), XOP_OK);
    assert_int_equal(readable(r, 200, 400), XOP_OK);
    assert_int_equal(readable(r, 0, 101), XOP_DATA_LOSS);
    assert_int_equal(readable(r, 199, 200), XOP_DATA_LOSS);
    resident_wrote(r, 100, 200);
    assert_int_equal(readable(r, 0, 400), XOP_OK);
    resident_spoilt(r, 0, 400, false);
    assert_int_equal(readable(r, 0, 4), XOP_FAILED_PRECONDITION);
}

/* Against a plain array of bytes. */
static void random_pieces_agree_with_a_plain_list(void **state) {
    struct resident *r = vector(1, 64);
    bool there[256] = {false};
    (void)state;
    srand(2);
    resident_wrote(r, 0, 256);
    memset(there, true, sizeof there);
    for (int round = 0; round < 20000; round++) {
        uint64_t a = (uint64_t)(rand() % 257), b = (uint64_t)(rand() % 257);
        uint64_t begin = a < b ? a : b, end = a < b ? b : a;
        bool write = rand() % 2, whole = true;
        if (begin == end)
            continue;
        if (write)
            resident_wrote(r, begin, end);
        else
            resident_spoilt(r, begin, end, false);
        memset(there + begin, write, end - begin);
        a = (uint64_t)(rand() % 256);
        b = a + 1 + (uint64_t)rand() % (256 - a);
        for (uint64_t i = a; i < b; i++)
            whole &= there[i];
        assert_int_equal(readable(r, a, b) == XOP_OK, whole);
    }
}

static void a_type_stays(void **state) {
    struct resident *r = vector(3, 4);
    struct xop_tensor other = {.dtype = XOP_F32, .rank = 2, .shape = {2, 2}};
    struct xop_error error;
    (void)state;
    assert_int_equal(resident_type(r, &other, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "resident tensor 3 is f32 (4,)"));
    assert_non_null(strstr(error.message, "f32 (2, 2)"));
}

static void one_that_was_never_written_is_forgotten(void **state) {
    struct xop_error error;
    (void)state;
    struct resident *r = resident_new(&connection, 5, &error);
    object_hold(&r->object);
    resident_settle(r);
    assert_null(resident_find(&connection, 5));
    object_drop(&r->object);
    assert_int_equal(stats_get(connection.stats.residents), 0);
    r = vector(5, 4);
    resident_wrote(r, 0, 16);
    resident_settle(r);
    assert_ptr_equal(resident_find(&connection, 5), r);
}

static void handles_are_limited(void **state) {
    struct xop_error error;
    (void)state;
    for (uint64_t i = 1; i <= RESIDENT_MAX; i++)
        assert_non_null(resident_new(&connection, i, &error));
    assert_null(resident_new(&connection, RESIDENT_MAX + 1, &error));
    assert_int_equal(error.status, XOP_RESOURCE_EXHAUSTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_pieces_cover_is_readable_and_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(every_write_raises_the_version, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_spoilt_is_lost_until_it_is_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(random_pieces_agree_with_a_plain_list, setup, teardown),
        cmocka_unit_test_setup_teardown(a_type_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_was_never_written_is_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(handles_are_limited, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
