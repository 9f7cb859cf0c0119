/*
 * The words of the protocol as numbers: a table of names of at most 16 bytes, each with a value,
 * that is found in by the words its bytes make. Internal to proto/; the tables are filled with a
 * decoder and only read from then on.
 */
#ifndef PROTO_MESSAGE_NAMES_H
#define PROTO_MESSAGE_NAMES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MESSAGE_NAME_BYTES 16u
#define MESSAGE_NAME_SLOTS 128u /* a power of two, a multiple of what is in a table */

/* A name's bytes: the first 8, and of a longer one the last 8; the first byte is a word's lowest.
 */
struct message_name {
    uint64_t first, last;
    uint8_t bytes; /* 0: none, an empty slot */
    uint8_t value;
};

struct message_names {
    struct message_name slots[MESSAGE_NAME_SLOTS];
};

/* Up to 8 bytes as a word. What lies behind them, up to end, is read but not used. */
static inline uint64_t message_word(const unsigned char *at, const unsigned char *end, size_t n) {
    uint64_t word = 0;
    if (end - at >= 8 && n > 0) {
        memcpy(&word, at, 8);
        return le64toh(word) & UINT64_MAX >> (64 - 8 * n);
    }
    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)at[i] << 8 * i;
    return word;
}

/* The name of n bytes at `at`, 1 to MESSAGE_NAME_BYTES, that are there before end. */
static inline struct message_name message_name_at(const unsigned char *at, const unsigned char *end,
                                                  size_t n) {
    struct message_name name = {.bytes = (uint8_t)n};
    name.first = message_word(at, end, n < 8 ? n : 8);
    if (n > 8)
        name.last = message_word(at + n - 8, end, 8);
    return name;
}

static inline uint32_t message_name_slot(struct message_name name) {
    return (uint32_t)((name.first + name.last) * UINT64_C(0x9e3779b97f4a7c15) >> 57);
}

/* A name's value; -1 where it is not in the table. */
static inline int message_names_find(const struct message_names *names, struct message_name name) {
    for (uint32_t i = message_name_slot(name);; i++) {
        const struct message_name *slot = &names->slots[i % MESSAGE_NAME_SLOTS];
        if (slot->first == name.first && slot->last == name.last && slot->bytes == name.bytes)
            return slot->value;
        if (slot->bytes == 0)
            return -1;
    }
}

/* Adds a name; false where it is too long or the table has no more room. */
bool message_names_add(struct message_names *names, const char *name, uint8_t value);

#endif
