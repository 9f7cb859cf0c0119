/*
 * Shapes: comparing, formatting and broadcasting them as NumPy does, and reducing a pair of
 * broadcast operands to the fewest dimensions that a kernel has to walk. Everything depends on the
 * shapes alone, so both backends and `infer` come to the same answer. Pure functions, callable from
 * any thread.
 */
#ifndef KERNELS_SHAPE_H
#define KERNELS_SHAPE_H

#include <xop/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHAPE_TEXT 192 /* bytes that hold any shape formatted */

/* Writes "(3, 4)", "(3,)" or "()" and returns text. */
const char *shape_format(const struct xop_tensor *tensor, char text[SHAPE_TEXT]);

bool shape_equal(const struct xop_tensor *a, const struct xop_tensor *b);

/* Makes to a tensor of from's dtype and shape, without data. */
void shape_copy(struct xop_tensor *to, const struct xop_tensor *from);

/* INVALID_ARGUMENT where an output of that shape and dtype has more bytes than can be counted. */
enum xop_status shape_check_bytes(const char *name, const struct xop_tensor *tensor,
                                  struct xop_error *error);

/* Gives out the shape that a and b broadcast to and a's dtype. INVALID_ARGUMENT, with a sentence
 * that names both inputs and their shapes, where they do not fit or the result's bytes exceed
 * INT64_MAX. */
enum xop_status shape_broadcast(const char *a_name, const struct xop_tensor *a, const char *b_name,
                                const struct xop_tensor *b, struct xop_tensor *out,
                                struct xop_error *error);

/* How an operand lies in the array that it is broadcast to. The first that fits is given. */
enum shape_form {
    SHAPE_FULL,   /* as many elements, one for each */
    SHAPE_SCALAR, /* one element for all */
    SHAPE_ROW,    /* dim[0] repeats it, dim[1] walks it: (n,) against (m, n) */
    SHAPE_COLUMN, /* dim[0] walks it, dim[1] repeats an element: (m, 1) against (m, n) */
    SHAPE_GENERAL
};

/* A dimension to walk: its extent and the steps, in elements, that each operand takes (0 where the
 * operand is repeated). */
struct shape_dim {
    int64_t size, stride_x, stride_b;
};

/* Two operands against the array that they are broadcast to. Dimensions of extent 1 are gone and
 * neighbours that both operands walk alike are joined, so that ndims is as small as can be: at most
 * 1 where both forms are FULL or SCALAR, 2 where the forms are ROW or COLUMN beside FULL or SCALAR.
 * dim[0] is the outermost; the array itself is dense, its index the position in this walk. */
struct shape_map {
    int64_t elements; /* of the array; 0 where it is empty, whatever dim says */
    enum shape_form x_form, b_form;
    uint32_t ndims;
    struct shape_dim dim[XOP_MAX_RANK];
};

/* out must be what x and b broadcast to. */
void shape_collapse(const struct xop_tensor *x, const struct xop_tensor *b,
                    const struct xop_tensor *out, struct shape_map *map);

/* An extent and its step in the full array. */
struct shape_axis {
    int64_t size, stride;
};

#define SHAPE_MAX_PARTIALS 1024 /* partial sums for an element of a result, at most */
#define SHAPE_MAX_PARTIALS_ALL                                                                     \
    1048576 /* for all elements of a result, at most, where over 1 each */

/* Summing a full array to the shape of an operand that was broadcast to it: result element k, for k
 * counted in C order over the kept axes, is the sum over all reduced axes. Where partials > 1, the
 * terms of an element, counted in C order over the reduced axes, are cut into that many pieces of
 * `piece` terms (the last may be shorter), which are summed apart and then added in order: this cut
 * depends on the shapes alone, so the same request gives the same bits.
 * form says how it may be done: FULL is a copy; SCALAR sums everything; ROW sums the outer axis
 * (axis[0].size rows of kept[0].size); COLUMN sums the inner axis (kept[0].size rows of
 * axis[0].size). */
struct shape_reduction {
    enum shape_form form;
    int64_t outputs; /* elements of the result */
    int64_t reduced; /* terms in each; 0 where the full array is empty: the sums are 0 then */
    int64_t piece;
    uint32_t partials;
    uint32_t nkept, nreduced;
    struct shape_axis kept[XOP_MAX_RANK], axis[XOP_MAX_RANK]; /* outermost first */
};

/* operand must broadcast to full. */
void shape_reduce(const struct xop_tensor *operand, const struct xop_tensor *full,
                  struct shape_reduction *reduction);

/* Bytes that hold the partial sums as doubles, a multiple of 256; 0 where partials is 1. */
uint64_t shape_reduction_workspace(const struct shape_reduction *reduction);

#ifdef __cplusplus
}
#endif
#endif
