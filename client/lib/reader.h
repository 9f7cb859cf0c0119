/*
 * Reads frames from bytes that somebody feeds it; needs no socket. A message is handed over when
 * its header is there; whoever takes it says where the pieces of the body go, and hears when the
 * body is whole. Large bodies can be received straight into their place (reader_direct).
 *
 * Belongs to one thread at a time.
 */
#ifndef CLIENT_READER_H
#define CLIENT_READER_H

#include "proto/frame.h"
#include "proto/message.h"

#define READER_SEGMENTS (XOP_MAX_OUTPUTS + 1)

/* Bytes [offset, offset + bytes) of a body go to `to`; what no segment names is dropped. Segments
 * are in order. */
struct reader_segment {
    uint64_t offset, bytes;
    unsigned char *to;
};

struct reader_handler {
    /* A message came. Fills segments for its body; a status other than OK ends the reading. */
    enum xop_status (*message)(void *arg, const struct message *message, uint64_t body_bytes,
                               struct reader_segment *segments, uint32_t *nsegments,
                               struct xop_error *error);
    /* Its body (which may be empty) is whole. */
    void (*complete)(void *arg);
};

struct reader;

/* max_body: a longer body ends the reading. NULL where memory runs out. */
struct reader *reader_new(const struct reader_handler *handler, void *arg, uint64_t max_body);
void reader_free(struct reader *reader);

/* Takes all bytes. After a status other than OK the reader must not be used again. */
enum xop_status reader_feed(struct reader *reader, const void *bytes, size_t length,
                            struct xop_error *error);

/* Where the next bytes of the stream may be stored instead of being fed: *length is 0 where they
 * have to be fed. reader_advance says how many were. */
void reader_direct(const struct reader *reader, unsigned char **to, size_t *length);
void reader_advance(struct reader *reader, size_t stored);

/* Drops what is still to come of the body that is being received: its memory may go. */
void reader_drop_body(struct reader *reader);

/* Whether the stream stands within a frame. */
bool reader_is_within(const struct reader *reader);
/* Whether a frame has begun whose message has not been handed over yet. */
bool reader_is_before_message(const struct reader *reader);

#endif
