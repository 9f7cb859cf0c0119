/*
 * The table of keys: which members of a message travel under which names, in which types of
 * message. Internal to proto/; decoding, encoding and the check that docs/protocol.md is complete
 * use it.
 */
#ifndef PROTO_MESSAGE_TABLE_H
#define PROTO_MESSAGE_TABLE_H

#include "message.h"

enum message_kind {
    KIND_U64,
    KIND_U32,
    KIND_I32,
    KIND_BOOL,
    KIND_STRING,
    KIND_STATUS,
    KIND_INPUTS,
    KIND_OUTPUTS,
    KIND_ATTRS
};

struct message_key {
    const char *name;
    enum message_kind kind;
    size_t offset;           /* of the member in struct message */
    uint32_t used, required; /* a bit a type */
    int64_t min,
        max; /* I32: the range; STRING: bytes at most are max; U64: min is 1 where 0 is none */
};

#define MESSAGE_MAX_MEDIA 64 /* bytes of a media type */
#define MESSAGE_BIT(type) (1u << (type))

extern const struct message_key message_keys[];
extern const uint32_t message_nkeys;

/* By enum message_access: "", "r", "w", "rw". */
extern const char *const message_access_names[4];

/* MESSAGE_NONE for what is no name. */
enum message_type message_type_named(const char *name, size_t length);

/* Where the value of a key is. */
static inline void *message_member(const struct message *message, const struct message_key *key) {
    return (char *)(uintptr_t)message + key->offset;
}

/* ---- The scanner ---- */

/* Walks a header without building anything: well-formed msgpack, one map at the top, within depth
 * and counts that the bytes can hold, text in UTF-8, no extension types, nothing left over. Also
 * finds type and id at the top, for answering errors. */
enum xop_status message_scan(const unsigned char *bytes, size_t length, enum message_type *type,
                             uint64_t *id, struct xop_error *error);

#define MESSAGE_MAX_OBJECTS 8192u

#endif
