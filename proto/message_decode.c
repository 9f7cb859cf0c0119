#include "message_table.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

/* Keys of a header at most, known or not: enough for every message, few enough to compare pairwise.
 */
#define MAX_KEYS 64

struct message_decoder {
    msgpack_zone zone;
    /* Copies of strings with their NUL, and of lists. A string of n bytes takes n + 1 bytes of a
     * header at least, and so do 8 bytes of a list's element one: this is never too small. */
    char strings[PROTO_MAX_HEADER + 1];
    size_t used;
    union {
        int64_t i;
        double f;
    } lists[XOP_MAX_ATTRS][XOP_MAX_ATTR_LIST];
    uint32_t nlists;
};

/* Where in a header something is, for messages. */
struct where {
    const char *key;
    int index; /* in an array; -1: none */
    const char *member;
};

struct decoding {
    struct message_decoder *decoder;
    struct message *message;
    struct xop_error *error;
};

struct message_decoder *message_decoder_new(void) {
    struct message_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder && !msgpack_zone_init(&decoder->zone, 16384)) {
        free(decoder);
        decoder = NULL;
    }
    return decoder;
}

void message_decoder_free(struct message_decoder *decoder) {
    if (!decoder)
        return;
    msgpack_zone_destroy(&decoder->zone);
    free(decoder);
}

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

static char *place(char *buffer, size_t capacity, struct where where) {
    char index[16] = "";
    if (where.index >= 0)
        snprintf(index, sizeof index, "[%d]", where.index);
    snprintf(buffer, capacity, "%s%s%s%s", where.key, index, where.member ? "." : "",
             where.member ? where.member : "");
    return buffer;
}

static bool expected(struct decoding *d, struct where where, const char *what,
                     const msgpack_object *came) {
    char at[128];
    xop_fail(d->error, XOP_INVALID_ARGUMENT, "%s: %s is expected, %s came",
             place(at, sizeof at, where), what, kind_of(came));
    return false;
}

static bool wrong(struct decoding *d, struct where where, const char *format, ...) XOP_PRINTF(3, 4);

static bool wrong(struct decoding *d, struct where where, const char *format, ...) {
    char at[128], text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    xop_fail(d->error, XOP_INVALID_ARGUMENT, "%s: %s", place(at, sizeof at, where), text);
    return false;
}

/* ---- Scalars ---- */

static bool get_u64(struct decoding *d, struct where where, const msgpack_object *o,
                    uint64_t *out) {
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return expected(d, where, "an integer that is not negative", o);
    *out = o->via.u64;
    return true;
}

static bool get_i64(struct decoding *d, struct where where, const msgpack_object *o, int64_t *out) {
    if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        *out = o->via.i64;
        return true;
    }
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return expected(d, where, "an integer", o);
    if (o->via.u64 > INT64_MAX)
        return wrong(d, where, "the integer %llu is too large", (unsigned long long)o->via.u64);
    *out = (int64_t)o->via.u64;
    return true;
}

static bool get_string(struct decoding *d, struct where where, const msgpack_object *o, int64_t max,
                       const char **out, uint32_t *length) {
    struct message_decoder *decoder = d->decoder;
    if (o->type != MSGPACK_OBJECT_STR)
        return expected(d, where, "a string", o);
    if (o->via.str.size > (uint64_t)max)
        return wrong(d, where, "it has %u bytes: %lld are allowed", o->via.str.size,
                     (long long)max);
    if (o->via.str.size >= sizeof decoder->strings - decoder->used)
        return wrong(d, where, "the header holds too much text");
    char *copy = decoder->strings + decoder->used;
    memcpy(copy, o->via.str.ptr, o->via.str.size);
    copy[o->via.str.size] = 0;
    decoder->used += (size_t)o->via.str.size + 1;
    *out = copy;
    if (length)
        *length = o->via.str.size;
    return true;
}

static bool is_key(const msgpack_object *key, const char *name) {
    return key->via.str.size == strlen(name) &&
           memcmp(key->via.str.ptr, name, key->via.str.size) == 0;
}

/* ---- Tensors ---- */

