/* Functions that read take the position of a value and return the one behind it, or NULL for what
 * is left to the general decoder. They check what they read; whether a tensor may stand where it
 * does, and what the body has to be, is asked of the functions that the general decoder asks. */
#include "message_decoding.h"

#include <endian.h>

/* What stands for a tensor that is not described, beside the bits of a description's keys. */
enum { GIVEN_NIL = 0x80, GIVEN_FALSE = 0x81 };

struct fast {
    struct message_decoder *decoder;
    struct message *message;
    const unsigned char *end;
    uint64_t seen;                                          /* a bit a key at the top */
    unsigned char in[XOP_MAX_INPUTS], out[XOP_MAX_OUTPUTS]; /* how each tensor was given */
};

bool message_words_fill(struct message_words *words) {
    static const char *const members[] = {MESSAGE_MEMBERS};
    bool ok = message_names_add(&words->keys, "type", MESSAGE_KEY_TYPE);
    for (uint8_t k = 0; k < message_nkeys; k++) {
        ok &= message_names_add(&words->keys, message_keys[k].name, k);
        for (unsigned type = 0; type < MESSAGE_TYPES; type++) {
            words->used[type] |= (uint64_t) !!(message_keys[k].used & MESSAGE_BIT(type)) << k;
            words->required[type] |= (uint64_t) !!(message_keys[k].required & MESSAGE_BIT(type))
                                     << k;
        }
    }
    for (uint8_t type = 1; type < MESSAGE_TYPES; type++)
        ok &= message_names_add(&words->types, message_type_name((enum message_type)type), type);
    for (uint8_t i = 0; i < sizeof members / sizeof *members; i++)
        ok &= message_names_add(&words->members, members[i], i);
    for (uint8_t dtype = 1; dtype < XOP_DTYPE_COUNT; dtype++)
        ok &= message_names_add(&words->dtypes, xop_dtype_name((enum xop_dtype)dtype), dtype);
    for (uint8_t access = ACCESS_READ; access <= ACCESS_READ_WRITE; access++)
        ok &= message_names_add(&words->accesses, message_access_names[access], access);
    return ok;
}

/* ---- Single values ---- */

static inline size_t left(const struct fast *f, const unsigned char *at) {
    return (size_t)(f->end - at);
}

/* A big-endian number of `width` bytes that are there, 1, 2, 4 or 8. */
static inline uint64_t big(const struct fast *f, const unsigned char *at, size_t width) {
    uint64_t word = 0;
    if (left(f, at) >= 8) {
        memcpy(&word, at, 8);
        return be64toh(word) >> (64 - 8 * width);
    }
    for (size_t i = 0; i < width; i++)
        word = word << 8 | at[i];
    return word;
}

/* An integer of any width: its 64 bits, and whether they are those of a negative one. */
static inline const unsigned char *get_integer(const struct fast *f, const unsigned char *at,
                                               uint64_t *bits, bool *negative) {
    if (at == f->end)
        return NULL;
    unsigned type = *at++;
    *bits = type;
    *negative = false;
    if (type < 0x80)
        return at;
    if (type >= 0xe0) {
        *bits = (uint64_t)((int64_t)type - 256);
        *negative = true;
        return at;
    }
    size_t width = (size_t)1 << (type & 3);
    if (type < 0xcc || type > 0xd3 || left(f, at) < width)
        return NULL;
    *bits = big(f, at, width);
    if (type >= 0xd0) {
        int64_t value = (int64_t)(*bits << (64 - 8 * width)) >> (64 - 8 * width);
        *bits = (uint64_t)value;
        *negative = value < 0;
    }
    return at + width;
}

static inline const unsigned char *get_u64(const struct fast *f, const unsigned char *at,
                                           uint64_t *out) {
    bool negative;
    at = get_integer(f, at, out, &negative);
    return at && !negative ? at : NULL;
}

static inline const unsigned char *get_i64(const struct fast *f, const unsigned char *at,
                                           int64_t *out) {
    uint64_t bits;
    bool negative;
    at = get_integer(f, at, &bits, &negative);
    if (!at || (!negative && bits > INT64_MAX))
        return NULL;
    *out = (int64_t)bits;
    return at;
}

static inline const unsigned char *get_bool(const struct fast *f, const unsigned char *at,
                                            bool *out) {
    if (at == f->end || (*at & 0xfe) != 0xc2)
        return NULL;
    *out = *at & 1;
    return at + 1;
}

