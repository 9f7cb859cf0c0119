/* Functions that read take the position of a value and return the one behind it, or NULL for what
 * is left to the general decoder. They read from a copy of the header, behind which more may be
 * read, so that it is enough to look once a key or element whether the end was passed: what stands
 * beyond it is never taken for a part of the header, because the last position has to be the very
 * end. */
#include "message_decoding.h"

#include <endian.h>

/* What stands for a tensor that is not described, beside the bits of a description's keys. */
enum { GIVEN_NIL = 0x80, GIVEN_FALSE = 0x81 };

/* A list of tensors on its way, and what else is known of each. */
struct given {
    unsigned char seen[XOP_MAX_INPUTS]; /* bits of its keys, or how it is left out */
    uint64_t bytes[XOP_MAX_INPUTS];     /* of one with dtype and shape */
};

struct fast {
    struct message_decoder *decoder;
    struct message *message;
    unsigned char *end;
    uint64_t seen; /* a bit a key at the top */
    struct given in, out;
};
_Static_assert(XOP_MAX_INPUTS == XOP_MAX_OUTPUTS, "struct given is for both");

/* Which keys a tensor may have in each type of message, as the general decoder sees it. */
static uint64_t allowed_keys(enum message_type type, bool input) {
    struct message_decoding d = {NULL, NULL, NULL};
    uint64_t allowed = 0;
    for (unsigned seen = 0; seen < MESSAGE_HAS_ACCESS; seen++)
        if (message_check_keys(&d, (struct message_where){"", -1, NULL}, type, seen, input))
            allowed |= UINT64_C(1) << seen;
    return allowed;
}

bool message_words_fill(struct message_words *words) {
    static const char *const members[] = {MESSAGE_MEMBERS};
    bool ok = message_names_add(&words->keys, "type", MESSAGE_KEY_TYPE);
    for (unsigned k = 0; k < message_nkeys; k++) {
        ok &= message_names_add(&words->keys, message_keys[k].name, k);
        for (unsigned type = 0; type < MESSAGE_TYPES; type++) {
            words->used[type] |= (uint64_t) !!(message_keys[k].used & MESSAGE_BIT(type)) << k;
            words->required[type] |= (uint64_t) !!(message_keys[k].required & MESSAGE_BIT(type))
                                     << k;
        }
    }
    for (unsigned type = 0; type < MESSAGE_TYPES; type++)
        for (int input = 0; input < 2; input++)
            words->tensors[type][input] = allowed_keys((enum message_type)type, input);
    for (unsigned type = 1; type < MESSAGE_TYPES; type++)
        ok &= message_names_add(&words->types, message_type_name((enum message_type)type), type);
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        ok &= message_names_add(&words->members, members[i], i);
    for (unsigned dtype = 1; dtype < XOP_DTYPE_COUNT; dtype++)
        ok &= message_names_add(&words->dtypes, xop_dtype_name((enum xop_dtype)dtype), dtype);
    for (unsigned access = ACCESS_READ; access <= ACCESS_READ_WRITE; access++)
        ok &= message_names_add(&words->accesses, message_access_names[access], access);
    return ok;
}

/* ---- Single values ---- */

/* A big-endian number of `width` bytes, 1, 2, 4 or 8. */
static inline uint64_t big(const unsigned char *at, size_t width) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return be64toh(word) >> (64 - 8 * width);
}

/* An integer of more than a byte: its 64 bits, and whether they are those of a negative one. */
static unsigned char *get_wide(unsigned char *at, uint64_t *bits, bool *negative) {
    unsigned type = *at++;
    size_t width = (size_t)1 << (type & 3);
    *negative = false;
    if (type < 0xcc || type > 0xd3)
        return NULL;
    *bits = big(at, width);
    if (type >= 0xd0) {
        int64_t value = (int64_t)(*bits << (64 - 8 * width)) >> (64 - 8 * width);
        *bits = (uint64_t)value;
        *negative = value < 0;
    }
    return at + width;
}

static inline unsigned char *get_u64(unsigned char *at, uint64_t *out) {
    bool negative;
    if (*at < 0x80) {
        *out = *at;
        return at + 1;
    }
    at = get_wide(at, out, &negative);
    return at && !negative ? at : NULL;
}

static inline unsigned char *get_i64(unsigned char *at, int64_t *out) {
    uint64_t bits;
    bool negative;
    if (*at < 0x80 || *at >= 0xe0) {
        *out = *at < 0x80 ? *at : *at - 256;
        return at + 1;
    }
    at = get_wide(at, &bits, &negative);
    if (!at || (!negative && bits > INT64_MAX))
        return NULL;
    *out = (int64_t)bits;
    return at;
}

