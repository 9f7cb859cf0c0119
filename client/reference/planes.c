/* group_norm and batch_norm, whose inputs are (N, C, ...). */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t whole(const struct reference_setting *setting, const char *name, int64_t fallback) {
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        if (strcmp(setting->attr[i].name, name) == 0)
            return setting->attr[i].value.i;
    return fallback;
}

/* ---- Places ---- */

struct planes {
    int64_t samples, channels, inner;
    int64_t groups; /* 0: each channel by itself, in all samples */
};

static struct planes planes_of(const struct reference_tensor *x,
                               const struct reference_setting *setting, bool batch) {
    struct planes planes = {x->shape[0], x->shape[1], 1,
                            batch ? 0 : whole(setting, "num_groups", 1)};
    for (uint32_t d = 2; d < x->rank; d++)
        planes.inner *= x->shape[d];
    return planes;
}

static int64_t channel_of(const struct planes *p, int64_t i) { return i / p->inner % p->channels; }

/* Which statistics an element has. */
static int64_t set_of(const struct planes *p, int64_t i) {
    int64_t channel = channel_of(p, i);
    if (p->groups == 0)
        return channel;
    return i / p->inner / p->channels * p->groups + channel / (p->channels / p->groups);
}

static int64_t sets_of(const struct planes *p) {
    return p->groups == 0 ? p->channels : p->samples * p->groups;
}

static bool is_vector(const struct reference_tensor *t, int64_t channels) {
    return t->absent || (t->rank == 1 && t->shape[0] == channels);
}

/* ---- Statistics ---- */

/* size: how large the elements are on average, of which the mean may be off in proportion. */
struct set {
    long double mean, square, scale, size, u, u_size, uh, uh_size;
    int64_t n;
};

static struct set *sets_new(const struct planes *p) {
    return calloc((size_t)sets_of(p) + 1, sizeof(struct set));
}

static void measure(struct set *sets, const struct planes *p, const struct reference_tensor *x,
                    double eps) {
    for (int64_t i = 0; i < x->n; i++) {
        struct set *set = &sets[set_of(p, i)];
        set->n++;
        set->mean += x->data[i];
        set->size += fabs(x->data[i]);
    }
    for (int64_t k = 0; k < sets_of(p); k++) {
        sets[k].mean /= (long double)sets[k].n;
        sets[k].size /= (long double)sets[k].n;
    }
    for (int64_t i = 0; i < x->n; i++) {
        struct set *set = &sets[set_of(p, i)];
        set->square += (x->data[i] - set->mean) * (x->data[i] - set->mean);
    }
    for (int64_t k = 0; k < sets_of(p); k++)
        sets[k].scale = 1 / sqrtl(sets[k].square / (long double)sets[k].n + eps);
}

static double parameter(const struct reference_tensor *t, int64_t i, double fallback) {
    return t->absent ? fallback : t->data[i];
}

static void normalize(const struct set *sets, const struct planes *p,
                      const struct reference_tensor *in, struct reference_tensor *y) {
    y->terms = sets_of(p) > 0 && in[0].n > 0 ? in[0].n / sets_of(p) : 1;
    for (int64_t i = 0; i < y->n; i++) {
        const struct set *set = &sets[set_of(p, i)];
        double w = parameter(&in[1], channel_of(p, i), 1),
               b = parameter(&in[2], channel_of(p, i), 0);
        y->data[i] = (double)((in[0].data[i] - set->mean) * set->scale * w + b);
        y->scale[i] = (double)((fabs(in[0].data[i]) + set->size) * set->scale * fabsl(w) + fabs(b));
    }
}

/* ---- Gradients ---- */

static long double h_of(const struct set *set, double x) { return (x - set->mean) * set->scale; }

static long double h_size(const struct set *set, double x) {
    return (fabs(x) + set->size) * set->scale;
}