/* The count of a map or array: its short form has it in the byte, `wide` begins the next. */
static inline const unsigned char *get_count(const struct fast *f, const unsigned char *at,
                                             unsigned fix, unsigned wide, uint32_t *count) {
    if (at == f->end)
        return NULL;
    if ((*at & 0xf0) == fix) {
        *count = *at & 15;
        return at + 1;
    }
    if (*at != wide || left(f, at) < 3)
        return NULL;
    *count = (uint32_t)at[1] << 8 | at[2];
    return at + 3;
}

static inline const unsigned char *get_map(const struct fast *f, const unsigned char *at,
                                           uint32_t *count) {
    return get_count(f, at, 0x80, 0xde, count);
}

static inline const unsigned char *get_array(const struct fast *f, const unsigned char *at,
                                             uint32_t *count) {
    return get_count(f, at, 0x90, 0xdc, count);
}

/* ---- Text ---- */

/* The length of a text whose bytes are there. */
static inline const unsigned char *get_length(const struct fast *f, const unsigned char *at,
                                              size_t *length) {
    if (at == f->end)
        return NULL;
    unsigned type = *at++;
    size_t width = type == 0xd9 ? 1 : type == 0xda ? 2 : 0;
    if ((type & 0xe0) == 0xa0)
        *length = type & 31;
    else if (width == 0 || left(f, at) < width)
        return NULL;
    else
        *length = (size_t)big(f, at, width);
    at += width;
    return *length <= left(f, at) ? at : NULL;
}

/* A text that is one of names: its value. */
static inline const unsigned char *get_name(const struct fast *f, const unsigned char *at,
                                            const struct message_names *names, int *value) {
    size_t length;
    at = get_length(f, at, &length);
    if (!at || length == 0 || length > MESSAGE_NAME_BYTES)
        return NULL;
    *value = message_names_find(names, message_name_at(at, f->end, length));
    return *value >= 0 ? at + length : NULL;
}

/* A copy of a text of at most max bytes. */
static const unsigned char *get_text(const struct fast *f, const unsigned char *at, int64_t max,
                                     const char **out, uint32_t *count) {
    struct message_decoder *decoder = f->decoder;
    char *copy = decoder->strings + decoder->used;
    size_t length;
    at = get_length(f, at, &length);
    if (!at || length > (uint64_t)max || length >= sizeof decoder->strings - decoder->used ||
        !message_utf8((const char *)at, length))
        return NULL;
    memcpy(copy, at, length);
    copy[length] = 0;
    decoder->used += length + 1;
    *out = copy;
    *count = (uint32_t)length;
    return at + length;
}

/* ---- Tensors ---- */

static const unsigned char *get_shape(const struct fast *f, const unsigned char *at,
                                      struct message_tensor *tensor) {
    at = get_array(f, at, &tensor->rank);
    if (!at || tensor->rank > XOP_MAX_RANK)
        return NULL;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint64_t size;
        at = get_u64(f, at, &size);
        if (!at || size > INT64_MAX)
            return NULL;
        tensor->shape[i] = (int64_t)size;
    }
    return at;
}

static inline const unsigned char *get_member(const struct fast *f, const unsigned char *at,
                                              unsigned member, struct message_tensor *tensor) {
    const struct message_words *words = &f->decoder->words;
    int value = 0;
    switch (member) {
    case MESSAGE_HAS_DTYPE:
        at = get_name(f, at, &words->dtypes, &value);
        tensor->dtype = (enum xop_dtype)value;
        return at;
    case MESSAGE_HAS_SHAPE: return get_shape(f, at, tensor);
    case MESSAGE_HAS_ACCESS:
        at = get_name(f, at, &words->accesses, &value);
        tensor->access = (enum message_access)value;
        return at;
    case MESSAGE_HAS_MEMORY:
    case MESSAGE_HAS_RESIDENT:
        at = get_u64(f, at, &tensor->id);
        return at && tensor->id > 0 ? at : NULL;
    default: return get_u64(f, at, &tensor->offset);
    }
}