static inline unsigned char *get_bool(unsigned char *at, bool *out) {
    *out = *at & 1;
    return (*at & 0xfe) == 0xc2 ? at + 1 : NULL;
}

/* The count of a map or array: its short form has it in the byte, `wide` begins the next. */
static inline unsigned char *get_count(unsigned char *at, unsigned fix, unsigned wide,
                                       uint32_t *count) {
    if ((*at & 0xf0) == fix) {
        *count = *at & 15;
        return at + 1;
    }
    *count = (uint32_t)at[1] << 8 | at[2];
    return *at == wide ? at + 3 : NULL;
}

static inline unsigned char *get_map(unsigned char *at, uint32_t *count) {
    return get_count(at, 0x80, 0xde, count);
}

static inline unsigned char *get_array(unsigned char *at, uint32_t *count) {
    return get_count(at, 0x90, 0xdc, count);
}

/* A text that is one of names: its value. */
static inline unsigned char *get_name(unsigned char *at, const struct message_names *names,
                                      int *value) {
    at += message_names_read(names, at, value) - at;
    return *value >= 0 ? at : NULL;
}

/* A text of at most max bytes. It is moved to where its length began, which leaves room for its
 * NUL. */
static unsigned char *get_text(const struct fast *f, unsigned char *at, int64_t max,
                               const char **out, uint32_t *count) {
    unsigned char *begin = at;
    unsigned type = *at++;
    size_t length = type & 0x1f;
    if ((type & 0xe0) != 0xa0) {
        if (type != 0xd9 && type != 0xda)
            return NULL;
        size_t width = type - 0xd8;
        length = (size_t)big(at, width);
        at += width;
    }
    if (at > f->end || length > (size_t)(f->end - at) || length > (uint64_t)max ||
        !message_utf8((const char *)at, length))
        return NULL;
    memmove(begin, at, length);
    begin[length] = 0;
    *out = (const char *)begin;
    *count = (uint32_t)length;
    return at + length;
}

/* ---- Tensors ---- */

/* The shape, and its product. */
static inline unsigned char *get_shape(unsigned char *at, struct message_tensor *tensor,
                                       uint64_t *elements) {
    int64_t product = 1;
    bool overflow = false;
    at = get_array(at, &tensor->rank);
    if (!at || tensor->rank > XOP_MAX_RANK)
        return NULL;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint64_t size;
        at = get_u64(at, &size);
        if (!at || size > INT64_MAX)
            return NULL;
        tensor->shape[i] = (int64_t)size;
        overflow |= __builtin_mul_overflow(product, (int64_t)size, &product);
    }
    *elements = (uint64_t)product;
    return overflow ? NULL : at;
}

static inline unsigned char *get_member(const struct fast *f, unsigned char *at, unsigned member,
                                        struct message_tensor *tensor, uint64_t *elements) {
    const struct message_words *words = &f->decoder->words;
    int value;
    switch (member) {
    case MESSAGE_HAS_DTYPE:
        at = get_name(at, &words->dtypes, &value);
        tensor->dtype = (enum xop_dtype)value;
        return at;
    case MESSAGE_HAS_SHAPE: return get_shape(at, tensor, elements);
    case MESSAGE_HAS_ACCESS:
        at = get_name(at, &words->accesses, &value);
        tensor->access = (enum message_access)value;
        return at;
    case MESSAGE_HAS_MEMORY:
    case MESSAGE_HAS_RESIDENT:
        at = get_u64(at, &tensor->id);
        return at && tensor->id > 0 ? at : NULL;
    default: return get_u64(at, &tensor->offset);
    }
}

/* Whether the tensor has a size and, where it is not in the body, a range. */
static inline bool check_range(const struct message_tensor *tensor, uint64_t elements,
                               uint64_t *bytes) {
    uint64_t size = xop_dtype_size(tensor->dtype), end;
    int64_t whole;
    if (__builtin_mul_overflow((int64_t)elements, (int64_t)size, &whole))
        return false;
    *bytes = (uint64_t)whole;
    if (tensor->place != PLACE_MEMORY && tensor->place != PLACE_RESIDENT)
        return true;
    uint64_t step = tensor->place == PLACE_MEMORY ? PROTO_ALIGNMENT : size > 0 ? size : 1;
    return (tensor->offset & (step - 1)) == 0 &&
           !__builtin_add_overflow(tensor->offset, *bytes, &end);
}

