#include "print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 8
#define THRESHOLD 1000
#define EDGE 3
#define LINE 75

/* How one array's elements are written: found from those that are shown. */
struct format {
    bool integers, exponent;
    int left, right; /* characters before and behind the point; integers: left alone */
    int power;       /* digits of the exponent */
};

struct text {
    char *bytes;
    size_t used, capacity;
    bool failed;
};

static void put(struct text *text, const char *bytes, size_t n) {
    if (!text->bytes || text->used + n + 1 > text->capacity) {
        size_t capacity = (text->capacity + n + 1) * 2;
        char *larger = realloc(text->bytes, capacity);
        if (!larger) {
            text->failed = true;
            return;
        }
        text->bytes = larger;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->used, bytes, n);
    text->used += n;
    text->bytes[text->used] = 0;
}

static void put_text(struct text *text, const char *s) { put(text, s, strlen(s)); }

static void put_spaces(struct text *text, int n) {
    for (; n > 0; n--)
        put(text, " ", 1);
}

/* ---- One number ---- */

static bool same(enum xop_dtype dtype, const char *text, double x) {
    return value_round(dtype, strtod(text, NULL)) == x;
}

/* As few digits as tell x from its neighbours, at most DIGITS behind the point; the point stays. */
static void positional(enum xop_dtype dtype, double x, char *out, size_t capacity) {
    for (int digits = 0; digits <= DIGITS; digits++) {
        snprintf(out, capacity, "%.*f", digits, x);
        if (same(dtype, out, x))
            break;
    }
    char *point = strchr(out, '.');
    size_t n = strlen(out);
    if (!point) {
        snprintf(out + n, capacity - n, ".");
        return;
    }
    while (out[n - 1] == '0')
        out[--n] = 0;
}

/* Fraction digits of the shortest scientific form, at most DIGITS. */
static int scientific_digits(enum xop_dtype dtype, double x) {
    char text[64];
    int digits = 0;
    for (; digits < DIGITS; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, x);
        if (same(dtype, text, x))
            break;
    }
    snprintf(text, sizeof text, "%.*e", digits, x);
    char *e = strchr(text, 'e');
    while (digits > 0 && *--e == '0')
        digits--;
    return digits;
}

/* Splits "d.ddde+dd" at its e; returns the digits of the exponent. */
static int exponent_digits(const char *text) {
    const char *e = strchr(text, 'e');
    return e ? (int)strlen(e) - 2 : 0;
}

/* With the point, which NumPy keeps, and the exponent filled up with zeros. */
static void scientific(double x, const struct format *format, char *out, size_t capacity) {
    char digits[64];
    snprintf(digits, sizeof digits, "%.*e", format->right, x);
    char *e = strchr(digits, 'e');
    snprintf(out, capacity, "%.*s%s%.2s%0*d", (int)(e - digits), digits,
             format->right == 0 ? "." : "", e, format->power, atoi(e + 2));
}

static const char *not_finite(double x) { return isnan(x) ? "nan" : x < 0 ? "-inf" : "inf"; }

static void put_element(struct text *text, const struct format *format, const struct value *value,
                        int64_t i) {
    char out[400];
    if (format->integers) {
        snprintf(out, sizeof out, "%*lld", format->left, (long long)value_get_integer(value, i));
        put_text(text, out);
        return;
    }
    double x = value_get(value, i);
    if (!isfinite(x)) {
        const char *word = not_finite(x);
        int width = format->left + 1 + format->right + (format->exponent ? format->power + 2 : 0);
        put_spaces(text, width - (int)strlen(word));
        put_text(text, word);
        return;
    }
    if (format->exponent) {
        scientific(x, format, out, sizeof out);
        put_spaces(text, format->left - (int)strcspn(out, "."));
        put_text(text, out);
        return;
    }
    positional(value->tensor.dtype, x, out, sizeof out);
    int before = (int)strcspn(out, ".");
    put_spaces(text, format->left - before);
    put_text(text, out);
    put_spaces(text, format->right - ((int)strlen(out) - before - 1));
}

/* ---- Which elements are shown, and their common format ---- */

struct shown {
    const struct value *value;
    bool shorten;
    double min, max; /* of finite magnitudes other than 0 */
    bool finite, negative_inf, any_not_finite;
    struct format format;
};

static void visit(struct shown *s, int64_t i, int round) {
    char out[400];
    enum xop_dtype dtype = s->value->tensor.dtype;
    if (s->format.integers) {
        int n = snprintf(out, sizeof out, "%lld", (long long)value_get_integer(s->value, i));
        s->format.left = n > s->format.left ? n : s->format.left;
        return;
    }
    double x = value_get(s->value, i), size = fabs(x);
    if (!isfinite(x)) {
        s->any_not_finite = true;
        s->negative_inf |= isinf(x) && x < 0;
        return;
    }
    if (round == 0) {
        s->finite = true;
        if (x != 0) {
            s->min = size < s->min ? size : s->min;
            s->max = size > s->max ? size : s->max;
        }
        return;
    }
    int left, right;
    if (s->format.exponent) {
        right = scientific_digits(dtype, x);
        left = signbit(x) ? 2 : 1;
        snprintf(out, sizeof out, "%.*e", right, x);
        int power = exponent_digits(out);
        s->format.power = power > s->format.power ? power : s->format.power;
    } else {
        positional(dtype, x, out, sizeof out);
        left = (int)strcspn(out, ".");
        right = (int)strlen(out) - left - 1;
    }
    s->format.left = left > s->format.left ? left : s->format.left;
    s->format.right = right > s->format.right ? right : s->format.right;
}