static bool get_dtype(struct decoding *d, struct where where, const msgpack_object *o,
                      enum xop_dtype *out) {
    char quoted[64];
    if (o->type != MSGPACK_OBJECT_STR)
        return expected(d, where, "a string", o);
    for (int dtype = 1; dtype < XOP_DTYPE_COUNT; dtype++)
        if (is_key(o, xop_dtype_name((enum xop_dtype)dtype))) {
            *out = (enum xop_dtype)dtype;
            return true;
        }
    return wrong(d, where, "\"%s\" is no dtype: f16, bf16, f32, f64, i32 and i64 are",
                 message_quote(quoted, sizeof quoted, o->via.str.ptr, o->via.str.size));
}

static bool get_shape(struct decoding *d, struct where where, const msgpack_object *o,
                      struct message_tensor *tensor) {
    if (o->type != MSGPACK_OBJECT_ARRAY)
        return expected(d, where, "an array of integers", o);
    if (o->via.array.size > XOP_MAX_RANK)
        return wrong(d, where, "it has %u dimensions: %d are allowed", o->via.array.size,
                     XOP_MAX_RANK);
    tensor->rank = o->via.array.size;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (!get_i64(d, where, &o->via.array.ptr[i], &tensor->shape[i]))
            return false;
        if (tensor->shape[i] < 0)
            return wrong(d, where, "dimension %u is %lld: it cannot be negative", i,
                         (long long)tensor->shape[i]);
    }
    return true;
}

static bool get_access(struct decoding *d, struct where where, const msgpack_object *o,
                       enum message_access *out) {
    static const char *const names[] = {"", "r", "w", "rw"};
    if (o->type != MSGPACK_OBJECT_STR)
        return expected(d, where, "a string", o);
    for (int access = ACCESS_READ; access <= ACCESS_READ_WRITE; access++)
        if (is_key(o, names[access])) {
            *out = (enum message_access)access;
            return true;
        }
    return wrong(d, where, "\"r\", \"w\" or \"rw\" is expected");
}

/* Which places were named, so that a tensor is not in two. */
struct places {
    bool body, memory, resident, offset, dtype, shape;
};

static bool get_member(struct decoding *d, struct where where, const msgpack_object_kv *pair,
                       struct message_tensor *tensor, struct places *places) {
    static const struct {
        const char *name;
        size_t seen;
    } members[] = {
        {"dtype", offsetof(struct places, dtype)},
        {"shape", offsetof(struct places, shape)},
        {"body", offsetof(struct places, body)},
        {"memory", offsetof(struct places, memory)},
        {"resident", offsetof(struct places, resident)},
        {"offset", offsetof(struct places, offset)},
    };
    const msgpack_object *value = &pair->val;
    if (is_key(&pair->key, "access")) {
        where.member = "access";
        return get_access(d, where, value, &tensor->access);
    }
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (!is_key(&pair->key, members[i].name))
            continue;
        bool *seen = (bool *)((char *)places + members[i].seen);
        where.member = members[i].name;
        if (*seen)
            return wrong(d, where, "it is given twice");
        *seen = true;
        switch (i) {
        case 0: return get_dtype(d, where, value, &tensor->dtype);
        case 1: return get_shape(d, where, value, tensor);
        case 2:
        case 5: return get_u64(d, where, value, &tensor->offset);
        default: return get_u64(d, where, value, &tensor->id);
        }
    }
    return true; /* unknown: from a later version */
}

static bool get_tensor(struct decoding *d, struct where where, const msgpack_object *o,
                       struct message_tensor *tensor, bool needs_type) {
    struct places places = {false};
    if (o->type != MSGPACK_OBJECT_MAP)
        return expected(d, where, "a map that describes a tensor", o);
    for (uint32_t i = 0; i < o->via.map.size; i++) {
        if (o->via.map.ptr[i].key.type != MSGPACK_OBJECT_STR)
            return expected(d, where, "a string as key", &o->via.map.ptr[i].key);
        if (!get_member(d, where, &o->via.map.ptr[i], tensor, &places))
            return false;
    }
    if (places.body + places.memory + places.resident > 1)
        return wrong(d, where, "a tensor has one place: body, memory or resident");
    if (places.offset && (places.body || !(places.memory || places.resident)))
        return wrong(d, where, "offset belongs to memory or resident");
    if (places.dtype != places.shape || (needs_type && !places.dtype))
        return wrong(d, where, "dtype and shape are both needed");
    tensor->place = places.body       ? PLACE_BODY
                    : places.memory   ? PLACE_MEMORY
                    : places.resident ? PLACE_RESIDENT
                                      : PLACE_NONE;
    if (tensor->place == PLACE_BODY && !places.dtype)
        return wrong(d, where, "dtype and shape are both needed");
    uint64_t bytes;
    struct xop_error size;
    where.member = "shape";
    if (places.dtype && message_tensor_bytes(tensor, &bytes, &size) != XOP_OK)
        return wrong(d, where, "%s", size.message);
    return true;
}

