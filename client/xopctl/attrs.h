/*
 * Attributes as a command line gives them, NAME=VALUE, read by the types that an operator's
 * declaration in the describe document says. Single-threaded.
 */
#ifndef XOPCTL_ATTRS_H
#define XOPCTL_ATTRS_H

#include <jansson.h>
#include <xop/types.h>

/* The strings are the arguments' own; all else is in here, so it must not be moved. */
struct attrs {
    struct xop_attr list[XOP_MAX_ATTRS];
    uint32_t n;
    char names[XOP_MAX_ATTRS][XOP_MAX_NAME + 1];
    union {
        int64_t i[XOP_MAX_ATTR_LIST];
        double f[XOP_MAX_ATTR_LIST];
    } lists[XOP_MAX_ATTRS];
};

/* Reads n arguments, XOP_MAX_ATTRS at most, for an operator of the describe document.
 * INVALID_ARGUMENT where a name or a value is wrong. */
enum xop_status attrs_parse(struct attrs *attrs, json_t *op, const char *const *arguments,
                            uint32_t n, struct xop_error *error);

#endif
