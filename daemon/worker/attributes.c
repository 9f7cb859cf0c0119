#include "attributes.h"

#include <string.h>

static uint64_t mix(uint64_t hash, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    return hash;
}

static uint64_t hash_attr(uint64_t hash, const struct xop_attr *attr) {
    hash = mix(hash, &attr->type, sizeof attr->type);
    hash = mix(hash, &attr->count, sizeof attr->count);
    switch (attr->type) {
    case XOP_ATTR_STRING: return mix(hash, attr->value.string, attr->count);
    case XOP_ATTR_INTS:
    case XOP_ATTR_FLOATS: return mix(hash, attr->value.ints, 8 * (size_t)attr->count);
    default: return mix(hash, &attr->value, 8);
    }
}

static enum xop_status unknown(const struct xop_op *op, const char *name, struct xop_error *error) {
    char known[256] = "none";
    size_t used = 0;
    for (uint32_t i = 0; i < op->nattrs && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 op->attrs[i].name);
    return xop_fail(error, XOP_INVALID_ARGUMENT,
                    "operator %s has no attribute \"%s\" (those it has: %s)", op->name, name,
                    known);
}

/* Integers of a list become the floats that are declared, where they lie: in the private copy. */
static void widen(struct xop_attr *attr) {
    for (uint32_t i = 0; i < attr->count; i++) {
        double value = (double)attr->value.ints[i];
        memcpy((void *)(uintptr_t)(attr->value.ints + i), &value, sizeof value);
    }
    attr->type = XOP_ATTR_FLOATS;
}

static bool set(struct xop_attr *to, const struct xop_attr_spec *spec,
                const struct xop_attr *from) {
    if (from->type == spec->type) {
        *to = *from;
        if (from->type == XOP_ATTR_BOOL)
            to->value.i = from->value.i != 0;
    } else if (from->type == XOP_ATTR_INT && spec->type == XOP_ATTR_FLOAT) {
        *to = (struct xop_attr){.type = XOP_ATTR_FLOAT, .count = 1};
        to->value.f = (double)from->value.i;
    } else if (from->type == XOP_ATTR_INTS && spec->type == XOP_ATTR_FLOATS) {
        *to = *from;
        widen(to);
    } else if (from->type == XOP_ATTR_FLOATS && from->count == 0 && spec->type == XOP_ATTR_INTS) {
        *to = *from; /* an empty list has the type that is asked for */
        to->type = XOP_ATTR_INTS;
    } else {
        return false;
    }
    to->name = spec->name;
    return true;
}

static enum xop_status set_defaults(struct task *task, const bool *given, struct xop_error *error) {
    const struct xop_op *op = task->op;
    task->attrs_hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < op->nattrs; i++) {
        if (!given[i] && op->attrs[i].required)
            return xop_fail(error, XOP_INVALID_ARGUMENT, "operator %s needs the attribute \"%s\"",
                            op->name, op->attrs[i].name);
        if (!given[i]) {
            task->attrs[i] = op->attrs[i].fallback;
            task->attrs[i].name = op->attrs[i].name;
        }
        task->attrs_hash = hash_attr(task->attrs_hash, &task->attrs[i]);
    }
    return XOP_OK;
}

enum xop_status attributes_read(struct task *task, unsigned char *bytes, size_t length,
                                uint32_t count, struct xop_error *error) {
    const struct xop_op *op = task->op;
    bool given[XOP_MAX_ATTRS] = {false};
    size_t used = 0;
    for (uint32_t n = 0; n < count; n++) {
        struct xop_attr attr;
        uint32_t i = 0;
        if (!seam_get_attr(bytes, length, &used, &attr))
            return xop_fail(error, XOP_INTERNAL,
                            "the record of this request is not well-formed: an attribute");
        while (i < op->nattrs && strcmp(op->attrs[i].name, attr.name) != 0)
            i++;
        if (i == op->nattrs)
            return unknown(op, attr.name, error);
        if (given[i])
            return xop_fail(error, XOP_INVALID_ARGUMENT, "attribute \"%s\" of %s came twice",
                            attr.name, op->name);
        if (!set(&task->attrs[i], &op->attrs[i], &attr))
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "attribute \"%s\" of %s is of type %s, but %s is expected", attr.name,
                            op->name, xop_attr_type_name(attr.type),
                            xop_attr_type_name(op->attrs[i].type));
        given[i] = true;
    }
    if (used != length)
        return xop_fail(
            error, XOP_INTERNAL,
            "the record of this request is not well-formed: bytes after its attributes");
    return set_defaults(task, given, error);
}

static bool equal(const struct xop_attr *a, const struct xop_attr *b) {
    if (a->type != b->type || a->count != b->count)
        return false;
    switch (a->type) {
    case XOP_ATTR_STRING: return memcmp(a->value.string, b->value.string, a->count) == 0;
    case XOP_ATTR_INTS:
    case XOP_ATTR_FLOATS: return memcmp(a->value.ints, b->value.ints, 8 * (size_t)a->count) == 0;
    default: return memcmp(&a->value, &b->value, 8) == 0;
    }
}

bool attributes_equal(const struct task *a, const struct task *b) {
    if (a->attrs_hash != b->attrs_hash)
        return false;
    for (uint32_t i = 0; i < a->op->nattrs; i++)
        if (!equal(&a->attrs[i], &b->attrs[i]))
            return false;
    return true;
}
