/*
 * One thread beside the loop's, for what may take long and starts no group: making, mapping and
 * pinning memory, timing the device. It does one job after the other, in the order asked, but for
 * patient ones, which let others pass.
 */
#ifndef WORKER_HELPER_H
#define WORKER_HELPER_H

#include "state.h"

/* At the start of a struct of its own. */
struct helper_job {
    struct helper_job *next;
    void (*run)(struct worker *worker, struct helper_job *job);  /* on the helper's thread */
    void (*done)(struct worker *worker, struct helper_job *job); /* on the loop's, which frees it */
};

enum xop_status helper_open(struct worker *worker, struct xop_error *error);
/* Ends the thread once it is through with what it has begun; the rest is freed undone. */
void helper_close(struct worker *worker);

/* patient: it lets those pass that are not. */
void helper_ask(struct worker *worker, struct helper_job *job, bool patient);

/* Calls done for what is through; returns how many that were. */
uint32_t helper_finish(struct worker *worker);

/* Whether its job takes longer than any can: the device or its driver hangs. */
bool helper_hangs(const struct worker *worker, uint64_t now);

/* Becomes readable when something is. */
int helper_descriptor(const struct worker *worker);

#endif
