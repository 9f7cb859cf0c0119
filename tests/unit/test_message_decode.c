/* proto/message_decode.c and what it is made of: every rule about headers and bodies is kept, and
 * what breaks one is told by its key. Headers are written as JSON with ' for ". Strings beginning
 * with @ stand for what JSON has no words for. */
#include "proto/message_table.h"

#include <jansson.h>
#include <math.h>
#include <msgpack.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct message_decoder *decoder;
static struct message got;
static struct xop_error error;

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

/* ---- From JSON to msgpack ---- */

static void put_text(msgpack_packer *p, const char *text) {
    msgpack_pack_str(p, strlen(text));
    msgpack_pack_str_body(p, text, strlen(text));
}

static void put_special(msgpack_packer *p, const char *name) {
    if (strcmp(name, "@nan") == 0)
        msgpack_pack_double(p, NAN);
    else if (strcmp(name, "@u64") == 0)
        msgpack_pack_uint64(p, UINT64_MAX);
    else if (strcmp(name, "@aligned") == 0)
        msgpack_pack_uint64(p, UINT64_MAX - 63);
    else if (strcmp(name, "@bin") == 0)
        msgpack_pack_bin(p, 1), msgpack_pack_bin_body(p, "f", 1);
    else
        fail_msg("%s is no special value", name);
}

static void put(msgpack_packer *p, json_t *value) {
    const char *key;
    json_t *element;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        msgpack_pack_map(p, json_object_size(value));
        json_object_foreach(value, key, element) {
            put_text(p, key);
            put(p, element);
        }
        break;
    case JSON_ARRAY:
        msgpack_pack_array(p, json_array_size(value));
        json_array_foreach(value, i, element) put(p, element);
        break;
    case JSON_STRING:
        if (*json_string_value(value) == '@')
            put_special(p, json_string_value(value));
        else
            put_text(p, json_string_value(value));
        break;
    case JSON_INTEGER: msgpack_pack_int64(p, json_integer_value(value)); break;
    case JSON_REAL: msgpack_pack_double(p, json_real_value(value)); break;
    case JSON_TRUE: msgpack_pack_true(p); break;
    case JSON_FALSE: msgpack_pack_false(p); break;
    case JSON_NULL: msgpack_pack_nil(p); break;
    }
}

static enum xop_status decode(const char *text, uint64_t body) {
    char *json = strdup(text);
    json_error_t why;
    msgpack_sbuffer bytes;
    msgpack_packer packer;
    for (char *c = json; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *value = json_loads(json, 0, &why);
    if (!value)
        fail_msg("%s: %s", json, why.text);
    msgpack_sbuffer_init(&bytes);
    msgpack_packer_init(&packer, &bytes, msgpack_sbuffer_write);
    put(&packer, value);
    memset(&error, 0, sizeof error);
    enum xop_status status = message_decode(decoder, bytes.data, bytes.size, body, &got, &error);
    msgpack_sbuffer_destroy(&bytes);
    json_decref(value);
    free(json);
    return status;
}

/* Headers that are put together. */
static char header[8192];
static size_t used;

static void add(const char *format, ...) XOP_PRINTF(1, 2);

static void add(const char *format, ...) {
    va_list args;
    va_start(args, format);
    used += (size_t)vsnprintf(header + used, sizeof header - used, format, args);
    va_end(args);
    assert_true(used < sizeof header);
}

static void begin(const char *text) {
    used = 0;
    add("%s", text);
}

static void add_letters(size_t n) {
    while (n-- > 0)
        add("n");
}

struct wrong {
    const char *text, *expected;
    uint64_t body;
};

static void refused(const struct wrong *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (decode(cases[i].text, cases[i].body) != XOP_INVALID_ARGUMENT)
            fail_msg("%s was accepted", cases[i].text);
        assert_int_equal(error.status, XOP_INVALID_ARGUMENT);
        if (!strstr(error.message, cases[i].expected))
            fail_msg("%s: %s", cases[i].text, error.message);
    }
}
#define REFUSE(cases) refused(cases, sizeof(cases) / sizeof *(cases))

