#include "safetensors.h"

#include "npy.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER (64u << 20)

static const char *const names[XOP_DTYPE_COUNT] = {"",    "F16", "BF16", "F32",
                                                   "F64", "I32", "I64",  "BOOL"};

static enum xop_status bad(struct xop_error *error, const char *what) {
    return xop_fail(error, XOP_INVALID_ARGUMENT, "it is no .safetensors file that can be read: %s",
                    what);
}

/* length bytes; memory grows with what really comes. NULL where that is less. */
static char *read_text(FILE *stream, uint64_t length) {
    char *text = NULL;
    uint64_t have = 0, room = 0;
    do {
        room = room + 65536 < length ? (room + 65536) * 2 : length;
        room = room < length ? room : length;
        char *larger = realloc(text, room + 1);
        size_t n = larger ? fread(larger + have, 1, room - have, stream) : 0;
        if (!larger || n != room - have) {
            free(larger ? larger : text);
            return NULL;
        }
        text = larger;
        have = room;
    } while (have < length);
    return text;
}

static enum xop_status read_header(FILE *stream, json_t **header, struct xop_error *error) {
    unsigned char start[8];
    uint64_t length = 0;
    json_error_t wrong;
    if (fread(start, 1, sizeof start, stream) != sizeof start)
        return bad(error, "it is too short");
    for (int i = 7; i >= 0; i--)
        length = length << 8 | start[i];
    if (length > MAX_HEADER)
        return bad(error, "its header is longer than 64 MiB");
    char *text = read_text(stream, length);
    if (!text)
        return bad(error, "its header ends too early");
    *header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &wrong);
    free(text);
    return json_is_object(*header) ? XOP_OK : bad(error, "its header is no JSON object");
}

/* The entry asked for. */
static enum xop_status choose(json_t *header, const char *name, json_t **entry,
                              struct xop_error *error) {
    const char *key;
    json_t *value;
    char known[200] = "";
    size_t used = 0, n = 0;
    *entry = NULL;
    json_object_foreach(header, key, value) {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        n++;
        if (!name || strcmp(key, name) == 0)
            *entry = value;
        if (used < sizeof known)
            used +=
                (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", key);
    }
    if (!name && n > 1)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "it holds several tensors: name one, as FILE:NAME (there are %s)", known);
    if (!*entry)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "it holds no tensor%s%.80s (there are: %s)",
                        name ? " " : "", name ? name : "", n ? known : "none");
    return XOP_OK;
}

static enum xop_status describe(json_t *entry, struct value *value, uint64_t *begin,
                                struct xop_error *error) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    json_t *shape = json_object_get(entry, "shape"), *size,
           *offsets = json_object_get(entry, "data_offsets");
    size_t i;
    uint64_t bytes;
    memset(value, 0, sizeof *value);
    if (!dtype || !json_is_array(shape) || json_array_size(offsets) != 2)
        return bad(error, "a tensor lacks dtype, shape or data_offsets");
    for (int d = 1; d < XOP_DTYPE_COUNT; d++)
        if (strcmp(dtype, names[d]) == 0)
            value->tensor.dtype = (enum xop_dtype)d;
    if (value->tensor.dtype == XOP_DTYPE_NONE)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "its dtype is %.20s: F16, BF16, F32, F64, I32, I64 and BOOL are read",
                        dtype);
    if (json_array_size(shape) > XOP_MAX_RANK)
        return bad(error, "a tensor has more than 8 dimensions");
    json_array_foreach(shape, i, size) {
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return bad(error, "a shape is not of sizes");
        value->tensor.shape[value->tensor.rank++] = json_integer_value(size);
    }
    json_int_t from = json_integer_value(json_array_get(offsets, 0)),
               to = json_integer_value(json_array_get(offsets, 1));
    if (from < 0 || to < from || !xop_tensor_bytes(&value->tensor, &bytes) ||
        bytes != (uint64_t)(to - from))
        return bad(error, "data_offsets do not agree with dtype and shape");
    *begin = (uint64_t)from;
    return XOP_OK;
}

/* Passes over bytes, of a pipe too. */
static bool skip(FILE *stream, uint64_t bytes) {
    char piece[4096];
    while (bytes > 0) {
        size_t n = fread(piece, 1, bytes < sizeof piece ? bytes : sizeof piece, stream);
        if (n == 0)
            return false;
        bytes -= n;
    }
    return true;
}

enum xop_status safetensors_read(FILE *stream, const char *name, struct value *value,
                                 struct xop_error *error) {
    json_t *header = NULL, *entry;
    uint64_t begin = 0;
    memset(value, 0, sizeof *value);
    enum xop_status status = read_header(stream, &header, error);
    if (status == XOP_OK)
        status = choose(header, name, &entry, error);
    if (status == XOP_OK)
        status = describe(entry, value, &begin, error);
    if (status == XOP_OK && !skip(stream, begin))
        status = bad(error, "its data ends too early");
    if (status == XOP_OK && npy_read_data(stream, value, error) != XOP_OK)
        status = bad(error, "its data ends too early");
    json_decref(header);
    return status;
}

enum xop_status safetensors_write(FILE *stream, const char *name, const struct value *value,
                                  struct xop_error *error) {
    const struct xop_tensor *t = &value->tensor;
    json_t *shape = json_array();
    for (uint32_t i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    json_t *header = json_pack("{s:{s:s, s:o, s:[I, I]}}", name, "dtype", names[t->dtype], "shape",
                               shape, "data_offsets", (json_int_t)0, (json_int_t)value->bytes);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    size_t used = strlen(text), length = (used + 7) / 8 * 8;
    unsigned char start[8];
    for (int i = 0; i < 8; i++)
        start[i] = (unsigned char)((uint64_t)length >> (8 * i));
    bool ok = fwrite(start, 1, 8, stream) == 8 && fwrite(text, 1, used, stream) == used;
    for (; ok && used < length; used++)
        ok = fputc(' ', stream) != EOF;
    ok = ok && fwrite(t->data, 1, value->bytes, stream) == value->bytes && fflush(stream) == 0;
    free(text);
    return ok ? XOP_OK
              : xop_fail(error, XOP_UNAVAILABLE, "it cannot be written: %s", strerror(errno));
}
