#include "message_table.h"

#include <string.h>

static const struct {
    const char *name;
    bool from_client; /* a server may send hello and the rest */
} types[MESSAGE_TYPES] = {
    [MESSAGE_HELLO] = {"hello", true},       [MESSAGE_FORWARD] = {"forward", true},
    [MESSAGE_BACKWARD] = {"backward", true}, [MESSAGE_PUT] = {"put", true},
    [MESSAGE_GET] = {"get", true},           [MESSAGE_FREE] = {"free", true},
    [MESSAGE_CANCEL] = {"cancel", true},     [MESSAGE_DESCRIBE] = {"describe", true},
    [MESSAGE_STATS] = {"stats", true},       [MESSAGE_PING] = {"ping", true},
    [MESSAGE_ATTACH] = {"attach", true},     [MESSAGE_DETACH] = {"detach", true},
    [MESSAGE_DEFINE] = {"define", true},     [MESSAGE_LOAD] = {"load", true},
    [MESSAGE_DRAIN] = {"drain", true},       [MESSAGE_RELOAD] = {"reload", true},
    [MESSAGE_EXPORT] = {"export", true},     [MESSAGE_PROBE] = {"probe", true},
    [MESSAGE_RESULT] = {"result", false},    [MESSAGE_ERROR] = {"error", false},
    [MESSAGE_GOAWAY] = {"goaway", false},    [MESSAGE_GENERATION] = {"generation", false},
};

const char *message_type_name(enum message_type type) {
    return (unsigned)type < MESSAGE_TYPES ? types[type].name : NULL;
}

bool message_from_client(enum message_type type) {
    return (unsigned)type < MESSAGE_TYPES && types[type].from_client;
}

enum message_type message_type_named(const char *name, size_t length) {
    for (unsigned type = 1; type < MESSAGE_TYPES; type++)
        if (strlen(types[type].name) == length && memcmp(types[type].name, name, length) == 0)
            return (enum message_type)type;
    return MESSAGE_NONE;
}

#define AT(member) offsetof(struct message, member)
#define HELLO MESSAGE_BIT(MESSAGE_HELLO)
#define RUNS (MESSAGE_BIT(MESSAGE_FORWARD) | MESSAGE_BIT(MESSAGE_BACKWARD))
#define PUT MESSAGE_BIT(MESSAGE_PUT)
#define GET MESSAGE_BIT(MESSAGE_GET)
#define FREE MESSAGE_BIT(MESSAGE_FREE)
#define EXPORT MESSAGE_BIT(MESSAGE_EXPORT)
#define PROBE MESSAGE_BIT(MESSAGE_PROBE)
#define MEMORY (MESSAGE_BIT(MESSAGE_ATTACH) | MESSAGE_BIT(MESSAGE_DETACH))
#define RESULT MESSAGE_BIT(MESSAGE_RESULT)
#define ERROR MESSAGE_BIT(MESSAGE_ERROR)
#define GOAWAY MESSAGE_BIT(MESSAGE_GOAWAY)
#define GENERATION MESSAGE_BIT(MESSAGE_GENERATION)
/* Every type that is a request, and the result: what carries an id. */
#define WITH_ID ((MESSAGE_BIT(MESSAGE_RESULT + 1) - 1) & ~(MESSAGE_BIT(MESSAGE_HELLO + 1) - 1))

