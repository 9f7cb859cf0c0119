/*
 * The words of the protocol as numbers: a table of names, each with a value, that is searched by
 * the bytes a name has in a header. Internal to proto/; the tables are filled with a decoder and
 * only read from then on.
 */
#ifndef PROTO_MESSAGE_NAMES_H
#define PROTO_MESSAGE_NAMES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MESSAGE_NAME_BYTES 15u  /* of a name at most */
#define MESSAGE_NAME_SLOTS 128u /* twice as many as names, at least */

/* A name as msgpack writes it: a byte with its length, then its own. The lowest byte of a word is
 * the one that comes first. */
struct message_name {
    uint64_t first; /* 8 bytes, 0 behind the name's end */
    uint64_t last;  /* of a name of more than 7 bytes its last 8, else 0 */
    uint64_t value;
};

struct message_names {
    struct message_name slots[MESSAGE_NAME_SLOTS]; /* first is 0 in an empty one */
};

static inline uint64_t message_word(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return le64toh(word);
}

static inline uint32_t message_name_slot(uint64_t first) {
    return (uint32_t)(first * UINT64_C(0x9e3779b97f4a7c15) >> 57);
}

/* The value of the name at `at`, where 8 bytes more than it has can be read; -1 where it is none of
 * these. Returns the position behind it. */
static inline const unsigned char *message_names_read(const struct message_names *names,
                                                      const unsigned char *at, int *value) {
    uint64_t first = message_word(at);
    *value = -1;
    if ((first & 0xff) == 0xd9) /* its length in a byte of its own: as in the short form */
        first = message_word(++at) ^ 0xa0;
    size_t bytes = first & 0x1f;
    if ((first & 0xe0) != 0xa0 || bytes > MESSAGE_NAME_BYTES)
        return at;
    uint64_t last = 0;
    if (bytes <= 7)
        first &= UINT64_MAX >> (56 - 8 * bytes);
    else
        last = message_word(at + 1 + bytes - 8);
    for (uint32_t i = message_name_slot(first);; i++) {
        const struct message_name *slot = &names->slots[i % MESSAGE_NAME_SLOTS];
        if (slot->first == first && slot->last == last) {
            *value = (int)slot->value;
            break;
        }
        if (slot->first == 0)
            break;
    }
    return at + 1 + bytes;
}

/* Adds a name; false where it is too long or the table has no more room. */
bool message_names_add(struct message_names *names, const char *name, unsigned value);

#endif
