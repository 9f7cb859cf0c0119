#include "message_table.h"

#include <string.h>

struct scan {
    const unsigned char *at, *end;
    uint32_t objects;
    struct xop_error *error;
    const unsigned char *key; /* of the top map, within whose value `at` is; NULL: none */
    uint64_t key_bytes;
};

/* What a type byte says: how many bytes of length or value follow it, and what it begins. */
enum form { SCALAR, TEXT, BYTES, ARRAY, MAP, WRONG };

struct object {
    enum form form;
    uint64_t count; /* of bytes or elements; the value of an unsigned integer */
    bool is_unsigned;
    const unsigned char *bytes; /* of TEXT */
};

static bool fail(struct scan *scan, const char *what) {
    char quoted[64] = "header";
    if (scan->key)
        message_quote(quoted, sizeof quoted, (const char *)scan->key, scan->key_bytes);
    xop_fail(scan->error, XOP_INVALID_ARGUMENT, "%s: %s", quoted, what);
    return false;
}

static bool take(struct scan *scan, size_t n, uint64_t *value) {
    if ((size_t)(scan->end - scan->at) < n)
        return fail(scan, "it ends within a value");
    *value = 0;
    for (size_t i = 0; i < n; i++)
        *value = *value << 8 | *scan->at++;
    return true;
}

/* Types 0xc0 to 0xdf, in msgpack's order. */
static const struct {
    unsigned char form, length; /* bytes of count, or of a scalar's value */
    bool is_unsigned;
} forms[32] = {
    {SCALAR, 0, false}, {WRONG, 0, false},  {SCALAR, 0, false},
    {SCALAR, 0, false},                                        /* nil .. true */
    {BYTES, 1, false},  {BYTES, 2, false},  {BYTES, 4, false}, /* bin */
    {WRONG, 0, false},  {WRONG, 0, false},  {WRONG, 0, false}, /* ext */
    {SCALAR, 4, false}, {SCALAR, 8, false},                    /* float */
    {SCALAR, 1, true},  {SCALAR, 2, true},  {SCALAR, 4, true},
    {SCALAR, 8, true}, /* uint */
    {SCALAR, 1, false}, {SCALAR, 2, false}, {SCALAR, 4, false},
    {SCALAR, 8, false}, /* int */
    {WRONG, 0, false},  {WRONG, 0, false},  {WRONG, 0, false},
    {WRONG, 0, false}, /* fixext */
    {WRONG, 0, false},  {TEXT, 1, false},   {TEXT, 2, false},
    {TEXT, 4, false}, /* str */
    {ARRAY, 2, false},  {ARRAY, 4, false},  {MAP, 2, false},
    {MAP, 4, false},
};

static bool head(struct scan *scan, struct object *object) {
    uint64_t type = 0;
    *object = (struct object){SCALAR, 0, false, NULL};
    if (!take(scan, 1, &type))
        return false;
    if (type < 0x80 || type >= 0xe0) {
        object->count = type;
        object->is_unsigned = type < 0x80;
    } else if (type < 0x90) {
        object->form = MAP;
        object->count = type & 15;
    } else if (type < 0xa0) {
        object->form = ARRAY;
        object->count = type & 15;
    } else if (type < 0xc0) {
        object->form = TEXT;
        object->count = type & 31;
    } else {
        object->form = (enum form)forms[type - 0xc0].form;
        object->is_unsigned = forms[type - 0xc0].is_unsigned;
        if (object->form == WRONG)
            return fail(scan, "it holds a type that has no place in it");
        if (!take(scan, forms[type - 0xc0].length, &object->count))
            return false;
    }
    if (++scan->objects > MESSAGE_MAX_OBJECTS)
        return fail(scan, "it holds too many values");
    return true;
}

/* Whether what a container or string claims to hold can be in the bytes that are left. */
static bool fits(struct scan *scan, const struct object *object) {
    uint64_t left = (uint64_t)(scan->end - scan->at);
    uint64_t each = object->form == MAP ? 2 : 1;
    if (object->form == SCALAR || object->count <= left / each)
        return true;
    return fail(scan, "it ends within a value");
}

static bool text(struct scan *scan, struct object *object) {
    object->bytes = scan->at;
    scan->at += object->count;
    if (object->form == TEXT && !message_utf8((const char *)object->bytes, object->count))
        return fail(scan, "it holds text that is not UTF-8 or contains NUL");
    return true;
}

static bool key(struct scan *scan, struct object *object) {
    if (!head(scan, object) || !fits(scan, object))
        return false;
    if (object->form != TEXT)
        return fail(scan, "a key is not text");
    return text(scan, object);
}

static bool walk(struct scan *scan, unsigned depth) {
    struct object object, name;
    if (!head(scan, &object) || !fits(scan, &object))
        return false;
    if (object.form == SCALAR)
        return true;
    if (object.form == TEXT || object.form == BYTES)
        return text(scan, &object);
    if (depth >= PROTO_MAX_DEPTH)
        return fail(scan, "maps and arrays inside each other are too deep");
    for (uint64_t i = 0; i < object.count; i++)
        if ((object.form == MAP && !key(scan, &name)) || !walk(scan, depth + 1))
            return false;
    return true;
}

static bool is(const struct object *key, const char *name) {
    return key->count == strlen(name) && memcmp(key->bytes, name, key->count) == 0;
}

/* One key and its value at the top. */
static bool walk_pair(struct scan *scan, enum message_type *type, uint64_t *id) {
    struct object name, value;
    scan->key = NULL;
    if (!key(scan, &name))
        return false;
    scan->key = name.bytes;
    scan->key_bytes = name.count;
    const unsigned char *begin = scan->at;
    uint32_t objects = scan->objects;
    if (!head(scan, &value))
        return false;
    if (is(&name, "id") && value.form == SCALAR && value.is_unsigned)
        *id = value.count;
    if (is(&name, "type") && value.form == TEXT && fits(scan, &value))
        *type = message_type_named((const char *)scan->at, value.count);
    scan->at = begin;
    scan->objects = objects;
    return walk(scan, 1);
}

static bool walk_top(struct scan *scan, enum message_type *type, uint64_t *id) {
    struct object top;
    if (!head(scan, &top))
        return false;
    if (top.form != MAP)
        return fail(scan, "it is not a map");
    if (!fits(scan, &top))
        return false;
    for (uint64_t i = 0; i < top.count; i++)
        if (!walk_pair(scan, type, id))
            return false;
    scan->key = NULL;
    return scan->at == scan->end || fail(scan, "bytes follow its map");
}

enum xop_status message_scan(const unsigned char *bytes, size_t length, enum message_type *type,
                             uint64_t *id, struct xop_error *error) {
    struct scan scan = {bytes, bytes + length, 0, error, NULL, 0};
    *type = MESSAGE_NONE;
    *id = 0;
    return walk_top(&scan, type, id) ? XOP_OK : XOP_INVALID_ARGUMENT;
}
