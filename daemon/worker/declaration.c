#include "declaration.h"

#include <ctype.h>
#include <jansson.h>
#include <string.h>

static bool is_name(const char *name) {
    if (!name || !islower((unsigned char)*name) || strlen(name) > XOP_MAX_NAME)
        return false;
    for (; *name; name++)
        if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

static bool is_mask(uint32_t dtypes) {
    return dtypes >> XOP_DTYPE_COUNT == 0 && !(dtypes & XOP_DTYPE_BIT(XOP_DTYPE_NONE));
}

/* Text goes into JSON documents, and what is not UTF-8 cannot. */
static bool is_text(const char *text) {
    json_t *string = text ? json_string(text) : NULL;
    bool ok = string != NULL;
    json_decref(string);
    return ok;
}

static const char *check_operands(const struct xop_operand *operands, uint32_t n, uint32_t max) {
    if (n > max || (n > 0 && !operands))
        return "too many operands";
    for (uint32_t i = 0; i < n; i++) {
        if (!is_name(operands[i].name) || !is_text(operands[i].doc))
            return "an operand without a proper name or documentation";
        if (!is_mask(operands[i].dtypes))
            return "an operand of no proper dtypes";
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(operands[i].name, operands[k].name) == 0)
                return "two operands of one name";
    }
    return NULL;
}

static const char *check_pass(const struct xop_signature *pass) {
    const char *wrong = check_operands(pass->in, pass->nin, XOP_MAX_INPUTS);
    if (!wrong)
        wrong = check_operands(pass->out, pass->nout, XOP_MAX_OUTPUTS);
    if (!wrong && (!pass->infer || pass->nout == 0))
        wrong = "a pass without infer or outputs";
    if (!wrong && (pass->index_operand < -1 || pass->index_operand >= (int32_t)pass->nin))
        wrong = "an index operand that does not exist";
    return wrong;
}

static bool is_scalar(enum xop_attr_type type) {
    return type == XOP_ATTR_INT || type == XOP_ATTR_FLOAT || type == XOP_ATTR_BOOL;
}

static const char *check_fallback(const struct xop_attr_spec *spec) {
    const struct xop_attr *value = &spec->fallback;
    if (spec->required)
        return NULL;
    if (value->type != spec->type)
        return "an attribute whose default is of another type";
    if (is_scalar(spec->type))
        return NULL;
    if (spec->type == XOP_ATTR_STRING)
        return value->value.string && is_text(value->value.string) &&
                       value->count <= XOP_MAX_ATTR_STRING &&
                       strlen(value->value.string) == value->count
                   ? NULL
                   : "an attribute whose default is no proper string of `count` bytes";
    return value->count <= XOP_MAX_ATTR_LIST && (value->count == 0 || value->value.ints)
               ? NULL
               : "an attribute whose default is no proper list";
}

static const char *check_attrs(const struct xop_op *op) {
    const char *wrong = NULL;
    if (op->nattrs > XOP_MAX_ATTRS || (op->nattrs > 0 && !op->attrs))
        return "too many attributes";
    for (uint32_t i = 0; !wrong && i < op->nattrs; i++) {
        const struct xop_attr_spec *spec = &op->attrs[i];
        if (!is_name(spec->name) || !is_text(spec->doc))
            return "an attribute without a proper name or documentation";
        if (spec->type <= XOP_ATTR_NONE || spec->type > XOP_ATTR_FLOATS)
            return "an attribute without a type";
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(spec->name, op->attrs[k].name) == 0)
                return "two attributes of one name";
        wrong = check_fallback(spec);
    }
    return wrong;
}

static const char *check_op(const struct xop_op *op) {
    const char *wrong;
    if (op->abi != XOP_OP_ABI)
        return "another version of xop/op.h";
    if (!is_name(op->name) || !is_text(op->doc))
        return "no proper name or documentation";
    if (!is_mask(op->dtypes) || op->dtypes == 0)
        return "no proper dtypes";
    wrong = check_attrs(op);
    for (int pass = 0; !wrong && pass < XOP_PASS_COUNT; pass++)
        if (op->pass[pass].launch)
            wrong = check_pass(&op->pass[pass]);
    if (!wrong && !op->pass[XOP_FORWARD].launch)
        wrong = "no forward";
    return wrong;
}

enum xop_status declaration_check(const struct xop_op *op, struct xop_error *error) {
    const char *wrong = op ? check_op(op) : "no declaration";
    if (!wrong)
        return XOP_OK;
    return xop_fail(error, XOP_FAILED_PRECONDITION, "its operator %s has %s",
                    op && op->abi == XOP_OP_ABI && is_name(op->name) ? op->name : "(unnamed)",
                    wrong);
}