static void visit_all(struct shown *s, uint32_t d, int64_t at, int64_t stride, int round) {
    const struct xop_tensor *t = &s->value->tensor;
    if (d == t->rank) {
        visit(s, at, round);
        return;
    }
    int64_t n = t->shape[d], inner = n ? stride / n : 0;
    for (int64_t i = 0; i < n; i++) {
        if (s->shorten && n > 2 * EDGE && i == EDGE)
            i = n - EDGE;
        visit_all(s, d + 1, at + i * inner, inner, round);
    }
}

static void find_format(struct shown *s) {
    struct format *f = &s->format;
    s->min = INFINITY;
    f->integers = value_is_integer(s->value->tensor.dtype);
    visit_all(s, 0, 0, s->value->n, 0);
    if (f->integers)
        return;
    f->exponent = s->max > 0 && (s->max >= 1e8 || s->min < 0.0001 || s->max / s->min > 1000.0);
    visit_all(s, 0, 0, s->value->n, 1);
    if (s->any_not_finite) {
        int word = 3 + (s->negative_inf ? 1 : 0);
        int exponent = f->exponent ? f->power + 2 : 0;
        int left = word - (f->right + 1 + exponent);
        f->left = left > f->left ? left : f->left;
    }
}

/* ---- The array ---- */

/* A word of the innermost dimension; the line breaks before it where it would be too long. */
static void put_word(struct text *text, size_t *line, const char *word, size_t n, int indent,
                     int width) {
    size_t length = text->used - *line;
    if (length + n > (size_t)width && length > (size_t)indent) {
        while (text->used > *line && text->bytes[text->used - 1] == ' ')
            text->bytes[--text->used] = 0;
        put(text, "\n", 1);
        *line = text->used;
        put_spaces(text, indent);
    }
    put(text, word, n);
}

static void put_row(struct text *text, const struct shown *s, int64_t at, int indent, int width) {
    const struct xop_tensor *t = &s->value->tensor;
    int64_t n = t->shape[t->rank - 1];
    struct text word = {0};
    /* The line so far is the indentation and brackets that stand before this row. */
    size_t line = text->used;
    while (line > 0 && text->bytes[line - 1] != '\n')
        line--;
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            put(text, " ", 1);
        if (s->shorten && n > 2 * EDGE && i == EDGE) {
            put_word(text, &line, "...", 3, indent, width);
            put(text, " ", 1);
            i = n - EDGE;
        }
        word.used = 0;
        put_element(&word, &s->format, s->value, at + i);
        put_word(text, &line, word.bytes ? word.bytes : "", word.used, indent, width);
    }
    text->failed |= word.failed;
    free(word.bytes);
}

static void put_level(struct text *text, const struct shown *s, uint32_t d, int64_t at,
                      int64_t stride) {
    const struct xop_tensor *t = &s->value->tensor;
    int64_t n = t->shape[d], inner = stride / n;
    int indent = (int)d + 1;
    put(text, "[", 1);
    if (d + 1 == t->rank) {
        put_row(text, s, at, indent, LINE - (int)d - 1);
    } else {
        for (int64_t i = 0; i < n; i++) {
            if (i > 0) {
                for (uint32_t k = d + 1; k < t->rank; k++)
                    put(text, "\n", 1);
                put_spaces(text, indent);
            }
            if (s->shorten && n > 2 * EDGE && i == EDGE) {
                put(text, "...", 3);
                for (uint32_t k = d + 1; k < t->rank; k++)
                    put(text, "\n", 1);
                put_spaces(text, indent);
                i = n - EDGE;
            }
            put_level(text, s, d + 1, at + i * inner, inner);
        }
    }
    put(text, "]", 1);
}

/* A scalar is written with all the digits it needs. */
static void put_scalar(struct text *text, const struct value *value) {
    char out[64];
    if (value_is_integer(value->tensor.dtype)) {
        snprintf(out, sizeof out, "%lld", (long long)value_get_integer(value, 0));
    } else {
        double x = value_get(value, 0);
        int digits = 1;
        if (!isfinite(x)) {
            put_text(text, not_finite(x));
            return;
        }
        do
            snprintf(out, sizeof out, "%.*g", digits, x);
        while (!same(value->tensor.dtype, out, x) && ++digits <= 17);
        if (fabs(x) < 1e16 && fabs(x) >= 1e-4 && strchr(out, 'e'))
            snprintf(out, sizeof out, "%.0f", strtod(out, NULL));
        if (!strpbrk(out, ".e"))
            strcat(out, ".0");
    }
    put_text(text, out);
}

char *print_value(const struct value *value) {
    struct text text = {0};
    struct shown shown = {.value = value, .shorten = value->n > THRESHOLD};
    if (value->tensor.rank == 0) {
        put_scalar(&text, value);
    } else if (value->n == 0) {
        put_text(&text, "[]");
    } else {
        find_format(&shown);
        put_level(&text, &shown, 0, 0, value->n);
    }
    if (text.failed) {
        free(text.bytes);
        return NULL;
    }
    return text.bytes;
}

/* ---- JSON ---- */

static json_t *element_json(const struct value *value, int64_t i) {
    if (value_is_integer(value->tensor.dtype))
        return json_integer(value_get_integer(value, i));
    double x = value_get(value, i);
    if (isfinite(x))
        return json_real(x);
    return json_string(isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
}

static json_t *nested(const struct value *value, uint32_t d, int64_t at, int64_t count) {
    if (d == value->tensor.rank)
        return element_json(value, at);
    json_t *list = json_array();
    int64_t n = value->tensor.shape[d], inner = n ? count / n : 0;
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, nested(value, d + 1, at + i * inner, inner));
    return list;
}

json_t *print_json(const struct value *value) { return nested(value, 0, 0, value->n); }
