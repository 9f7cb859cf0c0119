/* mse_loss and binary_cross_entropy_with_logits. */
#include "broadcast.h"
#include "reference.h"

#include <math.h>
#include <string.h>

/* A term and how large what it is made of was; or a gradient. */
struct term {
    long double value, scale;
};

struct element {
    long double x, target, weight, pos_weight, g;
};

static bool same_shape(const struct reference_tensor *a, const struct reference_tensor *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static bool shape_of(const struct reference_setting *setting, enum xop_pass pass,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    struct reference_arithmetic how = {.setting = setting};
    bool each = strcmp(reference_text(&how, "reduction", "mean"), "none") == 0;

    for (int i = 0; i < (pass == XOP_FORWARD ? 1 : 2); i++) {
        out[i].rank = in->rank;
        memcpy(out[i].shape, in->shape, sizeof in->shape);
    }
    if (pass == XOP_FORWARD && !each)
        out->rank = 0;
    return same_shape(&in[0], &in[1]);
}

static double weight_at(const struct reference_tensor *weight, const struct reference_tensor *x,
                        int64_t i) {
    return weight->absent ? 1 : weight->data[broadcast_element(weight, x, i)];
}

static struct element element_at(uint32_t nin, const struct reference_tensor *in, int64_t i) {
    struct element e = {in[0].data[i], in[1].data[i], 1, 1, 0};
    if (nin == 4) {
        e.weight = weight_at(&in[2], &in[0], i);
        e.pos_weight = weight_at(&in[3], &in[0], i);
    }
    return e;
}

static void forward(uint32_t nin, const struct reference_arithmetic *how,
                    const struct reference_tensor *in, struct reference_tensor *out,
                    struct term (*loss)(struct element e)) {
    const char *reduction = reference_text(how, "reduction", "mean");
    bool each = strcmp(reduction, "none") == 0, mean = strcmp(reduction, "mean") == 0;
    struct term sum = {0, 0};
    for (int64_t i = 0; i < in->n; i++) {
        struct term term = loss(element_at(nin, in, i));
        if (each) {
            out->data[i] = (double)term.value;
            out->scale[i] = (double)term.scale;
        }
        sum.value += term.value;
        sum.scale += term.scale;
    }
    if (each)
        return;
    out->data[0] = (double)(mean ? sum.value / in->n : sum.value);
    out->scale[0] = (double)(mean ? sum.scale / in->n : sum.scale);
    out->terms = in->n;
}

static void backward(uint32_t nin, const struct reference_arithmetic *how,
                     const struct reference_tensor *in, struct reference_tensor *out,
                     void (*gradients)(struct element e, struct term grad[2])) {
    const char *reduction = reference_text(how, "reduction", "mean");
    bool each = strcmp(reduction, "none") == 0, mean = strcmp(reduction, "mean") == 0;
    for (int64_t i = 0; i < in->n; i++) {
        struct element e = element_at(nin, in, i);
        struct term grad[2];
        e.g = in[nin].data[each ? i : 0];
        if (mean)
            e.g /= in->n;
        gradients(e, grad);
        for (int k = 0; k < 2; k++) {
            out[k].data[i] = (double)grad[k].value;
            out[k].scale[i] = (double)grad[k].scale;
        }
    }
    out[0].terms = out[1].terms = 3; /* products that are rounded, some of them twice */
}

/* ---- mse_loss ---- */

static struct term mse(struct element e) {
    long double loss = (e.x - e.target) * (e.x - e.target);
    return (struct term){loss, loss};
}

static void mse_gradients(struct element e, struct term grad[2]) {
    long double gradient = 2 * (e.x - e.target) * e.g;
    grad[0] = (struct term){gradient, fabsl(gradient)};
    grad[1] = (struct term){-gradient, fabsl(gradient)};
}

/* ---- binary_cross_entropy_with_logits ---- */

/* -log of 1 / (1 + exp(-x)) */
static long double softplus(long double minus_x) {
    return minus_x > 0 ? minus_x + log1pl(expl(-minus_x)) : log1pl(expl(minus_x));
}

static long double positive_weight(struct element e, long double *scale) {
    *scale = 1 + fabsl((e.pos_weight - 1) * e.target);
    return 1 + (e.pos_weight - 1) * e.target;
}

static struct term bce(struct element e) {
    long double scale, p = positive_weight(e, &scale), negative = (1 - e.target) * e.x;
    return (struct term){e.weight * (negative + p * softplus(-e.x)),
                         fabsl(e.weight) * (fabsl(negative) + scale * softplus(-e.x))};
}

static void bce_gradients(struct element e, struct term grad[2]) {
    long double scale, p = positive_weight(e, &scale), g = e.g * e.weight;
    long double sigmoid = 1 / (1 + expl(-e.x)), change = (e.pos_weight - 1) * softplus(-e.x);
    grad[0] = (struct term){g * (p * sigmoid - e.pos_weight * e.target),
                            fabsl(g) * (scale * sigmoid + fabsl(e.pos_weight * e.target))};
    grad[1] = (struct term){g * (change - e.x), fabsl(g) * (fabsl(change) + fabsl(e.x))};
}

/* ---- The references ---- */

static const struct reference_case bce_cases[] = {
    {{"", "", NULL, NULL}, REFERENCE_RANDOM, false},
    {{"", "", "", ""}, REFERENCE_RANDOM, false},
    {{"0", "0", NULL, NULL}, REFERENCE_RANDOM, false},
    {{"2,0,3", "2,0,3", "3", NULL}, REFERENCE_RANDOM, false},
    {{"1", "1", NULL, "1"}, REFERENCE_RANDOM, false},
    {{"3", "3", "3", NULL}, REFERENCE_RANDOM, false},
    {{"7", "7", NULL, NULL}, REFERENCE_RANDOM, false},
    {{"8", "8", "", "1"}, REFERENCE_RANDOM, false},
    {{"3,4", "3,4", "3,1", "4"}, REFERENCE_RANDOM, false},
    {{"5,31", "5,31", NULL, "31"}, REFERENCE_RANDOM, false},
    {{"2,3,1,3,2,1,2,3", "2,3,1,3,2,1,2,3", "3,1,1,2,1,1,3", "2,1,1,3,1,1,1,1"},
     REFERENCE_RANDOM,
     false},
    {{"7,11,13", "7,11,13", "7,1,13", "11,1"}, REFERENCE_RANDOM, false},
    {{"1025", "1025", NULL, NULL}, REFERENCE_RANDOM, false},
    {{"4096", "4096", "4096", "4096"}, REFERENCE_RANDOM, false},
    {{"4099", "4099", NULL, NULL}, REFERENCE_RANDOM, false},
    {{"65,129", "65,129", "65,129", NULL}, REFERENCE_POSITIVE, false},
    {{"50021", "50021", NULL, NULL}, REFERENCE_RANDOM, false},
    {{"1021,1031", "1021,1031", NULL, "1031"}, REFERENCE_RANDOM, true},
};

#define REDUCTION(name)                                                                            \
    { {{"reduction", XOP_ATTR_STRING, sizeof(name) - 1, {.string = (name)}}}, 1 }
static const struct reference_setting settings[] = {
    {.nattrs = 0}, REDUCTION("none"), REDUCTION("sum")};

#define POINTWISE(id, its_name, its_nin, loss, gradients, ...)                                     \
    static bool id##_shape(const struct reference_setting *setting, enum xop_pass pass,            \
                           const struct reference_tensor *in, struct reference_tensor *out) {      \
        return shape_of(setting, pass, in, out);                                                   \
    }                                                                                              \
    static void id##_forward(const struct reference_arithmetic *how,                               \
                             const struct reference_tensor *in, struct reference_tensor *out) {    \
        forward(its_nin, how, in, out, loss);                                                      \
    }                                                                                              \
    static void id##_backward(const struct reference_arithmetic *how,                              \
                              const struct reference_tensor *in, struct reference_tensor *out) {   \
        backward(its_nin, how, in, out, gradients);                                                \
    }                                                                                              \
    const struct reference reference_##its_name = {.name = #its_name,                              \
                                                   .nin = its_nin,                                 \
                                                   .nout = 1,                                      \
                                                   .ngrad = 2,                                     \
                                                   .saved_in = (1 << its_nin) - 1,                 \
                                                   .no_edges = true,                               \
                                                   .settings = settings,                           \
                                                   .nsettings =                                    \
                                                       sizeof settings / sizeof *settings,         \
                                                   .low = -4,                                      \
                                                   .high = 4,                                      \
                                                   .smooth_low = -2,                               \
                                                   .smooth_high = 2,                               \
                                                   .shape_for = id##_shape,                        \
                                                   .forward = id##_forward,                        \
                                                   .backward = id##_backward,                      \
                                                   __VA_ARGS__}

POINTWISE(mse, mse_loss, 2, mse, mse_gradients, .cases = NULL);
POINTWISE(bce, binary_cross_entropy_with_logits, 4, bce, bce_gradients, .cases = bce_cases,
          .ncases = sizeof bce_cases / sizeof *bce_cases);
