#include "attrs.h"

#include "lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool parse_list(struct xop_attr *attr, bool integers, const char *from, void *list) {
    char *end = (char *)(uintptr_t)from;
    attr->count = 0;
    while (*end) {
        if (attr->count == XOP_MAX_ATTR_LIST)
            return false;
        if (integers)
            ((int64_t *)list)[attr->count++] = strtoll(from, &end, 10);
        else
            ((double *)list)[attr->count++] = strtod(from, &end);
        if (end == from || (*end && *end != ','))
            return false;
        from = *end ? end + 1 : end;
        if (*end && !*from)
            return false;
    }
    attr->value.ints = list;
    return true;
}

static bool parse_value(struct xop_attr *attr, const char *type, const char *value, void *list) {
    char *end = (char *)(uintptr_t) "x";
    attr->count = 1;
    errno = 0;
    if (strcmp(type, "int") == 0) {
        attr->type = XOP_ATTR_INT;
        attr->value.i = strtoll(value, &end, 10);
    } else if (strcmp(type, "float") == 0) {
        attr->type = XOP_ATTR_FLOAT;
        attr->value.f = strtod(value, &end);
        errno = 0; /* what is too large or small for a double is inf or 0 */
    } else if (strcmp(type, "bool") == 0) {
        attr->type = XOP_ATTR_BOOL;
        attr->value.i = strcmp(value, "true") == 0;
        return attr->value.i || strcmp(value, "false") == 0;
    } else if (strcmp(type, "string") == 0) {
        attr->type = XOP_ATTR_STRING;
        attr->value.string = value;
        attr->count = (uint32_t)strlen(value);
        return true;
    } else {
        attr->type = strcmp(type, "ints") == 0 ? XOP_ATTR_INTS : XOP_ATTR_FLOATS;
        return parse_list(attr, attr->type == XOP_ATTR_INTS, value, list);
    }
    return end != value && !*end && !errno;
}

enum xop_status attrs_parse(struct attrs *attrs, json_t *op, const char *const *arguments,
                            uint32_t n, struct xop_error *error) {
    attrs->n = n;
    for (uint32_t i = 0; i < n; i++) {
        const char *argument = arguments[i], *equals = strchr(argument, '=');
        json_t *spec = equals ? lookup_named(json_object_get(op, "attributes"), argument,
                                             (size_t)(equals - argument))
                              : NULL;
        if (!spec)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "--attr %.80s: %s has no such attribute (xopctl ops %s lists them)",
                            argument, lookup_text(op, "name"), lookup_text(op, "name"));
        snprintf(attrs->names[i], sizeof attrs->names[i], "%s", lookup_text(spec, "name"));
        attrs->list[i].name = attrs->names[i];
        if (!parse_value(&attrs->list[i], lookup_text(spec, "type"), equals + 1, &attrs->lists[i]))
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "--attr %.80s: a value of type %s is expected", argument,
                            lookup_text(spec, "type"));
    }
    return XOP_OK;
}