static inline unsigned char *get_tensor(const struct fast *f, unsigned char *at,
                                        struct message_tensor *tensor, unsigned char *seen_out,
                                        uint64_t *bytes) {
    unsigned seen = 0;
    uint32_t count;
    uint64_t elements = 0;
    int name;
    memset(tensor, 0, sizeof *tensor);
    *bytes = 0;
    if (*at == 0xc0 || *at == 0xc2) {
        *seen_out = *at == 0xc0 ? GIVEN_NIL : GIVEN_FALSE;
        return at + 1;
    }
    at = get_map(at, &count);
    for (; at && count > 0; count--) {
        if (at >= f->end)
            return NULL;
        at = get_name(at, &f->decoder->words.members, &name);
        if (!at || seen >> name & 1)
            return NULL;
        seen |= 1u << name;
        at = get_member(f, at, 1u << name, tensor, &elements);
    }
    tensor->place = message_place_of(seen);
    *seen_out = (unsigned char)seen;
    return at && check_range(tensor, elements, bytes) ? at : NULL;
}

static unsigned char *get_tensors(const struct fast *f, unsigned char *at,
                                  struct message_tensor *list, struct given *given,
                                  uint32_t *count) {
    at = get_array(at, count);
    if (!at || *count > XOP_MAX_INPUTS)
        return NULL;
    for (uint32_t i = 0; at && i < *count; i++)
        at = at < f->end ? get_tensor(f, at, &list[i], &given->seen[i], &given->bytes[i]) : NULL;
    return at;
}

/* What the tensors may be depends on the type, which may come behind them. */
static inline bool check_tensors(const struct fast *f, struct message_tensor *list,
                                 const struct given *given, uint32_t count, bool input) {
    enum message_type type = f->message->type;
    uint64_t allowed = f->decoder->words.tensors[type][input];
    bool needed = type == MESSAGE_PUT || type == MESSAGE_GET || type == MESSAGE_EXPORT;
    for (uint32_t i = 0; i < count; i++) {
        /* Set for every one that was counted. NOLINTNEXTLINE(clang-analyzer-core.*) */
        unsigned seen = given->seen[i];
        if (seen < GIVEN_NIL) {
            if (!(allowed >> (seen & (MESSAGE_HAS_ACCESS - 1)) & 1))
                return false;
            continue;
        }
        if (needed || (input ? seen == GIVEN_FALSE : seen == GIVEN_NIL && type == MESSAGE_RESULT))
            return false;
        if (input || seen == GIVEN_FALSE)
            list[i].place = PLACE_OMIT;
    }
    return true;
}

/* Whether tensors in their order fill the body; false also where they do so in another. */
static inline bool fill_body(const struct message_tensor *list, const struct given *given,
                             uint32_t count, uint64_t body) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        /* As above. NOLINTNEXTLINE(clang-analyzer-core.*) */
        uint64_t begin = list[i].offset, bytes = given->bytes[i];
        if (list[i].place != PLACE_BODY)
            continue;
        if (begin % PROTO_ALIGNMENT != 0 || begin > body || bytes > body - begin)
            return false;
        if (bytes == 0)
            continue;
        if (begin < end || begin - end >= PROTO_ALIGNMENT)
            return false;
        end = begin + bytes;
    }
    return end == body;
}

/* ---- Attributes ---- */

static inline bool is_float(unsigned type) { return (type & 0xfe) == 0xca; }

static inline unsigned char *get_float(unsigned char *at, double *out) {
    size_t width = *at++ == 0xca ? 4 : 8;
    uint64_t bits = big(at, width);
    uint32_t half = (uint32_t)bits;
    float value;
    memcpy(&value, &half, sizeof value);
    memcpy(out, &bits, sizeof *out);
    if (width == 4)
        *out = (double)value;
    return at + width;
}

/* Of integers until a float comes: then what is there becomes floats, and so does the rest. */
static unsigned char *get_list(const struct fast *f, unsigned char *at, struct xop_attr *attr) {
    union message_element *list = f->decoder->lists[f->decoder->nlists++];
    attr->type = XOP_ATTR_INTS;
    attr->value.ints = &list->i;
    at = get_array(at, &attr->count);
    if (!at || attr->count > XOP_MAX_ATTR_LIST)
        return NULL;
    for (uint32_t i = 0; i < attr->count; i++) {
        if (at >= f->end)
            return NULL;
        bool floating = is_float(*at);
        for (uint32_t k = 0; floating && attr->type == XOP_ATTR_INTS && k < i; k++)
            list[k].f = (double)list[k].i;
        if (floating)
            attr->type = XOP_ATTR_FLOATS;
        at = floating ? get_float(at, &list[i].f) : get_i64(at, &list[i].i);
        if (!at)
            return NULL;
        if (!floating && attr->type == XOP_ATTR_FLOATS)
            list[i].f = (double)list[i].i;
    }
    return at;
}

