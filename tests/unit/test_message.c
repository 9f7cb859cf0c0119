/* proto/message*.c: messages survive the wire, and nothing else does. */
#include "proto/frame.h"
#include "proto/message_table.h"

#include <msgpack.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct message_decoder *decoder;

static int setup(void **state) {
    (void)state;
    decoder = message_decoder_new();
    return decoder ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    message_decoder_free(decoder);
    return 0;
}

static enum xop_status round_trip(const struct message *from, uint64_t body, struct message *to,
                                  struct xop_error *error) {
    static unsigned char bytes[FRAME_PREFIX + PROTO_MAX_HEADER];
    struct frame_prefix prefix;
    size_t n = message_encode(from, body, bytes, sizeof bytes);
    assert_true(n > FRAME_PREFIX);
    assert_int_equal(frame_read_prefix(bytes, PROTO_MAX_BODY, &prefix, error), XOP_OK);
    assert_int_equal(prefix.header_bytes, n - FRAME_PREFIX);
    return message_decode(decoder, bytes + FRAME_PREFIX, prefix.header_bytes, prefix.body_bytes, to,
                          error);
}

static struct message request(void) {
    struct message m = {.type = MESSAGE_FORWARD, .id = 7, .op = "square_bias", .device = -1};
    m.nin = 2;
    m.in[0] = (struct message_tensor){XOP_F32, 2, {3, 4}, PLACE_BODY, ACCESS_DEFAULT, 0, 0};
    m.in[1] = (struct message_tensor){XOP_F32, 1, {4}, PLACE_BODY, ACCESS_DEFAULT, 0, 64};
    return m;
}

static void a_request_survives(void **state) {
    struct message m = request(), got;
    struct xop_error error;
    static const int64_t ints[] = {1, -2, INT64_MIN, INT64_MAX};
    static const double floats[] = {0.5, -1e300};
    (void)state;
    m.attrs[0] = (struct xop_attr){"axis", XOP_ATTR_INT, 1, {.i = -1}};
    m.attrs[1] = (struct xop_attr){"eps", XOP_ATTR_FLOAT, 1, {.f = 1e-5}};
    m.attrs[2] = (struct xop_attr){"mode", XOP_ATTR_STRING, 4, {.string = "gr\xc3\xbc"}};
    m.attrs[3] = (struct xop_attr){"keep", XOP_ATTR_BOOL, 1, {.i = 1}};
    m.attrs[4] = (struct xop_attr){"pads", XOP_ATTR_INTS, 4, {.ints = ints}};
    m.attrs[5] = (struct xop_attr){"scales", XOP_ATTR_FLOATS, 2, {.floats = floats}};
    m.nattrs = 6;
    m.out[0] = (struct message_tensor){.place = PLACE_RESIDENT, .id = UINT64_MAX, .offset = 64};
    m.out[1] = (struct message_tensor){.place = PLACE_OMIT};
    m.out[2] = (struct message_tensor){.place = PLACE_NONE, .access = ACCESS_WRITE};
    m.out[3] = (struct message_tensor){XOP_F64, 1, {9}, PLACE_MEMORY, ACCESS_READ_WRITE, 5, 128};
    m.nout = 4;
    m.deadline_ms = 250;
    m.priority = -8;
    m.check = true;
    m.keep = 99;
    assert_int_equal(round_trip(&m, 80, &got, &error), XOP_OK);
    assert_int_equal(got.type, MESSAGE_FORWARD);
    assert_int_equal(got.id, 7);
    assert_string_equal(got.op, "square_bias");
    assert_int_equal(got.nin, 2);
    assert_memory_equal(&got.in[1], &m.in[1], sizeof m.in[1]);
    assert_int_equal(got.nattrs, 6);
    assert_int_equal(got.attrs[0].value.i, -1);
    assert_true(got.attrs[1].value.f == 1e-5);
    assert_string_equal(got.attrs[2].value.string, "gr\xc3\xbc");
    assert_int_equal(got.attrs[3].type, XOP_ATTR_BOOL);
    assert_memory_equal(got.attrs[4].value.ints, ints, sizeof ints);
    assert_memory_equal(got.attrs[5].value.floats, floats, sizeof floats);
    assert_int_equal(got.nout, 4);
    assert_true(got.out[0].place == PLACE_RESIDENT && got.out[0].id == UINT64_MAX);
    assert_int_equal(got.out[1].place, PLACE_OMIT);
    assert_true(got.out[2].place == PLACE_NONE && got.out[2].access == ACCESS_WRITE);
    assert_true(got.out[3].access == ACCESS_READ_WRITE && got.out[3].offset == 128);
    assert_int_equal(got.priority, -8);
    assert_int_equal(got.device, -1);
    assert_true(got.check && got.keep == 99 && got.deadline_ms == 250);
}

