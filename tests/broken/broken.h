/*
 * Operators that are wrong on purpose, to prove that `xopctl verify` finds what it is meant to
 * find. Each broken_*.c or .cu becomes a library of one operator, loaded as users' operators are.
 * It is square_bias, or another of ours, in signature, checks and documentation, but wrong in one
 * way, which its file's first comment names.
 */
#ifndef BROKEN_BROKEN_H
#define BROKEN_BROKEN_H

#include "kernels/registry.h"
#include "kernels/square_bias.h"

/* Exports square_bias under another name, with other launch functions for a backend. */
#define BROKEN_LIBRARY(backend, its_name, forward, backward)                                       \
    BROKEN_LIBRARY_OF(square_bias_declaration, backend, its_name, forward, backward)

/* The same of any operator. */
#define BROKEN_LIBRARY_OF(declaration, backend, its_name, forward, backward)                       \
    static struct xop_op broken_op;                                                                \
    __attribute__((constructor)) static void broken_make(void) {                                   \
        const struct registry_launch launch = {&declaration, forward, backward, 64, 64};           \
        registry_bind(&broken_op, &launch);                                                        \
        broken_op.name = its_name;                                                                 \
    }                                                                                              \
    XOP_LIBRARY(backend, &broken_op)

#endif