static unsigned char *get_attr(const struct fast *f, unsigned char *at, struct xop_attr *attr) {
    unsigned type = *at;
    bool flag = false;
    attr->count = 1;
    if (is_float(type)) {
        attr->type = XOP_ATTR_FLOAT;
        return get_float(at, &attr->value.f);
    }
    if ((type & 0xfe) == 0xc2) {
        attr->type = XOP_ATTR_BOOL;
        at = get_bool(at, &flag);
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
    return get_i64(at, &attr->value.i);
}

static unsigned char *get_attrs(const struct fast *f, unsigned char *at) {
    struct message *m = f->message;
    uint32_t length;
    at = get_map(at, &m->nattrs);
    if (!at || m->nattrs > XOP_MAX_ATTRS)
        return NULL;
    for (uint32_t i = 0; i < m->nattrs; i++) {
        struct xop_attr *attr = &m->attrs[i];
        at = at < f->end ? get_text(f, at, XOP_MAX_NAME, &attr->name, &length) : NULL;
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

static inline unsigned char *get_number(const struct fast *f, unsigned char *at,
                                        const struct message_key *key) {
    void *member = message_member(f->message, key);
    uint64_t number;
    at = get_u64(at, &number);
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

static inline unsigned char *get_value(struct fast *f, unsigned char *at,
                                       const struct message_key *key) {
    struct message *m = f->message;
    int64_t integer;
    uint32_t length;
    switch (key->kind) {
    case KIND_U64:
    case KIND_U32:
    case KIND_STATUS: return get_number(f, at, key);
    case KIND_BOOL: return get_bool(at, message_member(m, key));
    case KIND_STRING: return get_text(f, at, key->max, message_member(m, key), &length);
    case KIND_INPUTS: return get_tensors(f, at, m->in, &f->in, &m->nin);
    case KIND_OUTPUTS: return get_tensors(f, at, m->out, &f->out, &m->nout);
    case KIND_ATTRS: return get_attrs(f, at);
    case KIND_I32:
        at = get_i64(at, &integer);
        if (!at || integer < key->min || integer > key->max)
            return NULL;
        *(int32_t *)message_member(m, key) = (int32_t)integer;
        return at;
    }
    return NULL;
}

/* All keys, in whatever order they come. */
static bool get_keys(struct fast *f, unsigned char *at) {
    const struct message_words *words = &f->decoder->words;
    uint32_t count;
    int name, type;
    at = get_map(at, &count);
    for (; at && count > 0; count--) {
        if (at >= f->end)
            return false;
        at = get_name(at, &words->keys, &name);
        if (!at || f->seen >> name & 1)
            return false;
        f->seen |= UINT64_C(1) << name;
        if (name != MESSAGE_KEY_TYPE) {
            at = get_value(f, at, &message_keys[name]);
            continue;
        }
        at = get_name(at, &words->types, &type);
        if (at)
            f->message->type = (enum message_type)type;
    }
    return at == f->end;
}

static bool check_body(const struct fast *f, uint64_t body) {
    struct message *m = f->message;
    struct message_decoding d = {f->decoder, m, NULL};
    bool run = m->type == MESSAGE_FORWARD || m->type == MESSAGE_BACKWARD;
    if (run && fill_body(m->in, &f->in, m->nin, body))
        return true;
    if (m->type == MESSAGE_RESULT && m->status == XOP_OK && !m->media &&
        (m->nout == 0 || fill_body(m->out, &f->out, m->nout, body)))
        return true;
    return message_check_body(&d, body);
}

bool message_decode_fast(struct message_decoder *decoder, const void *header, size_t bytes,
                         uint64_t body_bytes, struct message *m) {
    const struct message_words *words = &decoder->words;
    struct fast f; /* its lists are filled as the message's are */
    unsigned char *copy = (unsigned char *)decoder->strings;
    if (bytes > PROTO_MAX_HEADER)
        return false;
    memcpy(copy, header, bytes);
    message_reset(m, MESSAGE_NONE, 0);
    decoder->nlists = 0;
    f.decoder = decoder;
    f.message = m;
    f.end = copy + bytes;
    f.seen = 0;
    if (!get_keys(&f, copy))
        return false;
    uint64_t keys = f.seen & ~(UINT64_C(1) << MESSAGE_KEY_TYPE);
    return keys != f.seen && !(keys & ~words->used[m->type]) &&
           !(words->required[m->type] & ~keys) && check_tensors(&f, m->in, &f.in, m->nin, true) &&
           check_tensors(&f, m->out, &f.out, m->nout, false) && check_body(&f, body_bytes);
}
