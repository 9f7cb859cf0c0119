/* where: x or b, as a condition has it. */
#include "broadcast.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_condition(const struct reference_setting *setting, uint32_t input,
                         const struct reference_tensor *in, struct reference_indices *indices) {
    (void)setting;
    (void)in;
    *indices = (struct reference_indices){.is_condition = true, .limit = 2};
    return input == 0;
}

/* The shape that the three broadcast to. */
static bool result_shape(const struct reference_tensor *in, struct reference_tensor *y) {
    struct reference_tensor pair[2] = {in[1], in[2]};
    if (!broadcast_shape(XOP_FORWARD, pair, y))
        return false;
    pair[0] = *y;
    pair[1] = in[0];
    return broadcast_shape(XOP_FORWARD, pair, y);
}

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    if (pass == XOP_FORWARD)
        return result_shape(in, out);
    for (int i = 0; i < 2; i++) {
        out[i].rank = in[1 + i].rank;
        memcpy(out[i].shape, in[1 + i].shape, sizeof out[i].shape);
    }
    return true;
}

static void forward(const struct reference_arithmetic *how, const struct reference_tensor *in,
                    struct reference_tensor *out) {
    (void)how;
    for (int64_t i = 0; i < out->n; i++) {
        bool holds = in[0].data[broadcast_element(&in[0], out, i)] != 0;
        const struct reference_tensor *from = holds ? &in[1] : &in[2];
        out->data[i] = from->data[broadcast_element(from, out, i)];
        out->scale[i] = fabs(out->data[i]);
    }
    out->terms = 1;
}

static void backward(const struct reference_arithmetic *how, const struct reference_tensor *in,
                     struct reference_tensor *out) {
    const struct reference_tensor *g = &in[3];
    struct reference_tensor terms = *g;
    size_t bytes = (size_t)(g->n ? g->n : 1) * sizeof(double);
    (void)how;
    terms.data = malloc(bytes);
    terms.scale = malloc(bytes);
    if (!terms.data || !terms.scale)
        abort(); /* verify could not go on either */
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < g->n; i++) {
            bool holds = in[0].data[broadcast_element(&in[0], g, i)] != 0;
            terms.data[i] = holds == (k == 0) ? g->data[i] : 0;
            terms.scale[i] = fabs(terms.data[i]);
        }
        broadcast_add_up(&terms, &in[1 + k], g, &out[k]);
    }
    free(terms.data);
    free(terms.scale);
}

static const struct reference_case cases[] = {
    {{"", "", ""}, REFERENCE_RANDOM, false},
    {{"0", "0", "0"}, REFERENCE_RANDOM, false},
    {{"1", "1", "1"}, REFERENCE_RANDOM, false},
    {{"7", "7", "7"}, REFERENCE_RANDOM, false},
    {{"16", "16", "16"}, REFERENCE_RANDOM, false},
    {{"1025", "1025", "1025"}, REFERENCE_RANDOM, false},
    {{"3,4", "3,4", ""}, REFERENCE_RANDOM, false},
    {{"3,4", "", "3,4"}, REFERENCE_RANDOM, false},
    {{"", "3,4", "3,4"}, REFERENCE_RANDOM, false},
    {{"3,1", "4", "3,4"}, REFERENCE_RANDOM, false},
    {{"4", "3,1", "1"}, REFERENCE_RANDOM, false},
    {{"5,1,1", "1,6,1", "1,1,7"}, REFERENCE_RANDOM, false},
    {{"2,3,4", "3,1", "2,1,4"}, REFERENCE_RANDOM, false},
    {{"0,4", "4", ""}, REFERENCE_RANDOM, false},
    {{"3,0", "3,1", "1"}, REFERENCE_RANDOM, false},
    {{"2,1,2,1,2,1,2,1", "1,3,1,3,1,3,1,3", "2,3,1,1,2,1,2,3"}, REFERENCE_RANDOM, false},
    {{"65,33", "33", "65,1"}, REFERENCE_RANDOM, false},
    {{"257,129", "257,129", "129"}, REFERENCE_RANDOM, false},
    {{"50021", "", "50021"}, REFERENCE_RANDOM, false},
    {{"32,32", "32,32", "32,32"}, REFERENCE_EDGES, false},
    {{"1000,1000", "1000,1000", "1000"}, REFERENCE_RANDOM, true},
    {{"1000,1", "1000,1000", "1000,1"}, REFERENCE_RANDOM, true},
};

const struct reference reference_where = {.name = "where",
                                          .nin = 3,
                                          .nout = 1,
                                          .ngrad = 2,
                                          .first_grad = 1,
                                          .saved_in = 7,
                                          .shape_only = 6,
                                          .broadcasts = true,
                                          .cases = cases,
                                          .ncases = sizeof cases / sizeof *cases,
                                          .index = is_condition,
                                          .low = -4,
                                          .high = 4,
                                          .smooth_low = -2,
                                          .smooth_high = 2,
                                          .shape = shape,
                                          .forward = forward,
                                          .backward = backward};
