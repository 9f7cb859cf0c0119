/*
 * Verification: what is tried (verify_cases.c), how a result is judged (verify_judge.c,
 * verify_indices.c) and the verb that drives both (verify.c).
 */
#ifndef XOPCTL_VERIFY_H
#define XOPCTL_VERIFY_H

#include "client/reference/reference.h"
#include "session.h"
#include "value.h"

#define VERIFY_MAX_IN (XOP_MAX_INPUTS)

/* Counter-based random numbers: the same seed and place give the same numbers on every machine. */
struct random {
    uint64_t seed, counter;
};
uint64_t random_next(struct random *random);
double random_between(struct random *random, double low, double high);

/* Shapes of forward's inputs, and what they are filled with. */
struct verify_case {
    bool absent[VERIFY_MAX_IN]; /* inputs that are left out */
    uint32_t rank[VERIFY_MAX_IN];
    int64_t shape[VERIFY_MAX_IN][XOP_MAX_RANK];
    enum reference_fill fill;
    bool is_large; /* left out of what is tried many times */
};

/* The nth case for a reference; false beyond the last. */
bool verify_case_at(const struct reference *reference, uint32_t n, struct verify_case *out);
/* A case in which every input has the given shape, or one that goes with it. */
void verify_case_of(const struct reference *reference, uint32_t rank, const int64_t *shape,
                    struct verify_case *out);
/* Fills an index input with values that it may have, the bounds first. */
void verify_fill_indices(struct value *value, const struct reference_indices *indices,
                         struct random *random);
/* Fills an input of a case; `operand` counts the inputs, so that edges meet each other. */
void verify_fill(struct value *value, const struct reference *reference, enum reference_fill fill,
                 uint32_t operand, struct random *random);

/* Which operators are judged, and by what, where it is not all by the references of xopctl. */
struct verify_source {
    const char *const *ops;
    uint32_t nops;
    const struct reference *(*find)(const char *op);
};
/* The verb verify on these, with the verb's options. Fails as well where nothing could be tried. */
int verify_source(struct session *session, int argc, char **argv,
                  const struct verify_source *source);

/* The worst of many comparisons, and where. */
struct verify_worst {
    double ratio; /* error over tolerance; above 1 is wrong */
    double got, expected;
    int64_t at;
    char operand[XOP_MAX_NAME + 1], shapes[256];
};

/* What is judged: one operator, pass and dtype, asked with one setting after the other. */
struct verify_subject {
    struct session *session;
    const char *op;
    const struct reference *reference;
    enum xop_pass pass;
    enum xop_dtype dtype;
    json_t *signature;                       /* of the pass, for names */
    const struct reference_setting *setting; /* NULL: defaults alone */
};

enum verify_outcome {
    VERIFY_PASSED,
    VERIFY_FAILED,
    VERIFY_FAULTED, /* the operator ended its worker */
    VERIFY_BROKEN   /* the server is gone */
};

/* Whether the case goes with the subject's setting. */
bool verify_takes(const struct verify_subject *subject, const struct verify_case *what);
/* Runs a case and compares; the sentence says what is wrong where it failed. */
enum verify_outcome verify_judge(const struct verify_subject *subject,
                                 const struct verify_case *what, struct random *random,
                                 struct verify_worst *worst, char *sentence, size_t capacity);
/* The same request twice, and among many at once: the same bits. */
enum verify_outcome verify_repeat(const struct verify_subject *subject,
                                  const struct verify_case *what, struct random *random,
                                  char *sentence, size_t capacity);
/* Whether the case has an index input that bad values can be put into. */
bool verify_has_indices(const struct verify_subject *subject, const struct verify_case *what);
/* Indices out of range are refused, and the first is named; after that a good request passes. */
enum verify_outcome verify_bad_indices(const struct verify_subject *subject,
                                       const struct verify_case *what, struct random *random,
                                       char *sentence, size_t capacity);
/* What forward's outputs are in, and their gradients. */
enum xop_dtype verify_result_dtype(const struct verify_subject *subject);
/* Writes the attributes as "alpha=0.5 beta=2", "" where there are none. */
void verify_setting_text(const struct reference_setting *setting, char *out, size_t capacity);
/* Backward against central differences of forward, in f64. */
enum verify_outcome verify_differences(const struct verify_subject *subject,
                                       const struct verify_case *what, struct random *random,
                                       struct verify_worst *worst, char *sentence, size_t capacity);

#endif
