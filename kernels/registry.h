/*
 * Joins what an operator is with what a backend does for it. Each family declares its operators
 * once, for every backend, as `const struct xop_op` values without launch functions; a backend
 * names its launch functions in one table, and registry_library makes the library that a worker
 * sees.
 */
#ifndef KERNELS_REGISTRY_H
#define KERNELS_REGISTRY_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REGISTRY_MAX 256u /* operators of a backend */

/* NULL for a pass that this backend does not offer. max_group as in struct xop_signature. */
struct registry_launch {
    const struct xop_op *declaration;
    xop_launch_fn forward, backward;
    uint32_t max_group_forward, max_group_backward;
};

/* The declaration with a backend's launch functions filled in. */
void registry_bind(struct xop_op *op, const struct registry_launch *launch);

/* The library of this shared object: made by the first call, the same one ever after, in static
 * storage. Only the loop's thread may call it. NULL where n exceeds REGISTRY_MAX. */
const struct xop_library *registry_library(const char *backend_name,
                                           const struct registry_launch *table, uint32_t n);

#ifdef __cplusplus
}
#endif
#endif
