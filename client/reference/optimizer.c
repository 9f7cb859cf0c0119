/* Steps of sgd, adam and adamw, from PyTorch's documentation of torch.optim. */
#include "reference.h"

#include <math.h>
#include <string.h>

enum { SGD_PARAM, SGD_BUFFER, SGD_GRAD };
enum { ADAM_PARAM, ADAM_AVERAGE, ADAM_SQUARE, ADAM_LARGEST, ADAM_GRAD };

static double number(const struct reference_setting *setting, const char *name, double fallback) {
    struct reference_arithmetic asked = {.setting = setting};
    return reference_number(&asked, name, fallback);
}

/* A number of the arithmetic that is judged: infinite where it is too large for that. */
static double held(const struct reference_arithmetic *arithmetic, double x) {
    return fabs(x) > arithmetic->max ? copysign(INFINITY, x) : x;
}

static bool like(const struct reference_tensor *a, const struct reference_tensor *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* The nth output is of param's shape, or empty where there is no such state. */
static void make(struct reference_tensor *out, const struct reference_tensor *param, bool used) {
    out->rank = used ? param->rank : 1;
    memcpy(out->shape, param->shape, sizeof out->shape);
    if (!used)
        out->shape[0] = 0;
}

/* ---- sgd ---- */

static bool sgd_shape(const struct reference_setting *setting, enum xop_pass pass,
                      const struct reference_tensor *in, struct reference_tensor *out) {
    bool remembers = number(setting, "momentum", 0) != 0;
    make(&out[SGD_PARAM], &in[SGD_PARAM], true);
    make(&out[SGD_BUFFER], &in[SGD_PARAM], remembers);
    return pass == XOP_FORWARD && like(&in[SGD_GRAD], &in[SGD_PARAM]) &&
           (in[SGD_BUFFER].absent || (remembers && like(&in[SGD_BUFFER], &in[SGD_PARAM])));
}

static bool sgd_takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    struct reference_tensor out[2] = {0};
    return sgd_shape(setting, XOP_FORWARD, in, out);
}

static void sgd(const struct reference_arithmetic *a, const struct reference_tensor *in,
                struct reference_tensor *out) {
    double lr = reference_number(a, "lr", 1e-3), momentum = reference_number(a, "momentum", 0);
    double dampening = reference_number(a, "dampening", 0);
    double decay = reference_number(a, "weight_decay", 0);
    bool nesterov = reference_number(a, "nesterov", 0) != 0;
    double sign = reference_number(a, "maximize", 0) != 0 ? -1 : 1;

    for (int64_t i = 0; i < in[SGD_PARAM].n; i++) {
        double param = in[SGD_PARAM].data[i], grad = sign * in[SGD_GRAD].data[i];
        double terms = fabs(grad); /* of which the direction is the sum */
        if (decay != 0) {
            terms += fabs(decay * param);
            grad = held(a, grad + decay * param);
        }
        if (momentum != 0) {
            double buffer = grad;
            if (!in[SGD_BUFFER].absent) {
                double old = in[SGD_BUFFER].data[i];
                terms = fabs(momentum * old) + fabs(1 - dampening) * terms;
                buffer = held(a, momentum * old + (1 - dampening) * grad);
            }
            out[SGD_BUFFER].data[i] = buffer;
            out[SGD_BUFFER].scale[i] = terms;
            terms = nesterov ? fabs(grad) + (1 + momentum) * terms : terms;
            grad = nesterov ? held(a, grad + momentum * buffer) : buffer;
        }
        out[SGD_PARAM].data[i] = param - lr * grad;
        out[SGD_PARAM].scale[i] = fabs(param) + lr * terms;
    }
    out[SGD_PARAM].terms = 4;
    out[SGD_BUFFER].terms = 3;
}

/* ---- adam and adamw ---- */

static bool adam_shape(const struct reference_setting *setting, enum xop_pass pass,
                       const struct reference_tensor *in, struct reference_tensor *out) {
    bool amsgrad = number(setting, "amsgrad", 0) != 0, begins = number(setting, "step", 0) == 1;
    bool fits = pass == XOP_FORWARD && like(&in[ADAM_GRAD], &in[ADAM_PARAM]);
    for (int i = ADAM_PARAM; i <= ADAM_LARGEST; i++) {
        bool used = i != ADAM_LARGEST || amsgrad;
        make(&out[i], &in[ADAM_PARAM], used);
        fits = fits && (in[i].absent ? begins || !used : used && like(&in[i], &in[ADAM_PARAM]));
    }
    return fits;
}

