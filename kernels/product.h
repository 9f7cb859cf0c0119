/*
 * Products of matrices as linear and matmul ask for them: one, or one for each place of a batch,
 * whose results may be summed over some of its dimensions. Sizes alone decide how a product is cut
 * and in which order its terms are added, so both backends and `infer` come to the same answer.
 * Pure functions, callable from any thread.
 */
#ifndef KERNELS_PRODUCT_H
#define KERNELS_PRODUCT_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A dimension of the batch: its extent, and the steps in elements from one place to the next; 0
 * where a matrix serves all. Where c is 0, the products are summed. */
struct product_dim {
    int64_t size, a, b, c;
};

/* c (rows, columns) = a (rows, inner) b (inner, columns) + bias, row-major and dense, each of one
 * floating dtype. Where one is transposed, what is stored is its transpose. */
struct product {
    enum xop_dtype dtype;
    int64_t rows, columns, inner;
    bool a_transposed, b_transposed;
    bool allow_tf32; /* f32 may be cut down to TF32 where the device has that */
    bool any_order;  /* sums need not repeat bit for bit */
    uint32_t ndims;
    struct product_dim dim[XOP_MAX_RANK]; /* those that are kept, then those that are summed */
    const void *a, *b;
    const void *bias; /* columns elements, added to every row; NULL: none. Not with a batch. */
    void *c;          /* NULL: not wanted */
};

/* Drops dimensions of the batch along which the matrices lie so that one taller matrix, or one
 * longer sum, is the same. */
void product_join(struct product *product);

/* How many results there are, and how many products each is the sum of. */
int64_t product_kept(const struct product *product);
int64_t product_terms(const struct product *product);

/* The place of result number `kept` and of its term number `term`, in elements. */
struct product_place {
    int64_t a, b, c;
};
struct product_place product_place_of(const struct product *product, int64_t kept, int64_t term);

/* How a library that multiplies evenly spaced matrices in one go is used: one dimension, the lane,
 * goes in one, and the others one by one. Where the lane is summed, its places are dealt out to
 * slices that are summed apart. */
struct product_cut {
    uint32_t lane;      /* index of the dimension; ndims where there is none */
    int64_t slices;     /* > 1 only where the lane is summed */
    bool apart;         /* sums are not to be rounded, or sliced: they are made in the workspace, in
                           what is computed in, each slice a whole c */
    uint64_t sum_bytes; /* of the workspace, for that; a multiple of 256 */
    uint64_t library_bytes; /* and what follows, for the library; a multiple of 256 */
};
void product_cut_of(const struct product *product, struct product_cut *cut);

/* Floating-point operations; what does not fit is UINT64_MAX / 4. */
uint64_t product_flops(const struct product *product);

/* ---- The attributes that all such operators have ---- */

#define PRODUCT_ATTRS                                                                              \
    {.name = "allow_tf32",                                                                         \
     .doc = "f32 may be multiplied as TF32, with 11 digits, where the device can; the CPU never "  \
            "does",                                                                                \
     .type = XOP_ATTR_BOOL,                                                                        \
     .fallback = {.type = XOP_ATTR_BOOL, .count = 1, .value.i = 0}},                               \
    {                                                                                              \
        .name = "deterministic",                                                                   \
        .doc = "whether the same request gives the same bits on the same device; false leaves "    \
               "the choice to the library",                                                        \
        .type = XOP_ATTR_BOOL, .fallback = {                                                       \
            .type = XOP_ATTR_BOOL,                                                                 \
            .count = 1,                                                                            \
            .value.i = 1                                                                           \
        }                                                                                          \
    }
#define PRODUCT_NATTRS 2

/* Takes these two, which lie next to each other in this order; NULL: their defaults. */
void product_options(struct product *product, const struct xop_attr *attrs);

#ifdef __cplusplus
}
#endif
#endif