static void accepted(const char *text, uint64_t body) {
    if (decode(text, body) != XOP_OK)
        fail_msg("%s: %s", text, error.message);
}

/* A forward whose rest is given, and one whose only input is. */
#define RUN(rest) "{'type': 'forward', 'id': 5, 'op': 'x', " rest "}"
#define INPUT(tensor) RUN("'in': [" tensor "]")

/* ---- Keys and values ---- */

static void a_key_that_is_required_is_missed_by_name(void **state) {
    (void)state;
    for (uint32_t k = 0; k < message_nkeys; k++)
        for (unsigned type = 1; type < MESSAGE_TYPES; type++) {
            char missing[64];
            if (!(message_keys[k].required & MESSAGE_BIT(type)))
                continue;
            begin("{'type': '");
            add("%s'", message_type_name((enum message_type)type));
            for (uint32_t other = 0; other < message_nkeys; other++) {
                const struct message_key *key = &message_keys[other];
                const char *value = key->kind == KIND_STRING   ? "'x'"
                                    : key->kind != KIND_INPUTS ? "1"
                                    : type == MESSAGE_PUT || type == MESSAGE_EXPORT
                                        ? "[{'dtype':'f32','shape':[0]}]"
                                        : "[]";
                if (other != k && key->required & MESSAGE_BIT(type))
                    add(", '%s': %s", key->name, value);
            }
            add("}");
            snprintf(missing, sizeof missing, "%s: it is missing", message_keys[k].name);
            const struct wrong one = {header, missing, 0};
            refused(&one, 1);
        }
}

static void what_could_be_read_of_a_refused_header_is_kept(void **state) {
    (void)state;
    decode("{'id': 77, 'type': 'forward', 'op': 3}", 0);
    assert_true(got.id == 77 && got.type == MESSAGE_FORWARD);
    decode("{'id': '@u64', 'type': 'unheard'}", 0);
    assert_true(got.id == UINT64_MAX && got.type == MESSAGE_NONE);
    assert_non_null(strstr(error.message, "\"unheard\" is no type"));
    decode("{'type': 'hello', 'id': 9}", 0);
    assert_true(got.id == 9 && got.type == MESSAGE_HELLO);
    decode("{'type': 'ping', 'id': 1.0}", 0);
    assert_true(got.id == 0 && got.type == MESSAGE_PING);
}

static void values_outside_their_range_are_refused(void **state) {
    static const struct wrong cases[] = {
        {"{'type': 'ping', 'id': 0}", "id: it cannot be 0", 0},
        {"{'type': 'ping', 'id': -1}", "id: an integer that is not negative", 0},
        {"{'type': 'ping', 'id': 1.0}", "id: an integer that is not negative", 0},
        {"{'type': 'ping', 'id': '@nan'}", "id: an integer that is not negative", 0},
        {"{'type': 'ping', 'id': null}", "nil came", 0},
        {"{'type': 'ping', 'id': {}}", "a map came", 0},
        {"{'type': null, 'id': 1}", "type: a string is expected", 0},
        {"{'type': 'cancel', 'id': 1, 'target': 0}", "target: it cannot be 0", 0},
        {"{'type': 'free', 'id': 1, 'handle': 0}", "handle: it cannot be 0", 0},
        {"{'type': 'detach', 'id': 1, 'memory': 0}", "memory: it cannot be 0", 0},
        {RUN("'in': [], 'keep': 0"), "keep: it cannot be 0", 0},
        {RUN("'in': [], 'priority': 8"), "priority: 8 is outside -8 to 7", 0},
        {RUN("'in': [], 'priority': -9"), "priority: -9 is outside", 0},
        {RUN("'in': [], 'priority': '@u64'"), "priority: the integer", 0},
        {RUN("'in': [], 'device': 1024"), "device: 1024 is outside", 0},
        {RUN("'in': [], 'check': 1"), "check: a boolean is expected", 0},
        {"{'type': 'result', 'id': 1, 'status': 2}", "status: 2 is no status", 0},
        {"{'type': 'result', 'id': 1, 'status': '@u64'}", "is no status", 0},
        {"{'type': 'result', 'id': 1, 'batch': 4294967296}", "batch: the integer 4294967296", 0},
        {"{'type': 'describe', 'id': 1, 'op': '@bin'}", "op: a string is expected, binary", 0},
    };
    (void)state;
    REFUSE(cases);
    begin("{'type': 'describe', 'id': 1, 'op': '");
    add_letters(XOP_MAX_NAME + 1);
    add("'}");
    refused(&(struct wrong){header, "op: it has 64 bytes: 63 are allowed", 0}, 1);
    accepted(RUN("'in': [], 'priority': -8, 'device': -1"), 0);
    assert_true(got.priority == -8 && got.device == -1);
    accepted(RUN("'in': [], 'priority': 7, 'device': 1023"), 0);
    accepted("{'type': 'free', 'id': '@u64', 'handle': '@u64'}", 0);
}

