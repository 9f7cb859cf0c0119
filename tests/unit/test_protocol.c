/* docs/protocol.md: its example is what the encoder makes, and it names every key, type,
 * status and limit. */
#include "proto/frame.h"
#include "proto/message_decoding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *document;

static int setup(void **state) {
    FILE *file = fopen("docs/protocol.md", "r");
    (void)state;
    if (!file)
        return -1;
    document = calloc(1, 1 << 20);
    size_t n = fread(document, 1, (1 << 20) - 1, file);
    fclose(file);
    return n > 0 ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    free(document);
    return 0;
}

/* Lines of 16 bytes in hexadecimal, indented as code. */
static void dump(const unsigned char *bytes, size_t n, char *out, size_t capacity) {
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%02x%s", i % 16 ? " " : "    ",
                                 bytes[i], i % 16 == 15 || i + 1 == n ? "\n" : "");
}

static void expect_dump(const char *what, const unsigned char *bytes, size_t n) {
    char text[4096];
    dump(bytes, n, text, sizeof text);
    if (!strstr(document, text))
        fail_msg("docs/protocol.md lacks the bytes of %s:\n%s", what, text);
}

static void its_example_is_what_the_encoder_makes(void **state) {
    static const float numbers[17] = {1, 2, [16] = 10};
    unsigned char bytes[1024];
    struct message hello = {.type = MESSAGE_HELLO,
                            .device = -1,
                            .version_min = 1,
                            .version_max = 1,
                            .agent = "mine 0.1"};
    struct message m = {
        .type = MESSAGE_FORWARD, .id = 1, .op = "square_bias", .device = -1, .nin = 2};
    (void)state;
    expect_dump("hello", bytes, message_encode(&hello, 0, bytes, sizeof bytes));
    m.in[0] = (struct message_tensor){XOP_F32, 1, {2}, PLACE_BODY, ACCESS_DEFAULT, 0, 0};
    m.in[1] = (struct message_tensor){XOP_F32, 1, {1}, PLACE_BODY, ACCESS_DEFAULT, 0, 64};
    size_t n = message_encode(&m, sizeof numbers, bytes, sizeof bytes);
    memcpy(bytes + n, numbers, sizeof numbers);
    expect_dump("forward", bytes, n + sizeof numbers);
    static const float result[2] = {11, 14};
    m = (struct message){.type = MESSAGE_RESULT, .id = 1, .device = -1, .nout = 1, .batch = 1};
    m.queue_ns = 9000;
    m.run_ns = 800;
    m.started = true;
    m.out[0] = (struct message_tensor){XOP_F32, 1, {2}, PLACE_BODY, ACCESS_DEFAULT, 0, 0};
    n = message_encode(&m, sizeof result, bytes, sizeof bytes);
    memcpy(bytes + n, result, sizeof result);
    expect_dump("result", bytes, n + sizeof result);
}

static void it_names_every_key_type_and_status(void **state) {
    (void)state;
    for (uint32_t k = 0; k < message_nkeys; k++)
        if (!strstr(document, message_keys[k].name))
            fail_msg("the key %s is missing", message_keys[k].name);
    for (unsigned type = 1; type < MESSAGE_TYPES; type++)
        if (!strstr(document, message_type_name((enum message_type)type)))
            fail_msg("the type %s is missing", message_type_name((enum message_type)type));
    for (unsigned status = 0; status <= 64; status++)
        if (xop_status_known(status)) {
            char row[64];
            snprintf(row, sizeof row, "| %u | %s |", status,
                     xop_status_name((enum xop_status)status));
            if (!strstr(document, row))
                fail_msg("the row %s is missing", row);
        }
}

static void it_states_every_limit(void **state) {
    static const struct {
        const char *what;
        unsigned long long limit;
    } limits[] = {
        {"bytes of a header", PROTO_MAX_HEADER},
        {"maps and arrays inside each other, with the header itself", PROTO_MAX_DEPTH},
        {"values in a header, keys included", MESSAGE_MAX_OBJECTS},
        {"keys of one map", MESSAGE_MAX_KEYS},
        {"bytes of a body", PROTO_MAX_BODY},
        {"inputs", XOP_MAX_INPUTS},
        {"outputs", XOP_MAX_OUTPUTS},
        {"dimensions", XOP_MAX_RANK},
        {"attributes", XOP_MAX_ATTRS},
        {"bytes of an operator's or attribute's name", XOP_MAX_NAME},
        {"bytes of an attribute that is a string", XOP_MAX_ATTR_STRING},
        {"elements of an attribute that is an array", XOP_MAX_ATTR_LIST},
        {"bytes of a token", PROTO_MAX_TOKEN},
        {"bytes of an agent", PROTO_MAX_AGENT},
        {"bytes of an error's sentence", PROTO_MAX_MESSAGE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char row[128];
        snprintf(row, sizeof row, "\n| %s | %llu |\n", limits[i].what, limits[i].limit);
        if (!strstr(document, row))
            fail_msg("docs/protocol.md lacks the row %s", row);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_example_is_what_the_encoder_makes),
        cmocka_unit_test(it_names_every_key_type_and_status),
        cmocka_unit_test(it_states_every_limit),
    };
    (void)argc, (void)argv;
    return cmocka_run_group_tests(tests, setup, teardown);
}
