/* max_pool2d and avg_pool2d of (N, C, H, W) or (C, H, W). */
#include "reference.h"

#include <math.h>
#include <string.h>

static const struct xop_attr *named(const struct reference_setting *setting, const char *name) {
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        if (strcmp(setting->attr[i].name, name) == 0)
            return &setting->attr[i];
    return NULL;
}

static int64_t number(const struct reference_setting *setting, const char *name, int which,
                      int64_t fallback) {
    const struct xop_attr *attr = named(setting, name);
    if (!attr)
        return fallback;
    if (attr->type != XOP_ATTR_INTS)
        return attr->value.i;
    return attr->value.ints[attr->count > 1 ? which : 0];
}

/* ---- Windows ---- */

struct side {
    int64_t in, out, kernel, stride, padding, dilation;
};

static struct side side_of(const struct reference_setting *setting, int64_t in, int which) {
    struct side s = {.in = in, .kernel = number(setting, "kernel_size", which, 1)};
    s.stride = number(setting, "stride", which, s.kernel);
    s.padding = number(setting, "padding", which, 0);
    s.dilation = number(setting, "dilation", which, 1);
    double room = (double)(in + 2 * s.padding - s.dilation * (s.kernel - 1) - 1);
    bool up = number(setting, "ceil_mode", 0, 0) != 0;
    s.out = (int64_t)(up ? ceil(room / (double)s.stride) : floor(room / (double)s.stride)) + 1;
    /* The last window must begin in x or its padding on the left. */
    if (up && (s.out - 1) * s.stride >= in + s.padding)
        s.out--;
    return s;
}

/* Where element j of window o is. */
static int64_t at(const struct side *s, int64_t o, int64_t j) {
    return o * s->stride - s->padding + j * s->dilation;
}

static bool inside(const struct side *s, int64_t i) { return i >= 0 && i < s->in; }

struct pool {
    struct side rows, columns;
    int64_t planes;
    bool include_pad;
    int64_t divisor;
};

static struct pool pool_of(const struct reference_setting *setting,
                           const struct reference_tensor *x) {
    struct pool p = {.rows = side_of(setting, x->shape[x->rank - 2], 0),
                     .columns = side_of(setting, x->shape[x->rank - 1], 1),
                     .planes = 1};
    for (uint32_t d = 0; d + 2 < x->rank; d++)
        p.planes *= x->shape[d];
    p.include_pad = number(setting, "count_include_pad", 0, 1) != 0;
    p.divisor = number(setting, "divisor_override", 0, 0);
    return p;
}

static double divisor(const struct pool *p, int64_t o, int64_t q) {
    int64_t count = 0;
    if (p->divisor)
        return (double)p->divisor;
    for (int64_t j = 0; j < p->rows.kernel; j++)
        for (int64_t k = 0; k < p->columns.kernel; k++) {
            int64_t row = at(&p->rows, o, j), column = at(&p->columns, q, k);
            if (p->include_pad)
                count += row < p->rows.in + p->rows.padding &&
                         column < p->columns.in + p->columns.padding;
            else
                count += inside(&p->rows, row) && inside(&p->columns, column);
        }
    return (double)count;
}

/* Calls visit for every output with its window's elements, one by one, in C order. */
typedef void (*visit_fn)(void *arg, int64_t output, int64_t element, double divisor);
static void walk(const struct pool *p, visit_fn visit, void *arg) {
    for (int64_t plane = 0; plane < p->planes; plane++)
        for (int64_t o = 0; o < p->rows.out; o++)
            for (int64_t q = 0; q < p->columns.out; q++) {
                int64_t output = (plane * p->rows.out + o) * p->columns.out + q;
                double by = divisor(p, o, q);
                for (int64_t j = 0; j < p->rows.kernel; j++)
                    for (int64_t k = 0; k < p->columns.kernel; k++) {
                        int64_t row = at(&p->rows, o, j), column = at(&p->columns, q, k);
                        if (inside(&p->rows, row) && inside(&p->columns, column))
                            visit(arg, output, (plane * p->rows.in + row) * p->columns.in + column,
                                  by);
                    }
            }
}

