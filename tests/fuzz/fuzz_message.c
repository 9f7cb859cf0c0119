/* Any bytes as a header: decoding is bounded, and what it accepts can be encoded and decoded again.
 */
#include "proto/frame.h"
#include "proto/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct message_decoder *decoder, *second;
    static unsigned char bytes[FRAME_PREFIX + PROTO_MAX_HEADER];
    static struct message message, again;
    struct xop_error error = {XOP_OK, ""};
    uint64_t body = 0;
    if (!decoder) {
        decoder = message_decoder_new();
        second = message_decoder_new();
    }
    if (size < 2)
        return 0;
    /* The first two bytes choose the body's size, so that ranges in it are tried. */
    body = (uint64_t)data[0] << 8 | data[1];
    enum xop_status status = message_decode(decoder, data + 2, size - 2, body, &message, &error);
    if (status != XOP_OK) {
        if (strlen(error.message) == 0 || error.status != status)
            abort();
        return 0;
    }
    size_t n = message_encode(&message, body, bytes, sizeof bytes);
    /* A list that was written shorter than we write it may not fit any more. */
    if (n > 0 && (message_decode(second, bytes + FRAME_PREFIX, n - FRAME_PREFIX, body, &again,
                                 &error) != XOP_OK ||
                  again.type != message.type || again.id != message.id ||
                  again.nin != message.nin || again.nattrs != message.nattrs))
        abort();
    return 0;
}
