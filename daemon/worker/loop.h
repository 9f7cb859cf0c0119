/*
 * The worker's loop: releases and submissions in, completions out. It polls for a while after work
 * was there and then sleeps on its doorbell, its control socket and the backend.
 */
#ifndef WORKER_LOOP_H
#define WORKER_LOOP_H

#include "state.h"

/* Makes tasks and launches for a worker whose seam, outbox, backend and operators are there. */
enum xop_status loop_open(struct worker *worker, struct xop_error *error);
void loop_close(struct worker *worker);

/* Does what there is to do, once: returns how much that was. *fault is set where the device is
 * lost, with its reason in error. */
uint32_t loop_turn(struct worker *worker, bool *fault, struct xop_error *error);

/* Runs until the front says stop or is gone: returns OK; or until the device is lost: DEVICE_FAULT
 * with its reason. */
enum xop_status loop_run(struct worker *worker, struct xop_error *error);

#endif