/* ---- Results ---- */

struct task {
    const struct reference_tensor *x, *gy;
    struct reference_tensor *out;
    int64_t last, best; /* the output that is being seen, and its largest element */
};

static void fill(struct reference_tensor *t, double value) {
    for (int64_t i = 0; i < t->n; i++) {
        t->data[i] = value;
        t->scale[i] = 0;
    }
}

static void see_max(void *arg, int64_t output, int64_t element, double by) {
    struct task *t = arg;
    double value = t->x->data[element];
    (void)by;
    if (!(value <= t->out->data[output])) /* or either is NaN */
        t->out->data[output] = isnan(t->out->data[output]) ? NAN : value;
}

static void see_sum(void *arg, int64_t output, int64_t element, double by) {
    struct task *t = arg;
    t->out->data[output] += t->x->data[element] / by;
    t->out->scale[output] += fabs(t->x->data[element] / by);
}

static void forward(const struct reference_arithmetic *arithmetic, bool max,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    struct pool p = pool_of(arithmetic->setting, &in[0]);
    struct task task = {.x = &in[0], .out = &out[0]};
    fill(&out[0], max ? -INFINITY : 0);
    walk(&p, max ? see_max : see_sum, &task);
    out[0].terms = max ? 1 : p.rows.kernel * p.columns.kernel;
}

static void pass_on(struct task *t) {
    if (t->best < 0)
        return;
    t->out->data[t->best] += t->gy->data[t->last];
    t->out->scale[t->best] += fabs(t->gy->data[t->last]);
}

static void see_best(void *arg, int64_t output, int64_t element, double by) {
    struct task *t = arg;
    double value = t->x->data[element];
    (void)by;
    if (output != t->last) {
        pass_on(t);
        t->last = output;
        t->best = element;
    } else if (isnan(value) || value > t->x->data[t->best]) {
        t->best = element;
    }
}

static void see_share(void *arg, int64_t output, int64_t element, double by) {
    struct task *t = arg;
    t->out->data[element] += t->gy->data[output] / by;
    t->out->scale[element] += fabs(t->gy->data[output] / by);
}

static void backward(const struct reference_arithmetic *arithmetic, bool max,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    struct pool p = pool_of(arithmetic->setting, &in[0]);
    struct task task = {.x = &in[0], .gy = &in[1], .out = &out[0], .last = -1, .best = -1};
    fill(&out[0], 0);
    walk(&p, max ? see_best : see_share, &task);
    if (max)
        pass_on(&task);
    out[0].terms = p.rows.kernel * p.columns.kernel;
}

/* ---- What is tried ---- */

static bool takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    if (in[0].rank < 3 || in[0].rank > 4)
        return false;
    for (uint32_t d = in[0].rank - 3; d < in[0].rank; d++)
        if (in[0].shape[d] == 0)
            return false;
    struct pool p = pool_of(setting, &in[0]);
    return p.rows.out > 0 && p.columns.out > 0;
}

static bool shape_for(const struct reference_setting *setting, enum xop_pass pass,
                      const struct reference_tensor *in, struct reference_tensor *out) {
    if (!takes(setting, in))
        return false;
    struct pool p = pool_of(setting, &in[0]);
    out[0].rank = in[0].rank;
    memcpy(out[0].shape, in[0].shape, sizeof out[0].shape);
    if (pass == XOP_FORWARD) {
        out[0].shape[in[0].rank - 2] = p.rows.out;
        out[0].shape[in[0].rank - 1] = p.columns.out;
    }
    return true;
}

static const struct reference_case cases[] = {
    {{"1,1,1"}, REFERENCE_RANDOM, false},     {{"1,1,2,2"}, REFERENCE_RANDOM, false},
    {{"0,2,5,5"}, REFERENCE_RANDOM, false},   {{"2,3,4,4"}, REFERENCE_RANDOM, false},
    {{"3,5,7"}, REFERENCE_RANDOM, false},     {{"2,1,9,10"}, REFERENCE_RANDOM, false},
    {{"1,3,16,16"}, REFERENCE_RANDOM, false}, {{"1,2,17,31"}, REFERENCE_POSITIVE, false},
    {{"2,7,13,11"}, REFERENCE_RANDOM, false}, {{"1,1,3,257"}, REFERENCE_RANDOM, false},
    {{"1,1,300,2"}, REFERENCE_RANDOM, false}, {{"5,6,33,32"}, REFERENCE_RANDOM, false},
    {{"3,64,56,56"}, REFERENCE_RANDOM, true},
};

