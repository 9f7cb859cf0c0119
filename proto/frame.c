#include "frame.h"

#include <string.h>

static const unsigned char magic[4] = {'X', 'O', 'P', '1'};

static uint64_t get(const unsigned char *bytes, int n) {
    uint64_t value = 0;
    for (int i = 0; i < n; i++)
        value = value << 8 | bytes[i];
    return value;
}

static void put(unsigned char *bytes, uint64_t value, int n) {
    for (int i = n - 1; i >= 0; i--, value >>= 8)
        bytes[i] = (unsigned char)value;
}

enum xop_status frame_read_prefix(const unsigned char bytes[FRAME_PREFIX], uint64_t max_body,
                                  struct frame_prefix *prefix, struct xop_error *error) {
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "a frame begins with \"XOP1\", not with the bytes %02x %02x %02x %02x",
                        bytes[0], bytes[1], bytes[2], bytes[3]);
    uint64_t header = get(bytes + 4, 4), body = get(bytes + 8, 8);
    if (header == 0 || header > PROTO_MAX_HEADER)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the frame's header has %llu bytes: 1 to %u are allowed",
                        (unsigned long long)header, PROTO_MAX_HEADER);
    if (max_body > PROTO_MAX_BODY)
        max_body = PROTO_MAX_BODY;
    if (body > max_body)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the frame's body has %llu bytes: %llu are allowed",
                        (unsigned long long)body, (unsigned long long)max_body);
    prefix->header_bytes = (uint32_t)header;
    prefix->body_bytes = body;
    return XOP_OK;
}

void frame_write_prefix(unsigned char bytes[FRAME_PREFIX], struct frame_prefix prefix) {
    memcpy(bytes, magic, sizeof magic);
    put(bytes + 4, prefix.header_bytes, 4);
    put(bytes + 8, prefix.body_bytes, 8);
}
