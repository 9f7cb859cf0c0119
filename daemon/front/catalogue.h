/*
 * What a worker says it offers: operators by name and index, and the JSON that describes them.
 * Immutable once made; any thread may read it while it holds the generation that owns it.
 */
#ifndef FRONT_CATALOGUE_H
#define FRONT_CATALOGUE_H

#include "stats.h"

#include <stddef.h>

struct catalogue;

/* From the worker's document, which is checked. */
enum xop_status catalogue_new(const char *json, size_t bytes, uint32_t operators,
                              struct catalogue **catalogue, struct xop_error *error);
void catalogue_free(struct catalogue *catalogue);

bool catalogue_find(const struct catalogue *catalogue, const char *name, uint32_t *index);
uint32_t catalogue_count(const struct catalogue *catalogue);
const char *catalogue_name(const struct catalogue *catalogue, uint32_t index);

/* The operator's statistics slot, set by the main thread before others see the catalogue. */
void catalogue_set_slot(struct catalogue *catalogue, uint32_t index, uint32_t slot);
uint32_t catalogue_slot(const struct catalogue *catalogue, uint32_t index);

/* The describe document for one operator, or all where name is NULL: an allocated string, the
 * caller's; NULL where there is no such operator (or memory ran out). */
char *catalogue_describe(const struct catalogue *catalogue, const char *name, const char *backend,
                         const char *device);

#endif