static void every_type_survives(void **state) {
    (void)state;
    for (unsigned type = 1; type < MESSAGE_TYPES; type++) {
        struct message m = {.type = (enum message_type)type, .id = 3, .device = -1}, got;
        struct xop_error error = {0};
        m.version_min = m.version_max = 1;
        m.op = "op";
        m.text = "text";
        m.error = "a sentence";
        m.handle = 4;
        m.target = 5;
        m.length = 6;
        m.generation = 7;
        m.status = type == MESSAGE_ERROR ? XOP_DEVICE_FAULT : XOP_OK;
        if (type == MESSAGE_PUT || type == MESSAGE_EXPORT || type == MESSAGE_FORWARD ||
            type == MESSAGE_BACKWARD) {
            m.in[0] = (struct message_tensor){XOP_F16, 0, {0}, PLACE_NONE, ACCESS_DEFAULT, 0, 0};
            m.nin = 1;
        }
        if (round_trip(&m, 0, &got, &error) != XOP_OK)
            fail_msg("%s: %s", message_type_name(m.type), error.message);
        assert_int_equal(got.type, type);
        for (uint32_t k = 0; k < message_nkeys; k++) {
            const struct message_key *key = &message_keys[k];
            if (key->kind == KIND_U64 && key->required & MESSAGE_BIT(type))
                assert_true(*(uint64_t *)message_member(&m, key) ==
                            *(uint64_t *)message_member(&got, key));
        }
    }
}

static void a_result_lists_its_outputs(void **state) {
    struct message m = {.type = MESSAGE_RESULT, .id = 1, .device = -1}, got;
    struct xop_error error;
    (void)state;
    m.out[0] = (struct message_tensor){XOP_BF16, 1, {3}, PLACE_BODY, ACCESS_DEFAULT, 0, 0};
    m.out[1] = (struct message_tensor){.place = PLACE_OMIT};
    m.out[2] = (struct message_tensor){XOP_F32, 2, {0, 5}, PLACE_BODY, ACCESS_DEFAULT, 0, 0};
    m.nout = 3;
    m.queue_ns = 1;
    m.run_ns = UINT64_MAX;
    m.batch = 9;
    assert_int_equal(round_trip(&m, 6, &got, &error), XOP_OK);
    assert_int_equal(got.nout, 3);
    assert_int_equal(got.out[0].dtype, XOP_BF16);
    assert_int_equal(got.out[1].place, PLACE_OMIT);
    assert_true(got.run_ns == UINT64_MAX && got.batch == 9);
}

static void bodies_have_to_be_covered_exactly(void **state) {
    struct message m = request(), got;
    struct xop_error error;
    (void)state;
    assert_int_equal(round_trip(&m, 80, &got, &error), XOP_OK);
    assert_int_equal(round_trip(&m, 79, &got, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "in[1].body"));
    assert_int_equal(round_trip(&m, 81, &got, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "its tensors end at byte 80"));
    m.in[1].offset = 32;
    assert_int_equal(round_trip(&m, 48, &got, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "multiple of 64"));
    m.in[1].offset = 0;
    assert_int_equal(round_trip(&m, 48, &got, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "overlaps"));
    m.in[1].offset = 128;
    assert_int_equal(round_trip(&m, 144, &got, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "gap"));
    m.in[1].offset = UINT64_MAX - 63;
    assert_int_equal(round_trip(&m, 80, &got, &error), XOP_INVALID_ARGUMENT);
    m = request();
    m.in[1].shape[0] = 0; /* empty, and so it may stand anywhere inside */
    assert_int_equal(round_trip(&m, 48, &got, &error), XOP_INVALID_ARGUMENT);
    m.in[1].offset = 0;
    assert_int_equal(round_trip(&m, 48, &got, &error), XOP_OK);
    assert_int_equal(got.id, 7);
}

/* ---- Headers that no encoder makes ---- */

struct writer {
    char bytes[PROTO_MAX_HEADER * 2];
    size_t used;
};

static int append(void *data, const char *bytes, size_t n) {
    struct writer *w = data;
    memcpy(w->bytes + w->used, bytes, n);
    w->used += n;
    return 0;
}

static void key(msgpack_packer *p, const char *text) {
    msgpack_pack_str(p, strlen(text));
    msgpack_pack_str_body(p, text, strlen(text));
}

static enum xop_status decode(const void *bytes, size_t n, struct message *m,
                              struct xop_error *error) {
    return message_decode(decoder, bytes, n, 0, m, error);
}

