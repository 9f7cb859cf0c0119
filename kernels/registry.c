#include "kernels/registry.h"

void registry_bind(struct xop_op *op, const struct registry_launch *launch) {
    *op = *launch->declaration;
    op->pass[XOP_FORWARD].launch = launch->forward;
    op->pass[XOP_FORWARD].max_group = launch->max_group_forward;
    op->pass[XOP_BACKWARD].launch = launch->backward;
    op->pass[XOP_BACKWARD].max_group = launch->max_group_backward;
}

const struct xop_library *registry_library(const char *backend_name,
                                           const struct registry_launch *table, uint32_t n) {
    static struct xop_op bound[REGISTRY_MAX];
    static const struct xop_op *ops[REGISTRY_MAX];
    static struct xop_library library;

    if (library.ops)
        return &library;
    if (n > REGISTRY_MAX)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        registry_bind(&bound[i], &table[i]);
        ops[i] = &bound[i];
    }
    library.abi = XOP_OP_ABI;
    library.backend = backend_name;
    library.nops = n;
    library.ops = ops;
    return &library;
}
