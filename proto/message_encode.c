#include "frame.h"
#include "message_fast.h"

#include <msgpack.h>
#include <string.h>

struct writer {
    unsigned char *at;
    size_t left;
};

/* msgpack-c's callback: fails when the buffer is full. */
static int write_bytes(void *data, const char *bytes, size_t length) {
    struct writer *writer = data;
    if (length > writer->left)
        return -1;
    memcpy(writer->at, bytes, length);
    writer->at += length;
    writer->left -= length;
    return 0;
}

static bool put_text(msgpack_packer *p, const char *text, size_t length) {
    return msgpack_pack_str(p, length) == 0 && msgpack_pack_str_body(p, text, length) == 0;
}

static bool put_string(msgpack_packer *p, const char *text, size_t max) {
    size_t length = strlen(text);
    return length <= max && put_text(p, text, length);
}

/* A sentence may hold an operator's own words, in whatever bytes: receivers take UTF-8 alone. */
static bool put_sentence(msgpack_packer *p, const char *text) {
    char quoted[PROTO_MAX_MESSAGE + 1];
    size_t length = strlen(text);
    if (!message_utf8(text, length))
        text = message_quote(quoted, sizeof quoted, text, length);
    return put_string(p, text, PROTO_MAX_MESSAGE);
}

static bool put_key(msgpack_packer *p, const char *name) { return put_text(p, name, strlen(name)); }

/* ---- Tensors ---- */

static bool put_shape(msgpack_packer *p, const struct message_tensor *tensor) {
    if (tensor->rank > XOP_MAX_RANK || !put_key(p, "dtype") ||
        !put_key(p, xop_dtype_name(tensor->dtype)) || !put_key(p, "shape") ||
        msgpack_pack_array(p, tensor->rank) != 0)
        return false;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < 0 || msgpack_pack_int64(p, tensor->shape[i]) != 0)
            return false;
    return true;
}

static bool put_number(msgpack_packer *p, const char *key, uint64_t number) {
    return put_key(p, key) && msgpack_pack_uint64(p, number) == 0;
}

static bool put_place(msgpack_packer *p, const struct message_tensor *tensor) {
    switch (tensor->place) {
    case PLACE_NONE:
    case PLACE_OMIT: return true;
    case PLACE_BODY: return put_number(p, "body", tensor->offset);
    case PLACE_MEMORY:
        return put_number(p, "memory", tensor->id) && put_number(p, "offset", tensor->offset);
    case PLACE_RESIDENT:
        return put_number(p, "resident", tensor->id) &&
               (tensor->offset == 0 || put_number(p, "offset", tensor->offset));
    }
    return false;
}

static bool put_tensor(msgpack_packer *p, const struct message_tensor *tensor, bool input) {
    bool typed = tensor->dtype != XOP_DTYPE_NONE;
    if (tensor->place == PLACE_OMIT)
        return (input ? msgpack_pack_nil(p) : msgpack_pack_false(p)) == 0;
    if (tensor->place == PLACE_NONE && !typed && !input && tensor->access == ACCESS_DEFAULT)
        return msgpack_pack_nil(p) == 0;
    size_t keys = typed ? 2 : 0;
    keys += tensor->place == PLACE_BODY || tensor->place == PLACE_RESIDENT;
    keys += tensor->place == PLACE_MEMORY ? 2 : 0;
    keys += tensor->place == PLACE_RESIDENT && tensor->offset != 0;
    keys += tensor->access != ACCESS_DEFAULT;
    if (msgpack_pack_map(p, keys) != 0 || (typed && !put_shape(p, tensor)) || !put_place(p, tensor))
        return false;
    return tensor->access == ACCESS_DEFAULT ||
           (put_key(p, "access") && put_key(p, message_access_names[tensor->access]));
}

static bool put_tensors(msgpack_packer *p, const struct message_tensor *list, uint32_t n,
                        bool input) {
    if (n > (input ? XOP_MAX_INPUTS : XOP_MAX_OUTPUTS) || msgpack_pack_array(p, n) != 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!put_tensor(p, &list[i], input))
            return false;
    return true;
}

/* ---- Attributes ---- */

static bool put_list(msgpack_packer *p, const struct xop_attr *attr) {
    if (attr->count > XOP_MAX_ATTR_LIST || msgpack_pack_array(p, attr->count) != 0)
        return false;
    for (uint32_t i = 0; i < attr->count; i++)
        if ((attr->type == XOP_ATTR_INTS ? msgpack_pack_int64(p, attr->value.ints[i])
                                         : msgpack_pack_double(p, attr->value.floats[i])) != 0)
            return false;
    return true;
}

