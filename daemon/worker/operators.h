/*
 * The worker's operators: those of its backend and those of libraries in a directory. What cannot
 * be used is refused by name, and the others load.
 */
#ifndef WORKER_OPERATORS_H
#define WORKER_OPERATORS_H

#include "state.h"

/* Adds a library's operators. A name that is there already is replaced. */
enum xop_status operators_add(struct worker *worker, const struct xop_library *library,
                              struct xop_error *error);

/* Loads every .so in setup.operators_path; says in the log what it refuses and why. */
void operators_load(struct worker *worker);

/* The catalogue as JSON, allocated; NULL where memory runs out. */
char *operators_describe(const struct worker *worker);

#endif
