#include "operators.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- What a declaration must be ---- */

static bool is_name(const char *name) {
    if (!name || !islower((unsigned char)*name) || strlen(name) > XOP_MAX_NAME)
        return false;
    for (; *name; name++)
        if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

static const char *check_operands(const struct xop_operand *operands, uint32_t n, uint32_t max) {
    if (n > max || (n > 0 && !operands))
        return "too many operands";
    for (uint32_t i = 0; i < n; i++) {
        if (!is_name(operands[i].name) || !operands[i].doc)
            return "an operand without a proper name or documentation";
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
    if (!wrong && pass->index_operand >= (int32_t)pass->nin)
        wrong = "an index operand that does not exist";
    return wrong;
}

static const char *check_op(const struct xop_op *op) {
    const char *wrong = NULL;
    if (op->abi != XOP_OP_ABI)
        return "another version of xop/op.h";
    if (!is_name(op->name) || !op->doc)
        return "no proper name or documentation";
    if (op->dtypes == 0 || op->dtypes >> XOP_DTYPE_COUNT)
        return "no proper dtypes";
    if (op->nattrs > XOP_MAX_ATTRS || (op->nattrs > 0 && !op->attrs))
        return "too many attributes";
    for (uint32_t i = 0; i < op->nattrs; i++)
        if (!is_name(op->attrs[i].name) || !op->attrs[i].doc)
            return "an attribute without a proper name or documentation";
    for (int pass = 0; !wrong && pass < XOP_PASS_COUNT; pass++)
        if (op->pass[pass].launch)
            wrong = check_pass(&op->pass[pass]);
    if (!wrong && !op->pass[XOP_FORWARD].launch)
        wrong = "no forward";
    return wrong;
}

static enum xop_status add_op(struct worker *worker, const struct xop_op *op,
                              struct xop_error *error) {
    const char *wrong = op ? check_op(op) : "a declaration that is missing";
    uint32_t i = 0;
    if (wrong)
        return xop_fail(error, XOP_FAILED_PRECONDITION, "operator %s has %s",
                        op && is_name(op->name) ? op->name : "?", wrong);
    while (i < worker->nops && strcmp(worker->ops[i]->name, op->name) != 0)
        i++;
    if (i == WORKER_MAX_OPS)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "there are %u operators already",
                        WORKER_MAX_OPS);
    if (i < worker->nops)
        log_info("operator %s is replaced", op->name);
    worker->ops[i] = op;
    if (i == worker->nops)
        worker->nops++;
    return XOP_OK;
}

enum xop_status operators_add(struct worker *worker, const struct xop_library *library,
                              struct xop_error *error) {
    if (!library || library->abi != XOP_OP_ABI)
        return xop_fail(error, XOP_FAILED_PRECONDITION,
                        "it was built against version %u of xop/op.h, this is %u",
                        library ? library->abi : 0, XOP_OP_ABI);
    if (library->nops == 0 || !library->ops)
        return xop_fail(error, XOP_FAILED_PRECONDITION, "it has no operators");
    for (uint32_t i = 0; i < library->nops; i++) {
        const char *wrong = library->ops[i] ? check_op(library->ops[i]) : "no declaration";
        if (wrong)
            return xop_fail(error, XOP_FAILED_PRECONDITION, "its operator %u has %s", i, wrong);
    }
    for (uint32_t i = 0; i < library->nops; i++)
        if (add_op(worker, library->ops[i], error) != XOP_OK)
            return error->status;
    return XOP_OK;
}

/* ---- Libraries in a directory ---- */

static enum xop_status load_one(struct worker *worker, int directory, const char *name,
                                struct xop_error *error) {
    char path[sizeof worker->setup.operators_path + NAME_MAX + 2];
    struct stat info;
    enum xop_status status = XOP_FAILED_PRECONDITION;
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return xop_fail(error, status, "%s",
                        errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode)) {
        status = xop_fail(error, status, "it is no regular file");
        goto out;
    }
    if (info.st_mode & S_IWOTH) {
        status = xop_fail(error, status, "everybody may write it");
        goto out;
    }
    /* By its path, which debuggers and the linker know it by: who can exchange it meanwhile can
     * write the directory, and is trusted with what is in it. */
    snprintf(path, sizeof path, "%s/%s", worker->setup.operators_path, name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        status = xop_fail(error, status, "%.400s", why ? why : "it cannot be opened");
        goto out;
    }
    const struct xop_library *library = dlsym(handle, "xop_library");
    if (!library)
        status = xop_fail(error, status, "it exports no xop_library (see XOP_LIBRARY in xop/op.h)");
    else if (library->abi == XOP_OP_ABI && strcmp(library->backend, worker->api->name) != 0)
        status =
            xop_fail(error, XOP_UNIMPLEMENTED, "it is for the backend %.16s", library->backend);
    else
        status = operators_add(worker, library, error);
    if (status != XOP_OK)
        dlclose(handle);
out:
    close(fd);
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
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int n = directory < 0 ? -1 : scandir(path, &entries, is_library, alphasort);
    if (n < 0) {
        log_warn("operators.path %s: %s: no library is loaded from it", path, strerror(errno));
        if (directory >= 0)
            close(directory);
        return;
    }
    for (int i = 0; i < n; i++) {
        struct xop_error error;
        enum xop_status status = load_one(worker, directory, entries[i]->d_name, &error);
        if (status == XOP_OK)
            log_info("operator library %s is loaded", entries[i]->d_name);
        else if (status == XOP_UNIMPLEMENTED)
            log_debug("operator library %s is left out: %s", entries[i]->d_name, error.message);
        else
            log_error("operator library %s is refused: %s", entries[i]->d_name, error.message);
        free(entries[i]);
    }
    free(entries);
    close(directory);
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

static json_t *describe_value(const struct xop_attr *attr) {
    json_t *list;
    switch (attr->type) {
    case XOP_ATTR_INT: return json_integer(attr->value.i);
    case XOP_ATTR_FLOAT: return json_real(attr->value.f);
    case XOP_ATTR_BOOL: return json_boolean(attr->value.i);
    case XOP_ATTR_STRING: return json_string(attr->value.string);
    case XOP_ATTR_INTS:
    case XOP_ATTR_FLOATS:
        list = json_array();
        for (uint32_t i = 0; i < attr->count; i++)
            json_array_append_new(list, attr->type == XOP_ATTR_INTS
                                            ? json_integer(attr->value.ints[i])
                                            : json_real(attr->value.floats[i]));
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

char *operators_describe(const struct worker *worker) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < worker->nops; i++) {
        const struct xop_op *op = worker->ops[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name", op->name,
                                              "doc", op->doc, "dtypes", list_dtypes(op->dtypes),
                                              "attributes", describe_attrs(op), "forward",
                                              describe_pass(op, XOP_FORWARD), "backward",
                                              describe_pass(op, XOP_BACKWARD)));
    }
    json_t *document = json_pack("{s:s, s:s, s:o}", "backend", worker->info.backend, "device",
                                 worker->info.device, "operators", list);
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    return text;
}