static bool put_attr(msgpack_packer *p, const struct xop_attr *attr) {
    switch (attr->type) {
    case XOP_ATTR_INT: return msgpack_pack_int64(p, attr->value.i) == 0;
    case XOP_ATTR_FLOAT: return msgpack_pack_double(p, attr->value.f) == 0;
    case XOP_ATTR_BOOL: return (attr->value.i ? msgpack_pack_true(p) : msgpack_pack_false(p)) == 0;
    case XOP_ATTR_STRING: return put_string(p, attr->value.string, XOP_MAX_ATTR_STRING);
    case XOP_ATTR_INTS:
    case XOP_ATTR_FLOATS: return put_list(p, attr);
    case XOP_ATTR_NONE: break;
    }
    return false;
}

static bool put_attrs(msgpack_packer *p, const struct message *m) {
    if (m->nattrs > XOP_MAX_ATTRS || msgpack_pack_map(p, m->nattrs) != 0)
        return false;
    for (uint32_t i = 0; i < m->nattrs; i++)
        if (!put_string(p, m->attrs[i].name, XOP_MAX_NAME) || !put_attr(p, &m->attrs[i]))
            return false;
    return true;
}

/* ---- The message ---- */

/* Whether a key travels: it is required, or says something. */
static bool is_present(const struct message *m, const struct message_key *key) {
    const void *member = message_member(m, key);
    if (!(key->used & MESSAGE_BIT(m->type)))
        return false;
    if (key->required & MESSAGE_BIT(m->type))
        return true;
    switch (key->kind) {
    case KIND_U64: return *(const uint64_t *)member != 0;
    case KIND_U32: return *(const uint32_t *)member != 0;
    case KIND_I32: return *(const int32_t *)member != (member == &m->device ? -1 : 0);
    case KIND_BOOL: return *(const bool *)member;
    case KIND_STRING: return *(const char *const *)member != NULL;
    case KIND_STATUS: return m->status != XOP_OK;
    case KIND_INPUTS: return m->nin > 0;
    case KIND_OUTPUTS: return m->nout > 0;
    case KIND_ATTRS: return m->nattrs > 0;
    }
    return false;
}

static bool put_value(msgpack_packer *p, const struct message *m, const struct message_key *key) {
    const void *member = message_member(m, key);
    const char *text;
    switch (key->kind) {
    case KIND_U64: return msgpack_pack_uint64(p, *(const uint64_t *)member) == 0;
    case KIND_U32: return msgpack_pack_uint32(p, *(const uint32_t *)member) == 0;
    case KIND_I32: return msgpack_pack_int32(p, *(const int32_t *)member) == 0;
    case KIND_BOOL:
        return (*(const bool *)member ? msgpack_pack_true(p) : msgpack_pack_false(p)) == 0;
    case KIND_STRING:
        text = *(const char *const *)member;
        if (member == &m->error)
            return text && put_sentence(p, text);
        return text && put_string(p, text, (size_t)key->max);
    case KIND_STATUS: return msgpack_pack_uint32(p, (uint32_t)m->status) == 0;
    case KIND_INPUTS: return put_tensors(p, m->in, m->nin, true);
    case KIND_OUTPUTS: return put_tensors(p, m->out, m->nout, false);
    case KIND_ATTRS: return put_attrs(p, m);
    }
    return false;
}

static bool put_message(msgpack_packer *p, const struct message *m) {
    const char *type = message_type_name(m->type);
    size_t keys = 1;
    for (uint32_t k = 0; k < message_nkeys; k++)
        keys += is_present(m, &message_keys[k]);
    if (!type || msgpack_pack_map(p, keys) != 0 || !put_key(p, "type") || !put_key(p, type))
        return false;
    for (uint32_t k = 0; k < message_nkeys; k++)
        if (is_present(m, &message_keys[k]) &&
            (!put_key(p, message_keys[k].name) || !put_value(p, m, &message_keys[k])))
            return false;
    return true;
}

size_t message_encode_general(const struct message *message, uint64_t body_bytes, void *buffer,
                              size_t capacity) {
    unsigned char *bytes = buffer;
    msgpack_packer packer;
    if (capacity < FRAME_PREFIX || body_bytes > PROTO_MAX_BODY)
        return 0;
    size_t room = capacity - FRAME_PREFIX;
    struct writer writer = {bytes + FRAME_PREFIX,
                            room < PROTO_MAX_HEADER ? room : PROTO_MAX_HEADER};
    msgpack_packer_init(&packer, &writer, write_bytes);
    if (!put_message(&packer, message))
        return 0;
    size_t header = (size_t)(writer.at - bytes) - FRAME_PREFIX;
    frame_write_prefix(bytes, (struct frame_prefix){(uint32_t)header, body_bytes});
    return FRAME_PREFIX + header;
}

size_t message_encode(const struct message *message, uint64_t body_bytes, void *buffer,
                      size_t capacity) {
    size_t bytes = message_encode_fast(message, body_bytes, buffer, capacity);
    return bytes > 0 ? bytes : message_encode_general(message, body_bytes, buffer, capacity);
}