static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    int64_t height = rank > 1 ? like[rank - 2] : 3, width = rank > 0 ? like[rank - 1] : 1;
    in[0] = (struct reference_shape){.rank = 4, .shape = {2, 2, height + 3, width + 3}};
}

#define LIST(name, ...)                                                                            \
    {                                                                                              \
        name, XOP_ATTR_INTS, sizeof(const int64_t[]){__VA_ARGS__} / sizeof(int64_t), {             \
            .ints = (const int64_t[]) { __VA_ARGS__ }                                              \
        }                                                                                          \
    }
#define FLAG(name, yes)                                                                            \
    {                                                                                              \
        name, XOP_ATTR_BOOL, 1, { .i = (yes) }                                                     \
    }
#define INT(name, n)                                                                               \
    {                                                                                              \
        name, XOP_ATTR_INT, 1, { .i = (n) }                                                        \
    }
static const struct reference_setting max_settings[] = {
    {{LIST("kernel_size", 2)}, 1},
    {{LIST("kernel_size", 3), LIST("stride", 2), LIST("padding", 1)}, 3},
    {{LIST("kernel_size", 3, 2), LIST("stride", 1, 3), LIST("dilation", 2, 3), LIST("padding", 1),
      FLAG("ceil_mode", 1)},
     5},
    {{LIST("kernel_size", 1), LIST("stride", 2), FLAG("ceil_mode", 1)}, 3},
    {{LIST("kernel_size", 5, 4), LIST("stride", 3, 1), LIST("padding", 2), FLAG("ceil_mode", 1)},
     4},
};
static const struct reference_setting avg_settings[] = {
    {{LIST("kernel_size", 2)}, 1},
    {{LIST("kernel_size", 3), LIST("stride", 2), LIST("padding", 1)}, 3},
    {{LIST("kernel_size", 3, 4), LIST("stride", 2, 1), LIST("padding", 1, 2),
      FLAG("count_include_pad", 0), FLAG("ceil_mode", 1)},
     5},
    {{LIST("kernel_size", 3), LIST("padding", 1), FLAG("ceil_mode", 1)}, 3},
    {{LIST("kernel_size", 2, 3), LIST("stride", 1), INT("divisor_override", -5)}, 3},
};

#define POOL(id, kind, max)                                                                        \
    static void kind##_forward(const struct reference_arithmetic *arithmetic,                      \
                               const struct reference_tensor *in, struct reference_tensor *out) {  \
        forward(arithmetic, max, in, out);                                                         \
    }                                                                                              \
    static void kind##_backward(const struct reference_arithmetic *arithmetic,                     \
                                const struct reference_tensor *in, struct reference_tensor *out) { \
        backward(arithmetic, max, in, out);                                                        \
    }                                                                                              \
    const struct reference reference_##id = {.name = #id,                                          \
                                             .nin = 1,                                             \
                                             .nout = 1,                                            \
                                             .ngrad = 1,                                           \
                                             .saved_in = 1,                                        \
                                             .shape_only = (max) ? 0 : 1,                          \
                                             .cases = cases,                                       \
                                             .ncases = sizeof cases / sizeof *cases,               \
                                             .settings = kind##_settings,                          \
                                             .nsettings =                                          \
                                                 sizeof kind##_settings / sizeof *kind##_settings, \
                                             .low = -2,                                            \
                                             .high = 3,                                            \
                                             .smooth_low = -200,                                   \
                                             .smooth_high = 200,                                   \
                                             .takes = takes,                                       \
                                             .shape_for = shape_for,                               \
                                             .fit = fit,                                           \
                                             .forward = kind##_forward,                            \
                                             .backward = kind##_backward}

POOL(max_pool2d, max, true);
POOL(avg_pool2d, avg, false);
