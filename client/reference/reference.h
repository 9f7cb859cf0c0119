/*
 * The judge: every operator's forward and backward in float64, written from its formula and sharing
 * nothing with the kernels. Plain loops, no attention to speed. Stateless; any thread.
 */
#ifndef REFERENCE_REFERENCE_H
#define REFERENCE_REFERENCE_H

#include <xop/types.h>

/* A tensor of doubles. `scale` says, for outputs, how large the terms were whose sum each element
 * is: the error of a correct computation is in proportion to it, however much cancels. `terms` is
 * how many were summed. */
struct reference_tensor {
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
    int64_t n;
    double *data;  /* NULL: shape alone */
    double *scale; /* outputs only */
    int64_t terms; /* outputs only */
};

/* The arithmetic that is judged: what overflows in it is infinite, where a double is not yet, and
 * what underflows has lost digits. */
struct reference_arithmetic {
    double max;          /* largest finite number that intermediate results can hold */
    double least_normal; /* smallest with all its digits */
};

struct reference {
    const char *name;
    uint32_t nin, nout; /* of forward; backward gives gradients of the first `ngrad` inputs */
    uint32_t ngrad;
    /* Backward's inputs: `saved_in` and `saved_out` are masks of forward inputs and outputs that it
     * takes, in this order, before the gradients of the outputs; `shape_only` of those. */
    uint32_t saved_in, saved_out, shape_only;
    /* Whether forward's inputs broadcast against each other. */
    bool broadcasts;
    /* Where random inputs are taken from, and where the gradient is checked by differences. */
    double low, high, smooth_low, smooth_high;
    /* Shapes of outputs: false where the inputs do not go together. data is allocated by the caller
     * after it. */
    bool (*shape)(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out);
    void (*forward)(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out);
    void (*backward)(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out);
};

/* NULL where there is none of that name. */
const struct reference *reference_find(const char *name);
/* The nth, NULL beyond the last. */
const struct reference *reference_at(uint32_t n);

extern const struct reference reference_square_bias, reference_sigmoid,
    reference_sigmoid_complement, reference_bose_einstein;

#endif
