#include "npy.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_HEADER (1u << 20)
#define PIECE (4u << 20)

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static enum xop_status bad(struct xop_error *error, const char *what) {
    return xop_fail(error, XOP_INVALID_ARGUMENT, "it is no .npy file that can be read: %s", what);
}

static enum xop_status short_read(FILE *stream, struct xop_error *error, const char *what) {
    if (ferror(stream))
        return xop_fail(error, XOP_UNAVAILABLE, "it cannot be read: %s", strerror(errno));
    return bad(error, what);
}

/* ---- Data ---- */

/* Bytes left in a regular file, or UINT64_MAX for what has no size. */
static uint64_t bytes_left(FILE *stream) {
    struct stat info;
    off_t at;
    if (fstat(fileno(stream), &info) < 0 || !S_ISREG(info.st_mode) || (at = ftello(stream)) < 0)
        return UINT64_MAX;
    return info.st_size > at ? (uint64_t)(info.st_size - at) : 0;
}

/* From a pipe: memory grows with what really comes. */
static enum xop_status read_growing(FILE *stream, struct value *value, struct xop_error *error) {
    unsigned char *data = NULL;
    uint64_t have = 0, room = 0;
    while (have < value->bytes) {
        if (have == room) {
            room = room ? room * 2 : PIECE;
            room = room < value->bytes ? room : value->bytes;
            unsigned char *larger = realloc(data, room);
            if (!larger) {
                free(data);
                return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for its data");
            }
            data = larger;
        }
        size_t n = fread(data + have, 1, room - have, stream);
        if (n == 0) {
            free(data);
            return short_read(stream, error, "its data ends too early");
        }
        have += n;
    }
    struct xop_tensor *t = &value->tensor;
    struct value whole;
    enum xop_status status = value_new(&whole, t->dtype, t->rank, t->shape, error);
    if (status == XOP_OK) {
        if (value->bytes > 0)
            memcpy(whole.tensor.data, data, value->bytes);
        *value = whole;
    }
    free(data);
    return status;
}

enum xop_status npy_read_data(FILE *stream, struct value *value, struct xop_error *error) {
    struct xop_tensor shape = value->tensor;
    uint64_t left = bytes_left(stream);
    shape.data = NULL;
    *value = (struct value){.tensor = shape};
    if (!xop_tensor_elements(&shape, &value->n) || !xop_tensor_bytes(&shape, &value->bytes))
        return bad(error, "its shape gives a size that is not possible");
    if (left == UINT64_MAX)
        return read_growing(stream, value, error);
    if (left < value->bytes)
        return bad(error, "its data ends too early");
    if (value_new(value, shape.dtype, shape.rank, shape.shape, error) != XOP_OK)
        return error->status;
    if (fread(value->tensor.data, 1, value->bytes, stream) != value->bytes) {
        value_free(value);
        return short_read(stream, error, "its data ends too early");
    }
    return XOP_OK;
}

void npy_swap(struct value *value) {
    size_t size = xop_dtype_size(value->tensor.dtype);
    unsigned char *data = value->tensor.data;
    for (int64_t i = 0; i < value->n; i++, data += size)
        for (size_t k = 0; k < size / 2; k++) {
            unsigned char byte = data[k];
            data[k] = data[size - 1 - k];
            data[size - 1 - k] = byte;
        }
}

/* From Fortran order to C order. */
static enum xop_status transpose(struct value *value, struct xop_error *error) {
    const struct xop_tensor *t = &value->tensor;
    size_t size = xop_dtype_size(t->dtype);
    int64_t position[XOP_MAX_RANK] = {0}, strides[XOP_MAX_RANK], stride = 1;
    struct value out;
    if (t->rank < 2 || value->n == 0)
        return XOP_OK;
    if (value_new(&out, t->dtype, t->rank, t->shape, error) != XOP_OK)
        return error->status;
    for (uint32_t d = 0; d < t->rank; d++) {
        strides[d] = stride;
        stride *= t->shape[d];
    }
    for (int64_t i = 0; i < value->n; i++) {
        int64_t from = 0;
        for (uint32_t d = 0; d < t->rank; d++)
            from += position[d] * strides[d];
        memcpy((char *)out.tensor.data + (size_t)i * size, (char *)t->data + (size_t)from * size,
               size);
        for (uint32_t d = t->rank; d-- > 0;) {
            if (++position[d] < t->shape[d])
                break;
            position[d] = 0;
        }
    }
    value_free(value);
    *value = out;
    return XOP_OK;
}

