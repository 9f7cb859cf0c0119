/* y = a b over the last two dimensions, the others broadcast; one dimension is a row or a column.
 */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How an operand's matrices lie: steps from one row and column to the next, and along the batch. */
struct view {
    int64_t rows, columns, row_step, column_step;
    uint32_t nbatch;
    int64_t batch[XOP_MAX_RANK], batch_step[XOP_MAX_RANK];
};

static struct view view_of(const struct reference_tensor *t, bool transposed, bool is_row) {
    struct view view = {.rows = 1, .columns = 1};
    uint32_t matrix = t->rank < 2 ? t->rank : 2;
    int64_t step = 1;

    for (uint32_t d = t->rank; d-- > 0;) {
        if (d >= t->rank - matrix) {
            bool column = matrix == 1 ? is_row : (d == t->rank - 1) != transposed;
            *(column ? &view.columns : &view.rows) = t->shape[d];
            *(column ? &view.column_step : &view.row_step) = step;
        } else {
            view.batch[d] = t->shape[d];
            view.batch_step[d] = t->shape[d] == 1 ? 0 : step;
        }
        step *= t->shape[d];
    }
    view.nbatch = t->rank - matrix;
    return view;
}

/* Puts dimensions of extent 1 before the batch. */
static void widen(struct view *view, uint32_t nbatch) {
    uint32_t more = nbatch - view->nbatch;
    for (uint32_t d = nbatch; d-- > 0;) {
        view->batch[d] = d < more ? 1 : view->batch[d - more];
        view->batch_step[d] = d < more ? 0 : view->batch_step[d - more];
    }
    view->nbatch = nbatch;
}

/* Both operands and the batch that they broadcast to. */
struct pair {
    struct view a, b;
    uint32_t nbatch;
    int64_t batch[XOP_MAX_RANK], places;
};

static bool pair_of(bool transpose_a, bool transpose_b, const struct reference_tensor *in,
                    struct pair *pair) {
    if (in[0].rank == 0 || in[1].rank == 0)
        return false;
    pair->a = view_of(&in[0], transpose_a, true);
    pair->b = view_of(&in[1], transpose_b, false);
    pair->nbatch = pair->a.nbatch > pair->b.nbatch ? pair->a.nbatch : pair->b.nbatch;
    pair->places = 1;
    widen(&pair->a, pair->nbatch);
    widen(&pair->b, pair->nbatch);
    for (uint32_t d = 0; d < pair->nbatch; d++) {
        int64_t m = pair->a.batch[d], n = pair->b.batch[d];
        if (m != n && m != 1 && n != 1)
            return false;
        pair->batch[d] = m == 1 ? n : m;
        pair->places *= pair->batch[d];
    }
    return pair->a.columns == pair->b.rows;
}

static int64_t offset_of(const struct pair *pair, const struct view *view, int64_t place) {
    int64_t offset = 0;
    for (uint32_t d = pair->nbatch; d-- > 0;) {
        offset += place % pair->batch[d] * view->batch_step[d];
        place /= pair->batch[d];
    }
    return offset;
}

static bool shape_for(const struct reference_setting *setting, enum xop_pass pass,
                      const struct reference_tensor *in, struct reference_tensor *out) {
    struct reference_arithmetic asked = {.setting = setting};
    struct reference_tensor y = {0};
    struct pair pair;

    if (!pair_of(reference_number(&asked, "transpose_a", 0) != 0,
                 reference_number(&asked, "transpose_b", 0) != 0, in, &pair))
        return false;
    y.rank = pair.nbatch;
    memcpy(y.shape, pair.batch, sizeof y.shape);
    if (in[0].rank > 1)
        y.shape[y.rank++] = pair.a.rows;
    if (in[1].rank > 1)
        y.shape[y.rank++] = pair.b.columns;
    for (int i = 0; i < (pass == XOP_FORWARD ? 1 : 2); i++) {
        const struct reference_tensor *from = pass == XOP_FORWARD ? &y : &in[i];
        out[i].rank = from->rank;
        memcpy(out[i].shape, from->shape, sizeof out[i].shape);
    }
    return pass == XOP_FORWARD ||
           (in[2].rank == y.rank && memcmp(in[2].shape, y.shape, y.rank * sizeof *y.shape) == 0);
}

/* Vectors have no transpose, and the shapes of a case are those without one. */
static bool takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    struct reference_tensor y;
    return shape_for(setting, XOP_FORWARD, in, &y) &&
           (setting->nattrs == 0 || (in[0].rank > 1 && in[1].rank > 1));
}

/* Sums of products, in long double so that the judge is more exact than what it judges in f64. */
struct sums {
    long double *sum;
    struct reference_tensor *out;
};

