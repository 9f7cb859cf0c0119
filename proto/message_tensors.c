#include "message_decoding.h"

/* ---- One tensor ---- */

static bool get_dtype(struct message_decoding *d, struct message_where where,
                      const msgpack_object *o, enum xop_dtype *out) {
    char quoted[64];
    if (o->type != MSGPACK_OBJECT_STR)
        return message_expected(d, where, "a string", o);
    for (int dtype = 1; dtype < XOP_DTYPE_COUNT; dtype++)
        if (message_is_key(o, xop_dtype_name((enum xop_dtype)dtype))) {
            *out = (enum xop_dtype)dtype;
            return true;
        }
    return message_wrong(d, where, "\"%s\" is no dtype: f16, bf16, f32, f64, i32, i64 and bool are",
                         message_quote(quoted, sizeof quoted, o->via.str.ptr, o->via.str.size));
}

static bool get_shape(struct message_decoding *d, struct message_where where,
                      const msgpack_object *o, struct message_tensor *tensor) {
    if (o->type != MSGPACK_OBJECT_ARRAY)
        return message_expected(d, where, "an array of integers", o);
    if (o->via.array.size > XOP_MAX_RANK)
        return message_wrong(d, where, "it has %u dimensions: %d are allowed", o->via.array.size,
                             XOP_MAX_RANK);
    tensor->rank = o->via.array.size;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (!message_get_i64(d, where, &o->via.array.ptr[i], &tensor->shape[i]))
            return false;
        if (tensor->shape[i] < 0)
            return message_wrong(d, where, "dimension %u is %lld: it cannot be negative", i,
                                 (long long)tensor->shape[i]);
    }
    return true;
}

static bool get_access(struct message_decoding *d, struct message_where where,
                       const msgpack_object *o, enum message_access *out) {
    if (o->type != MSGPACK_OBJECT_STR)
        return message_expected(d, where, "a string", o);
    for (int access = ACCESS_READ; access <= ACCESS_READ_WRITE; access++)
        if (message_is_key(o, message_access_names[access])) {
            *out = (enum message_access)access;
            return true;
        }
    return message_wrong(d, where, "\"r\", \"w\" or \"rw\" is expected");
}

static bool get_id(struct message_decoding *d, struct message_where where, const msgpack_object *o,
                   uint64_t *out) {
    if (!message_get_u64(d, where, o, out))
        return false;
    return *out > 0 || message_wrong(d, where, "it cannot be 0");
}

static const char *const members[] = {MESSAGE_MEMBERS};
#define PLACES (MESSAGE_HAS_BODY | MESSAGE_HAS_MEMORY | MESSAGE_HAS_RESIDENT)

static bool get_member(struct message_decoding *d, struct message_where where,
                       const msgpack_object_kv *pair, struct message_tensor *tensor,
                       unsigned *seen) {
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++) {
        if (!message_is_key(&pair->key, members[i]))
            continue;
        where.member = members[i];
        *seen |= 1u << i;
        switch (1u << i) {
        case MESSAGE_HAS_DTYPE: return get_dtype(d, where, &pair->val, &tensor->dtype);
        case MESSAGE_HAS_SHAPE: return get_shape(d, where, &pair->val, tensor);
        case MESSAGE_HAS_ACCESS: return get_access(d, where, &pair->val, &tensor->access);
        case MESSAGE_HAS_MEMORY:
        case MESSAGE_HAS_RESIDENT: return get_id(d, where, &pair->val, &tensor->id);
        default: return message_get_u64(d, where, &pair->val, &tensor->offset);
        }
    }
    return true; /* unknown: from a later version */
}

/* Whether the keys that were there go together. */
bool message_check_keys(struct message_decoding *d, struct message_where where,
                        enum message_type type, unsigned seen, bool input) {
    unsigned places = seen & PLACES;
    /* Only a resident tensor, and an output that is still to be computed, have what is left out. */
    bool needs_type = input ? !(seen & MESSAGE_HAS_RESIDENT) : type == MESSAGE_RESULT;
    if (places & (places - 1))
        return message_wrong(d, where, "a tensor has one place: body, memory or resident");
    if (seen & MESSAGE_HAS_OFFSET && !(seen & (MESSAGE_HAS_MEMORY | MESSAGE_HAS_RESIDENT)))
        return message_wrong(d, where, "offset belongs to memory or resident");
    if (!(seen & MESSAGE_HAS_DTYPE) != !(seen & MESSAGE_HAS_SHAPE) ||
        (needs_type && !(seen & MESSAGE_HAS_DTYPE)))
        return message_wrong(d, where, "dtype and shape are both needed");
    if (places & (MESSAGE_HAS_BODY | MESSAGE_HAS_RESIDENT) && type == MESSAGE_PUT)
        return message_wrong(d, where,
                             "its bytes are the body, or in memory: it has no other place");
    if (places && type == MESSAGE_EXPORT)
        return message_wrong(d, where, "it has no place here: the handle is its place");
    if (type == MESSAGE_GET && places != MESSAGE_HAS_MEMORY)
        return message_wrong(d, where, "memory is needed: else the body is where it goes");
    if (seen & MESSAGE_HAS_BODY && !input && type != MESSAGE_RESULT)
        return message_wrong(d, where, "an output cannot be in the body of a request");
    return true;
}

