/*
 * The frame: a 16-byte prefix, a header (one msgpack map) and a raw body of tensor bytes.
 *
 *     "XOP1" | header length u32 | body length u64 | header | body      (lengths big-endian)
 *
 * Pure functions over bytes; no I/O, no state, any thread.
 */
#ifndef PROTO_FRAME_H
#define PROTO_FRAME_H

#include "limits.h"

#define FRAME_PREFIX 16u

struct frame_prefix {
    uint32_t header_bytes;
    uint64_t body_bytes;
};

/* Reads a prefix from FRAME_PREFIX bytes. INVALID_ARGUMENT where the magic is wrong or a length is
 * 0 (header) or over its limit; the message says what was there. */
enum xop_status frame_read_prefix(const unsigned char bytes[FRAME_PREFIX], uint64_t max_body,
                                  struct frame_prefix *prefix, struct xop_error *error);

void frame_write_prefix(unsigned char bytes[FRAME_PREFIX], struct frame_prefix prefix);

#endif
