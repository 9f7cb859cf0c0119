#include "operators.h"

#include "declaration.h"
#include "library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Adding ---- */

static uint32_t find(const struct worker *worker, uint32_t n, const char *name) {
    uint32_t i = 0;
    while (i < n && strcmp(worker->ops[i]->name, name) != 0)
        i++;
    return i;
}

/* Everything is checked before anything is added: a library that is refused is unloaded, and then
 * nothing may point into it. */
static enum xop_status check_library(const struct worker *worker, const struct xop_library *library,
                                     struct xop_error *error) {
    uint32_t added = 0;
    if (!library || library->abi != XOP_OP_ABI)
        return xop_fail(error, XOP_FAILED_PRECONDITION,
                        "it was built against version %u of xop/op.h, this is %u",
                        library ? library->abi : 0, XOP_OP_ABI);
    if (library->nops == 0 || !library->ops)
        return xop_fail(error, XOP_FAILED_PRECONDITION, "it has no operators");
    for (uint32_t i = 0; i < library->nops; i++) {
        if (declaration_check(library->ops[i], error) != XOP_OK)
            return error->status;
        added += find(worker, worker->nops, library->ops[i]->name) == worker->nops;
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(library->ops[k]->name, library->ops[i]->name) == 0)
                return xop_fail(error, XOP_FAILED_PRECONDITION, "it has two operators called %s",
                                library->ops[i]->name);
    }
    if (added > WORKER_MAX_OPS - worker->nops)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "there are %u operators already, of %u",
                        worker->nops, WORKER_MAX_OPS);
    return XOP_OK;
}

enum xop_status operators_add(struct worker *worker, const struct xop_library *library,
                              struct xop_error *error) {
    if (check_library(worker, library, error) != XOP_OK)
        return error->status;
    for (uint32_t i = 0; i < library->nops; i++) {
        uint32_t at = find(worker, worker->nops, library->ops[i]->name);
        if (at < worker->nops)
            log_info("operator %s is replaced", library->ops[i]->name);
        else
            worker->nops++;
        worker->ops[at] = library->ops[i];
        worker->referenced[at] = false;
    }
    return XOP_OK;
}

/* ---- Libraries in a directory ---- */

static void mark_referenced(struct worker *worker, const struct xop_references *references) {
    for (uint32_t i = 0; references && i < references->n; i++)
        worker->referenced[find(worker, worker->nops, references->list[i].op)] = true;
}

static enum xop_status load_one(struct worker *worker, const char *name, struct xop_error *error) {
    const struct xop_references *references = NULL;
    const struct xop_library *library;
    void *handle;
    enum xop_status status = library_open(worker->setup.operators_path, name, worker->api->name,
                                          &handle, &library, error);
    if (status != XOP_OK)
        return status;
    status = operators_add(worker, library, error);
    if (status == XOP_OK)
        status = library_references(handle, library, &references, error);
    if (status == XOP_OK)
        mark_referenced(worker, references);
    else
        dlclose(handle);
    return status;
}

static int is_library(const struct dirent *entry) {
    size_t n = strlen(entry->d_name);
    return n > 3 && strcmp(entry->d_name + n - 3, ".so") == 0;
}

void operators_load(struct worker *worker) {
    const char *path = worker->setup.operators_path;
    struct dirent **entries;
    if (!*path)
        return;
    int n = scandir(path, &entries, is_library, alphasort);
    if (n < 0) {
        log_warn("operators.path %s: %s: no library is loaded from it", path, strerror(errno));
        return;
    }
    for (int i = 0; i < n; i++) {
        struct xop_error error;
        enum xop_status status = load_one(worker, entries[i]->d_name, &error);
        if (status == XOP_OK)
            log_info("operator library %s is loaded", entries[i]->d_name);
        else if (status == XOP_UNIMPLEMENTED)
            log_debug("operator library %s is left out: %s", entries[i]->d_name, error.message);
        else
            log_error("operator library %s is refused: %s", entries[i]->d_name, error.message);
        free(entries[i]);
    }
    free(entries);
}

/* ---- The catalogue ---- */

