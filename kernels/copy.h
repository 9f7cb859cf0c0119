/*
 * Copying as an operator, so that copies take part in groups like everything else. It is in no
 * catalogue: each backend binds its launch function and hands it to the worker by itself.
 */
#ifndef KERNELS_COPY_H
#define KERNELS_COPY_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op copy_declaration;

/* The bytes that a call copies; 0 where there are none, or where they would be copied to where they
 * are. INTERNAL where its two tensors differ in size. */
enum xop_status copy_bytes(const struct xop_call *call, uint64_t *bytes, struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
