/* daemon/shared/seam.c and channel.c: attributes in records, and packets with descriptors. */
#include "daemon/shared/channel.h"
#include "daemon/shared/seam.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void attributes_survive(void **state) {
    static const int64_t ints[] = {1, 2, 3};
    static const struct xop_attr attrs[] = {
        {"a", XOP_ATTR_INT, 1, {.i = -5}},
        {"rather_long_name", XOP_ATTR_FLOAT, 1, {.f = 2.5}},
        {"b", XOP_ATTR_BOOL, 1, {.i = 1}},
        {"s", XOP_ATTR_STRING, 5, {.string = "hello"}},
        {"empty", XOP_ATTR_STRING, 0, {.string = ""}},
        {"list", XOP_ATTR_INTS, 3, {.ints = ints}},
        {"none", XOP_ATTR_FLOATS, 0, {.floats = NULL}},
    };
    enum { N = sizeof attrs / sizeof *attrs };
    static _Alignas(8) unsigned char bytes[1024];
    size_t used = 0, at = 0;
    (void)state;
    for (int i = 0; i < N; i++)
        assert_true(seam_put_attr(bytes, sizeof bytes, &used, &attrs[i]));
    for (int i = 0; i < N; i++) {
        struct xop_attr got;
        assert_true(seam_get_attr(bytes, used, &at, &got));
        assert_string_equal(got.name, attrs[i].name);
        assert_int_equal(got.type, attrs[i].type);
        assert_int_equal(got.count, attrs[i].count);
        if (got.type == XOP_ATTR_STRING)
            assert_string_equal(got.value.string, attrs[i].value.string);
        else if (got.type == XOP_ATTR_INTS)
            assert_memory_equal(got.value.ints, ints, sizeof ints);
        else if (got.type != XOP_ATTR_FLOATS)
            assert_memory_equal(&got.value, &attrs[i].value, 8);
    }
    assert_int_equal(at, used);
}

/* Every byte of an attribute is set to every value: reading stays inside, and says no or reads. */
static void changed_bytes_are_refused_or_harmless(void **state) {
    static const struct xop_attr attr = {"name", XOP_ATTR_STRING, 3, {.string = "abc"}};
    size_t used = 0;
    unsigned char whole[64];
    (void)state;
    assert_true(seam_put_attr(whole, sizeof whole, &used, &attr));
    for (size_t i = 0; i < used; i++)
        for (int byte = 0; byte < 256; byte++) {
            unsigned char *copy = aligned_alloc(8, used); /* so that sanitizers see its end */
            struct xop_attr got;
            size_t at = 0;
            memcpy(copy, whole, used);
            copy[i] = (unsigned char)byte;
            if (seam_get_attr(copy, used, &at, &got)) {
                assert_true(at <= used);
                assert_true(strlen(got.name) < used);
            }
            free(copy);
        }
    for (size_t cut = 0; cut < used; cut++) {
        struct xop_attr got;
        size_t at = 0;
        assert_false(seam_get_attr(whole, cut, &at, &got));
    }
}

/* A NUL inside would make two readers see two different texts. */
static void texts_with_a_nul_inside_are_refused(void **state) {
    static const struct xop_attr attr = {"name", XOP_ATTR_STRING, 3, {.string = "abc"}};
    static _Alignas(8) unsigned char bytes[64];
    size_t used = 0, at = 0;
    struct xop_attr got;
    (void)state;
    assert_true(seam_put_attr(bytes, sizeof bytes, &used, &attr));
    assert_true(seam_get_attr(bytes, used, &at, &got));
    size_t value = (size_t)((const unsigned char *)got.value.string - bytes);
    for (size_t i = 0; i < 3; i++) {
        unsigned char changed = bytes[value + i];
        bytes[value + i] = 0;
        at = 0;
        assert_false(seam_get_attr(bytes, used, &at, &got));
        bytes[value + i] = changed;
    }
    bytes[sizeof(struct seam_attr) + 1] = 0; /* in the name */
    at = 0;
    assert_false(seam_get_attr(bytes, used, &at, &got));
}

