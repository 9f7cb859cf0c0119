/* Any bytes as a stream of frames, walked as a server does: a prefix is refused with a sentence or
 * is within its limits and the one that would be written; its header is decoded, its body skipped.
 * The first byte chooses the largest body. */
#include "proto/frame.h"
#include "proto/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool read_prefix(const uint8_t *bytes, uint64_t max_body, struct frame_prefix *prefix) {
    unsigned char again[FRAME_PREFIX];
    struct xop_error error = {XOP_OK, ""};
    if (frame_read_prefix(bytes, max_body, prefix, &error) != XOP_OK) {
        if (strlen(error.message) == 0 || error.status != XOP_INVALID_ARGUMENT)
            abort();
        return false;
    }
    frame_write_prefix(again, *prefix);
    if (memcmp(again, bytes, sizeof again) != 0 || prefix->body_bytes > max_body ||
        prefix->header_bytes == 0 || prefix->header_bytes > PROTO_MAX_HEADER)
        abort();
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct message_decoder *decoder;
    static struct message message;
    struct xop_error error;
    struct frame_prefix prefix;
    if (!decoder)
        decoder = message_decoder_new();
    if (size < 1)
        return 0;
    uint64_t max_body = UINT64_C(1) << data[0] % 64;
    size_t at = 1;
    while (size - at >= FRAME_PREFIX && read_prefix(data + at, max_body, &prefix)) {
        at += FRAME_PREFIX;
        if (prefix.header_bytes > size - at)
            break;
        (void)message_decode(decoder, data + at, prefix.header_bytes, prefix.body_bytes, &message,
                             &error);
        at += prefix.header_bytes;
        if (prefix.body_bytes > size - at)
            break;
        at += prefix.body_bytes;
    }
    return 0;
}