static const unsigned char *get_tensor(const struct fast *f, const unsigned char *at,
                                       struct message_tensor *tensor, unsigned char *given) {
    unsigned seen = 0;
    uint32_t count;
    int name;
    memset(tensor, 0, sizeof *tensor);
    if (at == f->end)
        return NULL;
    if (*at == 0xc0 || *at == 0xc2) {
        *given = *at == 0xc0 ? GIVEN_NIL : GIVEN_FALSE;
        return at + 1;
    }
    at = get_map(f, at, &count);
    for (; at && count > 0; count--) {
        at = get_name(f, at, &f->decoder->words.members, &name);
        if (!at || seen >> name & 1)
            return NULL;
        seen |= 1u << name;
        at = get_member(f, at, 1u << name, tensor);
    }
    tensor->place = message_place_of(seen);
    *given = (unsigned char)seen;
    return at;
}

static const unsigned char *get_tensors(const struct fast *f, const unsigned char *at,
                                        struct message_tensor *list, uint32_t most,
                                        unsigned char *given, uint32_t *count) {
    at = get_array(f, at, count);
    if (!at || *count > most)
        return NULL;
    for (uint32_t i = 0; at && i < *count; i++)
        at = get_tensor(f, at, &list[i], &given[i]);
    return at;
}

/* What the tensors may be depends on the type, which may come behind them. */
static bool check_tensors(struct message_decoding *d, const char *key, struct message_tensor *list,
                          const unsigned char *given, uint32_t count, bool input) {
    enum message_type type = d->message->type;
    bool needed = type == MESSAGE_PUT || type == MESSAGE_GET || type == MESSAGE_EXPORT;
    for (uint32_t i = 0; i < count; i++) {
        if (given[i] != GIVEN_NIL && given[i] != GIVEN_FALSE) {
            if (!message_check_tensor(d, (struct message_where){key, (int)i, NULL}, given[i],
                                      &list[i], input))
                return false;
            continue;
        }
        if (needed || (input && given[i] == GIVEN_FALSE) ||
            (type == MESSAGE_RESULT && given[i] == GIVEN_NIL))
            return false;
        if (input || given[i] == GIVEN_FALSE)
            list[i].place = PLACE_OMIT;
    }
    return true;
}

/* ---- Attributes ---- */

static inline const unsigned char *get_float(const struct fast *f, const unsigned char *at,
                                             double *out) {
    size_t width = *at == 0xca ? 4 : 8;
    if (left(f, ++at) < width)
        return NULL;
    uint64_t bits = big(f, at, width);
    if (width == 4) {
        uint32_t half = (uint32_t)bits;
        float value;
        memcpy(&value, &half, sizeof value);
        *out = (double)value;
    } else {
        memcpy(out, &bits, sizeof *out);
    }
    return at + width;
}

static inline bool is_float(unsigned type) { return (type & 0xfe) == 0xca; }

/* Of integers until a float comes: then what is there becomes floats, and so does the rest. */
static const unsigned char *get_list(const struct fast *f, const unsigned char *at,
                                     struct xop_attr *attr) {
    union message_element *list = f->decoder->lists[f->decoder->nlists++];
    attr->type = XOP_ATTR_INTS;
    attr->value.ints = &list->i;
    at = get_array(f, at, &attr->count);
    if (!at || attr->count > XOP_MAX_ATTR_LIST)
        return NULL;
    for (uint32_t i = 0; i < attr->count; i++) {
        if (at == f->end)
            return NULL;
        bool floating = is_float(*at);
        for (uint32_t k = 0; floating && attr->type == XOP_ATTR_INTS && k < i; k++)
            list[k].f = (double)list[k].i;
        if (floating)
            attr->type = XOP_ATTR_FLOATS;
        at = floating ? get_float(f, at, &list[i].f) : get_i64(f, at, &list[i].i);
        if (!at)
            return NULL;
        if (!floating && attr->type == XOP_ATTR_FLOATS)
            list[i].f = (double)list[i].i;
    }
    return at;
}

static const unsigned char *get_attr(const struct fast *f, const unsigned char *at,
                                     struct xop_attr *attr) {
    if (at == f->end)
        return NULL;
    unsigned type = *at;
    bool flag = false;
    attr->count = 1;
    if (is_float(type)) {
        attr->type = XOP_ATTR_FLOAT;
        return get_float(f, at, &attr->value.f);
    }
    if ((type & 0xfe) == 0xc2) {
        attr->type = XOP_ATTR_BOOL;
        at = get_bool(f, at, &flag);
        attr->value.i = flag;
        return at;
    }
    if ((type & 0xe0) == 0xa0 || type == 0xd9 || type == 0xda) {
        attr->type = XOP_ATTR_STRING;
        return get_text(f, at, XOP_MAX_ATTR_STRING, &attr->value.string, &attr->count);
    }
    if ((type & 0xf0) == 0x90 || type == 0xdc)
        return get_list(f, at, attr);
    attr->type = XOP_ATTR_INT;
    return get_i64(f, at, &attr->value.i);
}

