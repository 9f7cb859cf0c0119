/*
 * The short way to a safe operator: the checks that an `infer` makes, each with a sentence that
 * names inputs, shapes and dtypes, and the loop over dtypes of a `launch`. Header only, for C17 and
 * C++17 (nvcc included); pure functions, callable from any thread.
 */
#ifndef XOP_CHECK_H
#define XOP_CHECK_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define XOP_ANYWHERE __host__ __device__
#else
#define XOP_ANYWHERE
#endif

#define XOP_SHAPE_TEXT 192 /* bytes that hold any shape as text */

/* Writes "(3, 4)", "(3,)" or "()" and returns text. */
static inline const char *xop_shape_text(const struct xop_tensor *tensor,
                                         char text[XOP_SHAPE_TEXT]) {
    size_t used = (size_t)snprintf(text, XOP_SHAPE_TEXT, "(");
    for (uint32_t i = 0; i < tensor->rank && i < XOP_MAX_RANK; i++)
        used += (size_t)snprintf(text + used, XOP_SHAPE_TEXT - used, "%s%lld", i ? ", " : "",
                                 (long long)tensor->shape[i]);
    snprintf(text + used, XOP_SHAPE_TEXT - used, tensor->rank == 1 ? ",)" : ")");
    return text;
}

/* The number of elements; those of a call's tensors were checked to fit. */
static inline int64_t xop_elements(const struct xop_tensor *tensor) {
    int64_t n;
    return xop_tensor_elements(tensor, &n) ? n : 0;
}

static inline uint64_t xop_bytes(const struct xop_tensor *tensor) {
    uint64_t bytes;
    return xop_tensor_bytes(tensor, &bytes) ? bytes : 0;
}

/* Element `at` of an index operand, i32 or i64, read once: what another process makes of it
 * meanwhile changes nothing. In host code and in kernels. */
static inline XOP_ANYWHERE int64_t xop_index(enum xop_dtype dtype, const void *data, uint64_t at) {
    return dtype == XOP_I32 ? (int64_t)((const volatile int32_t *)data)[at]
                            : ((const volatile int64_t *)data)[at];
}

/* Says that the index at `at` is out of range. Host code, any thread; in kernels it is
 *     atomicMin((unsigned long long *)&bad->at, at). */
static inline void xop_index_bad(struct xop_bad_index *bad, uint64_t at) {
    uint64_t least = __atomic_load_n(&bad->at, __ATOMIC_RELAXED);
    while (at < least && !__atomic_compare_exchange_n(&bad->at, &least, at, true, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED))
        ;
}

/* Makes an output like another tensor: its dtype and shape. */
static inline void xop_like(struct xop_tensor *out, const struct xop_tensor *like) {
    *out = *like;
    out->data = NULL;
}

static inline enum xop_status xop_check_dtypes(const char *a_name, const struct xop_tensor *a,
                                               const char *b_name, const struct xop_tensor *b,
                                               struct xop_error *error) {
    if (a->dtype == b->dtype)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is %s but %s is %s; they must be the same",
                    a_name, xop_dtype_name(a->dtype), b_name, xop_dtype_name(b->dtype));
}

/* The same dtype and the same shape: no broadcasting. */
static inline enum xop_status xop_check_same(const char *a_name, const struct xop_tensor *a,
                                             const char *b_name, const struct xop_tensor *b,
                                             struct xop_error *error) {
    char a_text[XOP_SHAPE_TEXT], b_text[XOP_SHAPE_TEXT];
    bool same = a->rank == b->rank;
    for (uint32_t i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i];
    if (!same)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s has shape %s but %s has shape %s; they must be the same", a_name,
                        xop_shape_text(a, a_text), b_name, xop_shape_text(b, b_text));
    return xop_check_dtypes(a_name, a, b_name, b, error);
}

static inline enum xop_status xop_check_rank(const char *name, const struct xop_tensor *tensor,
                                             uint32_t least, uint32_t most,
                                             struct xop_error *error) {
    char text[XOP_SHAPE_TEXT];
    if (tensor->rank >= least && tensor->rank <= most)
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT, "%s has shape %s, but needs %u to %u dimensions",
                    name, xop_shape_text(tensor, text), least, most);
}

/* A vector as long as another tensor's last dimension, as weights and biases of rows are. */
static inline enum xop_status xop_check_row(const char *row_name, const struct xop_tensor *row,
                                            const char *name, const struct xop_tensor *tensor,
                                            struct xop_error *error) {
    char row_text[XOP_SHAPE_TEXT], text[XOP_SHAPE_TEXT];
    if (tensor->rank == 0 || row->rank != 1 || row->shape[0] != tensor->shape[tensor->rank - 1])
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s has shape %s, but needs one dimension, the last of %s's shape %s",
                        row_name, xop_shape_text(row, row_text), name,
                        xop_shape_text(tensor, text));
    return xop_check_dtypes(row_name, row, name, tensor, error);
}

/* The plan of an operator that reads every element of its inputs once and writes every element of
 * its outputs once. Outputs are set before. */
static inline void xop_plan_elementwise(const struct xop_call *call, uint32_t nin, uint32_t nout,
                                        uint64_t flops_each, struct xop_plan *plan) {
    plan->read_once = (1u << nin) - 1;
    plan->write_once = (1u << nout) - 1;
    for (uint32_t i = 0; i < nin; i++)
        plan->bytes += xop_bytes(&call->in[i]);
    for (uint32_t i = 0; i < nout; i++)
        plan->bytes += xop_bytes(&plan->out[i]);
    plan->flops = flops_each * (uint64_t)xop_elements(&plan->out[0]);
}

/* The statements once for the type that belongs to the dtype, called T in them:
 *     XOP_DISPATCH(x->dtype, T, { const T *from = (const T *)x->data; ... })
 * Of f16 and bf16 C has no types; <xop/elementwise.cuh> knows CUDA's. Anything else runs nothing,
 * so an operator declares the dtypes that it dispatches. */
#define XOP_DISPATCH(its_dtype, T, ...)                                                            \
    switch (its_dtype) {                                                                           \
    case XOP_F32: {                                                                                \
        typedef float T;                                                                           \
        __VA_ARGS__                                                                                \
    } break;                                                                                       \
    case XOP_F64: {                                                                                \
        typedef double T;                                                                          \
        __VA_ARGS__                                                                                \
    } break;                                                                                       \
    default: break;                                                                                \
    }

#ifdef __cplusplus
}
#endif
#endif
