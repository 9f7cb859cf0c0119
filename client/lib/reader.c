#include "reader.h"

#include <stdlib.h>
#include <string.h>

enum state { PREFIX, HEADER, BODY };

struct reader {
    const struct reader_handler *handler;
    void *arg;
    uint64_t max_body;
    struct message_decoder *decoder;
    struct message message;
    enum state state;
    struct frame_prefix prefix;
    size_t have; /* bytes of prefix or header in `bytes` */
    uint64_t at; /* in the body */
    struct reader_segment segments[READER_SEGMENTS];
    uint32_t nsegments, segment;
    unsigned char bytes[PROTO_MAX_HEADER];
};

struct reader *reader_new(const struct reader_handler *handler, void *arg, uint64_t max_body) {
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return NULL;
    reader->handler = handler;
    reader->arg = arg;
    reader->max_body = max_body;
    reader->decoder = message_decoder_new();
    if (!reader->decoder) {
        free(reader);
        return NULL;
    }
    return reader;
}

void reader_free(struct reader *reader) {
    if (!reader)
        return;
    message_decoder_free(reader->decoder);
    free(reader);
}

bool reader_is_within(const struct reader *reader) {
    return reader->state != PREFIX || reader->have > 0;
}

bool reader_is_before_message(const struct reader *reader) {
    return reader->state == HEADER || (reader->state == PREFIX && reader->have > 0);
}

static void finish(struct reader *reader) {
    reader->state = PREFIX;
    reader->have = 0;
    reader->handler->complete(reader->arg);
}

/* Collects up to `wanted` bytes; true once they are there. */
static bool collect(struct reader *reader, size_t wanted, const unsigned char **from,
                    size_t *length) {
    size_t n = wanted - reader->have < *length ? wanted - reader->have : *length;
    memcpy(reader->bytes + reader->have, *from, n);
    reader->have += n;
    *from += n;
    *length -= n;
    return reader->have == wanted;
}

/* What does not follow the protocol is the server's fault, and no argument of the caller's. */
static enum xop_status nonsense(struct xop_error *error) {
    struct xop_error inner = *error;
    return xop_fail(error, XOP_INTERNAL, "the server's bytes make no sense: %.460s", inner.message);
}

static enum xop_status begin_body(struct reader *reader, const void *header,
                                  struct xop_error *error) {
    if (message_decode(reader->decoder, header, reader->prefix.header_bytes,
                       reader->prefix.body_bytes, &reader->message, error) != XOP_OK)
        return nonsense(error);
    reader->nsegments = reader->segment = 0;
    reader->at = 0;
    if (reader->handler->message(reader->arg, &reader->message, reader->prefix.body_bytes,
                                 reader->segments, &reader->nsegments, error) != XOP_OK)
        return error->status;
    reader->state = BODY;
    if (reader->prefix.body_bytes == 0)
        finish(reader);
    return XOP_OK;
}

/* A run of the body that goes to one place, from where the stream stands. */
static uint64_t run(const struct reader *reader, unsigned char **to) {
    const struct reader_segment *s = &reader->segments[reader->segment];
    *to = NULL;
    if (reader->segment == reader->nsegments)
        return reader->prefix.body_bytes - reader->at;
    if (reader->at < s->offset)
        return s->offset - reader->at;
    *to = s->to + (reader->at - s->offset);
    return s->offset + s->bytes - reader->at;
}

static void move_on(struct reader *reader, uint64_t n) {
    reader->at += n;
    while (reader->segment < reader->nsegments &&
           reader->at >=
               reader->segments[reader->segment].offset + reader->segments[reader->segment].bytes)
        reader->segment++;
    if (reader->at == reader->prefix.body_bytes)
        finish(reader);
}

static void take_body(struct reader *reader, const unsigned char **from, size_t *length) {
    unsigned char *to;
    uint64_t n = run(reader, &to);
    if (n > *length)
        n = *length;
    if (to)
        memcpy(to, *from, n);
    *from += n;
    *length -= n;
    move_on(reader, n);
}

enum xop_status reader_feed(struct reader *reader, const void *bytes, size_t length,
                            struct xop_error *error) {
    const unsigned char *from = bytes;
    while (length > 0) {
        if (reader->state == BODY) {
            take_body(reader, &from, &length);
        } else if (reader->state == PREFIX) {
            if (!collect(reader, FRAME_PREFIX, &from, &length))
                break;
            if (frame_read_prefix(reader->bytes, reader->max_body, &reader->prefix, error) !=
                XOP_OK)
                return nonsense(error);
            reader->state = HEADER;
            reader->have = 0;
        } else if (reader->have == 0 && length >= reader->prefix.header_bytes) {
            /* The usual case: the header is whole where it is. */
            const unsigned char *header = from;
            from += reader->prefix.header_bytes;
            length -= reader->prefix.header_bytes;
            if (begin_body(reader, header, error) != XOP_OK)
                return error->status;
        } else if (collect(reader, reader->prefix.header_bytes, &from, &length) &&
                   begin_body(reader, reader->bytes, error) != XOP_OK) {
            return error->status;
        }
    }
    return XOP_OK;
}

void reader_direct(const struct reader *reader, unsigned char **to, size_t *length) {
    *length = 0;
    if (reader->state != BODY)
        return;
    uint64_t n = run(reader, to);
    if (*to)
        *length = n > (1u << 30) ? 1u << 30 : (size_t)n;
}

void reader_drop_body(struct reader *reader) { reader->nsegments = reader->segment = 0; }

void reader_advance(struct reader *reader, size_t stored) { move_on(reader, stored); }
