#include "catalogue.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct passes {
    uint32_t nneeds, nout, saved;
    struct catalogue_need needs[XOP_MAX_INPUTS];
};

struct catalogue {
    _Atomic uint32_t references;
    json_t *operators; /* array; its strings are what `names` points to */
    uint32_t count;
    uint32_t *by_name; /* open hash: index + 1, 0 for none */
    uint32_t slots;    /* a power of two, at least twice count */
    const char **names;
    uint32_t *stats_slots;
    struct passes *passes;
};

static uint32_t hash(const char *name) {
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

static uint32_t *slot_of(const struct catalogue *catalogue, const char *name) {
    uint32_t at = hash(name);
    for (;; at++) {
        uint32_t *slot = &catalogue->by_name[at & (catalogue->slots - 1)];
        if (*slot == 0 || strcmp(catalogue->names[*slot - 1], name) == 0)
            return slot;
    }
}

static bool index_names(struct catalogue *catalogue) {
    for (catalogue->slots = 16; catalogue->slots < 2 * catalogue->count;)
        catalogue->slots *= 2;
    catalogue->names = calloc(catalogue->count + 1u, sizeof *catalogue->names);
    catalogue->by_name = calloc(catalogue->slots, sizeof *catalogue->by_name);
    catalogue->stats_slots = calloc(catalogue->count + 1u, sizeof *catalogue->stats_slots);
    if (!catalogue->names || !catalogue->by_name || !catalogue->stats_slots)
        return false;
    for (uint32_t i = 0; i < catalogue->count; i++) {
        const char *name =
            json_string_value(json_object_get(json_array_get(catalogue->operators, i), "name"));
        if (!name || !*name || strlen(name) > XOP_MAX_NAME)
            return false;
        catalogue->names[i] = name;
        uint32_t *slot = slot_of(catalogue, name);
        if (*slot != 0)
            return false;
        *slot = i + 1;
    }
    return true;
}

/* ---- What backward needs ---- */

static json_t *operands(json_t *op, const char *pass, const char *which) {
    return json_object_get(json_object_get(op, pass), which);
}

static bool find_operand(json_t *list, const char *name, uint32_t *index) {
    size_t i;
    json_t *operand;
    json_array_foreach(list, i, operand) {
        const char *other = json_string_value(json_object_get(operand, "name"));
        *index = (uint32_t)i;
        if (other && strcmp(other, name) == 0)
            return true;
    }
    return false;
}

/* Inputs of backward are forward's tensors by name. */
static bool read_passes(json_t *op, struct passes *passes) {
    json_t *inputs = operands(op, "backward", "inputs"), *input, *output;
    size_t i, nout = json_array_size(operands(op, "forward", "outputs"));
    if (json_array_size(inputs) > XOP_MAX_INPUTS || nout > XOP_MAX_OUTPUTS)
        return false;
    passes->nout = (uint32_t)nout;
    json_array_foreach(operands(op, "forward", "outputs"), i,
                       output) if (json_is_true(json_object_get(output, "saved"))) passes->saved |=
        1u << i;
    json_array_foreach(inputs, i, input) {
        const char *name = json_string_value(json_object_get(input, "name"));
        struct catalogue_need *need = &passes->needs[passes->nneeds++];
        if (!name)
            return false;
        need->shape_only = json_is_true(json_object_get(input, "shape_only"));
        if (find_operand(operands(op, "forward", "inputs"), name, &need->index))
            need->source = CATALOGUE_INPUT;
        else if (find_operand(operands(op, "forward", "outputs"), name, &need->index))
            need->source = CATALOGUE_OUTPUT;
        if (need->source != CATALOGUE_GIVEN && need->index >= XOP_MAX_INPUTS)
            return false;
    }
    return true;
}

static bool read_all_passes(struct catalogue *catalogue) {
    catalogue->passes = calloc(catalogue->count + 1u, sizeof *catalogue->passes);
    for (uint32_t i = 0; catalogue->passes && i < catalogue->count; i++)
        if (!read_passes(json_array_get(catalogue->operators, i), &catalogue->passes[i]))
            return false;
    return catalogue->passes != NULL;
}

uint32_t catalogue_needs(const struct catalogue *catalogue, uint32_t index,
                         const struct catalogue_need **needs) {
    *needs = catalogue->passes[index].needs;
    return catalogue->passes[index].nneeds;
}

uint32_t catalogue_outputs(const struct catalogue *catalogue, uint32_t index, uint32_t *saved) {
    *saved = catalogue->passes[index].saved;
    return catalogue->passes[index].nout;
}

/* ---- Making and freeing ---- */

static void catalogue_free(struct catalogue *catalogue) {
    if (!catalogue)
        return;
    json_decref(catalogue->operators);
    free(catalogue->names);
    free(catalogue->by_name);
    free(catalogue->stats_slots);
    free(catalogue->passes);
    free(catalogue);
}

enum xop_status catalogue_new(const char *json, size_t bytes, uint32_t operators,
                              struct catalogue **out, struct xop_error *error) {
    struct catalogue *catalogue = calloc(1, sizeof *catalogue);
    json_error_t wrong;
    json_t *document = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (!catalogue)
        goto fail;
    catalogue->operators = json_incref(json_object_get(document, "operators"));
    catalogue->count = operators;
    atomic_init(&catalogue->references, 1);
    if (!json_is_array(catalogue->operators) ||
        json_array_size(catalogue->operators) != operators || !index_names(catalogue) ||
        !read_all_passes(catalogue))
        goto fail;
    json_decref(document);
    *out = catalogue;
    return XOP_OK;
fail:
    json_decref(document);
    catalogue_free(catalogue);
    return xop_fail(error, XOP_INTERNAL, "the worker's catalogue of operators cannot be read");
}

struct catalogue *catalogue_hold(struct catalogue *catalogue) {
    atomic_fetch_add(&catalogue->references, 1);
    return catalogue;
}

void catalogue_drop(struct catalogue *catalogue) {
    if (catalogue && atomic_fetch_sub(&catalogue->references, 1) == 1)
        catalogue_free(catalogue);
}

/* ---- Looking up ---- */

bool catalogue_find(const struct catalogue *catalogue, const char *name, uint32_t *index) {
    uint32_t slot = *slot_of(catalogue, name);
    *index = slot - 1;
    return slot != 0;
}

uint32_t catalogue_count(const struct catalogue *catalogue) { return catalogue->count; }

const char *catalogue_name(const struct catalogue *catalogue, uint32_t index) {
    return catalogue->names[index];
}

void catalogue_set_slot(struct catalogue *catalogue, uint32_t index, uint32_t slot) {
    catalogue->stats_slots[index] = slot;
}

uint32_t catalogue_slot(const struct catalogue *catalogue, uint32_t index) {
    return catalogue->stats_slots[index];
}

char *catalogue_describe(const struct catalogue *catalogue, const char *name, const char *backend,
                         const char *device) {
    uint32_t index;
    json_t *list;
    if (name && !catalogue_find(catalogue, name, &index))
        return NULL;
    /* jansson's reference counts are not atomic in every build, and several threads may describe at
     * once: so values are copied, not shared. */
    list = name ? json_pack("[o]", json_deep_copy(json_array_get(catalogue->operators, index)))
                : json_deep_copy(catalogue->operators);
    json_t *document =
        json_pack("{s:s, s:s, s:o}", "backend", backend, "device", device, "operators", list);
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    return text;
}
