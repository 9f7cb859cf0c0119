/*
 * What a worker says it offers: operators by name and index, and the JSON that describes them.
 * Immutable once made, with counted references: any thread may read one that it holds.
 */
#ifndef FRONT_CATALOGUE_H
#define FRONT_CATALOGUE_H

#include "stats.h"

#include <stddef.h>

struct catalogue;

/* From the worker's document, which is checked. */
enum xop_status catalogue_new(const char *json, size_t bytes, uint32_t operators,
                              struct catalogue **catalogue, struct xop_error *error);
struct catalogue *catalogue_hold(struct catalogue *catalogue);
void catalogue_drop(struct catalogue *catalogue); /* NULL is allowed */

bool catalogue_find(const struct catalogue *catalogue, const char *name, uint32_t *index);
uint32_t catalogue_count(const struct catalogue *catalogue);
const char *catalogue_name(const struct catalogue *catalogue, uint32_t index);

/* What an input of backward is: a tensor of forward's, or what a caller has to give. */
enum catalogue_source { CATALOGUE_GIVEN, CATALOGUE_INPUT, CATALOGUE_OUTPUT };

struct catalogue_need {
    enum catalogue_source source;
    uint32_t index; /* among forward's inputs or outputs */
    bool shape_only;
};

/* The inputs of backward, in order; 0 where there is no backward. */
uint32_t catalogue_needs(const struct catalogue *catalogue, uint32_t index,
                         const struct catalogue_need **needs);
/* How many outputs forward has; a bit in *saved for each that exists for backward alone. */
uint32_t catalogue_outputs(const struct catalogue *catalogue, uint32_t index, uint32_t *saved);

/* The operator's statistics slot, set by the main thread before others see the catalogue. */
void catalogue_set_slot(struct catalogue *catalogue, uint32_t index, uint32_t slot);
uint32_t catalogue_slot(const struct catalogue *catalogue, uint32_t index);

/* The describe document for one operator, or all where name is NULL: an allocated string, the
 * caller's; NULL where there is no such operator (or memory ran out). */
char *catalogue_describe(const struct catalogue *catalogue, const char *name, const char *backend,
                         const char *device);

#endif