/* ---- The header: a Python dict literal with three keys ---- */

struct header {
    char descr[64];
    bool fortran, has_descr, has_order, has_shape;
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
};

static void skip(const char **at) {
    while (isspace((unsigned char)**at))
        ++*at;
}

static bool accept(const char **at, char c) {
    skip(at);
    if (**at != c)
        return false;
    ++*at;
    return true;
}

static bool parse_string(const char **at, char *out, size_t capacity) {
    skip(at);
    char quote = **at;
    size_t n = 0;
    if (quote != '\'' && quote != '"')
        return false;
    for (++*at; **at && **at != quote; ++*at)
        if (n + 1 < capacity)
            out[n++] = **at;
    out[n] = 0;
    return accept(at, quote);
}

static enum xop_status parse_shape(const char **at, struct header *header,
                                   struct xop_error *error) {
    if (!accept(at, '('))
        return bad(error, "its shape is no tuple");
    while (!accept(at, ')')) {
        char *end;
        skip(at);
        errno = 0;
        long long n = strtoll(*at, &end, 10);
        if (end == *at || errno || n < 0)
            return bad(error, "its shape is no tuple of sizes");
        if (header->rank == XOP_MAX_RANK)
            return bad(error, "it has more than 8 dimensions");
        header->shape[header->rank++] = n;
        *at = end;
        if (**at == 'L') /* as Python 2 wrote long integers */
            ++*at;
        if (!accept(at, ',')) {
            skip(at);
            if (**at != ')')
                return bad(error, "its shape is no tuple of sizes");
        }
    }
    header->has_shape = true;
    return XOP_OK;
}

static enum xop_status parse_value(const char **at, const char *key, struct header *header,
                                   struct xop_error *error) {
    if (strcmp(key, "descr") == 0) {
        skip(at);
        if (**at == '[')
            return bad(error, "structured arrays are not tensors");
        header->has_descr = true;
        return parse_string(at, header->descr, sizeof header->descr)
                   ? XOP_OK
                   : bad(error, "its descr is no string");
    }
    if (strcmp(key, "fortran_order") == 0) {
        skip(at);
        bool truth = strncmp(*at, "True", 4) == 0;
        if (!truth && strncmp(*at, "False", 5) != 0)
            return bad(error, "its fortran_order is neither True nor False");
        *at += truth ? 4 : 5;
        header->fortran = truth;
        header->has_order = true;
        return XOP_OK;
    }
    if (strcmp(key, "shape") == 0)
        return parse_shape(at, header, error);
    return bad(error, "its header has an unknown key");
}

static enum xop_status parse_header(const char *text, struct header *header,
                                    struct xop_error *error) {
    const char *at = text;
    char key[32];
    if (!accept(&at, '{'))
        return bad(error, "its header is no dict");
    while (!accept(&at, '}')) {
        if (!parse_string(&at, key, sizeof key) || !accept(&at, ':'))
            return bad(error, "its header is no dict");
        if (parse_value(&at, key, header, error) != XOP_OK)
            return error->status;
        if (!accept(&at, ',')) {
            skip(&at);
            if (*at != '}')
                return bad(error, "its header is no dict");
        }
    }
    if (!header->has_descr || !header->has_order || !header->has_shape)
        return bad(error, "its header lacks descr, fortran_order or shape");
    return XOP_OK;
}

