/* Any bytes as a server's stream, cut anywhere: the client's reader stays in its memory. */
#include "client/lib/reader.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned char *place; /* as large as the limit, so that every segment fits */

static enum xop_status on_message(void *arg, const struct message *message, uint64_t body_bytes,
                                  struct reader_segment *segments, uint32_t *nsegments,
                                  struct xop_error *error) {
    (void)arg, (void)body_bytes;
    *nsegments = 0;
    for (uint32_t i = 0; i < message->nout; i++) {
        uint64_t bytes = 0, offset = message->out[i].offset;
        if (message->out[i].place != PLACE_BODY ||
            message_tensor_bytes(&message->out[i], &bytes, error) != XOP_OK || bytes == 0)
            continue;
        uint32_t at = (*nsegments)++;
        for (; at > 0 && segments[at - 1].offset > offset; at--)
            segments[at] = segments[at - 1];
        segments[at] = (struct reader_segment){offset, bytes, place};
    }
    return XOP_OK;
}

static void on_complete(void *arg) { (void)arg; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct reader_handler handler = {on_message, on_complete};
    enum { LIMIT = 1 << 16 };
    struct xop_error error;
    if (size < 1)
        return 0;
    if (!place)
        place = malloc(LIMIT);
    struct reader *reader = reader_new(&handler, NULL, LIMIT);
    size_t piece = data[0] + 1u;
    for (size_t at = 1; at < size; at += piece)
        if (reader_feed(reader, data + at, size - at < piece ? size - at : piece, &error) != XOP_OK)
            break;
    reader_free(reader);
    return 0;
}