/* in: x and weight; gy. `moves`: whether the statistics depend on x. */
static void differentiate(struct set *sets, const struct planes *p,
                          const struct reference_tensor *in, const struct reference_tensor *gy,
                          bool moves, struct reference_tensor *out) {
    long double *sums = calloc((size_t)p->channels * 4 + 1, sizeof *sums);
    for (int64_t i = 0; sums && i < gy->n; i++) {
        struct set *set = &sets[set_of(p, i)];
        int64_t c = channel_of(p, i);
        double x = in[0].data[i], g = gy->data[i];
        long double u = (long double)g * parameter(&in[1], c, 1);
        set->u += u;
        set->u_size += fabsl(u);
        set->uh += u * h_of(set, x);
        set->uh_size += fabsl(u) * h_size(set, x);
        sums[4 * c] += g * h_of(set, x);
        sums[4 * c + 1] += fabs(g) * h_size(set, x);
        sums[4 * c + 2] += g;
        sums[4 * c + 3] += fabs(g);
    }
    for (int64_t i = 0; i < gy->n; i++) {
        const struct set *set = &sets[set_of(p, i)];
        double x = in[0].data[i];
        long double u = (long double)gy->data[i] * parameter(&in[1], channel_of(p, i), 1);
        long double away = moves ? (set->u + h_of(set, x) * set->uh) / set->n : 0;
        long double size = moves ? (set->u_size + h_size(set, x) * set->uh_size) / set->n : 0;
        out[0].data[i] = (double)((u - away) * set->scale);
        out[0].scale[i] = (double)(2 * (fabsl(u) + size) * set->scale);
    }
    for (int64_t c = 0; sums && c < p->channels; c++)
        for (int k = 0; k < 2; k++) {
            out[1 + k].data[c] = (double)sums[4 * c + 2 * k];
            out[1 + k].scale[c] = (double)sums[4 * c + 2 * k + 1];
        }
    out[0].terms = sets_of(p) > 0 && gy->n > 0 ? gy->n / sets_of(p) : 1;
    out[1].terms = out[2].terms = p->channels > 0 && gy->n > 0 ? gy->n / p->channels : 1;
    free(sums);
}

/* ---- group_norm ---- */

static void vector(int64_t n, struct reference_tensor *t) {
    *t = (struct reference_tensor){.rank = 1, .shape = {n}};
}

static bool vectors(enum xop_pass pass, const struct reference_tensor *in,
                    struct reference_tensor *out) {
    if (in[0].rank < 2 || !is_vector(&in[1], in[0].shape[1]))
        return false;
    out[0].rank = in[0].rank;
    memcpy(out[0].shape, in[0].shape, sizeof out[0].shape);
    for (int i = 1; pass == XOP_BACKWARD && i < 3; i++)
        vector(in[0].shape[1], &out[i]);
    return pass == XOP_BACKWARD || is_vector(&in[2], in[0].shape[1]);
}

static bool group_shape(const struct reference_setting *setting, enum xop_pass pass,
                        const struct reference_tensor *in, struct reference_tensor *out) {
    return vectors(pass, in, out) && in[0].shape[1] % whole(setting, "num_groups", 1) == 0;
}

static bool group_takes(const struct reference_setting *setting,
                        const struct reference_tensor *in) {
    return in[0].rank >= 2 && in[0].shape[1] % whole(setting, "num_groups", 1) == 0;
}

static void group_forward(const struct reference_arithmetic *arithmetic,
                          const struct reference_tensor *in, struct reference_tensor *out) {
    struct planes p = planes_of(&in[0], arithmetic->setting, false);
    struct set *sets = sets_new(&p);
    if (!sets)
        return;
    measure(sets, &p, &in[0], reference_number(arithmetic, "eps", 1e-5));
    normalize(sets, &p, in, &out[0]);
    free(sets);
}

static void group_backward(const struct reference_arithmetic *arithmetic,
                           const struct reference_tensor *in, struct reference_tensor *out) {
    struct planes p = planes_of(&in[0], arithmetic->setting, false);
    struct set *sets = sets_new(&p);
    if (!sets)
        return;
    measure(sets, &p, &in[0], reference_number(arithmetic, "eps", 1e-5));
    differentiate(sets, &p, in, &in[2], true, out);
    free(sets);
}

/* ---- batch_norm ---- */

static bool batch_takes(const struct reference_setting *setting,
                        const struct reference_tensor *in) {
    int64_t n = in[0].rank >= 2 ? in[0].shape[0] : 1;
    for (uint32_t d = 2; d < in[0].rank; d++)
        n *= in[0].shape[d];
    if (whole(setting, "training", 0))
        return in[0].rank >= 2 && n != 1;
    return in[0].rank >= 2 && !in[3].absent && !in[4].absent;
}

