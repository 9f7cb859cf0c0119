#include "message.h"

bool message_align(uint64_t offset, uint64_t *aligned) {
    if (__builtin_add_overflow(offset, PROTO_ALIGNMENT - 1, aligned))
        return false;
    *aligned &= ~(uint64_t)(PROTO_ALIGNMENT - 1);
    return true;
}

enum xop_status message_tensor_bytes(const struct message_tensor *tensor, uint64_t *bytes,
                                     struct xop_error *error) {
    struct xop_tensor plain; /* its data is nobody's concern, nor what is beyond its rank */
    plain.dtype = tensor->dtype;
    plain.rank = tensor->rank;
    for (uint32_t i = 0; i < tensor->rank && i < XOP_MAX_RANK; i++)
        plain.shape[i] = tensor->shape[i];
    if (!xop_tensor_bytes(&plain, bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "its dtype and shape give a size that is not possible");
    return XOP_OK;
}

/* Bytes that continue a sequence after this first byte, and the least code point it may encode; -1
 * for a byte that begins nothing. */
static int sequence(unsigned char first, uint32_t *code, uint32_t *least) {
    static const struct {
        unsigned char mask, value;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 1}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (int n = 0; n < 4; n++)
        if ((first & forms[n].mask) == forms[n].value) {
            *code = first & (unsigned char)~forms[n].mask;
            *least = forms[n].least;
            return n;
        }
    return -1;
}

/* Bytes at the beginning that are ASCII without NUL, in eights. */
static size_t plain_eights(const char *bytes, size_t length) {
    const uint64_t ones = UINT64_MAX / 255, tops = ones << 7;
    size_t i = 0;
    for (uint64_t word; length - i >= 8; i += 8) {
        memcpy(&word, bytes + i, 8);
        /* Taking 1 from a byte borrows its top bit where it was 0, and only where one below it was
         * 0 does it do so elsewhere. */
        if ((word | (word - ones)) & tops)
            break;
    }
    return i;
}

bool message_utf8(const char *bytes, size_t length) {
    for (size_t i = plain_eights(bytes, length); i < length;) {
        if (bytes[i] > 0) {
            i++;
            continue;
        }
        uint32_t code, least;
        int more = sequence((unsigned char)bytes[i++], &code, &least);
        if (more < 0 || (size_t)more > length - i)
            return false;
        for (; more > 0; more--, i++) {
            unsigned char next = (unsigned char)bytes[i];
            if ((next & 0xc0) != 0x80)
                return false;
            code = code << 6 | (next & 0x3f);
        }
        /* Overlong forms, surrogates, NUL, and what is beyond Unicode. */
        if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return false;
    }
    return true;
}

char *message_quote(char *buffer, size_t capacity, const char *text, size_t length) {
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;
    for (size_t i = 0; i < length && used + 5 < capacity; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c < 0x7f && c != '\\') {
            buffer[used++] = (char)c;
        } else {
            buffer[used++] = '\\';
            buffer[used++] = 'x';
            buffer[used++] = hex[c >> 4];
            buffer[used++] = hex[c & 15];
        }
    }
    if (capacity > 0)
        buffer[used] = 0;
    return buffer;
}

char *message_tensor_text(char *buffer, size_t capacity, const struct xop_tensor *tensor) {
    size_t used = (size_t)snprintf(buffer, capacity, "%s (", xop_dtype_name(tensor->dtype));
    for (uint32_t i = 0; i < tensor->rank && i < XOP_MAX_RANK && used < capacity; i++)
        used += (size_t)snprintf(buffer + used, capacity - used, "%s%lld", i ? ", " : "",
                                 (long long)tensor->shape[i]);
    if (used < capacity)
        snprintf(buffer + used, capacity - used, tensor->rank == 1 ? ",)" : ")");
    return buffer;
}
