#include "message_decoding.h"

#include <stdlib.h>
#include <string.h>

struct message_decoder *message_decoder_new(void) {
    struct message_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder || !message_words_fill(&decoder->words) ||
        !msgpack_zone_init(&decoder->zone, MESSAGE_ZONE)) {
        free(decoder);
        return NULL;
    }
    return decoder;
}

void message_decoder_free(struct message_decoder *decoder) {
    if (!decoder)
        return;
    msgpack_zone_destroy(&decoder->zone);
    free(decoder);
}

static bool get_number(struct message_decoding *d, const struct message_key *key,
                       const msgpack_object *o, void *member) {
    struct message_where where = {key->name, -1, NULL};
    uint64_t number = 0;
    if (!message_get_u64(d, where, o, &number))
        return false;
    switch (key->kind) {
    case KIND_U32:
        if (number > UINT32_MAX)
            return message_wrong(d, where, "the integer %llu is too large",
                                 (unsigned long long)number);
        *(uint32_t *)member = (uint32_t)number;
        return true;
    case KIND_STATUS:
        if (!xop_status_known(number))
            return message_wrong(d, where, "%llu is no status", (unsigned long long)number);
        *(enum xop_status *)member = (enum xop_status)number;
        return true;
    default:
        if (number < (uint64_t)key->min)
            return message_wrong(d, where, "it cannot be 0");
        *(uint64_t *)member = number;
        return true;
    }
}

static bool get_value(struct message_decoding *d, const struct message_key *key,
                      const msgpack_object *o) {
    struct message_where where = {key->name, -1, NULL};
    void *member = message_member(d->message, key);
    int64_t integer = 0;
    switch (key->kind) {
    case KIND_U64:
    case KIND_U32:
    case KIND_STATUS: return get_number(d, key, o, member);
    case KIND_STRING: return message_get_string(d, where, o, key->max, member, NULL);
    case KIND_INPUTS:
    case KIND_OUTPUTS: return message_get_tensors(d, key, o);
    case KIND_ATTRS: return message_get_attrs(d, key, o);
    case KIND_BOOL:
        if (o->type != MSGPACK_OBJECT_BOOLEAN)
            return message_expected(d, where, "a boolean", o);
        *(bool *)member = o->via.boolean;
        return true;
    case KIND_I32:
        if (!message_get_i64(d, where, o, &integer))
            return false;
        if (integer < key->min || integer > key->max)
            return message_wrong(d, where, "%lld is outside %lld to %lld", (long long)integer,
                                 (long long)key->min, (long long)key->max);
        *(int32_t *)member = (int32_t)integer;
        return true;
    }
    return false;
}

static const msgpack_object *find(const msgpack_object_map *map, const char *name) {
    for (uint32_t i = 0; i < map->size; i++)
        if (message_is_key(&map->ptr[i].key, name))
            return &map->ptr[i].val;
    return NULL;
}

/* The scanner knew the name if it is one: this says what is wrong with it. */
static bool check_type(struct message_decoding *d, const msgpack_object_map *map) {
    struct message_where where = {"type", -1, NULL};
    const msgpack_object *type = find(map, "type");
    char quoted[64];
    if (d->message->type != MESSAGE_NONE)
        return true;
    if (!type)
        return message_wrong(d, where, "it is missing");
    if (type->type != MSGPACK_OBJECT_STR)
        return message_expected(d, where, "a string", type);
    return message_wrong(
        d, where, "\"%s\" is no type of message",
        message_quote(quoted, sizeof quoted, type->via.str.ptr, type->via.str.size));
}

static bool get_all(struct message_decoding *d, const msgpack_object_map *map) {
    struct message *m = d->message;
    for (uint32_t k = 0; k < message_nkeys; k++) {
        const struct message_key *key = &message_keys[k];
        if (!(key->used & MESSAGE_BIT(m->type)))
            continue;
        const msgpack_object *value = find(map, key->name);
        if (value && !get_value(d, key, value))
            return false;
        if (!value && key->required & MESSAGE_BIT(m->type))
            return message_wrong(d, (struct message_where){key->name, -1, NULL},
                                 "it is missing in \"%s\"", message_type_name(m->type));
    }
    return true;
}

enum xop_status message_decode_general(struct message_decoder *decoder, const void *header,
                                       size_t bytes, uint64_t body_bytes, struct message *message,
                                       struct xop_error *error) {
    struct message_decoding d = {decoder, message, error};
    msgpack_object top;
    size_t offset = 0;
    enum message_type type;
    uint64_t id;
    enum xop_status status = message_scan(header, bytes, &type, &id, error);
    message_reset(message, type, id);
    if (status != XOP_OK)
        return status;
    msgpack_zone_clear(&decoder->zone);
    decoder->used = 0;
    decoder->nlists = 0;
    if (msgpack_unpack(header, bytes, &offset, &decoder->zone, &top) != MSGPACK_UNPACK_SUCCESS ||
        top.type != MSGPACK_OBJECT_MAP)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "header: it is not well-formed msgpack");
    if (!message_check_map(&d, (struct message_where){"header", -1, NULL}, &top.via.map) ||
        !check_type(&d, &top.via.map))
        return XOP_INVALID_ARGUMENT;
    message->id = 0; /* the table says whether this type has one */
    if (!get_all(&d, &top.via.map) || !message_check_body(&d, body_bytes)) {
        message->id = id;
        return XOP_INVALID_ARGUMENT;
    }
    return XOP_OK;
}

enum xop_status message_decode(struct message_decoder *decoder, const void *header, size_t bytes,
                               uint64_t body_bytes, struct message *message,
                               struct xop_error *error) {
    if (message_decode_fast(decoder, header, bytes, body_bytes, message))
        return XOP_OK;
    return message_decode_general(decoder, header, bytes, body_bytes, message, error);
}
