#include "verify.h"

#include <math.h>
#include <string.h>

/* splitmix64, a well-known generator by Sebastiano Vigna, over a counter. */
uint64_t random_next(struct random *random) {
    uint64_t z = random->seed + ++random->counter * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

double random_between(struct random *random, double low, double high) {
    return low + (high - low) * ldexp((double)(random_next(random) >> 11), -53);
}

/* Sizes around every vector width and block size that kernels use. */
static const int64_t sizes[] = {1,   2,   3,   4,   5,    6,    7,    8,   9,   15,
                                16,  17,  31,  32,  33,   63,   64,   65,  127, 128,
                                129, 255, 256, 257, 1023, 1024, 1025, 4099};
#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof *(list)))
#define SIZES COUNT(sizes)

struct pair {
    const char *first, *second; /* shapes, comma-separated; "" is a scalar */
    bool positive, is_large;
};

/* Shapes that every operator gets, one for all its inputs. */
static const struct pair same[] = {
    {"", "", false, false},
    {"0", "0", false, false},
    {"3,4", "3,4", false, false},
    {"1,1,1,1,1,1,1,1", "1,1,1,1,1,1,1,1", false, false},
    {"2,0,3", "2,0,3", false, false},
    {"7,11,13", "7,11,13", false, false},
    {"2,1,3,1,2,1,2,3", "2,1,3,1,2,1,2,3", false, false},
    {"1021,1031", "1021,1031", false, true},
};

/* And those that broadcast. */
static const struct pair broadcast[] = {
    {"5", "", false, false},
    {"", "5", false, false},
    {"3,4", "4", false, false},
    {"3,4", "1,4", false, false},
    {"3,4", "3,1", false, false},
    {"3,4", "1", false, false},
    {"3,4", "1,1", false, false},
    {"4", "3,4", false, false},
    {"3,1", "1,4", false, false},
    {"3,1", "4", false, false},
    {"2,3,4", "3,1", false, false},
    {"2,3,4", "2,1,4", false, false},
    {"2,1,4", "3,1", false, false},
    {"1,3,1,5", "2,1,4,1", false, false},
    {"0,4", "4", false, false},
    {"0", "1", false, false},
    {"3,0", "3,1", false, false},
    {"0,1", "1,5", false, false},
    {"2,1,2,1,2,1,2,1", "1,3,1,3,1,3,1,3", false, false},
    {"65,33", "33", false, false},
    {"65,33", "65,1", false, false},
    {"257,129", "129", false, false},
    {"129,257", "129,1", false, false},
    {"3,1023", "1023", false, false},
    {"1023,3", "3", false, false},
    {"17,5,9", "5,1", false, false},
    {"17,5,9", "17,1,9", false, false},
    {"4001", "", true, false},
    {"50021", "", true, false},
    {"50021", "", false, false},
    {"20011,3", "3", true, false},
    {"3,20011", "3,1", true, false},
    {"1000,1000", "1000", false, true},
    {"1000,1000", "1000,1", false, true},
    {"1000,1000", "", false, true},
};

static void parse(const char *text, uint32_t *rank, int64_t *shape) {
    *rank = 0;
    while (*text) {
        int64_t n = 0;
        for (; *text >= '0' && *text <= '9'; text++)
            n = n * 10 + (*text - '0');
        shape[(*rank)++] = n;
        if (*text == ',')
            text++;
    }
}

static void from_pair(const struct reference *reference, const struct pair *pair,
                      struct verify_case *out) {
    for (uint32_t i = 0; i < reference->nin; i++)
        parse(i == 0 ? pair->first : pair->second, &out->rank[i], out->shape[i]);
    out->fill = pair->positive ? REFERENCE_POSITIVE : REFERENCE_RANDOM;
    out->is_large = pair->is_large;
}

void verify_case_of(const struct reference *reference, uint32_t rank, const int64_t *shape,
                    struct verify_case *out) {
    struct reference_shape in[VERIFY_MAX_IN];
    memset(out, 0, sizeof *out);
    if (reference->fit)
        reference->fit(rank, shape, in);
    for (uint32_t i = 0; i < reference->nin; i++) {
        out->rank[i] = reference->fit ? in[i].rank : rank;
        memcpy(out->shape[i], reference->fit ? in[i].shape : shape,
               out->rank[i] * sizeof *out->shape[i]);
    }
}

/* The nth of a reference that brings its own. */
static bool own_case(const struct reference *reference, uint32_t n, struct verify_case *out) {
    if (n >= reference->ncases)
        return false;
    for (uint32_t i = 0; i < reference->nin; i++) {
        out->absent[i] = !reference->cases[n].in[i];
        if (!out->absent[i])
            parse(reference->cases[n].in[i], &out->rank[i], out->shape[i]);
    }
    out->fill = reference->cases[n].fill;
    out->is_large = reference->cases[n].is_large;
    return true;
}

/* ---- Edge values ---- */

static uint32_t edge_values(enum xop_dtype dtype, double *list) {
    double largest = value_largest(dtype), smallest = value_smallest(dtype);
    const double values[] = {
        0.0,       -0.0,         NAN,  INFINITY, -INFINITY, largest, -largest, smallest,
        -smallest, smallest * 3, 1.0,  -1.0,     0.5,       -0.5,    1000,     -1000,
        88.5,      -88.5,        16.5, -16.5,    1e-3,      -1e-3,   1e-4,     -1e-4,
        11.25,     -11.25,       104,  -104,     745.5,     -745.5,  2,        -2};
    uint32_t n = sizeof values / sizeof *values;
    memcpy(list, values, sizeof values);
    return n;
}

bool verify_case_at(const struct reference *reference, uint32_t n, struct verify_case *out) {
    double edges[64];
    memset(out, 0, sizeof *out);
    if (reference->cases)
        return own_case(reference, n, out);
    if (n < SIZES) {
        verify_case_of(reference, 1, &sizes[n], out);
        return true;
    }
    n -= SIZES;
    if (n < COUNT(same)) {
        from_pair(reference, &same[n], out);
        return true;
    }
    n -= COUNT(same);
    if (reference->broadcasts && n < COUNT(broadcast)) {
        from_pair(reference, &broadcast[n], out);
        return true;
    }
    n -= reference->broadcasts ? COUNT(broadcast) : 0;
    if (n > 0 || reference->no_edges)
        return false;
    /* Every edge value of one operand beside every one of the next. */
    int64_t count = edge_values(XOP_F32, edges), square[2] = {count, count};
    verify_case_of(reference, 2, square, out);
    out->fill = REFERENCE_EDGES;
    return true;
}

void verify_fill_indices(struct value *value, const struct reference_indices *indices,
                         struct random *random) {
    for (int64_t i = 0; i < value->n; i++) {
        int64_t at = i == 0   ? indices->limit - 1
                     : i == 1 ? 0
                              : (int64_t)floor(random_between(random, 0, (double)indices->limit));
        if (i > 0 && indices->has_other && random_between(random, 0, 1) < 0.2)
            at = indices->other;
        value_set_integer(value, i, at);
    }
}

void verify_fill(struct value *value, const struct reference *reference, enum reference_fill fill,
                 uint32_t operand, struct random *random) {
    double edges[64];
    int64_t n = edge_values(value->tensor.dtype, edges);
    for (int64_t i = 0; i < value->n; i++) {
        if (fill == REFERENCE_EDGES)
            value_set(value, i, edges[operand == 0 ? i / n % n : i % n]);
        else if (fill == REFERENCE_POSITIVE)
            value_set(value, i, random_between(random, 0.25, 1));
        else if (fill == REFERENCE_WHOLE)
            value_set(value, i, floor(random_between(random, -3, 4)));
        else
            value_set(value, i, random_between(random, reference->low, reference->high));
    }
}
