/* cross_entropy and nll_loss. */
#include "reference.h"

#include <math.h>
#include <string.h>

enum { X = 0, TARGET = 1, WEIGHT = 2, GRAD_Y = 3 };

static uint32_t class_dim(const struct reference_tensor *x) { return x->rank > 1; }

static int64_t classes_of(const struct reference_tensor *x) { return x->shape[class_dim(x)]; }

static bool holds_probabilities(const struct reference_tensor *in) {
    return in[TARGET].rank == in[X].rank;
}

static bool takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    struct reference_arithmetic how = {.setting = setting};
    return in[X].rank > 0 &&
           (!holds_probabilities(in) || reference_number(&how, "ignore_index", -100) < 0);
}

static bool is_index(const struct reference_setting *setting, uint32_t input,
                     const struct reference_tensor *in, struct reference_indices *indices) {
    struct reference_arithmetic how = {.setting = setting};
    if (input != TARGET || holds_probabilities(in))
        return false;
    indices->limit = classes_of(&in[X]);
    indices->has_other = true;
    indices->other = (int64_t)reference_number(&how, "ignore_index", -100);
    return true;
}

static void without_classes(uint32_t rank, const int64_t *shape, struct reference_shape *out) {
    out->rank = 0;
    for (uint32_t i = 0; i < rank; i++)
        if (i != (rank > 1))
            out->shape[out->rank++] = shape[i];
}

static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    in[X].rank = rank;
    memcpy(in[X].shape, like, rank * sizeof *like);
    without_classes(rank, like, &in[TARGET]);
    in[WEIGHT].rank = 1;
    in[WEIGHT].shape[0] = rank > 0 ? like[rank > 1] : 1;
}

static bool shape_for(const struct reference_setting *setting, enum xop_pass pass,
                      const struct reference_tensor *in, struct reference_tensor *out) {
    struct reference_arithmetic how = {.setting = setting};
    struct reference_shape rows;
    without_classes(in[X].rank, in[X].shape, &rows);
    if (pass == XOP_BACKWARD) {
        out->rank = in[X].rank;
        memcpy(out->shape, in[X].shape, sizeof out->shape);
    } else if (strcmp(reference_text(&how, "reduction", "mean"), "none") == 0) {
        out->rank = rows.rank;
        memcpy(out->shape, rows.shape, sizeof out->shape);
    } else {
        out->rank = 0;
    }
    return true;
}

/* What is asked for, and how x is walked: class c of row r is element at(r) + c * step. */
struct problem {
    const struct reference_arithmetic *how;
    const struct reference_tensor *in;
    int64_t n, rows, step;
    bool entropy, probabilities, each, mean;
    double ignored, smoothing;
};

static struct problem problem_of(const struct reference_arithmetic *how, bool entropy,
                                 const struct reference_tensor *in) {
    const char *reduction = reference_text(how, "reduction", "mean");
    struct problem p = {.how = how,
                        .in = in,
                        .n = classes_of(&in[X]),
                        .rows = 1,
                        .step = 1,
                        .entropy = entropy,
                        .probabilities = holds_probabilities(in),
                        .each = strcmp(reduction, "none") == 0,
                        .mean = strcmp(reduction, "mean") == 0,
                        .ignored = reference_number(how, "ignore_index", -100),
                        .smoothing = reference_number(how, "label_smoothing", 0)};
    for (uint32_t i = 0; i < in[X].rank; i++) {
        p.rows *= i == class_dim(&in[X]) ? 1 : in[X].shape[i];
        p.step *= i > class_dim(&in[X]) ? in[X].shape[i] : 1;
    }
    return p;
}

static int64_t element_of(const struct problem *p, int64_t row, int64_t class) {
    return row / p->step * p->n * p->step + row % p->step + class * p->step;
}

static double weight_of(const struct problem *p, int64_t class) {
    return p->in[WEIGHT].absent ? 1 : p->in[WEIGHT].data[class];
}

static bool counts(const struct problem *p, int64_t row) {
    return p->probabilities || p->in[TARGET].data[row] != p->ignored;
}

/* What -log(probability of the class) is multiplied by. */
static long double share(const struct problem *p, int64_t row, int64_t class) {
    const double *target = p->in[TARGET].data;
    long double given =
        p->probabilities ? target[element_of(p, row, class)] : target[row] == (double)class;
    return weight_of(p, class) * ((1 - p->smoothing) * given + p->smoothing / (long double)p->n);
}

/* The logarithm of a class's probability is d - log_sum, d its distance from the largest; it is off
 * by as many roundoffs as `off` and they are large. */
struct row {
    double most;
    long double sum, log_sum, off;
};

static struct row row_at(const struct problem *p, int64_t row) {
    const double *x = p->in[X].data;
    struct row r = {-INFINITY, 0, 0, 0};
    for (int64_t c = 0; c < p->n; c++)
        r.most = fmax(r.most, x[element_of(p, row, c)]);
    for (int64_t c = 0; c < p->n; c++) {
        long double d = (long double)x[element_of(p, row, c)] - r.most;
        r.sum += expl(d);
        r.off += expl(d) * fabsl(d);
    }
    r.off /= r.sum;
    r.log_sum = logl(r.sum);
    return r;
}