static bool adam_takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    struct reference_tensor out[4] = {0};
    return !in[ADAM_PARAM].absent && adam_shape(setting, XOP_FORWARD, in, out);
}

static double state(const struct reference_tensor *in, int64_t i) {
    return in->absent ? 0 : in->data[i];
}

static void betas_of(const struct reference_arithmetic *a, double betas[2]) {
    const struct reference_setting *setting = a->setting;
    betas[0] = 0.9;
    betas[1] = 0.999;
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        if (strcmp(setting->attr[i].name, "betas") == 0)
            memcpy(betas, setting->attr[i].value.floats, 2 * sizeof *betas);
}

static void adam_step(const struct reference_arithmetic *a, const struct reference_tensor *in,
                      struct reference_tensor *out, bool decoupled, double usual_decay) {
    double lr = reference_number(a, "lr", 1e-3), eps = reference_number(a, "eps", 1e-8), betas[2];
    double decay = reference_number(a, "weight_decay", usual_decay);
    double step = reference_number(a, "step", 1);
    double sign = reference_number(a, "maximize", 0) != 0 ? -1 : 1;
    bool amsgrad = reference_number(a, "amsgrad", 0) != 0;

    betas_of(a, betas);
    for (int64_t i = 0; i < in[ADAM_PARAM].n; i++) {
        double param = in[ADAM_PARAM].data[i], grad = sign * in[ADAM_GRAD].data[i];
        double old = state(&in[ADAM_AVERAGE], i), scale = fabs(grad);
        if (!decoupled && decay != 0) {
            scale += fabs(decay * param);
            grad += decay * param;
        }
        double average = betas[0] * old + (1 - betas[0]) * grad;
        scale = fabs(betas[0] * old) + (1 - betas[0]) * scale;
        double square = betas[1] * state(&in[ADAM_SQUARE], i) + (1 - betas[1]) * grad * grad;
        double largest = square;
        if (amsgrad) {
            largest = fmax(square, state(&in[ADAM_LARGEST], i));
            out[ADAM_LARGEST].data[i] = out[ADAM_LARGEST].scale[i] = largest;
        }
        double root = sqrt(largest / (1 - pow(betas[1], step))) + eps;
        double rate = lr / (1 - pow(betas[0], step)) / root;
        double kept = decoupled ? param - lr * decay * param : param;
        out[ADAM_PARAM].data[i] = kept - rate * average;
        out[ADAM_PARAM].scale[i] = fabs(kept) + rate * (scale + fabs(average));
        out[ADAM_AVERAGE].data[i] = average;
        out[ADAM_AVERAGE].scale[i] = scale;
        out[ADAM_SQUARE].data[i] = out[ADAM_SQUARE].scale[i] = square;
    }
    for (int i = ADAM_PARAM; i <= ADAM_LARGEST; i++)
        out[i].terms = 4;
}

static void adam(const struct reference_arithmetic *arithmetic, const struct reference_tensor *in,
                 struct reference_tensor *out) {
    adam_step(arithmetic, in, out, false, 0);
}

static void adamw(const struct reference_arithmetic *arithmetic, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    adam_step(arithmetic, in, out, true, 1e-2);
}

/* ---- What is tried ---- */

#define FLOAT(its_name, number)                                                                    \
    { .name = its_name, .type = XOP_ATTR_FLOAT, .count = 1, .value.f = number }
#define INT(its_name, number)                                                                      \
    { .name = its_name, .type = XOP_ATTR_INT, .count = 1, .value.i = number }
#define TRUE(its_name)                                                                             \
    { .name = its_name, .type = XOP_ATTR_BOOL, .count = 1, .value.i = 1 }

/* Each shape with and without the states, which decides what a setting takes. */
#define SGD_CASES(shape, fill)                                                                     \
    {{shape, NULL, shape}, fill, false}, { {shape, shape, shape}, fill, false }
