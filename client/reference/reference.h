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
    bool absent;   /* an input that may be missing is */
    double *data;  /* NULL: shape alone */
    double *scale; /* outputs only */
    int64_t terms; /* outputs only */
};

/* Values of an operator's attributes; one that is not named has its default. */
#define REFERENCE_ATTRS 8
struct reference_setting {
    struct xop_attr attr[REFERENCE_ATTRS];
    uint32_t nattrs;
};

/* The arithmetic that is judged: what overflows in it is infinite, where a double is not yet, and
 * what underflows has lost digits. And the attributes that it is asked with. */
struct reference_arithmetic {
    double max;          /* largest finite number that intermediate results can hold */
    double least_normal; /* smallest with all its digits */
    double smallest;     /* smallest but 0 */
    const struct reference_setting *setting; /* NULL: defaults alone */
};

/* An attribute's value where the setting names it, else the one given. */
double reference_number(const struct reference_arithmetic *arithmetic, const char *name,
                        double fallback);
const char *reference_text(const struct reference_arithmetic *arithmetic, const char *name,
                           const char *fallback);

/* What the inputs of a case are filled with. */
enum reference_fill {
    REFERENCE_RANDOM,
    REFERENCE_POSITIVE, /* so that nothing cancels */
    REFERENCE_WHOLE,    /* small whole numbers, of which sums of products are exact */
    REFERENCE_EDGES     /* NaN, infinities, the largest, the smallest, ... */
};

struct reference_shape {
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
};

/* What the values of an index input may be: from 0 to limit - 1, and `other` besides. Or it is a
 * condition, of truth values. */
struct reference_indices {
    bool is_condition;
    int64_t limit;
    bool has_other;
    int64_t other;
};

#define REFERENCE_CASE_INPUTS 6

/* Shapes of forward's inputs, comma-separated; "" is a scalar, NULL an input that is missing. */
struct reference_case {
    const char *in[REFERENCE_CASE_INPUTS];
    enum reference_fill fill;
    bool is_large;
};

struct reference {
    const char *name;
    uint32_t nin, nout; /* of forward; backward gives gradients of `ngrad` inputs */
    uint32_t ngrad;
    uint32_t first_grad; /* the first of them */
    /* Backward's inputs: `saved_in` and `saved_out` are masks of forward inputs and outputs that it
     * takes, in this order, before the gradients of the outputs; `shape_only` of those. */
    uint32_t saved_in, saved_out, shape_only;
    uint32_t ungraded; /* a mask of outputs that have no gradient */
    /* Whether forward's inputs broadcast against each other. */
    bool broadcasts;
    /* Whether sums may be taken in any order, and the bound of their errors is the one for that. */
    bool any_order;
    /* Whether edge values are left out. */
    bool no_edges;
    /* What is tried, where the inputs' shapes depend on each other; NULL: what is usual. */
    const struct reference_case *cases;
    uint32_t ncases;
    /* The attributes with which every case is tried, one after the other; NULL: defaults alone. */
    const struct reference_setting *settings;
    uint32_t nsettings;
    /* Whether the attribute "dtype", the first of each setting, is that of forward's outputs. */
    bool makes_dtype;
    /* Whether a case, given by forward's inputs, goes with a setting; it is not tried where not.
     * NULL: all do. */
    bool (*takes)(const struct reference_setting *setting, const struct reference_tensor *in);
    /* Whether an input is an index in a case, given by forward's inputs, whose data is not there
     * yet: it is i64 or i32 then, or bool where it is a condition, valid values are drawn, and
     * verify sees to it that others are refused. NULL: none is. */
    bool (*index)(const struct reference_setting *setting, uint32_t input,
                  const struct reference_tensor *in, struct reference_indices *indices);
    /* Where random inputs are taken from, and where the gradient is checked by differences. */
    double low, high, smooth_low, smooth_high;
    /* Shapes of outputs: false where the inputs do not go together. data is allocated by the caller
     * after it. */
    bool (*shape)(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out);
    /* The same where attributes decide, too; one of both is NULL. */
    bool (*shape_for)(const struct reference_setting *setting, enum xop_pass pass,
                      const struct reference_tensor *in, struct reference_tensor *out);
    /* Told before cases of a dtype are tried; NULL: nobody needs to be. */
    void (*begin)(enum xop_dtype dtype);
    /* Shapes of forward's inputs made from one; NULL: all have that one. */
    void (*fit)(uint32_t rank, const int64_t *like, struct reference_shape *in);
    /* NULL: there is nothing to compare values with; results must be numbers all the same. */
    void (*forward)(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out);
    void (*backward)(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out);
};

/* NULL where there is none of that name. */
const struct reference *reference_find(const char *name);
/* The nth, NULL beyond the last. */
const struct reference *reference_at(uint32_t n);

#define REFERENCE(name) extern const struct reference reference_##name;
#include "references.def"
#undef REFERENCE

#endif
