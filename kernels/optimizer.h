/*
 * sgd, adam and adamw: steps of an optimiser, whose outputs may take the places of their inputs.
 * What both backends share: declarations, checks, and a call's coefficients. The formulas are in
 * optimizer_math.h.
 */
#ifndef KERNELS_OPTIMIZER_H
#define KERNELS_OPTIMIZER_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const struct xop_op sgd_declaration, adam_declaration, adamw_declaration;

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW };

/* What a step reads and writes. Both of adam have all, sgd the first two and the gradient. */
enum optimizer_slot {
    OPTIMIZER_PARAM,
    OPTIMIZER_FIRST,   /* momentum_buffer, exp_avg */
    OPTIMIZER_SECOND,  /* exp_avg_sq */
    OPTIMIZER_LARGEST, /* max_exp_avg_sq */
    OPTIMIZER_STATES,  /* those before are outputs, too */
    OPTIMIZER_GRAD = OPTIMIZER_STATES,
    OPTIMIZER_SLOTS
};

/* A step's numbers. Those of the other kinds are 0. */
struct optimizer_numbers {
    double lr, weight_decay;
    double momentum, undamped;         /* sgd: 1 - dampening */
    double beta1, beta2, eps;          /* adam */
    double rest1, rest2;               /* 1 - beta1, 1 - beta2 */
    double kept;                       /* adamw: 1 - lr * weight_decay */
    double step_size, correction_root; /* lr / (1 - beta1^step), sqrt(1 - beta2^step) */
};

enum optimizer_flags {
    OPTIMIZER_MAXIMIZE = 1,
    OPTIMIZER_NESTEROV = 2,
    OPTIMIZER_BEGINS = 4, /* sgd with momentum: there is no momentum_buffer yet */
    OPTIMIZER_AMSGRAD = 8
};

/* A call as kernels see it. */
struct optimizer_step {
    enum optimizer_kind kind;
    uint32_t flags;
    struct optimizer_numbers number;
    const void *in[OPTIMIZER_SLOTS]; /* NULL: zeros, or not used */
    void *out[OPTIMIZER_STATES];     /* NULL: not wanted, or there is none */
    int64_t n;
};

/* Of a call that infer has accepted. */
void optimizer_step_of(enum optimizer_kind kind, const struct xop_call *call,
                       struct optimizer_step *step);

#ifdef __cplusplus
}
#endif
#endif
