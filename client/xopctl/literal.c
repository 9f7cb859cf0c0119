#include "literal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct numbers {
    union number {
        double f;
        int64_t i;
    } * list;
    int64_t count, capacity;
};

struct parse {
    const char *text, *at;
    bool integers;
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
    bool known[XOP_MAX_RANK]; /* shape[d] was seen */
    bool leaf_seen;
    struct numbers numbers;
    struct xop_error *error;
};

static enum xop_dtype prefix(const char *text, const char **rest) {
    const char *colon = strchr(text, ':');
    if (!colon)
        return XOP_DTYPE_NONE;
    *rest = colon + 1;
    return value_dtype_named(text, (size_t)(colon - text));
}

bool literal_is(const char *text) {
    const char *rest;
    return prefix(text, &rest) != XOP_DTYPE_NONE;
}

static bool fail(struct parse *p, const char *what) {
    xop_fail(p->error, XOP_INVALID_ARGUMENT, "\"%.60s\" is no tensor: %s at \"%.20s\"", p->text,
             what, *p->at ? p->at : "its end");
    return false;
}

static void skip(struct parse *p) {
    while (isspace((unsigned char)*p->at))
        p->at++;
}

static bool add(struct parse *p, union number number) {
    struct numbers *n = &p->numbers;
    if (n->count == n->capacity) {
        int64_t capacity = n->capacity ? n->capacity * 2 : 64;
        union number *list = realloc(n->list, (size_t)capacity * sizeof *list);
        if (!list)
            return fail(p, "out of memory");
        n->list = list;
        n->capacity = capacity;
    }
    n->list[n->count++] = number;
    return true;
}

static bool parse_number(struct parse *p) {
    union number number;
    char *end;
    errno = 0;
    if (p->integers)
        number.i = strtoll(p->at, &end, 10);
    else
        number.f = strtod(p->at, &end);
    if (end == p->at || (p->integers && errno == ERANGE))
        return fail(p, p->integers ? "an integer is expected" : "a number is expected");
    p->at = end;
    return add(p, number);
}

static bool parse_level(struct parse *p, uint32_t depth);

static bool parse_list(struct parse *p, uint32_t depth) {
    int64_t n = 0;
    if (depth == XOP_MAX_RANK)
        return fail(p, "more than 8 dimensions are not possible");
    p->at++;
    skip(p);
    while (*p->at != ']') {
        if (!parse_level(p, depth + 1))
            return false;
        n++;
        skip(p);
        if (*p->at == ',')
            p->at++;
        else if (*p->at != ']')
            return fail(p, "a comma or ] is expected");
        skip(p);
    }
    p->at++;
    if (p->known[depth] && p->shape[depth] != n)
        return fail(p, "its rows are of different lengths");
    p->known[depth] = true;
    p->shape[depth] = n;
    if (n == 0 && depth + 1 > p->rank)
        p->rank = depth + 1;
    return true;
}

static bool parse_level(struct parse *p, uint32_t depth) {
    skip(p);
    if (*p->at == '[')
        return (!p->leaf_seen || depth < p->rank) ? parse_list(p, depth)
                                                  : fail(p, "a number is expected");
    if (p->leaf_seen && depth != p->rank)
        return fail(p, "its rows are of different depths");
    p->leaf_seen = true;
    p->rank = depth;
    return parse_number(p);
}

enum xop_status literal_read(const char *text, struct value *value, struct xop_error *error) {
    const char *rest = text;
    enum xop_dtype dtype = prefix(text, &rest);
    struct parse p = {.text = text, .at = rest, .error = error};
    p.integers = value_is_integer(dtype);
    enum xop_status status = XOP_INVALID_ARGUMENT;
    bool whole = parse_level(&p, 0);
    if (whole) {
        skip(&p);
        whole = !*p.at || fail(&p, "nothing more is expected");
    }
    if (whole)
        status = value_new(value, dtype, p.rank, p.shape, error);
    if (status == XOP_OK && value->n != p.numbers.count) {
        fail(&p, "its rows are of different lengths");
        value_free(value);
        status = XOP_INVALID_ARGUMENT;
    }
    for (int64_t i = 0; status == XOP_OK && i < value->n; i++) {
        if (p.integers)
            value_set_integer(value, i, p.numbers.list[i].i);
        else
            value_set(value, i, p.numbers.list[i].f);
    }
    free(p.numbers.list);
    return status;
}
