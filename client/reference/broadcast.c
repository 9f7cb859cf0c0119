#include "broadcast.h"

#include <stdlib.h>
#include <string.h>

/* The dimension of a tensor that stands under dimension d of an output of that rank; 1 where it has
 * none. */
static int64_t dimension(const struct reference_tensor *t, uint32_t d, uint32_t rank) {
    uint32_t missing = rank - t->rank;
    return d < missing ? 1 : t->shape[d - missing];
}

static bool broadcast(const struct reference_tensor *x, const struct reference_tensor *b,
                      struct reference_tensor *y) {
    y->rank = x->rank > b->rank ? x->rank : b->rank;
    for (uint32_t d = 0; d < y->rank; d++) {
        int64_t m = dimension(x, d, y->rank), n = dimension(b, d, y->rank);
        if (m != n && m != 1 && n != 1)
            return false;
        y->shape[d] = m == 1 ? n : m;
    }
    return true;
}

bool broadcast_shape(enum xop_pass pass, const struct reference_tensor *in,
                     struct reference_tensor *out) {
    if (pass == XOP_FORWARD)
        return broadcast(&in[0], &in[1], &out[0]);
    struct reference_tensor y;
    for (int i = 0; i < 2; i++) {
        out[i].rank = in[i].rank;
        memcpy(out[i].shape, in[i].shape, sizeof out[i].shape);
    }
    return broadcast(&in[0], &in[1], &y) && y.rank == in[2].rank &&
           memcmp(y.shape, in[2].shape, y.rank * sizeof *y.shape) == 0;
}

/* The element of t that element i of a tensor of shape y meets. */
int64_t broadcast_element(const struct reference_tensor *t, const struct reference_tensor *y,
                          int64_t i) {
    int64_t at = 0, stride = 1;
    for (uint32_t k = y->rank; k-- > 0;) {
        int64_t position = i % y->shape[k], n = dimension(t, k, y->rank);
        i /= y->shape[k];
        if (n != 1)
            at += position * stride;
        stride *= n;
    }
    return at;
}

/* Sums are in long double, so that the judge is more exact than what it judges in f64. */
void broadcast_add_up(const struct reference_tensor *terms, const struct reference_tensor *like,
                      const struct reference_tensor *y, struct reference_tensor *out) {
    long double *sums = calloc((size_t)(out->n ? out->n : 1), sizeof *sums);
    if (!sums)
        abort(); /* verify could not go on either */
    memset(out->scale, 0, (size_t)out->n * sizeof *out->scale);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t at = broadcast_element(like, y, i);
        sums[at] += terms->data[i];
        out->scale[at] += terms->scale[i];
    }
    for (int64_t i = 0; i < out->n; i++)
        out->data[i] = (double)sums[i];
    out->terms = out->n > 0 ? y->n / out->n : 1;
    free(sums);
}
