/*
 * The summaries of fold.h on the CPU, as doubles: terms join them a block at a time. Pure
 * functions, callable from any thread.
 */
#ifndef KERNELS_CPU_FOLD_TERMS_H
#define KERNELS_CPU_FOLD_TERMS_H

#include "kernels/cpu/row_loops.h"
#include "kernels/fold.h"

#define FOLD_STRIP 128 /* neighbouring outputs, at most */
#define FOLD_BLOCK 32  /* terms of each that are joined at once */

/* Those of a strip's outputs; part[0] is a, and so on. */
struct fold_strip {
    double part[FOLD_PARTS][FOLD_STRIP];
};

/* No terms yet. */
void fold_start(enum fold_summary summary, struct fold_strip *strip, int64_t count);

/* Joins `terms` terms, FOLD_BLOCK at most, of each of `count` outputs; an output's terms are
 * FOLD_STRIP apart. y: what the outputs are, for FOLD_TIES. */
void fold_columns(enum fold_summary summary, struct fold_strip *strip, const double *x,
                  int64_t terms, int64_t count, const double *y);

/* Joins n > 0 terms of output k, which lie together. */
void fold_run(enum fold_summary summary, const struct row_loops *loops, struct fold_strip *strip,
              int64_t k, const double *x, int64_t n, double y);

/* Joins the summary of other terms to that of output k. */
void fold_join(enum fold_summary summary, struct fold_strip *strip, int64_t k,
               const double other[FOLD_PARTS]);

/* What a forward makes of a summary. */
double fold_result(enum fold_summary summary, const struct fold_plan *plan,
                   const struct fold_strip *strip, int64_t k);

#endif
