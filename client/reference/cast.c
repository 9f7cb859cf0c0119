/* The same number in another dtype: verify rounds, and judges the rounding. */
#include "reference.h"

#include <math.h>
#include <string.h>

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    (void)pass;
    out->rank = in->rank;
    memcpy(out->shape, in->shape, sizeof out->shape);
    return true;
}

static void same(const struct reference_tensor *in, struct reference_tensor *out) {
    for (int64_t i = 0; i < out->n; i++) {
        out->data[i] = in->data[i];
        out->scale[i] = fabs(in->data[i]);
    }
    out->terms = 1;
}

static void forward(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    (void)arithmetic;
    same(&in[0], out);
}

static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    (void)arithmetic;
    same(&in[1], out);
}

#define TO(its_name)                                                                               \
    {                                                                                              \
        {{.name = "dtype",                                                                         \
          .type = XOP_ATTR_STRING,                                                                 \
          .count = sizeof its_name - 1,                                                            \
          .value.string = its_name}},                                                              \
            1                                                                                      \
    }
static const struct reference_setting settings[] = {TO("f16"), TO("bf16"), TO("f32"), TO("f64")};

const struct reference reference_cast = {.name = "cast",
                                         .nin = 1,
                                         .nout = 1,
                                         .ngrad = 1,
                                         .saved_in = 1,
                                         .shape_only = 1,
                                         .settings = settings,
                                         .nsettings = sizeof settings / sizeof *settings,
                                         .makes_dtype = true,
                                         .low = -8,
                                         .high = 8,
                                         .smooth_low = -3,
                                         .smooth_high = 3,
                                         .shape = shape,
                                         .forward = forward,
                                         .backward = backward};
