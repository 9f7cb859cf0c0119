/* upsample, nearest and bilinear, of (N, C, H, W). */
#include "reference.h"

#include <math.h>
#include <string.h>

static const struct xop_attr *named(const struct reference_setting *setting, const char *name) {
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        if (strcmp(setting->attr[i].name, name) == 0)
            return &setting->attr[i];
    return NULL;
}

struct axis {
    int64_t in, out;
    double factor; /* 0: a size was given */
    bool linear, corners;
};

static struct axis axis_of(const struct reference_setting *setting, int64_t in, int which) {
    const struct xop_attr *size = named(setting, "size"), *factor = named(setting, "scale_factor"),
                          *mode = named(setting, "mode"),
                          *corners = named(setting, "align_corners");
    struct axis axis = {.in = in, .linear = mode && strcmp(mode->value.string, "bilinear") == 0};
    axis.corners = corners && corners->value.i;
    if (factor)
        axis.factor = factor->value.floats[factor->count > 1 ? which : 0];
    axis.out = size ? size->value.ints[size->count > 1 ? which : 0]
                    : (int64_t)floor((double)in * axis.factor);
    return axis;
}

/* Output o is (1 - *next) of element *first and *next of the one behind. */
static void find(const struct axis *axis, int64_t o, int64_t *first, long double *next) {
    long double step = axis->factor > 0 ? 1 / (long double)axis->factor
                                        : (long double)axis->in / (long double)axis->out,
                at = 0;
    *first = o;
    *next = 0;
    if (axis->in == axis->out)
        return;
    if (!axis->linear) {
        float rounded =
            axis->factor > 0 ? (float)(1 / axis->factor) : (float)axis->in / (float)axis->out;
        float product = rounded * (float)o;
        *first = (int64_t)floorf(product);
    } else {
        if (axis->corners)
            at = axis->out > 1 ? (long double)o * (long double)(axis->in - 1) / (axis->out - 1) : 0;
        else
            at = step * (o + 0.5L) - 0.5L;
        if (at < 0)
            at = 0;
        *first = (int64_t)floorl(at);
        *next = at - *first;
    }
    if (*first >= axis->in - 1) {
        *first = axis->in - 1;
        *next = 0;
    }
}

/* What element first + d weighs, for d from -1 to 1. */
static double weight_of(long double next, int d) {
    return d < 0 ? 0 : (double)(d > 0 ? next : 1 - next);
}

/* y from x, or x's gradient where gy is given. A place in x that is rounded in f64 makes weights
 * wrong, in the units of what is judged, by `doubt`. */
static void resample(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *x, struct reference_tensor *to,
                     const struct reference_tensor *gy) {
    struct axis rows = axis_of(arithmetic->setting, x->shape[2], 0),
                columns = axis_of(arithmetic->setting, x->shape[3], 1);
    const double unit = arithmetic->max > 1e300 ? 4 : 0x1p-27;
    for (int64_t i = 0; i < to->n; i++)
        to->data[i] = to->scale[i] = 0;
    for (int64_t output = 0; output < x->shape[0] * x->shape[1] * rows.out * columns.out;
         output++) {
        int64_t line = output / columns.out, row, column;
        long double below, right;
        find(&rows, line % rows.out, &row, &below);
        find(&columns, output % columns.out, &column, &right);
        double doubt = rows.linear ? unit * (double)(row + column + 1) : 0;
        for (int near = 0; near < 9; near++) {
            int down = near / 3 - 1, along = near % 3 - 1;
            double weight = weight_of(below, down) * weight_of(right, along);
            int64_t r = row + down, c = column + along;
            if (r < 0 || r >= rows.in || c < 0 || c >= columns.in)
                continue;
            int64_t element = (line / rows.out * rows.in + r) * columns.in + c;
            int64_t at = gy ? element : output;
            double value = gy ? gy->data[output] : x->data[element];
            to->data[at] += weight * value;
            to->scale[at] += (weight + doubt) * fabs(value);
        }
    }
    to->terms = gy ? (rows.out / rows.in + 2) * (columns.out / columns.in + 2) : 4;
}

static void forward(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    resample(arithmetic, &in[0], &out[0], NULL);
}

static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    resample(arithmetic, &in[0], &out[0], &in[1]);
}