static void what_does_not_fit_is_refused(void **state) {
    static const struct xop_attr attr = {"name", XOP_ATTR_INT, 1, {.i = 1}};
    unsigned char bytes[64];
    size_t used = 0;
    (void)state;
    assert_false(seam_put_attr(bytes, 16, &used, &attr));
    assert_int_equal(used, 0);
}

static void lanes_do_not_overlap(void **state) {
    enum { LANES = 3, RECORDS = 16 };
    size_t bytes = seam_bytes(LANES, RECORDS);
    unsigned char *seam = aligned_alloc(64, (bytes + 63) / 64 * 64);
    (void)state;
    memset(seam, 0, bytes);
    for (uint32_t i = 0; i < LANES; i++) {
        struct seam_lane lane;
        seam_view(seam, i, RECORDS, &lane);
        assert_true((unsigned char *)lane.bell >= seam + sizeof(struct seam_header));
        assert_true((unsigned char *)(lane.results + RECORDS) <= seam + bytes);
        for (uint32_t r = 0; r < RECORDS; r++) {
            assert_int_equal(lane.requests[r].tag, 0);
            assert_int_equal(lane.results[r].tag, 0);
            memset(&lane.requests[r], 0xff, sizeof lane.requests[r]);
            memset((void *)&lane.results[r], 0xff, sizeof lane.results[r]);
            assert_int_equal(ring_push(&lane.submit, r), RING_OK);
            assert_int_equal(ring_push(&lane.complete, r), RING_OK);
        }
        for (uint32_t r = 0; r < seam_release_slots(RECORDS); r++)
            assert_int_equal(ring_push(&lane.release, UINT64_MAX), RING_OK);
    }
    free(seam);
}

static void packets_carry_descriptors(void **state) {
    int sockets[2], sent[2], received[4];
    char buffer[CHANNEL_BYTES];
    uint32_t n;
    size_t bytes;
    bool would_block;
    struct xop_error error;
    struct stat before, after;
    (void)state;
    assert_int_equal(channel_pair(sockets, true, &error), XOP_OK);
    assert_int_equal(
        channel_receive(sockets[1], buffer, &bytes, received, 4, &n, &would_block, &error),
        XOP_UNAVAILABLE);
    assert_true(would_block);
    assert_int_equal(pipe(sent), 0);
    assert_int_equal(channel_send(sockets[0], "head", 4, "payload", 7, sent, 2, &error), XOP_OK);
    assert_int_equal(
        channel_receive(sockets[1], buffer, &bytes, received, 4, &n, &would_block, &error), XOP_OK);
    assert_int_equal(bytes, 11);
    assert_memory_equal(buffer, "headpayload", 11);
    assert_int_equal(n, 2);
    fstat(sent[1], &before);
    fstat(received[1], &after);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_true(fcntl(received[0], F_GETFD) & FD_CLOEXEC);
    /* More than asked for are closed, not leaked. */
    int next = dup(0);
    close(next);
    assert_int_equal(channel_send(sockets[0], "x", 1, NULL, 0, sent, 2, &error), XOP_OK);
    assert_int_equal(channel_receive(sockets[1], buffer, &bytes, NULL, 0, &n, &would_block, &error),
                     XOP_OK);
    assert_int_equal(n, 0);
    int again = dup(0);
    assert_int_equal(again, next);
    close(again);
    close(sockets[0]);
    assert_int_equal(channel_receive(sockets[1], buffer, &bytes, NULL, 0, &n, &would_block, &error),
                     XOP_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(channel_send(sockets[1], "x", 1, NULL, 0, NULL, 0, &error), XOP_UNAVAILABLE);
    int all[] = {sockets[1], sent[0], sent[1], received[0], received[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        close(all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attributes_survive),
        cmocka_unit_test(changed_bytes_are_refused_or_harmless),
        cmocka_unit_test(texts_with_a_nul_inside_are_refused),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(lanes_do_not_overlap),
        cmocka_unit_test(packets_carry_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