static bool get_tensors(struct decoding *d, const struct message_key *key,
                        const msgpack_object *o) {
    struct message *m = d->message;
    bool inputs = key->kind == KIND_INPUTS;
    uint32_t max = inputs ? XOP_MAX_INPUTS : XOP_MAX_OUTPUTS;
    struct message_tensor *list = inputs ? m->in : m->out;
    if (o->type != MSGPACK_OBJECT_ARRAY)
        return expected(d, (struct where){key->name, -1, NULL}, "an array of tensors", o);
    if (o->via.array.size > max)
        return wrong(d, (struct where){key->name, -1, NULL}, "it has %u tensors: %u are allowed",
                     o->via.array.size, max);
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        const msgpack_object *element = &o->via.array.ptr[i];
        struct where where = {key->name, (int)i, NULL};
        list[i] = (struct message_tensor){.place = PLACE_NONE};
        if (inputs && element->type == MSGPACK_OBJECT_NIL)
            list[i].place = PLACE_OMIT;
        else if (!inputs && element->type == MSGPACK_OBJECT_BOOLEAN && !element->via.boolean)
            list[i].place = PLACE_OMIT;
        else if ((inputs || element->type != MSGPACK_OBJECT_NIL) &&
                 !get_tensor(d, where, element, &list[i],
                             m->type == MESSAGE_PUT || m->type == MESSAGE_RESULT))
            return false;
    }
    *(inputs ? &m->nin : &m->nout) = o->via.array.size;
    return true;
}

/* ---- Attributes ---- */

static bool is_float(const msgpack_object *o) {
    return o->type == MSGPACK_OBJECT_FLOAT32 || o->type == MSGPACK_OBJECT_FLOAT64;
}

