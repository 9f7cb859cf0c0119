/*
 * What the bare machine takes to move bytes, as a measure for what operators take. Called by the
 * backend, on the helper thread.
 */
#ifndef KERNELS_CPU_PROBE_H
#define KERNELS_CPU_PROBE_H

#include "kernels/backend.h"
#include "kernels/cpu/pool.h"

enum xop_status probe_cpu(struct pool *pool, uint64_t bytes_in, uint64_t bytes_out,
                          struct xop_probe *probe, struct xop_error *error);

#endif