/* {type: forward, id: 5, NAME: 2.0}: a float, integral as it may be, is none of these. */
static void wrong_types_name_their_key(void **state) {
    static const char *const names[] = {"op",       "in",    "out",  "attrs", "deadline_ms",
                                        "priority", "check", "keep", "device"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct writer w = {.used = 0};
        msgpack_packer p;
        struct message m;
        struct xop_error error = {0};
        bool op = strcmp(names[i], "op") == 0, in = strcmp(names[i], "in") == 0;
        msgpack_packer_init(&p, &w, append);
        msgpack_pack_map(&p, 3u + !op + !in);
        key(&p, "type"), key(&p, "forward");
        key(&p, "id"), msgpack_pack_int(&p, 5);
        if (!op)
            key(&p, "op"), key(&p, "x");
        if (!in)
            key(&p, "in"), msgpack_pack_array(&p, 0);
        key(&p, names[i]), msgpack_pack_double(&p, 2.0);
        assert_int_equal(decode(w.bytes, w.used, &m, &error), XOP_INVALID_ARGUMENT);
        if (!strstr(error.message, names[i]))
            fail_msg("%s: %s", names[i], error.message);
        assert_int_equal(m.id, 5);
        assert_int_equal(m.type, MESSAGE_FORWARD);
    }
}

static void malformed_headers_are_refused(void **state) {
    static const struct {
        const char *bytes;
        size_t n;
        const char *expected;
    } cases[] = {
        {"\x81", 1, "ends within"},
        {"\xc1", 1, "no place"},
        {"\x93\x01\x02\x03", 4, "not a map"},
        {"\xc0", 1, "not a map"},
        {"\x80\x00", 2, "bytes follow"},
        {"\x80", 1, "type: it is missing"},
        {"\xdf\xff\xff\xff\xff", 5, "ends within"},
        {"\xdb\xff\xff\xff\xff", 5, "not a map"},
        {"\x81\xa1x\xdd\xff\xff\xff\xff", 8, "ends within"},
        {"\x81\xa1x\xdb\xff\xff\xff\xff", 8, "ends within"},
        {"\x81\x01\x02", 3, "not text"},
        {"\x81\xa1x\xc7\x01\x05\x00", 7, "no place"},
        {"\x81\xa1x\xd4\x05\x00", 6, "no place"},
        {"\x81\xa2\xc3\x28\x01", 5, "not UTF-8"},
        {"\x81\xa1x\xa1\x00", 5, "NUL"},
        {"\x82\xa2id\x01\xa2id\x01", 9, "given twice"},
        {"\x81\xa4type\xa4nope", 11, "no type"},
        {"\x81\xa4type\x05", 7, "type: a string is expected"},
        {"\x81\xa1x\x81\x01\x02", 6, "x: a key is not text"},
        {"\x81\xa3"
         "b\nd\xd9",
         6, "b\\x0ad: it ends within"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m;
        struct xop_error error = {0};
        assert_int_equal(decode(cases[i].bytes, cases[i].n, &m, &error), XOP_INVALID_ARGUMENT);
        if (!strstr(error.message, cases[i].expected))
            fail_msg("case %zu: %s", i, error.message);
    }
}

static void depth_and_counts_are_bounded(void **state) {
    static unsigned char bytes[PROTO_MAX_HEADER];
    struct message m;
    struct xop_error error = {0};
    size_t n = 0;
    (void)state;
    while (n + 3 < sizeof bytes) { /* {a: {a: {a: ... */
        memcpy(bytes + n,
               "\x81\xa1"
               "a",
               3);
        n += 3;
    }
    bytes[n++] = 0xc0;
    assert_int_equal(decode(bytes, n, &m, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "deep"));
    /* {type: ping, id: 1, a: [[[[[]]]]]}: six with the map, and then one more. */
    assert_int_equal(decode("\x83\xa4type\xa4ping\xa2id\x01\xa1"
                            "a\x91\x91\x91\x91\x90",
                            22, &m, &error),
                     XOP_OK);
    assert_int_equal(decode("\x83\xa4type\xa4ping\xa2id\x01\xa1"
                            "a\x91\x91\x91\x91\x91\x90",
                            23, &m, &error),
                     XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "a: maps and arrays inside each other"));
    /* {a: [nil, nil, ...]} with as many as fit */
    memcpy(bytes,
           "\x81\xa1"
           "a\xdd\x00\x00\xff\xf0",
           8);
    memset(bytes + 8, 0xc0, 0xfff0);
    assert_int_equal(decode(bytes, 8 + 0xfff0, &m, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "too many"));
}

