/* attention: query (N, Hq, L, E), key (N, H, S, E), value (N, H, S, Ev), or all without N. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct attention {
    int64_t heads, key_heads, queries, keys, width, value_width; /* heads: of all samples */
    double scale;
    bool causal;
    const double *query, *key, *value, *grad_y;
};

static struct attention attention_of(const struct reference_arithmetic *arithmetic,
                                     const struct reference_tensor *in) {
    const int64_t *q = in[0].shape + in[0].rank - 3, *v = in[2].shape + in[2].rank - 3;
    struct attention a = {q[0], v[0],  q[1],       v[1],       q[2],       v[2],
                          0,    false, in[0].data, in[1].data, in[2].data, NULL};
    a.heads *= in[0].rank == 4 ? in[0].shape[0] : 1;
    a.key_heads *= in[0].rank == 4 ? in[0].shape[0] : 1;
    a.scale = reference_number(arithmetic, "scale", 0);
    if (a.scale == 0)
        a.scale = a.width > 0 ? 1 / sqrt((double)a.width) : 1;
    a.causal = reference_number(arithmetic, "is_causal", 0) != 0;
    return a;
}

static long double product(const double *a, const double *b, int64_t n, long double *size) {
    long double sum = 0;
    *size = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (long double)a[i] * b[i];
        *size += fabsl((long double)a[i] * b[i]);
    }
    return sum;
}

/* Of a query: the weight of each key, and by how many roundoffs it may be off, relatively: as much
 * as its score and the weighted mean of all scores. */
struct row {
    long double *weight, *doubt, *grad, *grad_size;
};

static const double *key_head(const struct attention *a, const double *data, int64_t head,
                              int64_t width) {
    return data + head / (a->heads / a->key_heads) * a->keys * width;
}

static void weigh(const struct attention *a, int64_t head, int64_t i, struct row *row) {
    const double *q = a->query + (head * a->queries + i) * a->width;
    const double *k = key_head(a, a->key, head, a->width);
    long double most = -INFINITY, sum = 0, mean = 0, size;
    int64_t n = a->causal && i + 1 < a->keys ? i + 1 : a->keys;

    for (int64_t j = 0; j < a->keys; j++)
        row->weight[j] = row->doubt[j] = 0;
    for (int64_t j = 0; j < n; j++) {
        row->weight[j] = a->scale * product(q, k + j * a->width, a->width, &size);
        row->doubt[j] = fabs(a->scale) * size;
        most = fmaxl(most, row->weight[j]);
    }
    for (int64_t j = 0; j < n; j++) {
        row->weight[j] = expl(row->weight[j] - most);
        sum += row->weight[j];
    }
    for (int64_t j = 0; j < n; j++) {
        row->weight[j] /= sum;
        mean += row->weight[j] * row->doubt[j];
    }
    for (int64_t j = 0; j < n; j++)
        row->doubt[j] += mean + 2;
}

/* The gradients of scores, in place of those of weights. */
static void differentiate(const struct attention *a, int64_t head, int64_t i, struct row *row) {
    const double *g = a->grad_y + (head * a->queries + i) * a->value_width;
    const double *v = key_head(a, a->value, head, a->value_width);
    long double mean = 0, size = 0;

    for (int64_t j = 0; j < a->keys; j++) {
        row->grad[j] = product(g, v + j * a->value_width, a->value_width, &row->grad_size[j]);
        mean += row->weight[j] * row->grad[j];
        size += row->weight[j] * row->grad_size[j] * row->doubt[j];
    }
    for (int64_t j = 0; j < a->keys; j++) {
        row->grad[j] = row->weight[j] * (row->grad[j] - mean) * a->scale;
        row->grad_size[j] =
            row->weight[j] * fabs(a->scale) *
            (row->grad_size[j] * row->doubt[j] + size + fabsl(mean) * row->doubt[j]);
    }
}

static struct row row_new(int64_t keys) {
    struct row row = {0};
    row.weight = calloc((size_t)keys * 4 + 1, sizeof *row.weight);
    if (row.weight) {
        row.doubt = row.weight + keys;
        row.grad = row.doubt + keys;
        row.grad_size = row.grad + keys;
    }
    return row;
}

/* to[e] += by * from[e]; size is what its terms may be off in proportion to. */
static void add(struct reference_tensor *to, int64_t at, const double *from, int64_t n,
                long double by, long double size) {
    for (int64_t e = 0; e < n; e++) {
        to->data[at + e] += (double)(by * from[e]);
        to->scale[at + e] += (double)(size * fabs(from[e]));
    }
}

static void clear(struct reference_tensor *t, int64_t terms) {
    t->terms = terms;
    for (int64_t i = 0; i < t->n; i++)
        t->data[i] = t->scale[i] = 0;
}

static void forward(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    struct attention a = attention_of(arithmetic, in);
    struct row row = row_new(a.keys);
    clear(&out[0], a.width + a.keys + 8);
    for (int64_t i = 0; row.weight && a.keys > 0 && i < a.heads * a.queries; i++) {
        const double *v = key_head(&a, a.value, i / a.queries, a.value_width);
        weigh(&a, i / a.queries, i % a.queries, &row);
        for (int64_t j = 0; j < a.keys; j++)
            add(&out[0], i * a.value_width, v + j * a.value_width, a.value_width, row.weight[j],
                row.weight[j] * row.doubt[j]);
    }
    free(row.weight);
}

