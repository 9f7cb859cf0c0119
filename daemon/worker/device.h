/*
 * Opening a backend: which one, from where, and what to do when it cannot be had. `auto` takes CUDA
 * where it works and otherwise the CPU, and keeps the reason; `cuda` never falls back. Where the
 * machine shows an NVIDIA device, both wait a while for its driver.
 */
#ifndef WORKER_DEVICE_H
#define WORKER_DEVICE_H

#include "state.h"

/* Opens the backend and makes inbox and outbox known to it. Slow: runs on a thread of its own,
 * while the loop's beats. */
enum xop_status device_open(struct worker *worker, struct xop_error *error);

#endif
