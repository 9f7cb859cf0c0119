#include "message_decoding.h"

#include <string.h>

/* ---- Messages about what is wrong ---- */

static const char *kind_of(const msgpack_object *o) {
    switch (o->type) {
    case MSGPACK_OBJECT_NIL: return "nil";
    case MSGPACK_OBJECT_BOOLEAN: return "a boolean";
    case MSGPACK_OBJECT_POSITIVE_INTEGER: return "an integer";
    case MSGPACK_OBJECT_NEGATIVE_INTEGER: return "a negative integer";
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64: return "a float";
    case MSGPACK_OBJECT_STR: return "a string";
    case MSGPACK_OBJECT_ARRAY: return "an array";
    case MSGPACK_OBJECT_MAP: return "a map";
    case MSGPACK_OBJECT_BIN: return "binary data";
    case MSGPACK_OBJECT_EXT: return "an extension";
    }
    return "something else";
}

/* Names of attributes are the client's own words, so that what is not plain text is escaped. */
static char *place(char *buffer, size_t capacity, struct message_where where) {
    char index[16] = "", member[96] = "";
    if (where.index >= 0)
        snprintf(index, sizeof index, "[%d]", where.index);
    if (where.member)
        message_quote(member, sizeof member, where.member, strlen(where.member));
    snprintf(buffer, capacity, "%s%s%s%s", where.key, index, where.member ? "." : "", member);
    return buffer;
}

bool message_expected(struct message_decoding *d, struct message_where where, const char *what,
                      const msgpack_object *came) {
    char at[160];
    if (!d->error)
        return false;
    xop_fail(d->error, XOP_INVALID_ARGUMENT, "%s: %s is expected, %s came",
             place(at, sizeof at, where), what, kind_of(came));
    return false;
}

bool message_wrong(struct message_decoding *d, struct message_where where, const char *format,
                   ...) {
    char at[160], text[256];
    va_list args;
    if (!d->error)
        return false;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    xop_fail(d->error, XOP_INVALID_ARGUMENT, "%s: %s", place(at, sizeof at, where), text);
    return false;
}

/* ---- Keys ---- */

bool message_is_key(const msgpack_object *key, const char *name) {
    return key->via.str.size == strlen(name) &&
           memcmp(key->via.str.ptr, name, key->via.str.size) == 0;
}

static bool same_text(const msgpack_object *a, const msgpack_object *b) {
    return a->via.str.size == b->via.str.size &&
           (a->via.str.size == 0 || memcmp(a->via.str.ptr, b->via.str.ptr, a->via.str.size) == 0);
}

bool message_check_map(struct message_decoding *d, struct message_where where,
                       const msgpack_object_map *map) {
    char quoted[80];
    if (map->size > MESSAGE_MAX_KEYS)
        return message_wrong(d, where, "it has %u keys: %d are allowed", map->size,
                             MESSAGE_MAX_KEYS);
    for (uint32_t i = 0; i < map->size; i++)
        for (uint32_t k = 0; k < i; k++)
            if (same_text(&map->ptr[i].key, &map->ptr[k].key))
                return message_wrong(d, where, "the key \"%s\" is given twice",
                                     message_quote(quoted, sizeof quoted,
                                                   map->ptr[i].key.via.str.ptr,
                                                   map->ptr[i].key.via.str.size));
    return true;
}

/* ---- Scalars ---- */

bool message_get_u64(struct message_decoding *d, struct message_where where,
                     const msgpack_object *o, uint64_t *out) {
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return message_expected(d, where, "an integer that is not negative", o);
    *out = o->via.u64;
    return true;
}

bool message_get_i64(struct message_decoding *d, struct message_where where,
                     const msgpack_object *o, int64_t *out) {
    if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        *out = o->via.i64;
        return true;
    }
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return message_expected(d, where, "an integer", o);
    if (o->via.u64 > INT64_MAX)
        return message_wrong(d, where, "the integer %llu is too large",
                             (unsigned long long)o->via.u64);
    *out = (int64_t)o->via.u64;
    return true;
}