static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    struct attention a = attention_of(arithmetic, in);
    struct row row = row_new(a.keys);
    a.grad_y = in[3].data;
    for (int k = 0; k < 3; k++)
        clear(&out[k], a.width + a.value_width + a.keys + a.queries + 8);
    for (int64_t i = 0; row.weight && a.keys > 0 && i < a.heads * a.queries; i++) {
        int64_t head = i / a.queries, first = head / (a.heads / a.key_heads) * a.keys;
        weigh(&a, head, i % a.queries, &row);
        differentiate(&a, head, i % a.queries, &row);
        for (int64_t j = 0; j < a.keys; j++) {
            add(&out[0], i * a.width, a.key + (first + j) * a.width, a.width, row.grad[j],
                row.grad_size[j]);
            add(&out[1], (first + j) * a.width, a.query + i * a.width, a.width, row.grad[j],
                row.grad_size[j]);
            add(&out[2], (first + j) * a.value_width, a.grad_y + i * a.value_width, a.value_width,
                row.weight[j], row.weight[j] * row.doubt[j]);
        }
    }
    free(row.weight);
}

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    for (int i = 0; i < 3; i++)
        if (in[i].rank < 3 || in[i].rank > 4 || in[i].rank != in[0].rank)
            return false;
    for (int i = 0; pass == XOP_BACKWARD && i < 3; i++) {
        out[i].rank = in[i].rank;
        memcpy(out[i].shape, in[i].shape, sizeof out[i].shape);
    }
    if (pass == XOP_BACKWARD)
        return true;
    out[0].rank = in[0].rank;
    memcpy(out[0].shape, in[0].shape, sizeof out[0].shape);
    out[0].shape[in[0].rank - 1] = in[2].shape[in[2].rank - 1];
    return true;
}

static const struct reference_case cases[] = {
    {{"1,1,1", "1,1,1", "1,1,1"}, REFERENCE_RANDOM, false},
    {{"2,3,4", "2,5,4", "2,5,3"}, REFERENCE_RANDOM, false},
    {{"1,2,3,4", "1,2,3,4", "1,2,3,4"}, REFERENCE_RANDOM, false},
    {{"2,4,5,8", "2,2,7,8", "2,2,7,8"}, REFERENCE_RANDOM, false},
    {{"2,6,9,5", "2,1,4,5", "2,1,4,7"}, REFERENCE_RANDOM, false},
    {{"0,2,3,4", "0,2,3,4", "0,2,3,4"}, REFERENCE_RANDOM, false},
    {{"1,2,0,4", "1,2,3,4", "1,2,3,4"}, REFERENCE_RANDOM, false},
    {{"1,2,3,4", "1,2,0,4", "1,2,0,4"}, REFERENCE_RANDOM, false},
    {{"1,2,3,0", "1,2,3,0", "1,2,3,2"}, REFERENCE_RANDOM, false},
    {{"1,2,3,4", "1,2,3,4", "1,2,3,0"}, REFERENCE_RANDOM, false},
    {{"1,2,33,31", "1,1,65,31", "1,1,65,33"}, REFERENCE_RANDOM, false},
    {{"1,1,64,64", "1,1,64,64", "1,1,64,64"}, REFERENCE_RANDOM, false},
    {{"2,2,65,16", "2,2,63,16", "2,2,63,129"}, REFERENCE_POSITIVE, false},
    {{"1,4,129,65", "1,2,130,65", "1,2,130,64"}, REFERENCE_RANDOM, false},
    {{"1,1,32,130", "1,1,96,130", "1,1,96,200"}, REFERENCE_RANDOM, false},
    {{"2,4,256,64", "2,2,256,64", "2,2,256,64"}, REFERENCE_RANDOM, true},
};

static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    int64_t width = rank > 0 ? like[rank - 1] : 2, rows = rank > 1 ? like[rank - 2] : 3;
    in[0] = (struct reference_shape){.rank = 4, .shape = {1, 2, rows, width}};
    in[1] = (struct reference_shape){.rank = 4, .shape = {1, 1, rows + 1, width}};
    in[2] = (struct reference_shape){.rank = 4, .shape = {1, 1, rows + 1, 3}};
}

static const struct reference_setting settings[] = {
    {{{"is_causal", XOP_ATTR_BOOL, 1, {.i = 0}}}, 1},
    {{{"is_causal", XOP_ATTR_BOOL, 1, {.i = 1}}}, 1},
    {{{"is_causal", XOP_ATTR_BOOL, 1, {.i = 1}}, {"scale", XOP_ATTR_FLOAT, 1, {.f = -0.3}}}, 2},
};

const struct reference reference_attention = {.name = "attention",
                                              .nin = 3,
                                              .nout = 1,
                                              .ngrad = 3,
                                              .saved_in = 7,
                                              .any_order = true,
                                              .cases = cases,
                                              .ncases = sizeof cases / sizeof *cases,
                                              .settings = settings,
                                              .nsettings = sizeof settings / sizeof *settings,
                                              .low = -2,
                                              .high = 3,
                                              .smooth_low = -2,
                                              .smooth_high = 2,
                                              .shape = shape,
                                              .fit = fit,
                                              .forward = forward,
                                              .backward = backward};