static void a_key_given_twice_is_refused_at_every_level(void **state) {
    static const char id[] = "\x83\xa4type\xa4ping\xa2id\x01\xa2id\x01";
    static const char access[] = "\x84\xa4type\xa7"
                                 "forward\xa2id\x01\xa2op\xa1x\xa2in\x91\x84"
                                 "\xa5"
                                 "dtype\xa3"
                                 "f32\xa5shape\x90\xa6"
                                 "access\xa1r\xa6"
                                 "access\xa1r";
    static const char attr[] = "\x85\xa4type\xa7"
                               "forward\xa2id\x01\xa2op\xa1x\xa2in\x90\xa5"
                               "attrs\x82\xa1"
                               "a\x01\xa1"
                               "a\x02";
    static const char empty[] = "\x84\xa4type\xa4ping\xa2id\x01\xa0\x01\xa0\x01";
    static const struct {
        const char *bytes, *expected;
        size_t n;
    } cases[] = {
        {empty, "header: the key \"\" is given twice", sizeof empty - 1},
        {id, "header: the key \"id\" is given twice", sizeof id - 1},
        {access, "in[0]: the key \"access\" is given twice", sizeof access - 1},
        {attr, "attrs: the key \"a\" is given twice", sizeof attr - 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(message_decode(decoder, cases[i].bytes, cases[i].n, 0, &got, &error),
                         XOP_INVALID_ARGUMENT);
        if (!strstr(error.message, cases[i].expected))
            fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(got.id, 1);
    }
}

#define ATTRS "{'type': 'forward', 'id': 5, 'op': 'x', 'in': [], 'attrs': {"

static void attributes_are_held_to_their_limits(void **state) {
    static const struct wrong cases[] = {
        {RUN("'in': [], 'attrs': {'a': null}"), "attrs.a: a number, boolean", 0},
        {RUN("'in': [], 'attrs': {'a': {}}"), "attrs.a: a number, boolean", 0},
        {RUN("'in': [], 'attrs': {'a': ['s']}"), "attrs.a: an integer is expected", 0},
        {RUN("'in': [], 'attrs': {'a': [[1]]}"), "attrs.a: an integer is expected", 0},
        {RUN("'in': [], 'attrs': {'a': '@u64'}"), "attrs.a: the integer", 0},
        {RUN("'in': [], 'attrs': {'a\\n': '@bin'}"), "attrs.a\\x0a: a number", 0},
        {RUN("'in': [], 'attrs': []"), "attrs: a map is expected", 0},
    };
    (void)state;
    REFUSE(cases);
    begin(ATTRS);
    for (int i = 0; i <= XOP_MAX_ATTRS; i++)
        add("%s'a%d': 1", i ? ", " : "", i);
    add("}}");
    refused(&(struct wrong){header, "attrs: it has 25 attributes: 24 are allowed", 0}, 1);
    begin(ATTRS "'a': [");
    for (int i = 0; i < XOP_MAX_ATTR_LIST; i++)
        add("%d, ", i);
    add("7]}}");
    refused(&(struct wrong){header, "attrs.a: it has 65 elements: 64 are allowed", 0}, 1);
    begin(ATTRS "'");
    add_letters(XOP_MAX_NAME + 1);
    add("': 1}}");
    refused(&(struct wrong){header, "attrs: it has 64 bytes: 63 are allowed", 0}, 1);
    begin(ATTRS "'a': '");
    add_letters(XOP_MAX_ATTR_STRING + 1);
    add("'}}");
    refused(&(struct wrong){header, "attrs.a: it has 1025 bytes: 1024 are allowed", 0}, 1);
    accepted(RUN("'in': [], 'attrs': {'a': [1, 0.5], 'b': [], 'c': '@nan'}"), 0);
    assert_int_equal(got.attrs[0].type, XOP_ATTR_FLOATS);
    assert_true(got.attrs[0].value.floats[0] == 1.0 && got.attrs[0].value.floats[1] == 0.5);
    assert_true(got.attrs[1].type == XOP_ATTR_INTS && got.attrs[1].count == 0);
    assert_true(isnan(got.attrs[2].value.f));
}

static void a_map_has_no_more_keys_than_are_allowed(void **state) {
    (void)state;
    for (int keys = 64; keys <= 65; keys++) {
        begin("{'type': 'ping', 'id': 1");
        for (int i = 2; i < keys; i++)
            add(", 'k%d': 0", i);
        add("}");
        if (keys == 64)
            accepted(header, 0);
    }
    refused(&(struct wrong){header, "header: it has 65 keys: 64 are allowed", 0}, 1);
}

/* ---- Tensors ---- */

static void tensors_that_are_none_are_refused(void **state) {
    static const struct wrong cases[] = {
        {INPUT("7"), "in[0]: a map that describes a tensor is expected, an integer came", 0},
        {INPUT("false"), "in[0]: a map", 0},
        {INPUT("{}"), "in[0]: dtype and shape are both needed", 0},
        {INPUT("{'dtype': 'f32'}"), "in[0]: dtype and shape", 0},
        {INPUT("{'shape': [2]}"), "in[0]: dtype and shape", 0},
        {INPUT("{'memory': 1}"), "in[0]: dtype and shape", 0},
        {INPUT("{'dtype': 'f\\n128', 'shape': []}"),
         "in[0].dtype: \"f\\x0a128\" is no dtype: f16, bf16, f32, f64, i32, i64 and bool are", 0},
        {INPUT("{'dtype': 'none', 'shape': []}"), "\"none\" is no dtype", 0},
        {INPUT("{'dtype': 3, 'shape': []}"), "in[0].dtype: a string is expected", 0},
        {INPUT("{'dtype': 'f32', 'shape': 3}"), "in[0].shape: an array", 0},
        {INPUT("{'dtype': 'f32', 'shape': [1,1,1,1,1,1,1,1,1]}"), "9 dimensions: 8 are", 0},
        {INPUT("{'dtype': 'f32', 'shape': [2, -1]}"), "in[0].shape: dimension 1 is -1", 0},
        {INPUT("{'dtype': 'f32', 'shape': [2.0]}"), "in[0].shape: an integer is expected", 0},
        {INPUT("{'dtype': 'f32', 'shape': ['@nan']}"), "in[0].shape: an integer is expected", 0},
        {INPUT("{'dtype': 'f32', 'shape': ['@u64']}"), "in[0].shape: the integer", 0},
        {INPUT("{'dtype': 'f32', 'shape': [4294967296, 4294967296]}"), "in[0].shape: its dtype", 0},
        {INPUT("{'dtype': 'f64', 'shape': [1152921504606846976]}"), "in[0].shape: its dtype", 0},
        {INPUT("{'dtype': 'f32', 'shape': [1], 'access': 'x'}"), "in[0].access: \"r\", \"w\"", 4},
        {INPUT("{'dtype': 'f32', 'shape': [1], 'access': 1}"), "in[0].access: a string", 4},
        {INPUT("{'dtype': 'f32', 'shape': [1], 'body': 0, 'resident': 1}"), "one place", 4},
        {INPUT("{'dtype': 'f32', 'shape': [1], 'body': 0, 'offset': 0}"), "offset belongs", 4},
        {INPUT("{'dtype': 'f32', 'shape': [1], 'offset': 0}"), "offset belongs", 0},
        {INPUT("{'dtype': 'f32', 'shape': [1], 'body': -64}"), "in[0].body: an integer", 4},
        {INPUT("{'dtype': 'f32', 'shape': [1], 'memory': 0}"), "in[0].memory: it cannot be 0", 0},
        {INPUT("{'resident': 0}"), "in[0].resident: it cannot be 0", 0},
        {INPUT("{'dtype': 'f32', 'shape': [1], 'memory': 1, 'offset': 32}"),
         "in[0].offset: 32 is not a multiple of 64", 0},
        {INPUT("{'dtype': 'f32', 'shape': [16], 'memory': 1, 'offset': '@aligned'}"),
         "in[0].offset: no memory holds 64 bytes at", 0},
        {INPUT("{'dtype': 'f64', 'shape': [1], 'resident': 1, 'offset': 4}"),
         "in[0].offset: 4 is not a multiple of 8", 0},
        {RUN("'in': [], 'out': [7]"), "out[0]: a map", 0},
        {RUN("'in': [], 'out': [true]"), "out[0]: a map", 0},
        {RUN("'in': [], 'out': [null, {'dtype': 'f32'}]"), "out[1]: dtype and shape", 0},
        {RUN("'in': [], 'out': [{'dtype': 'f32', 'shape': [0], 'body': 0}]"),
         "out[0]: an output cannot be in the body", 0},
        {RUN("'in': 0"), "in: an array of tensors is expected", 0},
        {RUN("'in': [null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,"
             "null,null]"),
         "in: it has 17 tensors: 16 are allowed", 0},
        {RUN("'in': [], 'out': [null,null,null,null,null,null,null,null,null,null,null,null,null,"
             "null,null,null,null]"),
         "out: it has 17 tensors: 16 are allowed", 0},
        {"{'type': 'result', 'id': 1, 'out': [null]}", "out[0]: a map", 0},
        {"{'type': 'result', 'id': 1, 'out': [{}]}", "out[0]: dtype and shape", 0},
    };
    (void)state;
    REFUSE(cases);
}

static void places_are_told_apart(void **state) {
    (void)state;
    accepted(
        RUN("'in': [null, {'dtype': 'i64', 'shape': [0, 9223372036854775807]}, {'resident': 9},"
            " {'dtype': 'bf16', 'shape': [3], 'memory': 8, 'offset': 64, 'access': 'r'}],"
            " 'out': [null, false, {}, {'access': 'w'}, {'resident': 9, 'access': 'rw'}]"),
        0);
    assert_int_equal(got.nin, 4);
    assert_int_equal(got.in[0].place, PLACE_OMIT);
    assert_true(got.in[1].place == PLACE_NONE && got.in[1].rank == 2);
    assert_true(got.in[2].place == PLACE_RESIDENT && got.in[2].dtype == XOP_DTYPE_NONE);
    assert_true(got.in[3].place == PLACE_MEMORY && got.in[3].id == 8 && got.in[3].offset == 64);
    assert_int_equal(got.in[3].access, ACCESS_READ);
    assert_int_equal(got.out[0].place, PLACE_NONE);
    assert_int_equal(got.out[1].place, PLACE_OMIT);
    assert_int_equal(got.out[2].place, PLACE_NONE);
    assert_true(got.out[3].place == PLACE_NONE && got.out[3].access == ACCESS_WRITE);
    assert_true(got.out[4].place == PLACE_RESIDENT && got.out[4].access == ACCESS_READ_WRITE);
}

/* ---- Bodies ---- */

#define PUT(rest) "{'type': 'put', 'id': 1, 'handle': 2, " rest "}"
#define VECTOR "{'dtype': 'f32', 'shape': [4]}"
#define EXPORT(rest) "{'type': 'export', 'id': 1, 'handle': 2, " rest "}"
#define GET(rest) "{'type': 'get', 'id': 1, 'handle': 2, 'length': 4, " rest "}"
#define AT(shape, offset) "{'dtype': 'f32', 'shape': [" shape "], 'body': " offset "}"

static void a_body_is_what_the_header_says(void **state) {
    static const struct wrong cases[] = {
        {"{'type': 'ping', 'id': 1}", "body: it has 1 bytes, but its tensors end at byte 0", 1},
        {"{'type': 'hello', 'version_min': 1, 'version_max': 1}", "body: it has 8 bytes", 8},
        {RUN("'in': []"), "body: it has 64 bytes", 64},
        {INPUT("{'resident': 3}"), "body: it has 4 bytes", 4},
        {PUT("'in': []"), "in: it has 0 tensors: \"put\" has one", 0},
        {PUT("'in': [null]"), "in[0]: a map", 0},
        {PUT("'in': [{}]"), "in[0]: dtype and shape", 0},
        {PUT("'in': [" VECTOR ", " VECTOR "]"), "in: it has 2 tensors", 16},
        {PUT("'in': [" AT("4", "0") "]"), "in[0]: its bytes are the body", 16},
        {PUT("'in': [{'dtype': 'f32', 'shape': [4], 'resident': 2}]"), "no other place", 16},
        {PUT("'in': [{'dtype': 'f32', 'shape': [4], 'memory': 2}]"), "is in memory", 16},
        {PUT("'in': [{'dtype': 'f32', 'shape': [4], 'memory': 2}], 'offset': 4"), "whole", 0},
        {PUT("'in': [" VECTOR "]"), "ends behind the tensor", 20},
        {PUT("'in': [" VECTOR "], 'offset': 8"), "ends behind the tensor", 12},
        {PUT("'in': [" VECTOR "], 'offset': 2"), "whole elements", 4},
        {PUT("'in': [" VECTOR "]"), "whole elements", 6},
        {EXPORT("'in': []"), "in: it has 0 tensors: \"export\" has one", 0},
        {EXPORT("'in': [{'dtype': 'f32', 'shape': [4], 'resident': 2}]"), "no place here", 0},
        {EXPORT("'in': [" VECTOR "]"), "body: it has 16 bytes", 16},
        {GET("'out': [null]"), "out[0]: a map", 0},
        {GET("'out': [false]"), "out[0]: a map", 0},
        {GET("'out': [{}]"), "out[0]: memory is needed", 0},
        {GET("'out': [{'memory': 1}, {'memory': 1}]"), "out: it has 2 tensors", 0},
        {GET("'out': [{'memory': 1}]"), "body: it has 8 bytes", 8},
        {PUT("'in': [" VECTOR "], 'offset': '@u64'"), "ends behind the tensor", 4},
        {"{'type': 'result', 'id': 1, 'status': 3, 'error': 'e'}", "a request that failed", 1},
        {"{'type': 'result', 'id': 1, 'media': 'm', 'out': [" AT("1", "0") "]}", "media:", 4},
        {"{'type': 'result', 'id': 1, 'out': [" AT("1", "0") "]}", "out[0].body", 3},
        {"{'type': 'result', 'id': 1, 'out': [false]}", "body: it has 4 bytes", 4},
        {"{'type': 'generation', 'generation': 2}", "body: it has 4 bytes", 4},
    };
    (void)state;
    REFUSE(cases);
    accepted(PUT("'in': [" VECTOR "]"), 16);
    accepted(PUT("'in': [" VECTOR "], 'offset': 8"), 8);
    accepted(PUT("'in': [{'dtype': 'f32', 'shape': [4], 'memory': 2, 'offset': 64}]"), 0);
    accepted(EXPORT("'in': [" VECTOR "]"), 0);
    accepted(GET("'out': [{'memory': 1, 'offset': 128}]"), 0);
    accepted(GET("'offset': 4"), 0);
    accepted("{'type': 'result', 'id': 1, 'media': 'application/json'}", 2);
    accepted("{'type': 'result', 'id': 1}", 12);
    accepted("{'type': 'result', 'id': 1, 'status': 5, 'error': 'e'}", 0);
}

static void ranges_in_a_body_cover_it_and_do_not_overlap(void **state) {
    static const struct wrong cases[] = {
        {INPUT(AT("16", "0") ", " AT("16", "0")), "in[1].body: the tensor overlaps", 64},
        {INPUT(AT("17", "0") ", " AT("16", "64")), "in[1].body: the tensor overlaps", 128},
        /* An empty tensor between the two in order hides nothing. */
        {INPUT(AT("17", "0") ", " AT("0", "64") ", " AT("16", "64")), "in[2].body", 128},
        {INPUT(AT("16", "64") ", " AT("0", "0") ", " AT("17", "0")), "in[0].body", 128},
        {INPUT(AT("16", "0") ", " AT("1", "128")), "in[1].body: the body has a gap", 132},
        {INPUT(AT("1", "64")), "in[0].body: the body has a gap before the tensor, from byte 0", 68},
        {INPUT(AT("16", "0") ", " AT("0", "64") ", " AT("1", "128")), "gap", 132},
        {INPUT(AT("16", "0") ", " AT("0", "128")), "in[1].body: the tensor has 0 bytes at 128", 64},
        {INPUT(AT("0", "4")), "in[0].body: 4 is not a multiple of 64", 4},
        {INPUT(AT("16", "'@aligned'")), "in[0].body: the tensor has 64 bytes at", 64},
        {INPUT(AT("0", "0")), "body: it has 64 bytes, but its tensors end at byte 0", 64},
        {INPUT(AT("16", "0")), "body: it has 65 bytes, but its tensors end at byte 64", 65},
        {INPUT(AT("17", "0")), "in[0].body: the tensor has 68 bytes at 0, the body has 67", 67},
    };
    (void)state;
    REFUSE(cases);
    accepted(INPUT(AT("16", "64") ", " AT("16", "0")), 128);
    accepted(INPUT(AT("1", "64") ", " AT("1", "0") ", " AT("0", "64") ", " AT("0", "0")), 68);
    accepted(INPUT(AT("0", "0")), 0);
}

static void clients_send_requests_and_hello(void **state) {
    (void)state;
    for (unsigned type = 0; type <= MESSAGE_TYPES; type++)
        assert_int_equal(message_from_client((enum message_type)type),
                         type >= MESSAGE_HELLO && type <= MESSAGE_PROBE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_is_required_is_missed_by_name),
        cmocka_unit_test(what_could_be_read_of_a_refused_header_is_kept),
        cmocka_unit_test(values_outside_their_range_are_refused),
        cmocka_unit_test(a_key_given_twice_is_refused_at_every_level),
        cmocka_unit_test(attributes_are_held_to_their_limits),
        cmocka_unit_test(a_map_has_no_more_keys_than_are_allowed),
        cmocka_unit_test(tensors_that_are_none_are_refused),
        cmocka_unit_test(places_are_told_apart),
        cmocka_unit_test(a_body_is_what_the_header_says),
        cmocka_unit_test(ranges_in_a_body_cover_it_and_do_not_overlap),
        cmocka_unit_test(clients_send_requests_and_hello),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
