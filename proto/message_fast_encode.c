/* Functions that write take the position and return the one behind what they wrote, or NULL for
 * what is left to the general encoder. Each sees to the room for the most that it writes. */
#include "frame.h"
#include "message_fast.h"

#include <endian.h>

struct fast {
    const struct message *message;
    unsigned char *at, *end; /* at: NULL once something was not ours */
    unsigned keys;           /* written at the top */
};

/* ---- Values ---- */

/* A type byte and the lowest `width` bytes of value, big-endian. There is room for 9 bytes. */
static inline unsigned char *put_wide(unsigned char *at, unsigned type, uint64_t value,
                                      unsigned width) {
    uint64_t word = htobe64(value << (64 - 8 * width));
    *at = (unsigned char)type;
    memcpy(at + 1, &word, sizeof word);
    return at + 1 + width;
}

static inline unsigned char *put_u64(unsigned char *at, uint64_t value) {
    if (value < 0x80) {
        *at = (unsigned char)value;
        return at + 1;
    }
    unsigned log = value <= UINT8_MAX ? 0 : value <= UINT16_MAX ? 1 : value <= UINT32_MAX ? 2 : 3;
    return put_wide(at, 0xcc + log, value, 1u << log);
}

static inline unsigned char *put_i64(unsigned char *at, int64_t value) {
    if (value >= 0)
        return put_u64(at, (uint64_t)value);
    if (value >= -32) {
        *at = (unsigned char)value;
        return at + 1;
    }
    unsigned log = value >= INT8_MIN ? 0 : value >= INT16_MIN ? 1 : value >= INT32_MIN ? 2 : 3;
    return put_wide(at, 0xd0 + log, (uint64_t)value, 1u << log);
}

static inline unsigned char *put_bool(unsigned char *at, bool value) {
    *at = value ? 0xc3 : 0xc2;
    return at + 1;
}

static inline unsigned char *put_double(unsigned char *at, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put_wide(at, 0xcb, bits, 8);
}

/* The beginning of an array of n: fix for a short one, else in 2 bytes. */
static inline unsigned char *put_array(unsigned char *at, uint32_t n) {
    if (n >= 16)
        return put_wide(at, 0xdc, n, 2);
    *at = (unsigned char)(0x90 | n);
    return at + 1;
}

static inline unsigned char *put_map(unsigned char *at, uint32_t n) {
    if (n >= 16)
        return put_wide(at, 0xde, n, 2);
    *at = (unsigned char)(0x80 | n);
    return at + 1;
}

/* A text of at most max bytes. */
static unsigned char *put_text(unsigned char *at, const unsigned char *end, const char *text,
                               size_t max) {
    size_t length = text ? strlen(text) : SIZE_MAX;
    if (length > max || (size_t)(end - at) < length + 9)
        return NULL;
    if (length < 32) {
        *at = (unsigned char)(0xa0 | length);
        at++;
    } else {
        at = length <= UINT8_MAX ? put_wide(at, 0xd9, length, 1) : put_wide(at, 0xda, length, 2);
    }
    memcpy(at, text, length);
    return at + length;
}

/* A key that is known here, of fewer than 32 bytes. */
static inline unsigned char *put_key(unsigned char *at, const char *key, size_t bytes) {
    *at = (unsigned char)(0xa0 | bytes);
    memcpy(at + 1, key, bytes);
    return at + 1 + bytes;
}
#define PUT_KEY(at, key) put_key(at, key, sizeof key - 1)

/* ---- Tensors ---- */

/* The most that one takes: a map of dtype, shape, a place with an offset, and access. */
#define TENSOR_ROOM 160u

/* The keys dtype and shape with the dtype between them. */
#define TYPE(length, dtype)                                                                        \
    {                                                                                              \
        "\xa5"                                                                                     \
        "dtype" length dtype "\xa5"                                                                \
        "shape",                                                                                   \
            sizeof dtype + 12                                                                      \
    }
/* clang-format off */
static const struct {
    char bytes[20];
    unsigned n;
} types[XOP_DTYPE_COUNT] = {
    [XOP_F16] = TYPE("\xa3", "f16"), [XOP_BF16] = TYPE("\xa4", "bf16"),
    [XOP_F32] = TYPE("\xa3", "f32"), [XOP_F64] = TYPE("\xa3", "f64"),
    [XOP_I32] = TYPE("\xa3", "i32"), [XOP_I64] = TYPE("\xa3", "i64"),
    [XOP_BOOL] = TYPE("\xa4", "bool"),
};
/* clang-format on */

static inline unsigned char *put_shape(unsigned char *at, const struct message_tensor *tensor) {
    memcpy(at, types[tensor->dtype].bytes, sizeof types->bytes);
    at = put_array(at + types[tensor->dtype].n, tensor->rank);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0)
            return NULL;
        at = put_u64(at, (uint64_t)tensor->shape[i]);
    }
    return at;
}

