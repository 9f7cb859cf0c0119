/*
 * A trial: one request of verify, with its inputs as the dtypes hold them and as the reference
 * takes them (verify_judge.c). Who makes one frees it.
 */
#ifndef XOPCTL_VERIFY_TRIAL_H
#define XOPCTL_VERIFY_TRIAL_H

#include "verify.h"

/* A request and the reference's answer to it. */
struct trial {
    struct value in[VERIFY_MAX_IN];
    struct reference_tensor ref_in[VERIFY_MAX_IN], ref_out[XOP_MAX_OUTPUTS];
    struct xop_tensor tensors[VERIFY_MAX_IN];
    uint32_t nin, nout;
};

/* False, and nothing to free, where memory is short or the case does not fit the operator. */
bool trial_make(struct trial *trial, const struct verify_subject *subject,
                const struct verify_case *what, struct random *random);
void trial_free(struct trial *trial);

/* Whether an input of forward is an index in this case, and what it may hold then. */
bool trial_is_index(const struct verify_subject *subject, const struct verify_case *what,
                    uint32_t input, struct reference_indices *indices);

struct xop_request trial_request(const struct verify_subject *subject, const struct trial *trial);
/* Writes "(3, 4) (4,) with dim=1". */
void trial_shapes(const struct verify_subject *subject, const struct trial *trial, char *out,
                  size_t capacity);
/* Says how the request failed. */
enum verify_outcome trial_failed(const struct verify_subject *subject,
                                 const struct xop_result *result, const struct trial *trial,
                                 char *sentence, size_t capacity);

#endif