static bool batch_shape(enum xop_pass pass, const struct reference_tensor *in,
                        struct reference_tensor *out) {
    if (!vectors(pass, in, out))
        return false;
    if (pass == XOP_BACKWARD)
        return true;
    for (int i = 1; i < 5; i++)
        vector(i > 2 && in[i].absent ? 0 : in[0].shape[1], &out[i]);
    return is_vector(&in[3], in[0].shape[1]) && is_vector(&in[4], in[0].shape[1]);
}

/* Statistics that are given. */
static void take(struct set *sets, const struct planes *p, const struct reference_tensor *mean,
                 const struct reference_tensor *var, const struct reference_tensor *invstd,
                 double eps) {
    for (int64_t c = 0; c < p->channels; c++) {
        sets[c].mean = mean->data[c];
        sets[c].size = fabs(mean->data[c]);
        if (invstd)
            sets[c].scale = invstd->data[c];
        else if (var)
            sets[c].scale = 1 / sqrtl((long double)var->data[c] + eps);
    }
}

static void give(struct reference_tensor *out, int64_t i, long double value, long double size,
                 int64_t terms) {
    out->data[i] = (double)value;
    out->scale[i] = (double)size;
    out->terms = terms > 0 ? terms : 1;
}

static void batch_forward(const struct reference_arithmetic *arithmetic,
                          const struct reference_tensor *in, struct reference_tensor *out) {
    const bool training = whole(arithmetic->setting, "training", 0) != 0;
    double eps = reference_number(arithmetic, "eps", 1e-5);
    double momentum = reference_number(arithmetic, "momentum", 0.1);
    struct planes p = planes_of(&in[0], arithmetic->setting, true);
    struct set *sets = sets_new(&p);
    if (!sets)
        return;
    if (training)
        measure(sets, &p, &in[0], eps);
    else
        take(sets, &p, &in[3], &in[4], NULL, eps);
    normalize(sets, &p, in, &out[0]);
    for (int64_t c = 0; c < p.channels; c++) {
        const struct set *set = &sets[c];
        long double keep = training && set->n > 0 ? 1 - momentum : 1, take_in = 1 - keep;
        long double var = set->n > 1 ? set->square / (long double)(set->n - 1) : 0;
        give(&out[1], c, set->mean, set->size, set->n);
        /* Half of the error of the square that it is the root of. */
        give(&out[2], c, set->scale, set->scale, set->n);
        if (!in[3].absent)
            give(&out[3], c, keep * in[3].data[c] + (set->n ? take_in * set->mean : 0),
                 fabsl(keep * in[3].data[c]) + take_in * set->size, set->n);
        if (!in[4].absent)
            give(&out[4], c, keep * in[4].data[c] + take_in * var,
                 fabsl(keep * in[4].data[c]) + take_in * var, set->n);
    }
    free(sets);
}

static void batch_backward(const struct reference_arithmetic *arithmetic,
                           const struct reference_tensor *in, struct reference_tensor *out) {
    const bool training = whole(arithmetic->setting, "training", 0) != 0;
    struct planes p = planes_of(&in[0], arithmetic->setting, true);
    struct set *sets = sets_new(&p);
    if (!sets)
        return;
    if (training)
        measure(sets, &p, &in[0], reference_number(arithmetic, "eps", 1e-5));
    else
        take(sets, &p, &in[2], NULL, &in[3], 0);
    differentiate(sets, &p, in, &in[4], training, out);
    free(sets);
}

/* ---- What is tried ---- */

