#include "context.h"

#include <stdlib.h>
#include <string.h>

static void destroy(struct object *object) {
    struct context *context = (struct context *)object; /* its first member */
    for (uint32_t i = 0; i < context->nneeds; i++)
        if (context->tensors[i].resident)
            object_drop(&context->tensors[i].resident->object);
    free(context->attrs);
    free(context);
}

struct context *context_new(struct connection *c, uint64_t id, const char *op,
                            const struct catalogue *catalogue, uint32_t op_index,
                            struct xop_error *error) {
    const struct catalogue_need *needs;
    uint32_t n = catalogue_needs(catalogue, op_index, &needs);
    struct context *context = NULL;
    if (n == 0) {
        xop_fail(error, XOP_UNIMPLEMENTED, "operator %s has no backward to keep anything for", op);
    } else if (context_find(c, id)) {
        xop_fail(error, XOP_ALREADY_EXISTS, "keep: there is a context %llu already",
                 (unsigned long long)id);
    } else if (stats_get(c->stats.contexts) >= RESIDENT_MAX) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%u contexts are kept already: free some",
                 RESIDENT_MAX);
    } else if (!(context = calloc(1, sizeof *context)) ||
               !table_add(&c->holdings.contexts, id, context)) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
        free(context);
        context = NULL;
    }
    if (!context)
        return NULL;
    object_init(&context->object, destroy);
    context->connection = c;
    context->id = id;
    context->named = true;
    snprintf(context->op, sizeof context->op, "%s", op);
    context->nneeds = n;
    memcpy(context->needs, needs, n * sizeof *needs);
    stats_add(c->stats.contexts, 1);
    return context;
}

struct context *context_find(const struct connection *c, uint64_t id) {
    return table_find(&c->holdings.contexts, id);
}

void context_unname(struct context *context) {
    if (!context->named)
        return;
    context->named = false;
    table_remove(&context->connection->holdings.contexts, context->id);
    atomic_fetch_sub_explicit(&context->connection->stats.contexts, 1, memory_order_relaxed);
    object_drop(&context->object);
}

void context_made(struct context *context) {
    for (uint32_t i = 0; i < context->nneeds; i++)
        if (context->tensors[i].resident)
            context->tensors[i].version = context->tensors[i].resident->version;
    context->made = true;
}

enum xop_status context_check(const struct context *context, uint32_t i, struct xop_error *error) {
    const struct context_tensor *tensor = &context->tensors[i];
    char name[64];
    if (!tensor->resident || tensor->resident->version == tensor->version)
        return XOP_OK;
    resident_text(tensor->resident, name, sizeof name);
    if (tensor->resident->lost)
        return xop_fail(error, XOP_DATA_LOSS,
                        "context %llu: %s was being written when its worker ended",
                        (unsigned long long)context->id, name);
    return xop_fail(error, XOP_FAILED_PRECONDITION,
                    "context %llu: %s was written since forward kept it",
                    (unsigned long long)context->id, name);
}

void context_close_all(struct connection *c) {
    struct context *context;
    while ((context = table_any(&c->holdings.contexts)))
        context_unname(context);
    table_close(&c->holdings.contexts);
}