static unsigned char *put_tensor(unsigned char *at, const unsigned char *end,
                                 const struct message_tensor *tensor, bool input) {
    bool typed = tensor->dtype != XOP_DTYPE_NONE;
    unsigned char *map = at++;
    unsigned keys = typed ? 2 : 0;
    if ((size_t)(end - map) < TENSOR_ROOM || (unsigned)tensor->dtype >= XOP_DTYPE_COUNT ||
        tensor->rank > XOP_MAX_RANK)
        return NULL;
    if (tensor->place == PLACE_OMIT) {
        *map = input ? 0xc0 : 0xc2;
        return at;
    }
    if (tensor->place == PLACE_NONE && !typed && !input && tensor->access == ACCESS_DEFAULT) {
        *map = 0xc0;
        return at;
    }
    if (typed && !(at = put_shape(at, tensor)))
        return NULL;
    switch (tensor->place) {
    case PLACE_BODY:
        at = put_u64(PUT_KEY(at, "body"), tensor->offset);
        keys++;
        break;
    case PLACE_MEMORY:
        at = put_u64(PUT_KEY(at, "memory"), tensor->id);
        at = put_u64(PUT_KEY(at, "offset"), tensor->offset);
        keys += 2;
        break;
    case PLACE_RESIDENT:
        at = put_u64(PUT_KEY(at, "resident"), tensor->id);
        keys++;
        if (tensor->offset != 0) {
            at = put_u64(PUT_KEY(at, "offset"), tensor->offset);
            keys++;
        }
        break;
    case PLACE_NONE: break;
    default: return NULL;
    }
    if (tensor->access != ACCESS_DEFAULT) {
        if ((unsigned)tensor->access > ACCESS_READ_WRITE)
            return NULL;
        const char *access = message_access_names[tensor->access];
        at = put_key(PUT_KEY(at, "access"), access, strlen(access));
        keys++;
    }
    *map = (unsigned char)(0x80 | keys);
    return at;
}

static unsigned char *put_tensors(unsigned char *at, const unsigned char *end,
                                  const struct message_tensor *list, uint32_t n, bool input) {
    if (n > (input ? XOP_MAX_INPUTS : XOP_MAX_OUTPUTS) || end - at < 9)
        return NULL;
    at = put_array(at, n);
    for (uint32_t i = 0; at && i < n; i++)
        at = put_tensor(at, end, &list[i], input);
    return at;
}

/* ---- Attributes ---- */

static unsigned char *put_list(unsigned char *at, const unsigned char *end,
                               const struct xop_attr *attr) {
    if (attr->count > XOP_MAX_ATTR_LIST || (size_t)(end - at) < 9 * ((size_t)attr->count + 1))
        return NULL;
    at = put_array(at, attr->count);
    for (uint32_t i = 0; i < attr->count; i++)
        at = attr->type == XOP_ATTR_INTS ? put_i64(at, attr->value.ints[i])
                                         : put_double(at, attr->value.floats[i]);
    return at;
}

static unsigned char *put_attr(unsigned char *at, const unsigned char *end,
                               const struct xop_attr *attr) {
    if (end - at < 9)
        return NULL;
    switch (attr->type) {
    case XOP_ATTR_INT: return put_i64(at, attr->value.i);
    case XOP_ATTR_FLOAT: return put_double(at, attr->value.f);
    case XOP_ATTR_BOOL: return put_bool(at, attr->value.i != 0);
    case XOP_ATTR_STRING: return put_text(at, end, attr->value.string, XOP_MAX_ATTR_STRING);
    case XOP_ATTR_INTS:
    case XOP_ATTR_FLOATS: return put_list(at, end, attr);
    case XOP_ATTR_NONE: break;
    }
    return NULL;
}

static unsigned char *put_attrs(unsigned char *at, const unsigned char *end,
                                const struct message *m) {
    if (m->nattrs > XOP_MAX_ATTRS || end - at < 9)
        return NULL;
    at = put_map(at, m->nattrs);
    for (uint32_t i = 0; at && i < m->nattrs; i++) {
        at = put_text(at, end, m->attrs[i].name, XOP_MAX_NAME);
        if (at)
            at = put_attr(at, end, &m->attrs[i]);
    }
    return at;
}

/* ---- Keys at the top ---- */

/* The most that a key and a number take, or a key and the beginning of what takes care of itself.
 */
#define KEY_ROOM 32u

static inline unsigned char *begin_key(struct fast *f, const char *key, size_t bytes) {
    if (!f->at || (size_t)(f->end - f->at) < KEY_ROOM)
        return NULL;
    f->keys++;
    return put_key(f->at, key, bytes);
}

static inline void number(struct fast *f, const char *key, size_t bytes, uint64_t value) {
    unsigned char *at = begin_key(f, key, bytes);
    f->at = at ? put_u64(at, value) : NULL;
}

static inline void integer(struct fast *f, const char *key, size_t bytes, int64_t value) {
    unsigned char *at = begin_key(f, key, bytes);
    f->at = at ? put_i64(at, value) : NULL;
}

static inline void flag(struct fast *f, const char *key, size_t bytes) {
    unsigned char *at = begin_key(f, key, bytes);
    f->at = at ? put_bool(at, true) : NULL;
}

static inline void text(struct fast *f, const char *key, size_t bytes, const char *value,
                        size_t max) {
    unsigned char *at = begin_key(f, key, bytes);
    f->at = at ? put_text(at, f->end, value, max) : NULL;
}

