/* rotary_embedding of (..., S, D) by cos and sin of (S, R / 2) or (N, S, R / 2). */
#include "reference.h"

#include <math.h>
#include <string.h>

static bool interleaved(const struct reference_setting *setting) {
    return setting && setting->nattrs > 0 && setting->attr[0].value.i;
}

static void rotate(const struct reference_arithmetic *arithmetic, const struct reference_tensor *x,
                   const struct reference_tensor *cosine, const struct reference_tensor *sine,
                   double sign, struct reference_tensor *y) {
    int64_t width = x->shape[x->rank - 1], positions = x->shape[x->rank - 2],
            half = cosine->shape[cosine->rank - 1];
    for (int64_t i = 0; i < x->n; i++) {
        int64_t row = i / width, at = i % width, pair, partner;
        int64_t sample = cosine->rank == 3 ? row / (x->n / width / x->shape[0]) : 0;
        y->data[i] = x->data[i];
        y->scale[i] = fabs(x->data[i]);
        if (at >= 2 * half)
            continue;
        bool first = interleaved(arithmetic->setting) ? at % 2 == 0 : at < half;
        pair = interleaved(arithmetic->setting) ? at / 2 : at % half;
        partner = interleaved(arithmetic->setting) ? (first ? i + 1 : i - 1)
                                                   : (first ? i + half : i - half);
        int64_t angle = (sample * positions + row % positions) * half + pair;
        double across = sign * sine->data[angle] * (first ? -1 : 1);
        y->data[i] = x->data[i] * cosine->data[angle] + x->data[partner] * across;
        y->scale[i] = fabs(x->data[i] * cosine->data[angle]) + fabs(x->data[partner] * across);
    }
    y->terms = 2;
}

static void forward(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    rotate(arithmetic, &in[0], &in[1], &in[2], 1, &out[0]);
}

static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    rotate(arithmetic, &in[2], &in[0], &in[1], -1, &out[0]);
}

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    const struct reference_tensor *x = &in[pass == XOP_FORWARD ? 0 : 2],
                                  *cosine = &in[pass == XOP_FORWARD ? 1 : 0];
    if (x->rank < 2 || cosine->rank < 2 || cosine->rank > 3 ||
        cosine->shape[cosine->rank - 2] != x->shape[x->rank - 2] ||
        2 * cosine->shape[cosine->rank - 1] > x->shape[x->rank - 1])
        return false;
    out[0].rank = x->rank;
    memcpy(out[0].shape, x->shape, sizeof out[0].shape);
    return cosine->rank == 2 || (x->rank > 2 && cosine->shape[0] == x->shape[0]);
}

static const struct reference_case cases[] = {
    {{"1,2", "1,1", "1,1"}, REFERENCE_RANDOM, false},
    {{"3,8", "3,4", "3,4"}, REFERENCE_RANDOM, false},
    {{"3,7", "3,3", "3,3"}, REFERENCE_RANDOM, false},
    {{"3,7", "3,0", "3,0"}, REFERENCE_RANDOM, false},
    {{"0,4", "0,2", "0,2"}, REFERENCE_RANDOM, false},
    {{"2,5,0", "5,0", "5,0"}, REFERENCE_RANDOM, false},
    {{"0,5,4", "0,5,2", "0,5,2"}, REFERENCE_RANDOM, false},
    {{"2,3,5,16", "5,8", "5,8"}, REFERENCE_RANDOM, false},
    {{"2,3,5,16", "2,5,4", "2,5,4"}, REFERENCE_RANDOM, false},
    {{"3,5,10", "3,5,5", "3,5,5"}, REFERENCE_RANDOM, false},
    {{"1,4,33,65", "33,31", "33,31"}, REFERENCE_RANDOM, false},
    {{"2,2,129,128", "2,129,64", "2,129,64"}, REFERENCE_RANDOM, false},
    {{"2,1,3,2,5,6", "5,3", "5,3"}, REFERENCE_RANDOM, false},
    {{"4,8,512,64", "512,32", "512,32"}, REFERENCE_RANDOM, true},
};

static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    int64_t width = (rank > 0 ? like[rank - 1] : 1) + 1, positions = rank > 1 ? like[rank - 2] : 2;
    in[0] = (struct reference_shape){.rank = 3, .shape = {2, positions, width}};
    in[1] = in[2] = (struct reference_shape){.rank = 2, .shape = {positions, width / 2}};
}

static const struct reference_setting settings[] = {
    {{{"interleaved", XOP_ATTR_BOOL, 1, {.i = 0}}}, 1},
    {{{"interleaved", XOP_ATTR_BOOL, 1, {.i = 1}}}, 1},
};

const struct reference reference_rotary_embedding = {.name = "rotary_embedding",
                                                     .nin = 3,
                                                     .nout = 1,
                                                     .ngrad = 1,
                                                     .saved_in = 6,
                                                     .cases = cases,
                                                     .ncases = sizeof cases / sizeof *cases,
                                                     .settings = settings,
                                                     .nsettings =
                                                         sizeof settings / sizeof *settings,
                                                     .low = -2,
                                                     .high = 3,
                                                     .smooth_low = -2,
                                                     .smooth_high = 2,
                                                     .shape = shape,
                                                     .fit = fit,
                                                     .forward = forward,
                                                     .backward = backward};