static enum xop_status find_dtype(const char *descr, bool bf16, enum xop_dtype *dtype, bool *swap,
                                  struct xop_error *error) {
    static const struct {
        const char *code;
        enum xop_dtype dtype;
    } codes[] = {{"f2", XOP_F16}, {"f4", XOP_F32}, {"f8", XOP_F64},
                 {"i4", XOP_I32}, {"i8", XOP_I64}, {"b1", XOP_BOOL}};
    char quoted[64];
    if (strcmp(descr, "<V2") == 0 || strcmp(descr, "|V2") == 0) {
        *dtype = XOP_BF16;
        *swap = false;
        return bf16 ? XOP_OK
                    : xop_fail(error, XOP_INVALID_ARGUMENT,
                               "it holds values of 2 unnamed bytes (%s): pass --dtype bf16 if they "
                               "are bf16",
                               descr);
    }
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strlen(descr) == 3 && strchr("<>=|", descr[0]) &&
            strcmp(descr + 1, codes[i].code) == 0) {
            *dtype = codes[i].dtype;
            *swap = descr[0] == '>';
            return XOP_OK;
        }
    snprintf(quoted, sizeof quoted, "%s", descr);
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "its elements are '%s'%s: float16, float32, float64, int32 and int64 are read",
                    quoted, strchr(descr, 'O') ? " (pickled Python objects)" : "");
}

static enum xop_status read_header(FILE *stream, struct header *header, struct xop_error *error) {
    unsigned char start[12];
    if (fread(start, 1, 8, stream) != 8)
        return short_read(stream, error, "it is too short");
    if (memcmp(start, magic, sizeof magic) != 0)
        return bad(error, start[0] == 'P' && start[1] == 'K' ? "this is an .npz archive"
                          : start[0] == 0x80                 ? "this is a pickle"
                                                             : "its magic is missing");
    if (start[6] < 1 || start[6] > 3)
        return bad(error, "its version is not 1, 2 or 3");
    size_t length_bytes = start[6] == 1 ? 2 : 4;
    if (fread(start + 8, 1, length_bytes, stream) != length_bytes)
        return short_read(stream, error, "it is too short");
    uint32_t length = 0;
    for (size_t i = length_bytes; i-- > 0;)
        length = length << 8 | start[8 + i];
    if (length > MAX_HEADER)
        return bad(error, "its header is longer than a mebibyte");
    char *text = malloc((size_t)length + 1);
    if (!text)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    enum xop_status status;
    if (fread(text, 1, length, stream) != length)
        status = short_read(stream, error, "its header ends too early");
    else {
        text[length] = 0;
        status = parse_header(text, header, error);
    }
    free(text);
    return status;
}

enum xop_status npy_read(FILE *stream, bool bf16, struct value *value, struct xop_error *error) {
    struct header header = {0};
    bool swap;
    memset(value, 0, sizeof *value);
    if (read_header(stream, &header, error) != XOP_OK ||
        find_dtype(header.descr, bf16, &value->tensor.dtype, &swap, error) != XOP_OK)
        return error->status;
    value->tensor.rank = header.rank;
    memcpy(value->tensor.shape, header.shape, sizeof header.shape);
    if (npy_read_data(stream, value, error) != XOP_OK)
        return error->status;
    if (swap)
        npy_swap(value);
    if (header.fortran && transpose(value, error) != XOP_OK) {
        value_free(value);
        return error->status;
    }
    return XOP_OK;
}

/* ---- Writing ---- */

enum xop_status npy_write(FILE *stream, const struct value *value, struct xop_error *error) {
    static const char *const descr[XOP_DTYPE_COUNT] = {"",    "<f2", "<V2", "<f4",
                                                       "<f8", "<i4", "<i8", "|b1"};
    char shape[256], text[512];
    unsigned char start[10];
    const struct xop_tensor *t = &value->tensor;
    value_shape_text(shape, sizeof shape, t->rank, t->shape);
    int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                     descr[t->dtype], shape);
    /* Magic, version, length and header together are a multiple of 64, so that data is aligned. */
    size_t total = ((size_t)n + 1 + sizeof start + 63) / 64 * 64, length = total - sizeof start;
    memset(text + n, ' ', length - (size_t)n - 1);
    text[length - 1] = '\n';
    memcpy(start, magic, sizeof magic);
    start[6] = 1;
    start[7] = 0;
    start[8] = (unsigned char)(length & 0xff);
    start[9] = (unsigned char)(length >> 8);
    if (fwrite(start, 1, sizeof start, stream) != sizeof start ||
        fwrite(text, 1, length, stream) != length ||
        fwrite(t->data, 1, value->bytes, stream) != value->bytes || fflush(stream) != 0)
        return xop_fail(error, XOP_UNAVAILABLE, "it cannot be written: %s", strerror(errno));
    return XOP_OK;
}