/* A list is of integers where all its elements are, else of floats. */
static bool get_list(struct decoding *d, struct where where, const msgpack_object *o,
                     struct xop_attr *attr) {
    struct message_decoder *decoder = d->decoder;
    bool floats = false;
    uint32_t n = o->via.array.size;
    if (n > XOP_MAX_ATTR_LIST)
        return wrong(d, where, "it has %u elements: %d are allowed", n, XOP_MAX_ATTR_LIST);
    for (uint32_t i = 0; i < n; i++)
        floats |= is_float(&o->via.array.ptr[i]);
    for (uint32_t i = 0; i < n; i++) {
        const msgpack_object *element = &o->via.array.ptr[i];
        int64_t integer = 0;
        if (is_float(element)) {
            decoder->lists[decoder->nlists][i].f = element->via.f64;
            continue;
        }
        if (!get_i64(d, where, element, &integer))
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

static bool get_attr(struct decoding *d, struct where where, const msgpack_object *o,
                     struct xop_attr *attr) {
    attr->count = 1;
    switch (o->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        attr->type = XOP_ATTR_BOOL;
        attr->value.i = o->via.boolean;
        return true;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        attr->type = XOP_ATTR_INT;
        return get_i64(d, where, o, &attr->value.i);
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        attr->type = XOP_ATTR_FLOAT;
        attr->value.f = o->via.f64;
        return true;
    case MSGPACK_OBJECT_STR:
        attr->type = XOP_ATTR_STRING;
        return get_string(d, where, o, XOP_MAX_ATTR_STRING, &attr->value.string, &attr->count);
    case MSGPACK_OBJECT_ARRAY: return get_list(d, where, o, attr);
    default: return expected(d, where, "a number, boolean, string or list of numbers", o);
    }
}

static bool get_attrs(struct decoding *d, const struct message_key *key, const msgpack_object *o) {
    struct message *m = d->message;
    struct where where = {key->name, -1, NULL};
    if (o->type != MSGPACK_OBJECT_MAP)
        return expected(d, where, "a map", o);
    if (o->via.map.size > XOP_MAX_ATTRS)
        return wrong(d, where, "it has %u attributes: %d are allowed", o->via.map.size,
                     XOP_MAX_ATTRS);
    for (uint32_t i = 0; i < o->via.map.size; i++) {
        struct xop_attr *attr = &m->attrs[i];
        where.member = NULL;
        if (!get_string(d, where, &o->via.map.ptr[i].key, XOP_MAX_NAME, &attr->name, NULL))
            return false;
        where.member = attr->name;
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(m->attrs[k].name, attr->name) == 0)
                return wrong(d, where, "it is given twice");
        if (!get_attr(d, where, &o->via.map.ptr[i].val, attr))
            return false;
    }
    m->nattrs = o->via.map.size;
    return true;
}

/* ---- The message ---- */

static bool get_value(struct decoding *d, const struct message_key *key, const msgpack_object *o) {
    struct where where = {key->name, -1, NULL};
    void *member = message_member(d->message, key);
    int64_t integer;
    uint64_t number = 0;
    switch (key->kind) {
    case KIND_U64: return get_u64(d, where, o, member);
    case KIND_STRING: return get_string(d, where, o, key->max, member, NULL);
    case KIND_INPUTS:
    case KIND_OUTPUTS: return get_tensors(d, key, o);
    case KIND_ATTRS: return get_attrs(d, key, o);
    case KIND_BOOL:
        if (o->type != MSGPACK_OBJECT_BOOLEAN)
            return expected(d, where, "a boolean", o);
        *(bool *)member = o->via.boolean;
        return true;
    case KIND_I32:
        if (!get_i64(d, where, o, &integer))
            return false;
        if (integer < key->min || integer > key->max)
            return wrong(d, where, "%lld is outside %lld to %lld", (long long)integer,
                         (long long)key->min, (long long)key->max);
        *(int32_t *)member = (int32_t)integer;
        return true;
    case KIND_U32:
    case KIND_STATUS:
        if (!get_u64(d, where, o, &number))
            return false;
        if (key->kind == KIND_STATUS ? !xop_status_known(number) : number > UINT32_MAX)
            return wrong(d, where, "%llu is not possible", (unsigned long long)number);
        if (key->kind == KIND_STATUS)
            *(enum xop_status *)member = (enum xop_status)number;
        else
            *(uint32_t *)member = (uint32_t)number;
        return true;
    }
    return false;
}

static bool same_text(const msgpack_object *a, const msgpack_object *b) {
    return a->via.str.size == b->via.str.size &&
           memcmp(a->via.str.ptr, b->via.str.ptr, a->via.str.size) == 0;
}

static bool check_keys(struct decoding *d, const msgpack_object_map *map) {
    char quoted[80];
    if (map->size > MAX_KEYS) {
        xop_fail(d->error, XOP_INVALID_ARGUMENT, "header: it has %u keys: %d are allowed",
                 map->size, MAX_KEYS);
        return false;
    }
    for (uint32_t i = 0; i < map->size; i++)
        for (uint32_t k = 0; k < i; k++)
            if (same_text(&map->ptr[i].key, &map->ptr[k].key)) {
                xop_fail(d->error, XOP_INVALID_ARGUMENT, "%s: it is given twice",
                         message_quote(quoted, sizeof quoted, map->ptr[i].key.via.str.ptr,
                                       map->ptr[i].key.via.str.size));
                return false;
            }
    return true;
}

static const msgpack_object *find(const msgpack_object_map *map, const char *name) {
    for (uint32_t i = 0; i < map->size; i++)
        if (is_key(&map->ptr[i].key, name))
            return &map->ptr[i].val;
    return NULL;
}

static bool get_all(struct decoding *d, const msgpack_object_map *map) {
    struct message *m = d->message;
    for (uint32_t k = 0; k < message_nkeys; k++) {
        const struct message_key *key = &message_keys[k];
        if (!(key->used & MESSAGE_BIT(m->type)))
            continue;
        const msgpack_object *value = find(map, key->name);
        if (value && !get_value(d, key, value))
            return false;
        if (!value && key->required & MESSAGE_BIT(m->type)) {
            xop_fail(d->error, XOP_INVALID_ARGUMENT, "%s: it is missing in \"%s\"", key->name,
                     message_type_name(m->type));
            return false;
        }
    }
    if (m->id == 0 && message_keys[0].used & MESSAGE_BIT(m->type)) {
        xop_fail(d->error, XOP_INVALID_ARGUMENT, "id: 0 is no id");
        return false;
    }
    return true;
}

/* ---- The body ---- */

struct span {
    uint64_t begin, bytes;
    uint32_t index;
};

/* Tensors of the body in their order, each checked to lie in it. */
static bool collect(struct decoding *d, const char *key, const struct message_tensor *list,
                    uint32_t n, uint64_t body, struct span *spans, uint32_t *count) {
    *count = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct where where = {key, (int)i, "body"};
        struct span span = {list[i].offset, 0, i};
        struct xop_error ignored;
        if (list[i].place != PLACE_BODY)
            continue;
        message_tensor_bytes(&list[i], &span.bytes, &ignored);
        if (span.begin % PROTO_ALIGNMENT != 0)
            return wrong(d, where, "%llu is not a multiple of %u", (unsigned long long)span.begin,
                         PROTO_ALIGNMENT);
        if (span.begin > body || span.bytes > body - span.begin)
            return wrong(d, where, "the tensor has %llu bytes at %llu, but the body has %llu",
                         (unsigned long long)span.bytes, (unsigned long long)span.begin,
                         (unsigned long long)body);
        if (span.bytes == 0)
            continue;
        uint32_t at = (*count)++;
        for (; at > 0 && spans[at - 1].begin > span.begin; at--)
            spans[at] = spans[at - 1];
        spans[at] = span;
    }
    return true;
}