const struct message_key message_keys[] = {
    {"id", KIND_U64, AT(id), WITH_ID, WITH_ID, 1, 0},
    {"version_min", KIND_U64, AT(version_min), HELLO, HELLO, 0, 0},
    {"version_max", KIND_U64, AT(version_max), HELLO, HELLO, 0, 0},
    {"agent", KIND_STRING, AT(agent), HELLO, 0, 0, PROTO_MAX_AGENT},
    {"token", KIND_STRING, AT(token), HELLO, 0, 0, PROTO_MAX_TOKEN},
    {"max_body", KIND_U64, AT(max_body), HELLO, 0, 0, 0},
    {"max_in_flight", KIND_U64, AT(max_in_flight), HELLO, 0, 0, 0},
    {"generation", KIND_U64, AT(generation), HELLO | GENERATION, GENERATION, 0, 0},
    {"op", KIND_STRING, AT(op), RUNS | MESSAGE_BIT(MESSAGE_DESCRIBE), RUNS, 0, XOP_MAX_NAME},
    {"in", KIND_INPUTS, AT(in), RUNS | PUT | EXPORT, RUNS | PUT | EXPORT, 0, 0},
    {"out", KIND_OUTPUTS, AT(out), RUNS | GET | RESULT, 0, 0, 0},
    {"attrs", KIND_ATTRS, AT(attrs), RUNS, 0, 0, 0},
    {"keep", KIND_U64, AT(keep), MESSAGE_BIT(MESSAGE_FORWARD), 0, 1, 0},
    {"context", KIND_U64, AT(context), MESSAGE_BIT(MESSAGE_BACKWARD), 0, 1, 0},
    {"handle", KIND_U64, AT(handle), PUT | GET | FREE | EXPORT, PUT | GET | FREE | EXPORT, 1, 0},
    {"memory", KIND_U64, AT(handle), MEMORY, MEMORY, 1, 0},
    {"offset", KIND_U64, AT(offset), PUT | GET, 0, 0, 0},
    {"length", KIND_U64, AT(length), GET | RESULT | MESSAGE_BIT(MESSAGE_ATTACH),
     GET | MESSAGE_BIT(MESSAGE_ATTACH), 0, 0},
    {"bytes_in", KIND_U64, AT(bytes_in), PROBE, PROBE, 0, 0},
    {"bytes_out", KIND_U64, AT(bytes_out), PROBE, PROBE, 0, 0},
    {"target", KIND_U64, AT(target), MESSAGE_BIT(MESSAGE_CANCEL), MESSAGE_BIT(MESSAGE_CANCEL), 1,
     0},
    {"deadline_ms", KIND_U64, AT(deadline_ms), RUNS | PUT | GET, 0, 0, 0},
    {"priority", KIND_I32, AT(priority), RUNS, 0, -8, 7},
    {"device", KIND_I32, AT(device), RUNS | PUT | EXPORT, 0, -1, 1023},
    {"check", KIND_BOOL, AT(check), RUNS, 0, 0, 0},
    {"write", KIND_BOOL, AT(write), MESSAGE_BIT(MESSAGE_ATTACH), 0, 0, 0},
    {"text", KIND_STRING, AT(text), MESSAGE_BIT(MESSAGE_DEFINE) | MESSAGE_BIT(MESSAGE_LOAD),
     MESSAGE_BIT(MESSAGE_DEFINE) | MESSAGE_BIT(MESSAGE_LOAD), 0, PROTO_MAX_HEADER},
    {"status", KIND_STATUS, AT(status), RESULT | ERROR, ERROR, 0, 0},
    {"error", KIND_STRING, AT(error), RESULT | ERROR | GOAWAY, ERROR, 0, PROTO_MAX_MESSAGE},
    {"started", KIND_BOOL, AT(started), RESULT, 0, 0, 0},
    {"queue_ns", KIND_U64, AT(queue_ns), RESULT, 0, 0, 0},
    {"copy_ns", KIND_U64, AT(copy_ns), RESULT, 0, 0, 0},
    {"run_ns", KIND_U64, AT(run_ns), RESULT, 0, 0, 0},
    {"batch", KIND_U32, AT(batch), RESULT, 0, 0, 0},
    {"media", KIND_STRING, AT(media), RESULT, 0, 0, MESSAGE_MAX_MEDIA},
};
const uint32_t message_nkeys = sizeof message_keys / sizeof *message_keys;
_Static_assert(sizeof message_keys / sizeof *message_keys < 63, "a header's keys are bits of 64");

const char *const message_access_names[4] = {"", "r", "w", "rw"};
