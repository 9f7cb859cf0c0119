/*
 * What one helper thread does for the backend while the loop runs: memory that comes and goes, and
 * probes. The functions are those of kernels/backend.h, where they are described.
 */
#ifndef KERNELS_CUDA_HELPER_H
#define KERNELS_CUDA_HELPER_H

#include "kernels/backend.h"

enum xop_status helper_register_host(struct xop_backend *backend, void *base, size_t bytes,
                                     bool read_only, struct xop_error *error);
enum xop_status helper_unregister_host(struct xop_backend *backend, void *base,
                                       struct xop_error *error);
enum xop_status helper_memory_make(struct xop_backend *backend, uint64_t *bytes, bool zeroed,
                                   int *descriptor, void **base, struct xop_error *error);
enum xop_status helper_memory_import(struct xop_backend *backend, int descriptor, uint64_t bytes,
                                     void **base, struct xop_error *error);
enum xop_status helper_memory_drop(struct xop_backend *backend, void *base,
                                   struct xop_error *error);
enum xop_status helper_probe(struct xop_backend *backend, uint64_t bytes_in, uint64_t bytes_out,
                             struct xop_probe *probe, struct xop_error *error);

/* Unpins and unmaps all memory; for closing. */
void helper_close(struct xop_backend *backend);

#endif