static bool check_body(struct decoding *d, uint64_t body) {
    const struct message *m = d->message;
    bool result = m->type == MESSAGE_RESULT;
    const char *key = result ? "out" : "in";
    struct span spans[XOP_MAX_INPUTS > XOP_MAX_OUTPUTS ? XOP_MAX_INPUTS : XOP_MAX_OUTPUTS];
    uint32_t n = 0;
    uint64_t end = 0;
    if (!message_has_tensor_body(m))
        return true;
    if (!collect(d, key, result ? m->out : m->in, result ? m->nout : m->nin, body, spans, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct where where = {key, (int)spans[i].index, "body"};
        if (spans[i].begin < end)
            return wrong(d, where, "the tensor overlaps another in the body");
        if (spans[i].begin - end >= PROTO_ALIGNMENT)
            return wrong(d, where, "the body has a gap before the tensor, from byte %llu",
                         (unsigned long long)end);
        end = spans[i].begin + spans[i].bytes;
    }
    if (end != body) {
        xop_fail(d->error, XOP_INVALID_ARGUMENT,
                 "body: it has %llu bytes, but its tensors end at byte %llu",
                 (unsigned long long)body, (unsigned long long)end);
        return false;
    }
    return true;
}

enum xop_status message_decode(struct message_decoder *decoder, const void *header, size_t bytes,
                               uint64_t body_bytes, struct message *message,
                               struct xop_error *error) {
    struct decoding d = {decoder, message, error};
    msgpack_object top;
    size_t offset = 0;
    enum message_type type;
    uint64_t id;
    *message = (struct message){.device = -1};
    enum xop_status status = message_scan(header, bytes, &type, &id, error);
    message->type = type;
    message->id = id;
    if (status != XOP_OK)
        return status;
    msgpack_zone_clear(&decoder->zone);
    decoder->used = 0;
    decoder->nlists = 0;
    if (msgpack_unpack(header, bytes, &offset, &decoder->zone, &top) != MSGPACK_UNPACK_SUCCESS ||
        top.type != MSGPACK_OBJECT_MAP)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "header: it is not well-formed msgpack");
    if (!check_keys(&d, &top.via.map))
        return error->status;
    if (type == MESSAGE_NONE)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        find(&top.via.map, "type") ? "type: it is no type of this protocol"
                                                   : "type: it is missing");
    message->id = 0; /* the table says whether this type has one */
    if (!get_all(&d, &top.via.map) || !check_body(&d, body_bytes)) {
        message->id = id;
        return error->status;
    }
    return XOP_OK;
}