/* Offsets in the body are checked with the body, once all its tensors are known. */
static bool check_range(struct message_decoding *d, struct message_where where,
                        const struct message_tensor *tensor) {
    uint64_t bytes = 0, end, size = xop_dtype_size(tensor->dtype);
    struct xop_error error;
    where.member = "shape";
    if (size > 0 && message_tensor_bytes(tensor, &bytes, &error) != XOP_OK)
        return message_wrong(d, where, "%s", error.message);
    if (tensor->place != PLACE_MEMORY && tensor->place != PLACE_RESIDENT)
        return true;
    /* Sizes of elements are powers of two, as the alignment is. */
    uint64_t step = tensor->place == PLACE_MEMORY ? PROTO_ALIGNMENT : size > 0 ? size : 1;
    where.member = "offset";
    if (tensor->offset & (step - 1))
        return message_wrong(d, where, "%llu is not a multiple of %llu",
                             (unsigned long long)tensor->offset, (unsigned long long)step);
    if (__builtin_add_overflow(tensor->offset, bytes, &end))
        return message_wrong(d, where, "no memory holds %llu bytes at %llu",
                             (unsigned long long)bytes, (unsigned long long)tensor->offset);
    return true;
}

static bool get_tensor(struct message_decoding *d, struct message_where where,
                       const msgpack_object *o, struct message_tensor *tensor, bool input) {
    unsigned seen = 0;
    if (o->type != MSGPACK_OBJECT_MAP)
        return message_expected(d, where, "a map that describes a tensor", o);
    if (!message_check_map(d, where, &o->via.map))
        return false;
    for (uint32_t i = 0; i < o->via.map.size; i++)
        if (!get_member(d, where, &o->via.map.ptr[i], tensor, &seen))
            return false;
    tensor->place = message_place_of(seen);
    return message_check_keys(d, where, d->message->type, seen, input) &&
           check_range(d, where, tensor);
}

/* ---- Lists of tensors ---- */

bool message_get_tensors(struct message_decoding *d, const struct message_key *key,
                         const msgpack_object *o) {
    struct message *m = d->message;
    bool input = key->kind == KIND_INPUTS;
    uint32_t max = input ? XOP_MAX_INPUTS : XOP_MAX_OUTPUTS;
    struct message_tensor *list = input ? m->in : m->out;
    /* What these say is about one tensor, which cannot be left out. */
    bool needed = m->type == MESSAGE_PUT || m->type == MESSAGE_GET || m->type == MESSAGE_EXPORT;
    struct message_where where = {key->name, -1, NULL};
    if (o->type != MSGPACK_OBJECT_ARRAY)
        return message_expected(d, where, "an array of tensors", o);
    if (o->via.array.size > max)
        return message_wrong(d, where, "it has %u tensors: %u are allowed", o->via.array.size, max);
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        const msgpack_object *element = &o->via.array.ptr[i];
        bool is_nil = element->type == MSGPACK_OBJECT_NIL;
        bool is_false = element->type == MSGPACK_OBJECT_BOOLEAN && !element->via.boolean;
        where.index = (int)i;
        list[i] = (struct message_tensor){.place = PLACE_NONE};
        if (!needed && (input ? is_nil : is_false))
            list[i].place = PLACE_OMIT;
        else if ((needed || input || !is_nil || m->type == MESSAGE_RESULT) &&
                 !get_tensor(d, where, element, &list[i], input))
            return false;
    }
    *(input ? &m->nin : &m->nout) = o->via.array.size;
    return true;
}

/* ---- The body ---- */

struct span {
    uint64_t begin, bytes;
    uint32_t index;
};

static bool wrong_body(struct message_decoding *d, const char *what, uint64_t body,
                       uint64_t allowed) {
    return message_wrong(d, (struct message_where){"body", -1, NULL}, what,
                         (unsigned long long)body, (unsigned long long)allowed);
}

/* Tensors of the body in their order, each checked to lie in it. Empty ones overlap nothing and
 * fill nothing, so that they are not among them. */