static void every_prefix_of_a_header_is_refused(void **state) {
    static unsigned char bytes[4096];
    struct message m = request(), got;
    struct xop_error error;
    (void)state;
    size_t n = message_encode(&m, 80, bytes, sizeof bytes);
    for (size_t cut = 1; cut < n - FRAME_PREFIX; cut++) {
        /* In memory of its own, where a read behind the end does not go unseen. */
        unsigned char *copy = malloc(cut);
        assert_non_null(copy);
        memcpy(copy, bytes + FRAME_PREFIX, cut);
        assert_int_equal(message_decode(decoder, copy, cut, 80, &got, &error),
                         XOP_INVALID_ARGUMENT);
        free(copy);
    }
}

static void memory_is_used_again(void **state) {
    static char text[PROTO_MAX_HEADER - 200];
    struct message m = {.type = MESSAGE_LOAD, .id = 1, .device = -1, .text = text}, got;
    struct xop_error error;
    (void)state;
    memset(text, 't', sizeof text - 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(round_trip(&m, 0, &got, &error), XOP_OK);
        assert_string_equal(got.text, text);
    }
}

static void unknown_keys_are_passed_over(void **state) {
    struct writer w = {.used = 0};
    msgpack_packer p;
    struct message m;
    struct xop_error error;
    (void)state;
    msgpack_packer_init(&p, &w, append);
    msgpack_pack_map(&p, 3);
    key(&p, "type"), key(&p, "ping");
    key(&p, "id"), msgpack_pack_uint64(&p, UINT64_MAX);
    key(&p, "colour"), msgpack_pack_map(&p, 1), key(&p, "a"), msgpack_pack_nil(&p);
    assert_int_equal(decode(w.bytes, w.used, &m, &error), XOP_OK);
    assert_true(m.id == UINT64_MAX && m.type == MESSAGE_PING);
}

static void what_breaks_a_limit_is_not_encoded(void **state) {
    unsigned char bytes[4096];
    struct message m = request();
    char name[XOP_MAX_NAME + 2];
    (void)state;
    assert_int_equal(message_encode(&m, 80, bytes, 40), 0);
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = 0;
    m.op = name;
    assert_int_equal(message_encode(&m, 80, bytes, sizeof bytes), 0);
    m = request();
    m.in[0].shape[0] = -1;
    assert_int_equal(message_encode(&m, 80, bytes, sizeof bytes), 0);
}

static void a_sentence_in_whatever_bytes_arrives_as_text(void **state) {
    char sentence[PROTO_MAX_MESSAGE + 1];
    struct message m = {.type = MESSAGE_RESULT, .id = 1, .status = XOP_INTERNAL, .device = -1}, got;
    struct xop_error error;
    (void)state;
    m.error = "caf\xe9";
    assert_int_equal(round_trip(&m, 0, &got, &error), XOP_OK);
    assert_string_equal(got.error, "caf\\xe9");
    m.error = "caf\xc3\xa9";
    assert_int_equal(round_trip(&m, 0, &got, &error), XOP_OK);
    assert_string_equal(got.error, m.error);
    memset(sentence, 0xff, sizeof sentence);
    sentence[sizeof sentence - 1] = 0;
    m.error = sentence;
    assert_int_equal(round_trip(&m, 0, &got, &error), XOP_OK);
}

static void utf8_is_told_from_what_is_not(void **state) {
    (void)state;
    assert_true(message_utf8("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 10));
    assert_false(message_utf8("\xc0\x80", 2));         /* overlong */
    assert_false(message_utf8("\xed\xa0\x80", 3));     /* a surrogate */
    assert_false(message_utf8("\xf4\x90\x80\x80", 4)); /* beyond Unicode */
    assert_false(message_utf8("\xe2\x82", 2));
    assert_false(message_utf8("a\0b", 3));
    assert_false(message_utf8("\xff", 1));
}

static void quoting_leaves_nothing_that_acts(void **state) {
    char out[64], small[8];
    (void)state;
    assert_string_equal(message_quote(out, sizeof out, "a\n\x1b[31m%s\\", 10),
                        "a\\x0a\\x1b[31m%s\\x5c");
    message_quote(small, sizeof small, "aaaaaaaaaaaa", 12);
    assert_true(strlen(small) < sizeof small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_survives),
        cmocka_unit_test(every_type_survives),
        cmocka_unit_test(a_result_lists_its_outputs),
        cmocka_unit_test(bodies_have_to_be_covered_exactly),
        cmocka_unit_test(wrong_types_name_their_key),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(depth_and_counts_are_bounded),
        cmocka_unit_test(every_prefix_of_a_header_is_refused),
        cmocka_unit_test(memory_is_used_again),
        cmocka_unit_test(unknown_keys_are_passed_over),
        cmocka_unit_test(what_breaks_a_limit_is_not_encoded),
        cmocka_unit_test(a_sentence_in_whatever_bytes_arrives_as_text),
        cmocka_unit_test(utf8_is_told_from_what_is_not),
        cmocka_unit_test(quoting_leaves_nothing_that_acts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
