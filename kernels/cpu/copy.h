/*
 * Copying on the CPU: the copy operator, and the copies of operands that a group keeps. Called on
 * the thread that computes the group.
 */
#ifndef KERNELS_CPU_COPY_H
#define KERNELS_CPU_COPY_H

#include "kernels/backend.h"

/* Spread over the host's threads where it is large. */
void copy_parallel(const struct xop_host *host, void *to, const void *from, uint64_t bytes);

/* Copies what the group keeps to where it keeps it: before the launch its inputs, which the launch
 * may overwrite, after it its outputs. Nothing to do where it keeps nothing. */
void copy_keep_inputs(const struct xop_group *group, const struct xop_host *host);
void copy_keep_outputs(const struct xop_group *group, const struct xop_host *host);

/* What these will copy, in bytes. */
uint64_t copy_kept_bytes(const struct xop_group *group, uint32_t call);

enum xop_status copy_cpu_forward(const struct xop_launch *launch, struct xop_error *error);

#endif
