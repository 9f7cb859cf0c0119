/* Any bytes as a header: decoding is bounded, and what it accepts can be encoded and decoded again,
 * to say the same. */
#include "proto/frame.h"
#include "proto/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Whether what was decoded again says what was encoded. */
static bool is_same(const struct message *a, const struct message *b) {
    if (a->type != b->type || a->id != b->id || a->nin != b->nin || a->nout != b->nout ||
        a->nattrs != b->nattrs || !same_text(a->op, b->op) || !same_text(a->error, b->error) ||
        memcmp(a->in, b->in, a->nin * sizeof *a->in) != 0 ||
        memcmp(a->out, b->out, a->nout * sizeof *a->out) != 0)
        return false;
    for (uint32_t i = 0; i < a->nattrs; i++)
        if (!same_text(a->attrs[i].name, b->attrs[i].name) ||
            a->attrs[i].type != b->attrs[i].type || a->attrs[i].count != b->attrs[i].count)
            return false;
    return a->deadline_ms == b->deadline_ms && a->priority == b->priority &&
           a->device == b->device && a->check == b->check && a->handle == b->handle &&
           a->offset == b->offset && a->length == b->length && a->status == b->status;
}

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
    /* A number that was written shorter than we write it may not fit any more. */
    if (n > 0 && (message_decode(second, bytes + FRAME_PREFIX, n - FRAME_PREFIX, body, &again,
                                 &error) != XOP_OK ||
                  !is_same(&message, &again)))
        abort();
    return 0;
}