bool message_get_string(struct message_decoding *d, struct message_where where,
                        const msgpack_object *o, int64_t max, const char **out, uint32_t *length) {
    struct message_decoder *decoder = d->decoder;
    if (o->type != MSGPACK_OBJECT_STR)
        return message_expected(d, where, "a string", o);
    if (o->via.str.size > (uint64_t)max)
        return message_wrong(d, where, "it has %u bytes: %lld are allowed", o->via.str.size,
                             (long long)max);
    if (o->via.str.size >= sizeof decoder->strings - decoder->used)
        return message_wrong(d, where, "the header holds too much text");
    char *copy = decoder->strings + decoder->used;
    if (o->via.str.size > 0) /* an empty one need not be anywhere */
        memcpy(copy, o->via.str.ptr, o->via.str.size);
    copy[o->via.str.size] = 0;
    decoder->used += (size_t)o->via.str.size + 1;
    *out = copy;
    if (length)
        *length = o->via.str.size;
    return true;
}

/* ---- Attributes ---- */

static bool is_float(const msgpack_object *o) {
    return o->type == MSGPACK_OBJECT_FLOAT32 || o->type == MSGPACK_OBJECT_FLOAT64;
}

/* A list is of integers where all its elements are, else of floats. */
static bool get_list(struct message_decoding *d, struct message_where where,
                     const msgpack_object *o, struct xop_attr *attr) {
    struct message_decoder *decoder = d->decoder;
    bool floats = false;
    uint32_t n = o->via.array.size;
    if (n > XOP_MAX_ATTR_LIST)
        return message_wrong(d, where, "it has %u elements: %d are allowed", n, XOP_MAX_ATTR_LIST);
    for (uint32_t i = 0; i < n; i++)
        floats |= is_float(&o->via.array.ptr[i]);
    for (uint32_t i = 0; i < n; i++) {
        const msgpack_object *element = &o->via.array.ptr[i];
        int64_t integer = 0;
        if (is_float(element)) {
            decoder->lists[decoder->nlists][i].f = element->via.f64;
            continue;
        }
        if (!message_get_i64(d, where, element, &integer))
            return false;
        if (floats)
            decoder->lists[decoder->nlists][i].f = (double)integer;
        else
            decoder->lists[decoder->nlists][i].i = integer;
    }
    attr->type = floats ? XOP_ATTR_FLOATS : XOP_ATTR_INTS;
    attr->count = n;
    attr->value.ints = &decoder->lists[decoder->nlists++][0].i;
    return true;
}

static bool get_attr(struct message_decoding *d, struct message_where where,
                     const msgpack_object *o, struct xop_attr *attr) {
    attr->count = 1;
    switch (o->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        attr->type = XOP_ATTR_BOOL;
        attr->value.i = o->via.boolean;
        return true;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        attr->type = XOP_ATTR_INT;
        return message_get_i64(d, where, o, &attr->value.i);
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        attr->type = XOP_ATTR_FLOAT;
        attr->value.f = o->via.f64;
        return true;
    case MSGPACK_OBJECT_STR:
        attr->type = XOP_ATTR_STRING;
        return message_get_string(d, where, o, XOP_MAX_ATTR_STRING, &attr->value.string,
                                  &attr->count);
    case MSGPACK_OBJECT_ARRAY: return get_list(d, where, o, attr);
    default: return message_expected(d, where, "a number, boolean, string or list of numbers", o);
    }
}

bool message_get_attrs(struct message_decoding *d, const struct message_key *key,
                       const msgpack_object *o) {
    struct message *m = d->message;
    struct message_where where = {key->name, -1, NULL};
    if (o->type != MSGPACK_OBJECT_MAP)
        return message_expected(d, where, "a map", o);
    if (o->via.map.size > XOP_MAX_ATTRS)
        return message_wrong(d, where, "it has %u attributes: %d are allowed", o->via.map.size,
                             XOP_MAX_ATTRS);
    if (!message_check_map(d, where, &o->via.map))
        return false;
    for (uint32_t i = 0; i < o->via.map.size; i++) {
        struct xop_attr *attr = &m->attrs[i];
        where.member = NULL;
        if (!message_get_string(d, where, &o->via.map.ptr[i].key, XOP_MAX_NAME, &attr->name, NULL))
            return false;
        where.member = attr->name;
        if (!get_attr(d, where, &o->via.map.ptr[i].val, attr))
            return false;
    }
    m->nattrs = o->via.map.size;
    return true;
}