static struct sums sums_new(struct reference_tensor *out) {
    struct sums sums = {calloc((size_t)(out->n ? out->n : 1), sizeof(long double)), out};
    if (!sums.sum)
        abort(); /* verify could not go on either */
    memset(out->scale, 0, (size_t)out->n * sizeof *out->scale);
    return sums;
}

static void sums_add(const struct reference_arithmetic *arithmetic, struct sums *sums, int64_t at,
                     double x, double y) {
    double product = x * y;
    if (fabs(product) > arithmetic->max)
        product = copysign(INFINITY, product);
    /* A product of doubles is not always one. */
    long double term = isfinite(product) ? (long double)x * y : (long double)product;
    sums->sum[at] += term;
    sums->out->scale[at] += (double)fabsl(term);
}

static void sums_finish(struct sums *sums, int64_t terms) {
    for (int64_t i = 0; i < sums->out->n; i++)
        sums->out->data[i] = (double)sums->sum[i];
    sums->out->terms = terms;
    free(sums->sum);
}

static void forward(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    struct sums y = sums_new(&out[0]);
    struct pair p;
    int64_t at = 0;

    if (!pair_of(reference_number(arithmetic, "transpose_a", 0) != 0,
                 reference_number(arithmetic, "transpose_b", 0) != 0, in, &p))
        abort(); /* shape_for said that they go together */
    for (int64_t place = 0; place < p.places; place++) {
        const double *a = in[0].data + offset_of(&p, &p.a, place);
        const double *b = in[1].data + offset_of(&p, &p.b, place);
        for (int64_t i = 0; i < p.a.rows; i++)
            for (int64_t j = 0; j < p.b.columns; j++, at++)
                for (int64_t k = 0; k < p.b.rows; k++)
                    sums_add(arithmetic, &y, at, a[i * p.a.row_step + k * p.a.column_step],
                             b[k * p.b.row_step + j * p.b.column_step]);
    }
    sums_finish(&y, p.b.rows);
}

/* Each product of forward, a[i][k] b[k][j], gives a term of each gradient. */
static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    struct sums grad_a = sums_new(&out[0]), grad_b = sums_new(&out[1]);
    struct pair p;
    const double *g = in[2].data;

    if (!pair_of(reference_number(arithmetic, "transpose_a", 0) != 0,
                 reference_number(arithmetic, "transpose_b", 0) != 0, in, &p))
        abort();
    for (int64_t place = 0; place < p.places; place++) {
        int64_t a = offset_of(&p, &p.a, place), b = offset_of(&p, &p.b, place);
        for (int64_t i = 0; i < p.a.rows; i++)
            for (int64_t j = 0; j < p.b.columns; j++, g++)
                for (int64_t k = 0; k < p.b.rows; k++) {
                    int64_t in_a = a + i * p.a.row_step + k * p.a.column_step;
                    int64_t in_b = b + k * p.b.row_step + j * p.b.column_step;
                    sums_add(arithmetic, &grad_a, in_a, *g, in[1].data[in_b]);
                    sums_add(arithmetic, &grad_b, in_b, *g, in[0].data[in_a]);
                }
    }
    int64_t products = p.places * p.a.rows * p.b.rows * p.b.columns;
    sums_finish(&grad_a, out[0].n > 0 ? products / out[0].n : 0);
    sums_finish(&grad_b, out[1].n > 0 ? products / out[1].n : 0);
}

/* Any shape is an a; b is a matrix for all of it, or a column for a vector. */
static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    int64_t inner = rank > 0 ? like[rank - 1] : 1;
    in[0] = (struct reference_shape){.rank = 1, .shape = {1}};
    if (rank > 0) {
        in[0].rank = rank;
        memcpy(in[0].shape, like, rank * sizeof *like);
    }
    in[1] = (struct reference_shape){.rank = 2, .shape = {inner, inner + 3}};
}

/* Every way in which vectors, matrices and batches meet, and to be empty; sizes around tiles and
 * vector widths; long sums, over a batch too, that may miss no term. Square matrices go with every
 * transposition. */
