#include "frame.h"

#include <endian.h>
#include <string.h>

static const unsigned char magic[4] = {'X', 'O', 'P', '1'};

enum xop_status frame_read_prefix(const unsigned char bytes[FRAME_PREFIX], uint64_t max_body,
                                  struct frame_prefix *prefix, struct xop_error *error) {
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "a frame begins with \"XOP1\", not with the bytes %02x %02x %02x %02x",
                        bytes[0], bytes[1], bytes[2], bytes[3]);
    uint32_t header;
    uint64_t body;
    memcpy(&header, bytes + 4, sizeof header);
    memcpy(&body, bytes + 8, sizeof body);
    header = be32toh(header);
    body = be64toh(body);
    if (header == 0 || header > PROTO_MAX_HEADER)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the frame's header has %u bytes: 1 to %u are allowed", header,
                        PROTO_MAX_HEADER);
    if (max_body > PROTO_MAX_BODY)
        max_body = PROTO_MAX_BODY;
    if (body > max_body)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the frame's body has %llu bytes: %llu are allowed",
                        (unsigned long long)body, (unsigned long long)max_body);
    prefix->header_bytes = header;
    prefix->body_bytes = body;
    return XOP_OK;
}

void frame_write_prefix(unsigned char bytes[FRAME_PREFIX], struct frame_prefix prefix) {
    uint32_t header = htobe32(prefix.header_bytes);
    uint64_t body = htobe64(prefix.body_bytes);
    memcpy(bytes, magic, sizeof magic);
    memcpy(bytes + 4, &header, sizeof header);
    memcpy(bytes + 8, &body, sizeof body);
}