static const unsigned char *get_attrs(const struct fast *f, const unsigned char *at) {
    struct message *m = f->message;
    uint32_t length;
    at = get_map(f, at, &m->nattrs);
    if (!at || m->nattrs > XOP_MAX_ATTRS)
        return NULL;
    for (uint32_t i = 0; i < m->nattrs; i++) {
        struct xop_attr *attr = &m->attrs[i];
        at = get_text(f, at, XOP_MAX_NAME, &attr->name, &length);
        if (!at)
            return NULL;
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(m->attrs[k].name, attr->name) == 0)
                return NULL;
        at = get_attr(f, at, attr);
        if (!at)
            return NULL;
    }
    return at;
}

/* ---- The message ---- */

static inline const unsigned char *get_number(const struct fast *f, const unsigned char *at,
                                              const struct message_key *key) {
    void *member = message_member(f->message, key);
    uint64_t number;
    at = get_u64(f, at, &number);
    if (!at || number < (uint64_t)key->min)
        return NULL;
    if (key->kind == KIND_U64)
        *(uint64_t *)member = number;
    else if (key->kind == KIND_U32 && number <= UINT32_MAX)
        *(uint32_t *)member = (uint32_t)number;
    else if (key->kind == KIND_STATUS && xop_status_known(number))
        *(enum xop_status *)member = (enum xop_status)number;
    else
        return NULL;
    return at;
}

static inline const unsigned char *get_value(struct fast *f, const unsigned char *at,
                                             const struct message_key *key) {
    struct message *m = f->message;
    int64_t integer;
    uint32_t length;
    switch (key->kind) {
    case KIND_U64:
    case KIND_U32:
    case KIND_STATUS: return get_number(f, at, key);
    case KIND_BOOL: return get_bool(f, at, message_member(m, key));
    case KIND_STRING: return get_text(f, at, key->max, message_member(m, key), &length);
    case KIND_INPUTS: return get_tensors(f, at, m->in, XOP_MAX_INPUTS, f->in, &m->nin);
    case KIND_OUTPUTS: return get_tensors(f, at, m->out, XOP_MAX_OUTPUTS, f->out, &m->nout);
    case KIND_ATTRS: return get_attrs(f, at);
    case KIND_I32:
        at = get_i64(f, at, &integer);
        if (!at || integer < key->min || integer > key->max)
            return NULL;
        *(int32_t *)message_member(m, key) = (int32_t)integer;
        return at;
    }
    return NULL;
}

/* All keys, in whatever order they come. */
static bool get_keys(struct fast *f, const unsigned char *at) {
    uint32_t count;
    int name, type;
    at = get_map(f, at, &count);
    for (; at && count > 0; count--) {
        at = get_name(f, at, &f->decoder->words.keys, &name);
        if (!at || f->seen >> name & 1)
            return false;
        f->seen |= UINT64_C(1) << name;
        if (name != MESSAGE_KEY_TYPE) {
            at = get_value(f, at, &message_keys[name]);
            continue;
        }
        at = get_name(f, at, &f->decoder->words.types, &type);
        if (at)
            f->message->type = (enum message_type)type;
    }
    return at == f->end;
}

bool message_decode_fast(struct message_decoder *decoder, const void *header, size_t bytes,
                         uint64_t body_bytes, struct message *m) {
    struct fast f = {.decoder = decoder, .message = m};
    struct message_decoding d = {decoder, m, NULL};
    f.end = (const unsigned char *)header + bytes;
    message_reset(m, MESSAGE_NONE, 0);
    decoder->used = 0;
    decoder->nlists = 0;
    if (!get_keys(&f, header) || m->type == MESSAGE_NONE)
        return false;
    uint64_t keys = f.seen & ~(UINT64_C(1) << MESSAGE_KEY_TYPE);
    if (keys & ~decoder->words.used[m->type] || decoder->words.required[m->type] & ~keys)
        return false;
    return check_tensors(&d, "in", m->in, f.in, m->nin, true) &&
           check_tensors(&d, "out", m->out, f.out, m->nout, false) &&
           message_check_body(&d, body_bytes);
}