static void loss_of(const struct problem *p, int64_t row, long double *loss, long double *scale) {
    struct row r = p->entropy ? row_at(p, row) : (struct row){0};
    *loss = *scale = 0;
    for (int64_t c = 0; c < p->n; c++) {
        long double d = (long double)p->in[X].data[element_of(p, row, c)] - r.most;
        long double u = share(p, row, c), q = d - r.log_sum;
        if (!p->probabilities && p->smoothing == 0 && p->in[TARGET].data[row] != (double)c)
            continue;
        *loss -= u * q;
        *scale += fabsl(u) * (fabsl(d) + r.log_sum + (p->entropy ? 1 + r.off : 0));
    }
}

/* What a mean divides by. */
static long double divisor_of(const struct problem *p) {
    long double sum = 0;
    if (p->probabilities)
        return p->rows;
    for (int64_t row = 0; row < p->rows; row++)
        if (counts(p, row))
            sum += weight_of(p, (int64_t)p->in[TARGET].data[row]);
    return sum;
}

/* Weights that cancel make a quotient as uncertain as their sum is. */
static long double divisor_off(const struct problem *p) {
    long double size = 0, sum = divisor_of(p);
    for (int64_t row = 0; row < p->rows && !p->probabilities; row++)
        if (counts(p, row))
            size += fabs(weight_of(p, (int64_t)p->in[TARGET].data[row]));
    return p->probabilities ? 1 : size / fabsl(sum);
}

static void forward(const struct reference_arithmetic *how, bool entropy,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    struct problem p = problem_of(how, entropy, in);
    long double sum = 0, size = 0;
    for (int64_t row = 0; row < p.rows; row++) {
        long double loss = 0, scale = 0;
        if (counts(&p, row))
            loss_of(&p, row, &loss, &scale);
        if (p.each) {
            out->data[row] = (double)loss;
            out->scale[row] = (double)scale;
        }
        sum += loss;
        size += scale;
    }
    out->terms = p.n + (p.each ? 0 : p.rows);
    if (p.each)
        return;
    long double divisor = p.mean ? divisor_of(&p) : 1;
    out->data[0] = (double)(sum / divisor);
    out->scale[0] =
        (double)(size / fabsl(divisor) + (p.mean ? fabsl(sum / divisor) * divisor_off(&p) : 0));
}

static void gradient_of(const struct problem *p, int64_t row, long double g, long double off,
                        struct reference_tensor *out) {
    struct row r = p->entropy ? row_at(p, row) : (struct row){0};
    long double all = 0, size = 0;
    for (int64_t c = 0; c < p->n; c++) {
        all += share(p, row, c);
        size += fabsl(share(p, row, c));
    }
    for (int64_t c = 0; c < p->n; c++) {
        int64_t at = element_of(p, row, c);
        long double d = (long double)p->in[X].data[at] - r.most, u = share(p, row, c);
        long double probability = p->entropy ? expl(d) / r.sum : 0;
        long double scale = probability * (1 + fabsl(d) + r.off) * size + fabsl(u);
        out->data[at] = (double)(g * (probability * all - u));
        out->scale[at] = (double)(fabsl(g) * scale * (1 + off));
    }
}

static void backward(const struct reference_arithmetic *how, bool entropy,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    struct problem p = problem_of(how, entropy, in);
    long double divisor = p.mean ? divisor_of(&p) : 1, off = p.mean ? divisor_off(&p) : 0;
    for (int64_t row = 0; row < p.rows; row++)
        if (counts(&p, row))
            gradient_of(&p, row, in[GRAD_Y].data[p.each ? row : 0] / divisor, off, out);
        else
            for (int64_t c = 0; c < p.n; c++)
                out->data[element_of(&p, row, c)] = out->scale[element_of(&p, row, c)] = 0;
    out->terms = p.n + (p.each ? 0 : p.rows);
}

/* Numbers of classes around vectors and what a thread, a warp and a block do of a row; of rows, one
 * and several, together and apart; indices and probabilities, with weights and without. */
