/*
 * The two ways through a header: the general one, which knows every rule and says what is wrong,
 * and a short one for the headers of every request and result, which does what it can do and leaves
 * all else to the general one. message_decode() and message_encode() try the short one first; both
 * are here so that tests can hold them equal. Internal to proto/; threads as in message.h.
 */
#ifndef PROTO_MESSAGE_FAST_H
#define PROTO_MESSAGE_FAST_H

#include "message_names.h"
#include "message_table.h"

/* The value of "type" among the keys, which is in no table; message_nkeys is less. */
#define MESSAGE_KEY_TYPE 63u

/* What decoding finds names in, a table for each place where they stand; the keys of each type of
 * message, as bits by their place in message_keys; and the sets of keys that a tensor may have in
 * it, in out and in, a bit a set. */
struct message_words {
    struct message_names keys, types, members, dtypes, accesses;
    uint64_t used[MESSAGE_TYPES], required[MESSAGE_TYPES];
    uint64_t tensors[MESSAGE_TYPES][2];
};

/* Fills words, which are zeroed; false where a name does not fit, which is a mistake here. */
bool message_words_fill(struct message_words *words);

/* Decodes a header to what message_decode_general() makes of it, without building anything between.
 * False where the header is wrong, or holds what is rare: message is unspecified then. */
bool message_decode_fast(struct message_decoder *decoder, const void *header, size_t bytes,
                         uint64_t body_bytes, struct message *message);

/* As message_decode(), for every header. */
enum xop_status message_decode_general(struct message_decoder *decoder, const void *header,
                                       size_t bytes, uint64_t body_bytes, struct message *message,
                                       struct xop_error *error);

/* Writes what message_encode_general() writes. 0 where that has to say: the type is rare, or the
 * buffer nearly too small, or the message wrong. */
size_t message_encode_fast(const struct message *message, uint64_t body_bytes, void *buffer,
                           size_t capacity);

/* As message_encode(), for every message. */
size_t message_encode_general(const struct message *message, uint64_t body_bytes, void *buffer,
                              size_t capacity);

#endif
