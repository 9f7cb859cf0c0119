/* client/lib/reader.c: frames come out the same however the bytes are cut. */
#include "client/lib/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    unsigned char body[512];
    uint64_t ids[8];
    uint32_t messages, completed;
    bool refuse;
};

static enum xop_status on_message(void *arg, const struct message *message, uint64_t body_bytes,
                                  struct reader_segment *segments, uint32_t *nsegments,
                                  struct xop_error *error) {
    struct seen *seen = arg;
    (void)body_bytes;
    if (seen->refuse)
        return xop_fail(error, XOP_INTERNAL, "not wanted");
    seen->ids[seen->messages++ % 8] = message->id;
    *nsegments = message->nout;
    for (uint32_t i = 0; i < message->nout; i++) {
        uint64_t bytes;
        message_tensor_bytes(&message->out[i], &bytes, error);
        segments[i] =
            (struct reader_segment){message->out[i].offset, bytes, seen->body + 100 * (size_t)i};
    }
    return XOP_OK;
}

static void on_complete(void *arg) { ((struct seen *)arg)->completed++; }

static const struct reader_handler handler = {on_message, on_complete};

/* A result with two tensors (12 and 20 bytes) and one without any. */
static size_t make_stream(unsigned char *bytes, size_t capacity) {
    struct message m = {.type = MESSAGE_RESULT, .id = 11, .device = -1, .nout = 2};
    unsigned char body[84];
    for (int i = 0; i < 84; i++)
        body[i] = (unsigned char)(i + 1);
    m.out[0] = (struct message_tensor){XOP_F32, 1, {3}, PLACE_BODY, ACCESS_DEFAULT, 0, 0};
    m.out[1] = (struct message_tensor){XOP_F32, 1, {5}, PLACE_BODY, ACCESS_DEFAULT, 0, 64};
    size_t n = message_encode(&m, sizeof body, bytes, capacity);
    memcpy(bytes + n, body, sizeof body);
    n += sizeof body;
    struct message empty = {.type = MESSAGE_RESULT, .id = 12, .device = -1};
    return n + message_encode(&empty, 0, bytes + n, capacity - n);
}

static void check(const struct seen *seen) {
    assert_int_equal(seen->messages, 2);
    assert_int_equal(seen->completed, 2);
    assert_int_equal(seen->ids[0], 11);
    assert_int_equal(seen->ids[1], 12);
    for (int i = 0; i < 12; i++)
        assert_int_equal(seen->body[i], i + 1);
    for (int i = 0; i < 20; i++)
        assert_int_equal(seen->body[100 + i], 64 + i + 1);
    assert_int_equal(seen->body[12], 0);
}

static void every_cut_of_the_stream_gives_the_same(void **state) {
    unsigned char bytes[1024];
    size_t n = make_stream(bytes, sizeof bytes);
    struct xop_error error;
    (void)state;
    for (size_t piece = 1; piece <= n; piece++) {
        struct seen seen = {.messages = 0};
        struct reader *reader = reader_new(&handler, &seen, 1 << 20);
        for (size_t at = 0; at < n; at += piece)
            assert_int_equal(
                reader_feed(reader, bytes + at, n - at < piece ? n - at : piece, &error), XOP_OK);
        check(&seen);
        assert_false(reader_is_within(reader));
        reader_free(reader);
    }
}

static void bodies_can_be_stored_directly(void **state) {
    unsigned char bytes[1024], *to;
    size_t n = make_stream(bytes, sizeof bytes), at = 0, length;
    struct seen seen = {.messages = 0};
    struct reader *reader = reader_new(&handler, &seen, 1 << 20);
    struct xop_error error;
    (void)state;
    while (at < n) {
        reader_direct(reader, &to, &length);
        if (length > 0) {
            memcpy(to, bytes + at, length);
            reader_advance(reader, length);
            at += length;
        } else {
            assert_int_equal(reader_feed(reader, bytes + at++, 1, &error), XOP_OK);
        }
    }
    check(&seen);
    reader_free(reader);
}

static void a_dropped_body_leaves_memory_alone(void **state) {
    unsigned char bytes[1024];
    size_t n = make_stream(bytes, sizeof bytes);
    struct seen seen = {.messages = 0};
    struct reader *reader = reader_new(&handler, &seen, 1 << 20);
    struct xop_error error;
    (void)state;
    size_t at = 0;
    while (seen.messages == 0)
        assert_int_equal(reader_feed(reader, bytes + at++, 1, &error), XOP_OK);
    reader_drop_body(reader);
    assert_int_equal(reader_feed(reader, bytes + at, n - at, &error), XOP_OK);
    assert_int_equal(seen.completed, 2);
    assert_int_equal(seen.body[0], 0);
    reader_free(reader);
}

static void what_is_too_large_or_nonsense_ends_it(void **state) {
    unsigned char bytes[1024];
    size_t n = make_stream(bytes, sizeof bytes);
    struct xop_error error;
    struct seen seen = {.messages = 0};
    (void)state;
    struct reader *reader = reader_new(&handler, &seen, 83);
    assert_int_not_equal(reader_feed(reader, bytes, n, &error), XOP_OK);
    reader_free(reader);
    reader = reader_new(&handler, &seen, 1 << 20);
    assert_int_not_equal(reader_feed(reader, "HTTP/1.1 400 Bad Request", 24, &error), XOP_OK);
    reader_free(reader);
    seen.refuse = true;
    reader = reader_new(&handler, &seen, 1 << 20);
    assert_int_equal(reader_feed(reader, bytes, n, &error), XOP_INTERNAL);
    reader_free(reader);
    assert_int_equal(seen.completed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_of_the_stream_gives_the_same),
        cmocka_unit_test(bodies_can_be_stored_directly),
        cmocka_unit_test(a_dropped_body_leaves_memory_alone),
        cmocka_unit_test(what_is_too_large_or_nonsense_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