#define INDEX_CASES                                                                                \
    {{"1", "", NULL}, REFERENCE_RANDOM, false}, {{"5", "", "5"}, REFERENCE_RANDOM, false},         \
        {{"3,4", "3", NULL}, REFERENCE_RANDOM, false},                                             \
        {{"0,4", "0", NULL}, REFERENCE_RANDOM, false},                                             \
        {{"0,0", "0", "0"}, REFERENCE_RANDOM, false},                                              \
        {{"2,3,0", "2,0", "3"}, REFERENCE_RANDOM, false},                                          \
        {{"7,1", "7", NULL}, REFERENCE_RANDOM, false},                                             \
        {{"300,10", "300", "10"}, REFERENCE_RANDOM, false},                                        \
        {{"257,17", "257", NULL}, REFERENCE_RANDOM, false},                                        \
        {{"33,32", "33", "32"}, REFERENCE_POSITIVE, false},                                        \
        {{"65,33", "65", NULL}, REFERENCE_RANDOM, false},                                          \
        {{"19,127", "19", "127"}, REFERENCE_RANDOM, false},                                        \
        {{"9,1000", "9", NULL}, REFERENCE_RANDOM, false},                                          \
        {{"5,1025", "5", "1025"}, REFERENCE_RANDOM, false},                                        \
        {{"3,4099", "3", NULL}, REFERENCE_RANDOM, false},                                          \
        {{"2,16392", "2", NULL}, REFERENCE_RANDOM, false},                                         \
        {{"2,3,5", "2,5", "3"}, REFERENCE_RANDOM, false},                                          \
        {{"3,21,33", "3,33", NULL}, REFERENCE_RANDOM, false},                                      \
        {{"2,1030,2", "2,2", NULL}, REFERENCE_RANDOM, false},                                      \
        {{"2,3,1,3,2,1,2,3", "2,1,3,2,1,2,3", NULL}, REFERENCE_RANDOM, false},                     \
        {{"2,19,31,37", "2,31,37", "19"}, REFERENCE_RANDOM, false},                                \
        {{"5003,3", "5003", NULL}, REFERENCE_POSITIVE, false}, {                                   \
        {"1031,1021", "1031", NULL}, REFERENCE_RANDOM, true                                        \
    }
static const struct reference_case nll_cases[] = {INDEX_CASES};
static const struct reference_case entropy_cases[] = {
    INDEX_CASES,
    {{"5", "5", NULL}, REFERENCE_RANDOM, false},
    {{"3,4", "3,4", "4"}, REFERENCE_RANDOM, false},
    {{"0,4", "0,4", NULL}, REFERENCE_RANDOM, false},
    {{"3,0", "3,0", NULL}, REFERENCE_RANDOM, false},
    {{"300,10", "300,10", NULL}, REFERENCE_RANDOM, false},
    {{"65,33", "65,33", "33"}, REFERENCE_RANDOM, false},
    {{"9,1000", "9,1000", "1000"}, REFERENCE_RANDOM, false},
    {{"3,4099", "3,4099", NULL}, REFERENCE_RANDOM, false},
    {{"3,21,33", "3,21,33", "21"}, REFERENCE_RANDOM, false},
};

#define REDUCTION(name)                                                                            \
    {                                                                                              \
        "reduction", XOP_ATTR_STRING, sizeof(name) - 1, { .string = (name) }                       \
    }
#define IGNORE(index)                                                                              \
    {                                                                                              \
        "ignore_index", XOP_ATTR_INT, 1, { .i = (index) }                                          \
    }
#define SMOOTHING(number)                                                                          \
    {                                                                                              \
        "label_smoothing", XOP_ATTR_FLOAT, 1, { .f = (number) }                                    \
    }
static const struct reference_setting settings[] = {
    {.nattrs = 0},
    {{REDUCTION("none")}, 1},
    {{REDUCTION("sum"), IGNORE(0)}, 2},
    {{IGNORE(2)}, 1},
    {{REDUCTION("none"), SMOOTHING(0.25)}, 2},
    {{SMOOTHING(0.125), IGNORE(-1)}, 2},
};
#define NLL_SETTINGS 4 /* the first, without smoothing */

#define CLASSES(its_name, entropy, its_cases, its_nsettings, its_shape_only)                       \
    static void its_name##_forward(const struct reference_arithmetic *how,                         \
                                   const struct reference_tensor *in,                              \
                                   struct reference_tensor *out) {                                 \
        forward(how, entropy, in, out);                                                            \
    }                                                                                              \
    static void its_name##_backward(const struct reference_arithmetic *how,                        \
                                    const struct reference_tensor *in,                             \
                                    struct reference_tensor *out) {                                \
        backward(how, entropy, in, out);                                                           \
    }                                                                                              \
    const struct reference reference_##its_name = {.name = #its_name,                              \
                                                   .nin = 3,                                       \
                                                   .nout = 1,                                      \
                                                   .ngrad = 1,                                     \
                                                   .saved_in = 7,                                  \
                                                   .shape_only = its_shape_only,                   \
                                                   .cases = its_cases,                             \
                                                   .ncases = sizeof its_cases / sizeof *its_cases, \
                                                   .settings = settings,                           \
                                                   .nsettings = its_nsettings,                     \
                                                   .low = -4,                                      \
                                                   .high = 4,                                      \
                                                   .smooth_low = 0.5,                              \
                                                   .smooth_high = 3,                               \
                                                   .takes = takes,                                 \
                                                   .index = is_index,                              \
                                                   .fit = fit,                                     \
                                                   .shape_for = shape_for,                         \
                                                   .forward = its_name##_forward,                  \
                                                   .backward = its_name##_backward}

CLASSES(cross_entropy, true, entropy_cases, sizeof settings / sizeof *settings, 0);
CLASSES(nll_loss, false, nll_cases, NLL_SETTINGS, 1);
