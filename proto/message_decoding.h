/*
 * What the files that decode a header share: the decoder's memory, the way an error names the place
 * that is wrong, and the readers of single values. Internal to proto/; what holds for a decoder's
 * use and threads is in message.h.
 *
 * Readers return false after they filled the error; they see only what message_scan() let pass, so
 * every key is well-formed text.
 */
#ifndef PROTO_MESSAGE_DECODING_H
#define PROTO_MESSAGE_DECODING_H

#include "message_fast.h"

#include <msgpack.h>

/* Keys of a map at most, known or not: enough for every message, few enough to compare pairwise. */
#define MESSAGE_MAX_KEYS 64

/* What msgpack-c may build of a header: so many objects, and none is larger in its place. */
#define MESSAGE_ZONE (MESSAGE_MAX_OBJECTS * sizeof(msgpack_object) + 4096)

/* Bytes behind a header that may be read as well: more than what is read between two looks at where
 * the end is, which is a shape, two names or a number each. */
#define MESSAGE_SLACK 128u

union message_element {
    int64_t i;
    double f;
};

struct message_decoder {
    msgpack_zone zone; /* of one chunk that holds every header's objects: it never grows */
    struct message_words words;
    /* Strings with their NUL: the general decoder's copies, or the fast one's whole header. A
     * string of n bytes takes n + 1 bytes of a header at least: this is never too small. */
    char strings[PROTO_MAX_HEADER + MESSAGE_SLACK];
    size_t used;
    /* A header has at most so many lists. */
    union message_element lists[XOP_MAX_ATTRS][XOP_MAX_ATTR_LIST];
    uint32_t nlists;
};

/* One call of message_decode(). Where error is NULL nobody asks what is wrong, only whether. */
struct message_decoding {
    struct message_decoder *decoder;
    struct message *message;
    struct xop_error *error;
};

/* The keys of a tensor, and a bit for each that was there. */
#define MESSAGE_MEMBERS "dtype", "shape", "body", "memory", "resident", "offset", "access"
enum {
    MESSAGE_HAS_DTYPE = 1,
    MESSAGE_HAS_SHAPE = 2,
    MESSAGE_HAS_BODY = 4,
    MESSAGE_HAS_MEMORY = 8,
    MESSAGE_HAS_RESIDENT = 16,
    MESSAGE_HAS_OFFSET = 32,
    MESSAGE_HAS_ACCESS = 64
};

static inline enum message_place message_place_of(unsigned seen) {
    return seen & MESSAGE_HAS_BODY       ? PLACE_BODY
           : seen & MESSAGE_HAS_MEMORY   ? PLACE_MEMORY
           : seen & MESSAGE_HAS_RESIDENT ? PLACE_RESIDENT
                                         : PLACE_NONE;
}

/* Where in a header something is: key, key[index], key.member or key[index].member. */
struct message_where {
    const char *key;
    int index;          /* in an array; -1: none */
    const char *member; /* NULL: none */
};

/* Fails with "WHERE: `what` is expected, a float came" and "WHERE: ...". Both return false. */
bool message_expected(struct message_decoding *d, struct message_where where, const char *what,
                      const msgpack_object *came);
bool message_wrong(struct message_decoding *d, struct message_where where, const char *format, ...)
    XOP_PRINTF(3, 4);

bool message_is_key(const msgpack_object *key, const char *name);

/* No more keys than MESSAGE_MAX_KEYS, and none of them twice. */
bool message_check_map(struct message_decoding *d, struct message_where where,
                       const msgpack_object_map *map);

bool message_get_u64(struct message_decoding *d, struct message_where where,
                     const msgpack_object *o, uint64_t *out);
bool message_get_i64(struct message_decoding *d, struct message_where where,
                     const msgpack_object *o, int64_t *out);
/* A copy of at most max bytes; length may be NULL. */
bool message_get_string(struct message_decoding *d, struct message_where where,
                        const msgpack_object *o, int64_t max, const char **out, uint32_t *length);

/* The message's attrs, in or out, and the check that the body is what the header says it is. */
bool message_get_attrs(struct message_decoding *d, const struct message_key *key,
                       const msgpack_object *o);
bool message_get_tensors(struct message_decoding *d, const struct message_key *key,
                         const msgpack_object *o);
/* Whether a tensor of in or out may have the keys of seen in a message of that type. */
bool message_check_keys(struct message_decoding *d, struct message_where where,
                        enum message_type type, unsigned seen, bool input);
bool message_check_body(struct message_decoding *d, uint64_t body_bytes);

#endif