#define KEY(name) name, sizeof name - 1
#define NUMBER(name, value) (value) != 0 ? number(f, KEY(name), value) : (void)0

static inline void inputs(struct fast *f) {
    unsigned char *at = begin_key(f, KEY("in"));
    f->at = at ? put_tensors(at, f->end, f->message->in, f->message->nin, true) : NULL;
}

static inline void outputs(struct fast *f) {
    if (f->message->nout == 0)
        return;
    unsigned char *at = begin_key(f, KEY("out"));
    f->at = at ? put_tensors(at, f->end, f->message->out, f->message->nout, false) : NULL;
}

static inline void attributes(struct fast *f) {
    if (f->message->nattrs == 0)
        return;
    unsigned char *at = begin_key(f, KEY("attrs"));
    f->at = at ? put_attrs(at, f->end, f->message) : NULL;
}

/* ---- Messages, their keys in the order of message_keys ---- */

static void put_run(struct fast *f) {
    const struct message *m = f->message;
    text(f, KEY("op"), m->op, XOP_MAX_NAME);
    inputs(f);
    outputs(f);
    attributes(f);
    if (m->type == MESSAGE_FORWARD)
        NUMBER("keep", m->keep);
    else
        NUMBER("context", m->context);
    NUMBER("deadline_ms", m->deadline_ms);
    if (m->priority != 0)
        integer(f, KEY("priority"), m->priority);
    if (m->device != -1)
        integer(f, KEY("device"), m->device);
    if (m->check)
        flag(f, KEY("check"));
}

static void put_result(struct fast *f) {
    const struct message *m = f->message;
    outputs(f);
    NUMBER("length", m->length);
    NUMBER("status", (uint32_t)m->status);
    if (m->error) {
        if (!message_utf8(m->error, strlen(m->error)))
            f->at = NULL;
        text(f, KEY("error"), m->error, PROTO_MAX_MESSAGE);
    }
    if (m->started)
        flag(f, KEY("started"));
    NUMBER("queue_ns", m->queue_ns);
    NUMBER("copy_ns", m->copy_ns);
    NUMBER("run_ns", m->run_ns);
    NUMBER("batch", m->batch);
    if (m->media)
        text(f, KEY("media"), m->media, MESSAGE_MAX_MEDIA);
}

static void put_put(struct fast *f) {
    const struct message *m = f->message;
    inputs(f);
    number(f, KEY("handle"), m->handle);
    NUMBER("offset", m->offset);
    NUMBER("deadline_ms", m->deadline_ms);
    if (m->device != -1)
        integer(f, KEY("device"), m->device);
}

static void put_get(struct fast *f) {
    const struct message *m = f->message;
    outputs(f);
    number(f, KEY("handle"), m->handle);
    NUMBER("offset", m->offset);
    number(f, KEY("length"), m->length);
    NUMBER("deadline_ms", m->deadline_ms);
}

static void put_free(struct fast *f) { number(f, KEY("handle"), f->message->handle); }

static void put_cancel(struct fast *f) { number(f, KEY("target"), f->message->target); }

static const struct {
    const char *name;
    void (*put)(struct fast *f); /* all behind type and id */
} rows[MESSAGE_TYPES] = {
    [MESSAGE_FORWARD] = {"\xa7"
                         "forward",
                         put_run},
    [MESSAGE_BACKWARD] = {"\xa8"
                          "backward",
                          put_run},
    [MESSAGE_RESULT] = {"\xa6"
                        "result",
                        put_result},
    [MESSAGE_PUT] = {"\xa3"
                     "put",
                     put_put},
    [MESSAGE_GET] = {"\xa3"
                     "get",
                     put_get},
    [MESSAGE_FREE] = {"\xa4"
                      "free",
                      put_free},
    [MESSAGE_CANCEL] = {"\xa6"
                        "cancel",
                        put_cancel},
};

size_t message_encode_fast(const struct message *message, uint64_t body_bytes, void *buffer,
                           size_t capacity) {
    unsigned char *bytes = buffer, *top = bytes + FRAME_PREFIX;
    unsigned type = message->type;
    if (type >= MESSAGE_TYPES || !rows[type].put || capacity < FRAME_PREFIX + 1 + 2 * KEY_ROOM ||
        body_bytes > PROTO_MAX_BODY)
        return 0;
    size_t room = capacity - FRAME_PREFIX;
    struct fast f = {.message = message, .at = PUT_KEY(top + 1, "type"), .keys = 1};
    f.end = top + (room < PROTO_MAX_HEADER ? room : PROTO_MAX_HEADER);
    size_t n = strlen(rows[type].name);
    memcpy(f.at, rows[type].name, n);
    f.at += n;
    number(&f, KEY("id"), message->id);
    rows[type].put(&f);
    if (!f.at)
        return 0;
    *top = (unsigned char)(0x80 | f.keys); /* never more than 15 */
    size_t header = (size_t)(f.at - top);
    frame_write_prefix(bytes, (struct frame_prefix){(uint32_t)header, body_bytes});
    return FRAME_PREFIX + header;
}
