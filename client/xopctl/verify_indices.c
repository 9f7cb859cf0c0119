/* Indices that are out of range are refused, and the first of them is named. */
#include "verify_trial.h"

#include <string.h>

static bool has_elements(const struct verify_case *what, uint32_t input) {
    for (uint32_t i = 0; i < what->rank[input]; i++)
        if (what->shape[input][i] == 0)
            return false;
    return true;
}

bool verify_has_indices(const struct verify_subject *s, const struct verify_case *what) {
    struct reference_indices indices;
    for (uint32_t i = 0; i < s->reference->nin; i++)
        if (trial_is_index(s, what, i, &indices) && !indices.is_condition && has_elements(what, i))
            return true;
    return false;
}

/* Asks with two bad values in input i of the trial, of which the first has to be named. */
static enum verify_outcome refuse(const struct verify_subject *s, struct trial *trial, uint32_t i,
                                  int64_t bad, struct random *random, char *sentence,
                                  size_t capacity) {
    struct value *index = &trial->in[i];
    struct xop_request request = trial_request(s, trial);
    struct xop_result *result;
    char named[96], shapes[256];
    int64_t at = (int64_t)(random_next(random) % (uint64_t)index->n);
    int64_t later = at + (int64_t)(random_next(random) % (uint64_t)(index->n - at));
    int64_t good = value_get_integer(index, at), good_later = value_get_integer(index, later);
    enum verify_outcome outcome = VERIFY_PASSED;

    value_set_integer(index, later, bad);
    value_set_integer(index, at, bad);
    snprintf(named, sizeof named, "is %lld at its element %lld", (long long)bad, (long long)at);
    trial_shapes(s, trial, shapes, sizeof shapes);
    if (xop_run(s->session->client, &request, &result) == XOP_OK) {
        snprintf(sentence, capacity, "inputs %s: input %u has %lld at its element %lld, and passes",
                 shapes, i, (long long)bad, (long long)at);
        outcome = VERIFY_FAILED;
    } else if (!result || result->error.status != XOP_INVALID_ARGUMENT) {
        outcome = trial_failed(s, result, trial, sentence, capacity);
    } else if (!strstr(result->error.message, named)) {
        snprintf(sentence, capacity, "inputs %s: input %u %s, but the message is: %s", shapes, i,
                 named, result->error.message);
        outcome = VERIFY_FAILED;
    }
    xop_result_free(result);
    value_set_integer(index, later, good_later);
    value_set_integer(index, at, good);
    return outcome;
}

/* The values just outside, and those that a product with a size would turn into anything. */
static enum verify_outcome refuse_all(const struct verify_subject *s, struct trial *trial,
                                      uint32_t i, const struct reference_indices *indices,
                                      struct random *random, char *sentence, size_t capacity) {
    const bool narrow = trial->in[i].tensor.dtype == XOP_I32;
    const int64_t bad[] = {-1, indices->limit, narrow ? INT32_MIN : INT64_MIN,
                           narrow ? INT32_MAX : INT64_MAX};
    enum verify_outcome outcome = VERIFY_PASSED;
    for (size_t k = 0; k < sizeof bad / sizeof *bad && outcome == VERIFY_PASSED; k++)
        if (!indices->has_other || bad[k] != indices->other)
            outcome = refuse(s, trial, i, bad[k], random, sentence, capacity);
    return outcome;
}

enum verify_outcome verify_bad_indices(const struct verify_subject *s,
                                       const struct verify_case *what, struct random *random,
                                       char *sentence, size_t capacity) {
    struct verify_worst ignored = {.ratio = -1};
    struct trial trial;
    enum verify_outcome outcome = VERIFY_PASSED;
    uint32_t place = 0;
    if (!trial_make(&trial, s, what, random)) {
        snprintf(sentence, capacity, "out of memory");
        return VERIFY_FAILED;
    }
    for (uint32_t i = 0; i < s->reference->nin && outcome == VERIFY_PASSED; i++) {
        struct reference_indices indices;
        if (s->pass == XOP_BACKWARD && !(s->reference->saved_in >> i & 1))
            continue;
        uint32_t at = place++; /* among the pass's inputs */
        if (trial_is_index(s, what, i, &indices) && !indices.is_condition && trial.in[at].n > 0 &&
            trial.tensors[at].data)
            outcome = refuse_all(s, &trial, at, &indices, random, sentence, capacity);
    }
    trial_free(&trial);
    return outcome != VERIFY_PASSED ? outcome
                                    : verify_judge(s, what, random, &ignored, sentence, capacity);
}