static json_t *list_dtypes(uint32_t mask) {
    json_t *list = json_array();
    for (unsigned d = 1; d < XOP_DTYPE_COUNT; d++)
        if (mask & XOP_DTYPE_BIT(d))
            json_array_append_new(list, json_string(xop_dtype_name((enum xop_dtype)d)));
    return list;
}

static json_t *describe_operands(const struct xop_op *op, const struct xop_operand *operands,
                                 uint32_t n, bool inputs) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        uint32_t flags = operands[i].flags;
        json_t *operand =
            json_pack("{s:s, s:s, s:o}", "name", operands[i].name, "doc", operands[i].doc, "dtypes",
                      list_dtypes(operands[i].dtypes ? operands[i].dtypes : op->dtypes));
        if (inputs) {
            json_object_set_new(operand, "optional", json_boolean(flags & XOP_OPERAND_OPTIONAL));
            json_object_set_new(operand, "shape_only",
                                json_boolean(flags & XOP_OPERAND_SHAPE_ONLY));
        } else {
            json_object_set_new(operand, "saved", json_boolean(flags & XOP_OPERAND_SAVED));
            json_object_set_new(operand, "in_place", json_boolean(flags & XOP_OPERAND_IN_PLACE));
        }
        json_array_append_new(list, operand);
    }
    return list;
}

static json_t *describe_pass(const struct xop_op *op, enum xop_pass pass) {
    const struct xop_signature *signature = &op->pass[pass];
    if (!signature->launch)
        return json_null();
    return json_pack("{s:o, s:o}", "inputs",
                     describe_operands(op, signature->in, signature->nin, true), "outputs",
                     describe_operands(op, signature->out, signature->nout, false));
}

/* JSON has no numbers for these. */
static json_t *describe_float(double value) {
    if (isnan(value))
        return json_string("nan");
    if (isinf(value))
        return json_string(value > 0 ? "inf" : "-inf");
    return json_real(value);
}

static json_t *describe_value(const struct xop_attr *attr) {
    json_t *list;
    switch (attr->type) {
    case XOP_ATTR_INT: return json_integer(attr->value.i);
    case XOP_ATTR_FLOAT: return describe_float(attr->value.f);
    case XOP_ATTR_BOOL: return json_boolean(attr->value.i);
    case XOP_ATTR_STRING: return json_string(attr->value.string);
    case XOP_ATTR_INTS:
    case XOP_ATTR_FLOATS:
        list = json_array();
        for (uint32_t i = 0; i < attr->count; i++)
            json_array_append_new(list, attr->type == XOP_ATTR_INTS
                                            ? json_integer(attr->value.ints[i])
                                            : describe_float(attr->value.floats[i]));
        return list;
    case XOP_ATTR_NONE: break;
    }
    return json_null();
}

static json_t *describe_attrs(const struct xop_op *op) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < op->nattrs; i++) {
        const struct xop_attr_spec *spec = &op->attrs[i];
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:b, s:o}", "name", spec->name, "type",
                      xop_attr_type_name(spec->type), "doc", spec->doc, "required", spec->required,
                      "default", spec->required ? json_null() : describe_value(&spec->fallback)));
    }
    return list;
}

static json_t *describe_op(const struct xop_op *op, bool referenced) {
    return json_pack("{s:s, s:s, s:b, s:o, s:o, s:o, s:o}", "name", op->name, "doc", op->doc,
                     "reference", (int)referenced, "dtypes", list_dtypes(op->dtypes), "attributes",
                     describe_attrs(op), "forward", describe_pass(op, XOP_FORWARD), "backward",
                     describe_pass(op, XOP_BACKWARD));
}

char *operators_describe(const struct worker *worker) {
    json_t *list = json_array(), *document = NULL;
    char *text = NULL;
    /* An entry left out would shift the numbers by which requests name operators. */
    for (uint32_t i = 0; i < worker->nops; i++)
        if (json_array_append_new(list, describe_op(worker->ops[i], worker->referenced[i])) != 0)
            goto out;
    document = json_pack("{s:s, s:s, s:O}", "backend", worker->info.backend, "device",
                         worker->info.device, "operators", list);
    text = document ? json_dumps(document, JSON_COMPACT) : NULL;
out:
    json_decref(document);
    json_decref(list);
    return text;
}