static const struct reference_case sgd_cases[] = {
    SGD_CASES("", REFERENCE_RANDOM),       SGD_CASES("0", REFERENCE_RANDOM),
    SGD_CASES("1", REFERENCE_RANDOM),      SGD_CASES("7", REFERENCE_RANDOM),
    SGD_CASES("2,0,3", REFERENCE_RANDOM),  SGD_CASES("7,11,13", REFERENCE_RANDOM),
    SGD_CASES("1025", REFERENCE_POSITIVE), SGD_CASES("2,1,3,1,2,1,2,3", REFERENCE_RANDOM),
    SGD_CASES("4099", REFERENCE_RANDOM),   SGD_CASES("40009", REFERENCE_RANDOM),
    SGD_CASES("1024", REFERENCE_EDGES),
};
static const struct reference_setting sgd_settings[] = {
    {.nattrs = 0},
    {{FLOAT("lr", 0.1), FLOAT("weight_decay", 0.01), TRUE("maximize")}, 3},
    {{FLOAT("lr", 0.05), FLOAT("momentum", 0.9)}, 2},
    {{FLOAT("lr", 0.1), FLOAT("momentum", 0.75), FLOAT("dampening", 0.5),
      FLOAT("weight_decay", 0.1)},
     4},
    {{FLOAT("lr", 0.1), FLOAT("momentum", 0.9), FLOAT("weight_decay", 0.01), TRUE("nesterov"),
      TRUE("maximize")},
     5},
};

#define ADAM_CASES(shape)                                                                          \
    {{shape, NULL, NULL, NULL, shape}, REFERENCE_RANDOM, false},                                   \
        {{shape, shape, shape, NULL, shape}, REFERENCE_RANDOM, false}, {                           \
        {shape, shape, shape, shape, shape}, REFERENCE_RANDOM, false                               \
    }
static const struct reference_case adam_cases[] = {
    ADAM_CASES(""),     ADAM_CASES("0"),     ADAM_CASES("1"),       ADAM_CASES("7"),
    ADAM_CASES("2,0"),  ADAM_CASES("257"),   ADAM_CASES("7,11,13"), ADAM_CASES("2,1,3,1,2,1,2,3"),
    ADAM_CASES("4099"), ADAM_CASES("40009"),
};
static const double other_betas[] = {0.5, 0.75};
static const struct reference_setting adam_settings[] = {
    {{INT("step", 1)}, 1},
    {{INT("step", 1), FLOAT("lr", 0.1), TRUE("amsgrad")}, 3},
    {{INT("step", 2), FLOAT("lr", 0.1), FLOAT("weight_decay", 0.1), TRUE("maximize")}, 4},
    {{INT("step", 1000000), FLOAT("lr", 0.5), FLOAT("weight_decay", 0), FLOAT("eps", 0.1)}, 4},
    {{INT("step", 10),
      FLOAT("lr", 0.1),
      {.name = "betas", .type = XOP_ATTR_FLOATS, .count = 2, .value.floats = other_betas},
      TRUE("amsgrad")},
     4},
};

const struct reference reference_sgd = {.name = "sgd",
                                        .nin = 3,
                                        .nout = 2,
                                        .cases = sgd_cases,
                                        .ncases = sizeof sgd_cases / sizeof *sgd_cases,
                                        .settings = sgd_settings,
                                        .nsettings = sizeof sgd_settings / sizeof *sgd_settings,
                                        .takes = sgd_takes,
                                        .low = -2,
                                        .high = 3,
                                        .shape_for = sgd_shape,
                                        .forward = sgd};

/* Averages of squares are not negative, and without cancelling in them their root is as exact as
 * they are; gradients below 0 come by `maximize`. */
#define ADAM(its_name)                                                                             \
    {                                                                                              \
        .name = #its_name, .nin = 5, .nout = 4, .cases = adam_cases,                               \
        .ncases = sizeof adam_cases / sizeof *adam_cases, .settings = adam_settings,               \
        .nsettings = sizeof adam_settings / sizeof *adam_settings, .takes = adam_takes,            \
        .low = 0.05, .high = 2, .shape_for = adam_shape, .forward = its_name                       \
    }
const struct reference reference_adam = ADAM(adam);
const struct reference reference_adamw = ADAM(adamw);