static const struct reference_case cases[] = {
    {{"4", "4"}, REFERENCE_RANDOM, false},
    {{"1", "1"}, REFERENCE_RANDOM, false},
    {{"0", "0"}, REFERENCE_RANDOM, false},
    {{"3,4", "4"}, REFERENCE_RANDOM, false},
    {{"4", "4,3"}, REFERENCE_RANDOM, false},
    {{"2,3,4", "4"}, REFERENCE_RANDOM, false},
    {{"4", "2,4,3"}, REFERENCE_RANDOM, false},
    {{"3,4", "4,5"}, REFERENCE_RANDOM, false},
    {{"4,3", "4,5"}, REFERENCE_RANDOM, false},
    {{"3,4", "5,4"}, REFERENCE_RANDOM, false},
    {{"4,3", "5,4"}, REFERENCE_RANDOM, false},
    {{"1,1", "1,1"}, REFERENCE_RANDOM, false},
    {{"5,5", "5,5"}, REFERENCE_RANDOM, false},
    {{"7,5,5", "7,5,5"}, REFERENCE_RANDOM, false},
    {{"7,5,5", "5,5"}, REFERENCE_RANDOM, false},
    {{"5,5", "7,5,5"}, REFERENCE_RANDOM, false},
    {{"3,1,5,5", "4,5,5"}, REFERENCE_RANDOM, false},
    {{"2,1,3,1,5,5", "1,4,1,2,5,5"}, REFERENCE_RANDOM, false},
    {{"2,1,5,5", "2,1,5,5"}, REFERENCE_RANDOM, false},
    {{"2,3,5,5", "1,5,5"}, REFERENCE_WHOLE, false},
    {{"2,3,4,6", "3,6,5"}, REFERENCE_RANDOM, false},
    {{"2,3,6,4", "2,1,6,5"}, REFERENCE_RANDOM, false},
    {{"3,4,6", "2,1,5,6"}, REFERENCE_RANDOM, false},
    {{"2,1,2,1,2,1,3,4", "1,2,1,2,1,2,4,3"}, REFERENCE_RANDOM, false},
    {{"0,4", "4,3"}, REFERENCE_RANDOM, false},
    {{"3,0", "0,4"}, REFERENCE_RANDOM, false},
    {{"2,3,0", "2,0,4"}, REFERENCE_RANDOM, false},
    {{"3,4", "4,0"}, REFERENCE_RANDOM, false},
    {{"0,3,4", "4,3"}, REFERENCE_RANDOM, false},
    {{"0,3,3", "1,3,3"}, REFERENCE_RANDOM, false},
    {{"0,0", "0,0"}, REFERENCE_RANDOM, false},
    {{"0,3,4", "4"}, REFERENCE_RANDOM, false},
    {{"7,13", "13,11"}, REFERENCE_RANDOM, false},
    {{"31,33", "33,17"}, REFERENCE_RANDOM, false},
    {{"64,64", "64,64"}, REFERENCE_WHOLE, false},
    {{"129,129", "129,129"}, REFERENCE_RANDOM, false},
    {{"127,255", "255,130"}, REFERENCE_WHOLE, false},
    {{"3,65,65", "3,65,65"}, REFERENCE_WHOLE, false},
    {{"17,9,33", "33,5"}, REFERENCE_WHOLE, false},
    {{"33,1,8,8", "8,8"}, REFERENCE_WHOLE, false},
    {{"1,1,8,8", "33,9,8,8"}, REFERENCE_WHOLE, false},
    {{"1,9,8,8", "33,1,8,8"}, REFERENCE_WHOLE, false},
    {{"3,4", "1031,4,4"}, REFERENCE_WHOLE, false},
    {{"4,4", "1031,4,4"}, REFERENCE_POSITIVE, false},
    {{"50021", "50021"}, REFERENCE_WHOLE, false},
    {{"2,50021", "50021,3"}, REFERENCE_POSITIVE, false},
    {{"20011,3", "3"}, REFERENCE_WHOLE, false},
    {{"257,129", "129,131"}, REFERENCE_RANDOM, true},
    {{"256,256", "256,256"}, REFERENCE_WHOLE, true},
    {{"1024,1", "1,32"}, REFERENCE_EDGES, false},
};

#define TRANSPOSED(which)                                                                          \
    { .name = which, .type = XOP_ATTR_BOOL, .count = 1, .value.i = 1 }
static const struct reference_setting settings[] = {
    {.nattrs = 0},
    {{TRANSPOSED("transpose_a")}, 1},
    {{TRANSPOSED("transpose_b")}, 1},
    {{TRANSPOSED("transpose_a"), TRANSPOSED("transpose_b")}, 2},
};

const struct reference reference_matmul = {.name = "matmul",
                                           .nin = 2,
                                           .nout = 1,
                                           .ngrad = 2,
                                           .saved_in = 3,
                                           .any_order = true,
                                           .cases = cases,
                                           .ncases = sizeof cases / sizeof *cases,
                                           .settings = settings,
                                           .nsettings = sizeof settings / sizeof *settings,
                                           .takes = takes,
                                           .low = -2,
                                           .high = 2,
                                           .smooth_low = -2,
                                           .smooth_high = 2,
                                           .shape_for = shape_for,
                                           .fit = fit,
                                           .forward = forward,
                                           .backward = backward};