/* x, weight, bias, running_mean, running_var; channels that are multiples of 3 for groups. */
static const struct reference_case cases[] = {
    {{"2,3", "3", "3", "3", "3"}, REFERENCE_RANDOM, false},
    {{"2,1", "1", "1", "1", "1"}, REFERENCE_RANDOM, false},
    {{"2,3", NULL, NULL, NULL, NULL}, REFERENCE_RANDOM, false},
    {{"4,6,5", NULL, "6", "6", "6"}, REFERENCE_RANDOM, false},
    {{"4,6,5", "6", NULL, NULL, "6"}, REFERENCE_RANDOM, false},
    {{"1,3,2", "3", "3", "3", NULL}, REFERENCE_RANDOM, false},
    {{"1,6,1,1", "6", "6", "6", "6"}, REFERENCE_RANDOM, false},
    {{"0,3,4", "3", "3", "3", "3"}, REFERENCE_RANDOM, false},
    {{"0,6", "6", NULL, "6", "6"}, REFERENCE_RANDOM, false},
    {{"2,0,3", "0", "0", "0", "0"}, REFERENCE_RANDOM, false},
    {{"2,3,0", "3", "3", "3", "3"}, REFERENCE_RANDOM, false},
    {{"3,6,7", "6", "6", "6", "6"}, REFERENCE_RANDOM, false},
    {{"2,12,8", "12", "12", "12", "12"}, REFERENCE_RANDOM, false},
    {{"5,9,3,4", "9", "9", "9", "9"}, REFERENCE_RANDOM, false},
    {{"2,3,2,3,2,1,2", "3", "3", "3", "3"}, REFERENCE_RANDOM, false},
    {{"70,66", "66", "66", "66", "66"}, REFERENCE_RANDOM, false},
    {{"33,129", "129", "129", "129", "129"}, REFERENCE_RANDOM, false},
    {{"300,3", "3", "3", "3", "3"}, REFERENCE_POSITIVE, false},
    {{"20011,3", "3", "3", "3", "3"}, REFERENCE_RANDOM, false},
    {{"17,6,31", "6", "6", "6", "6"}, REFERENCE_RANDOM, false},
    {{"9,6,16,16", "6", "6", "6", "6"}, REFERENCE_RANDOM, false},
    {{"2,6,1023", "6", "6", "6", "6"}, REFERENCE_RANDOM, false},
    {{"3,3,33,37", "3", "3", "3", "3"}, REFERENCE_RANDOM, false},
    {{"2,3,20011", "3", "3", "3", "3"}, REFERENCE_POSITIVE, false},
    {{"1,6,50000", "6", "6", "6", "6"}, REFERENCE_RANDOM, true},
    {{"16,192,17,17", "192", "192", "192", "192"}, REFERENCE_RANDOM, true},
};

static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    int64_t channels = 3;
    in[0] = (struct reference_shape){.rank = 2, .shape = {rank > 0 ? like[0] + 1 : 2, channels}};
    for (uint32_t d = 1; d < rank && d + 1 < XOP_MAX_RANK; d++) {
        in[0].shape[d + 1] = like[d];
        in[0].rank = d + 2;
    }
    for (uint32_t i = 1; i < 5; i++)
        in[i] = (struct reference_shape){.rank = 1, .shape = {channels}};
}

#define NUMBER(name, number)                                                                       \
    {                                                                                              \
        name, XOP_ATTR_FLOAT, 1, { .f = (number) }                                                 \
    }
#define GROUPS(n)                                                                                  \
    {                                                                                              \
        "num_groups", XOP_ATTR_INT, 1, { .i = (n) }                                                \
    }
#define TRAINING(yes)                                                                              \
    {                                                                                              \
        "training", XOP_ATTR_BOOL, 1, { .i = (yes) }                                               \
    }
static const struct reference_setting group_settings[] = {
    {{GROUPS(1)}, 1},
    {{GROUPS(3), NUMBER("eps", 0.25)}, 2},
};
/* The random variances are above -2. */
static const struct reference_setting batch_settings[] = {
    {{TRAINING(1)}, 1},
    {{TRAINING(1), NUMBER("momentum", 0.75), NUMBER("eps", 0.25)}, 3},
    {{TRAINING(0), NUMBER("eps", 4)}, 2},
};

#define COMMON                                                                                     \
    .ngrad = 3, .saved_in = 3, .cases = cases, .ncases = sizeof cases / sizeof *cases, .low = -2,  \
    .high = 3, .smooth_low = -2, .smooth_high = 2, .fit = fit

const struct reference reference_group_norm = {.name = "group_norm",
                                               .nin = 3,
                                               .nout = 1,
                                               COMMON,
                                               .settings = group_settings,
                                               .nsettings =
                                                   sizeof group_settings / sizeof *group_settings,
                                               .takes = group_takes,
                                               .shape_for = group_shape,
                                               .forward = group_forward,
                                               .backward = group_backward};
const struct reference reference_batch_norm = {.name = "batch_norm",
                                               .nin = 5,
                                               .nout = 5,
                                               COMMON,
                                               .saved_out = 6,
                                               .ungraded = 30,
                                               .settings = batch_settings,
                                               .nsettings =
                                                   sizeof batch_settings / sizeof *batch_settings,
                                               .takes = batch_takes,
                                               .shape = batch_shape,
                                               .forward = batch_forward,
                                               .backward = batch_backward};
