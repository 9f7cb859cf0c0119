/*
 * What an operator's declaration must be before a worker offers it: names, counts, types and
 * defaults, so that whatever reads one later may rely on them.
 */
#ifndef WORKER_DECLARATION_H
#define WORKER_DECLARATION_H

#include <xop/op.h>

/* FAILED_PRECONDITION, with what is wrong in a sentence. op may be NULL. */
enum xop_status declaration_check(const struct xop_op *op, struct xop_error *error);

#endif