static bool collect(struct message_decoding *d, const char *key, const struct message_tensor *list,
                    uint32_t n, uint64_t body, struct span *spans, uint32_t *count) {
    *count = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct message_where where = {key, (int)i, "body"};
        struct span span = {list[i].offset, 0, i};
        struct xop_error ignored;
        if (list[i].place != PLACE_BODY)
            continue;
        message_tensor_bytes(&list[i], &span.bytes, &ignored);
        if (span.begin % PROTO_ALIGNMENT != 0)
            return message_wrong(d, where, "%llu is not a multiple of %u",
                                 (unsigned long long)span.begin, PROTO_ALIGNMENT);
        if (span.begin > body || span.bytes > body - span.begin)
            return message_wrong(d, where, "the tensor has %llu bytes at %llu, the body has %llu",
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

static bool check_tensors(struct message_decoding *d, uint64_t body) {
    const struct message *m = d->message;
    bool result = m->type == MESSAGE_RESULT;
    const char *key = result ? "out" : "in";
    struct span spans[XOP_MAX_INPUTS > XOP_MAX_OUTPUTS ? XOP_MAX_INPUTS : XOP_MAX_OUTPUTS];
    uint32_t n = 0;
    uint64_t end = 0;
    if (!collect(d, key, result ? m->out : m->in, result ? m->nout : m->nin, body, spans, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct message_where where = {key, (int)spans[i].index, "body"};
        if (spans[i].begin < end)
            return message_wrong(d, where, "the tensor overlaps another in the body");
        if (spans[i].begin - end >= PROTO_ALIGNMENT)
            return message_wrong(d, where, "the body has a gap before the tensor, from byte %llu",
                                 (unsigned long long)end);
        end = spans[i].begin + spans[i].bytes;
    }
    return end == body ||
           wrong_body(d, "it has %llu bytes, but its tensors end at byte %llu", body, end);
}

/* put and export have one tensor. */
static bool check_one(struct message_decoding *d) {
    return d->message->nin == 1 ||
           message_wrong(d, (struct message_where){"in", -1, NULL},
                         "it has %u tensors: \"%s\" has one", d->message->nin,
                         message_type_name(d->message->type));
}

/* A put's body is the piece of its tensor that begins at offset; where the tensor is in client
 * memory there is none, and the piece is all of it. Pieces are whole elements. */
static bool check_piece(struct message_decoding *d, uint64_t body) {
    const struct message *m = d->message;
    struct xop_error ignored;
    uint64_t bytes = 0, end, size = xop_dtype_size(m->in[0].dtype);
    if (!check_one(d))
        return false;
    message_tensor_bytes(&m->in[0], &bytes, &ignored);
    if (m->in[0].place == PLACE_MEMORY)
        return (m->offset == 0 || message_wrong(d, (struct message_where){"offset", -1, NULL},
                                                "a tensor in client memory is put whole")) &&
               (body == 0 ||
                wrong_body(d, "it has %llu bytes, but the tensor is in memory", body, 0));
    if (__builtin_add_overflow(m->offset, body, &end) || end > bytes)
        return wrong_body(d,
                          "a piece of it ends behind the tensor: it has %llu bytes, the tensor "
                          "%llu",
                          body, bytes);
    if ((m->offset | body) & (size - 1))
        return wrong_body(d, "a piece of %llu bytes is not of whole elements of %llu", body, size);
    return true;
}

/* The receiver of a result without tensors knows what it asked for: a document, a piece of a
 * resident tensor, or nothing. */
static bool check_result(struct message_decoding *d, uint64_t body) {
    const struct message *m = d->message;
    if (m->status != XOP_OK && body > 0)
        return wrong_body(d, "it has %llu bytes, but a request that failed has %llu", body, 0);
    if (m->nout == 0)
        return true;
    if (m->media)
        return message_wrong(d, (struct message_where){"media", -1, NULL},
                             "a body is a document or made of tensors");
    return check_tensors(d, body);
}

bool message_check_body(struct message_decoding *d, uint64_t body_bytes) {
    switch (d->message->type) {
    case MESSAGE_GET:
        if (d->message->nout > 1)
            return message_wrong(d, (struct message_where){"out", -1, NULL},
                                 "it has %u tensors: \"get\" has one", d->message->nout);
        return check_tensors(d, body_bytes);
    case MESSAGE_PUT: return check_piece(d, body_bytes);
    case MESSAGE_EXPORT: return check_one(d) && check_tensors(d, body_bytes);
    case MESSAGE_RESULT: return check_result(d, body_bytes);
    default: return check_tensors(d, body_bytes);
    }
}