static bool takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    if (in[0].rank != 4 || in[0].shape[1] == 0 || in[0].shape[2] == 0 || in[0].shape[3] == 0)
        return false;
    return axis_of(setting, in[0].shape[2], 0).out > 0 &&
           axis_of(setting, in[0].shape[3], 1).out > 0;
}

static bool shape_for(const struct reference_setting *setting, enum xop_pass pass,
                      const struct reference_tensor *in, struct reference_tensor *out) {
    if (!takes(setting, in))
        return false;
    out[0].rank = 4;
    memcpy(out[0].shape, in[0].shape, sizeof out[0].shape);
    for (int i = 0; pass == XOP_FORWARD && i < 2; i++)
        out[0].shape[2 + i] = axis_of(setting, in[0].shape[2 + i], i).out;
    return true;
}

static const struct reference_case cases[] = {
    {{"1,1,1,1"}, REFERENCE_RANDOM, false},   {{"1,1,2,2"}, REFERENCE_RANDOM, false},
    {{"0,2,5,5"}, REFERENCE_RANDOM, false},   {{"2,3,4,4"}, REFERENCE_RANDOM, false},
    {{"3,1,5,7"}, REFERENCE_RANDOM, false},   {{"2,1,9,10"}, REFERENCE_RANDOM, false},
    {{"1,3,16,1"}, REFERENCE_RANDOM, false},  {{"1,2,1,31"}, REFERENCE_POSITIVE, false},
    {{"1,2,33,47"}, REFERENCE_RANDOM, false}, {{"2,7,13,11"}, REFERENCE_RANDOM, false},
    {{"1,1,3,300"}, REFERENCE_RANDOM, false}, {{"2,16,64,64"}, REFERENCE_RANDOM, true},
};

static void fit(uint32_t rank, const int64_t *like, struct reference_shape *in) {
    int64_t height = rank > 1 ? like[rank - 2] : 2, width = rank > 0 ? like[rank - 1] : 1;
    in[0] = (struct reference_shape){.rank = 4, .shape = {2, 2, height + 1, width + 1}};
}

static const int64_t thirteen[] = {13}, wide[] = {7, 94}, small[] = {2, 3};
static const double twice[] = {2}, uneven[] = {2.3, 0.7}, thrice[] = {3, 1.5};
#define SIZE(list)                                                                                 \
    {                                                                                              \
        "size", XOP_ATTR_INTS, sizeof list / sizeof *list, { .ints = list }                        \
    }
#define FACTOR(list)                                                                               \
    {                                                                                              \
        "scale_factor", XOP_ATTR_FLOATS, sizeof list / sizeof *list, { .floats = list }            \
    }
#define BILINEAR                                                                                   \
    {                                                                                              \
        "mode", XOP_ATTR_STRING, 8, { .string = "bilinear" }                                       \
    }
#define CORNERS                                                                                    \
    {                                                                                              \
        "align_corners", XOP_ATTR_BOOL, 1, { .i = 1 }                                              \
    }
static const struct reference_setting settings[] = {
    {{FACTOR(twice)}, 1},
    {{FACTOR(uneven)}, 1},
    {{SIZE(wide)}, 1},
    {{SIZE(small)}, 1},
    {{FACTOR(thrice), BILINEAR}, 2},
    {{FACTOR(uneven), BILINEAR}, 2},
    {{SIZE(thirteen), BILINEAR}, 2},
    {{SIZE(wide), BILINEAR, CORNERS}, 3},
    {{SIZE(small), BILINEAR, CORNERS}, 3},
};

const struct reference reference_upsample = {.name = "upsample",
                                             .nin = 1,
                                             .nout = 1,
                                             .ngrad = 1,
                                             .saved_in = 1,
                                             .shape_only = 1,
                                             .cases = cases,
                                             .ncases = sizeof cases / sizeof *cases,
                                             .settings = settings,
                                             .nsettings = sizeof settings / sizeof *settings,
                                             .low = -2,
                                             .high = 3,
                                             .smooth_low = -2,
                                             .smooth_high = 2,
                                             .takes = takes,
                                             .shape_for = shape_for,
                                             .fit = fit,
                                             .forward = forward,
                                             .backward = backward};
