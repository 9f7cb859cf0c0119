/*
 * Tests of linear: sizes around tiles, every way to be empty, long sums, addresses in device memory
 * that are hardly aligned, groups, and what happens without cuBLASLt. Part of test_cuda_backend.
 *
 * Inputs are small whole numbers, of which sums are exact in any order, or have all their digits
 * and are judged by the bound for any order: n u / (1 - n u) times the sum of the terms' absolute
 * values (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), twice that for
 * tensor cores, which cut digits off.
 */
#ifndef TESTS_GPU_LINEAR_CUH
#define TESTS_GPU_LINEAR_CUH

#include "tests/gpu/memory.cuh"
#include "tests/gpu/operators.cuh"

struct linear_layer {
    uint32_t x_rank;
    int64_t x[XOP_MAX_RANK], out;
    bool bias, large;
};
static const struct linear_layer linear_layers[] = {
    {1, {1}, 1, true, false},
    {1, {4}, 3, true, false},
    {2, {3, 4}, 5, true, false},
    {2, {3, 4}, 5, false, false},
    {2, {0, 4}, 3, true, false},
    {2, {3, 0}, 4, true, false},
    {2, {3, 0}, 4, false, false},
    {2, {3, 4}, 0, true, false},
    {3, {2, 0, 4}, 3, false, false},
    {2, {0, 0}, 0, true, false},
    {8, {2, 1, 3, 1, 2, 1, 2, 7}, 5, true, false},
    {2, {7, 13}, 11, true, false},
    {2, {16, 16}, 16, false, false},
    {2, {64, 64}, 64, true, false},
    {2, {127, 129}, 131, true, false},
    {2, {129, 257}, 128, false, false},
    {2, {256, 128}, 256, true, false},
    {2, {1, 1031}, 517, true, false},
    {2, {1, 1024}, 1024, true, false},
    {2, {257, 3}, 300, true, false},
    {2, {3001, 5}, 3, true, false},
    {2, {5, 3}, 3001, true, false},
    {2, {3, 20011}, 2, true, false},
    {2, {8, 65536}, 16, true, true},
    {2, {20011, 8}, 16, true, true},
    {3, {6, 50, 63}, 65, true, true},
    {2, {256, 320}, 256, true, true},
};

/* What is summed for an element: a[k * step_a] * b[k * step_b], for k < n. */
struct linear_sum {
    const struct xop_tensor *a, *b; /* b NULL: ones */
    int64_t at_a, step_a, at_b, step_b, n;
};

static void linear_judge(struct tally *tally, const struct linear_sum *sum, double bias, bool whole,
                         const char *name, int64_t i, double got) {
    enum xop_dtype dtype = sum->a->dtype;
    double want = bias, size = fabs(bias), n = (double)sum->n + 1;
    double u = dtype == XOP_F64 ? 0x1p-53 : 0x1p-24, excuse;
    for (int64_t k = 0; k < sum->n; k++) {
        double term = reference_get(dtype, sum->a->data, sum->at_a + k * sum->step_a);
        if (sum->b)
            term *= reference_get(dtype, sum->b->data, sum->at_b + k * sum->step_b);
        want += term;
        size += fabs(term);
    }
    /* The sum here is in f64 as well, and as far off. */
    excuse = (dtype == XOP_F32 ? 1 : 2) * n * u / (1 - n * u) * size;
    tally_error(tally, reference_error(dtype, got, want, whole ? 0 : excuse), EXACT,
                "%s[%lld], a sum of %lld terms, is %.17g, not %.17g", name, (long long)i,
                (long long)sum->n, got, want);
}

static void linear_sizes(const struct xop_tensor *in, int64_t *rows, int64_t *m, int64_t *n) {
    *rows = 1;
    for (uint32_t d = 0; d + 1 < in[0].rank; d++)
        *rows *= in[0].shape[d];
    *n = in[1].shape[0];
    *m = in[1].shape[1];
}

static void linear_check_forward(struct tally *tally, const struct xop_tensor *in,
                                 const struct xop_tensor *y, bool whole) {
    int64_t rows, m, n;
    linear_sizes(in, &rows, &m, &n);
    for (int64_t i = 0; i < rows * n; i++) {
        struct linear_sum sum = {&in[0], &in[1], i / n * m, 1, i % n * m, 1, m};
        double bias = in[2].data ? reference_get(in[2].dtype, in[2].data, i % n) : 0;
        linear_judge(tally, &sum, bias, whole, "y", i, reference_get(y->dtype, y->data, i));
    }
}

static void linear_check_backward(struct tally *tally, const struct xop_tensor *in,
                                  const struct xop_tensor *out, bool whole) {
    const struct xop_tensor *x = &in[0], *w = &in[1], *g = &in[2];
    enum xop_dtype dtype = x->dtype;
    int64_t rows, m, n;
    linear_sizes(in, &rows, &m, &n);
    for (int64_t i = 0; i < rows * m; i++) {
        struct linear_sum sum = {g, w, i / m * n, 1, i % m, m, n};
        linear_judge(tally, &sum, 0, whole, "grad_x", i, reference_get(dtype, out[0].data, i));
    }
    for (int64_t i = 0; i < n * m; i++) {
        struct linear_sum sum = {g, x, i / m, n, i % m, m, rows};
        linear_judge(tally, &sum, 0, whole, "grad_w", i, reference_get(dtype, out[1].data, i));
    }
    for (int64_t i = 0; i < n; i++) {
        struct linear_sum sum = {g, NULL, i, n, 0, 0, rows};
        linear_judge(tally, &sum, 0, whole, "grad_b", i, reference_get(dtype, out[2].data, i));
    }
}

static struct xop_tensor linear_input(struct fixture *fixture, enum xop_dtype dtype, uint32_t rank,
                                      const int64_t *shape, uint32_t seed, bool whole) {
    struct xop_tensor made = operators_input(fixture, dtype, rank, shape, seed, 0);
    void *data = fixture_writable(fixture, made.data);
    int64_t n = 0;
    xop_tensor_elements(&made, &n);
    for (int64_t i = 0; whole && i < n; i++)
        reference_set(dtype, data, i, floor(reference_get(dtype, data, i)));
    return made;
}

static void linear_make(struct fixture *fixture, struct fixture_request *request,
                        enum xop_dtype dtype, const struct linear_layer *layer, bool whole) {
    const int64_t w[] = {layer->out, layer->x[layer->x_rank - 1]};
    memset(request, 0, sizeof *request);
    request->in[0] = linear_input(fixture, dtype, layer->x_rank, layer->x, 1, whole);
    request->in[1] = linear_input(fixture, dtype, 2, w, 2, whole);
    if (layer->bias)
        request->in[2] = linear_input(fixture, dtype, 1, w, 3, whole);
}

static bool linear_same(const struct xop_tensor *a, const struct xop_tensor *b) {
    uint64_t bytes = 0;
    return xop_tensor_bytes(a, &bytes) && memcmp(a->data, b->data, bytes) == 0;
}

static void linear_layer(struct fixture *fixture, struct tally *forward, struct tally *backward,
                         enum xop_dtype dtype, const struct linear_layer *layer, bool whole) {
    const struct xop_op *op = fixture_op(fixture, "linear");
    struct fixture_request there, back;

    fixture_reset(fixture);
    linear_make(fixture, &there, dtype, layer, whole);
    operators_run_one(fixture, forward, op, XOP_FORWARD, &there, 1, 0);
    linear_check_forward(forward, there.in, &there.out[0], whole);
    back = there;
    back.in[2] = linear_input(fixture, dtype, there.out[0].rank, there.out[0].shape, 4, whole);
    operators_run_one(fixture, backward, op, XOP_BACKWARD, &back, 7, 0);
    linear_check_backward(backward, back.in, back.out, whole);
    for (uint32_t i = 0; i < 3; i++) {
        struct fixture_request some = back;
        operators_run_one(fixture, backward, op, XOP_BACKWARD, &some, 1u << i, 0);
        tally_check(backward, linear_same(&some.out[i], &back.out[i]),
                    "gradient %u differs when it is wanted alone", i);
    }
}

static void linear_operator(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    struct tally forward = tally_begin("linear forward %s", xop_dtype_name(dtype));
    struct tally backward = tally_begin("linear backward %s", xop_dtype_name(dtype));
    for (const struct linear_layer &layer : linear_layers)
        for (int whole = 0; whole < 2; whole++)
            if (!layer.large || !reduced)
                linear_layer(fixture, &forward, &backward, dtype, &layer, whole);
    tally_end(&forward);
    tally_end(&backward);
}

/* y = x*w + 0*1 + b */
static void linear_edges(struct fixture *fixture, enum xop_dtype dtype) {
    static const double cases[][4] = {{INFINITY, 2, 1, INFINITY},
                                      {INFINITY, -2, 1, -INFINITY},
                                      {INFINITY, 0, 1, NAN},
                                      {0, NAN, 1, NAN},
                                      {NAN, 0, 1, NAN},
                                      {1, 1, NAN, NAN},
                                      {INFINITY, 1, -INFINITY, NAN},
                                      {2, 3, -INFINITY, -INFINITY},
                                      {0x1p-14, 1, 0, 0x1p-14}};
    struct tally tally = tally_begin("linear, edge values %s", xop_dtype_name(dtype));
    for (const double(&one)[4] : cases) {
        const struct linear_layer layer = {2, {1, 2}, 1, true, false};
        struct fixture_request run;
        fixture_reset(fixture);
        linear_make(fixture, &run, dtype, &layer, false);
        for (int k = 0; k < 3; k++)
            reference_set(dtype, fixture_writable(fixture, run.in[k].data), 0, one[k]);
        reference_set(dtype, fixture_writable(fixture, run.in[0].data), 1, 0);
        reference_set(dtype, fixture_writable(fixture, run.in[1].data), 1, 1);
        operators_run_one(fixture, &tally, fixture_op(fixture, "linear"), XOP_FORWARD, &run, 1, 0);
        double got = reference_get(dtype, run.out[0].data, 0);
        tally_check(&tally, isnan(one[3]) ? isnan(got) : got == one[3], "%g * %g + %g gives %g",
                    one[0], one[1], one[2], got);
    }
    tally_end(&tally);
}

/* f32 is not cut down to TF32, which has 11 digits: 1 + 2^-12 would be 1. */
static void linear_keeps_digits(struct fixture *fixture) {
    const struct linear_layer layer = {2, {256, 256}, 256, false, false};
    struct tally tally = tally_begin("linear f32 has all its digits");
    struct fixture_request run;
    fixture_reset(fixture);
    linear_make(fixture, &run, XOP_F32, &layer, false);
    for (int64_t i = 0; i < 256 * 256; i++) {
        reference_set(XOP_F32, fixture_writable(fixture, run.in[0].data), i,
                      i % 257 == 0 ? 1 + 0x1p-12 : 0);
        reference_set(XOP_F32, fixture_writable(fixture, run.in[1].data), i, 1);
    }
    operators_run_one(fixture, &tally, fixture_op(fixture, "linear"), XOP_FORWARD, &run, 1, 0);
    for (int64_t i = 0; i < 256 * 256; i++) {
        double got = reference_get(XOP_F32, run.out[0].data, i);
        tally_check(&tally, got == 1 + 0x1p-12, "y[%lld] is %.17g", (long long)i, got);
    }
    tally_end(&tally);
}

#define LINEAR_CALLS 24

/* As many calls at a time as the operator takes, of sizes that differ, in both passes. */
static void linear_groups(struct fixture *fixture, enum xop_dtype dtype) {
    static struct fixture_request alone[LINEAR_CALLS], together[LINEAR_CALLS];
    static struct xop_call calls[LINEAR_CALLS];
    static const struct xop_plan *plans[LINEAR_CALLS];
    const struct xop_op *op = fixture_op(fixture, "linear");
    struct tally tally = tally_begin("linear in groups %s", xop_dtype_name(dtype));

    for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
        uint32_t most = op->pass[pass].max_group;
        fixture_reset(fixture);
        for (int64_t i = 0; i < LINEAR_CALLS; i++) {
            const int64_t y[] = {i % 5 * 31 + 1, i % 3 * 40 + 1};
            const struct linear_layer layer = {2, {y[0], i * 11 + 1}, y[1], i % 2 == 0, false};
            linear_make(fixture, &alone[i], dtype, &layer, false);
            if (pass == XOP_BACKWARD)
                alone[i].in[2] = linear_input(fixture, dtype, 2, y, 4, false);
            together[i] = alone[i];
            operators_run_one(fixture, &tally, op, (enum xop_pass)pass, &alone[i], 7, 0);
            calls[i] = fixture_prepare(fixture, op, (enum xop_pass)pass, &together[i], 7, 0);
            plans[i] = &together[i].plan;
        }
        for (uint32_t i = 0; i < LINEAR_CALLS; i += most) {
            struct xop_group group = {};
            struct xop_error error = {XOP_OK, ""};
            group.op = op;
            group.pass = (enum xop_pass)pass;
            group.ncalls = LINEAR_CALLS - i < most ? LINEAR_CALLS - i : most;
            group.calls = calls + i;
            group.plans = plans + i;
            tally_check(&tally,
                        fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK, "%s",
                        error.message);
        }
        for (uint32_t i = 0; i < LINEAR_CALLS; i++)
            for (uint32_t k = 0; k < op->pass[pass].nout; k++) {
                tally_check(&tally, linear_same(&alone[i].out[k], &together[i].out[k]),
                            "pass %d: output %u of call %u differs", pass, k, i);
                tally_check(&tally, fixture_guarded(&together[i].out[k]),
                            "pass %d: wrote outside output %u of call %u", pass, k, i);
            }
    }
    tally_end(&tally);
}

/* Operands in device memory, each an element past what is well aligned. */
static void linear_misaligned(struct fixture *fixture, enum xop_dtype dtype) {
    const struct linear_layer layer = {2, {96, 64}, 128, true, false};
    const struct xop_op *op = fixture_op(fixture, "linear");
    struct memory_made device = memory_make(fixture->api, fixture->backend, 4 << 20, true);
    struct tally tally = tally_begin("linear, hardly aligned %s", xop_dtype_name(dtype));
    struct fixture_request there, back;
    struct xop_error error;
    uint64_t at = xop_dtype_size(dtype);

    fixture_reset(fixture);
    linear_make(fixture, &there, dtype, &layer, true);
    for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
        struct fixture_request *run = pass == XOP_FORWARD ? &there : &back;
        struct xop_tensor host[3];
        if (pass == XOP_BACKWARD) {
            back = there;
            back.in[2] = linear_input(fixture, dtype, 2, there.out[0].shape, 4, true);
        }
        memcpy(host, run->in, sizeof host);
        for (int k = 0; k < 3; k++) {
            struct memory_copy copy = {device.base + at, host[k].data, 0};
            xop_tensor_bytes(&host[k], &copy.bytes);
            tally_check(&tally,
                        memory_copy_all(fixture->api, fixture->backend, &copy, 1, &error) == XOP_OK,
                        "%s", error.message);
            run->in[k].data = copy.to;
            at += (copy.bytes + 255) / 256 * 256;
        }
        operators_run_one(fixture, &tally, op, (enum xop_pass)pass, run, 7, 0);
        memcpy(run->in, host, sizeof host);
        if (pass == XOP_FORWARD)
            linear_check_forward(&tally, run->in, &run->out[0], true);
        else
            linear_check_backward(&tally, run->in, run->out, true);
    }
    memory_drop(fixture, &device);
    tally_end(&tally);
}

static void linear_all(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    linear_operator(fixture, dtype, reduced);
    linear_edges(fixture, dtype);
    linear_groups(fixture, dtype);
    linear_misaligned(fixture, dtype);
}

/* ---- Without the library ---- */

/* XOP_CUBLASLT names what is not there: linear says so, and nothing else is harmed. */
static void linear_missing(struct fixture *fixture) {
    const struct xop_op *op = fixture_op(fixture, "linear");
    const struct linear_layer layer = {2, {3, 4}, 5, true, false};
    struct tally tally = tally_begin("without cuBLASLt linear says so");
    for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
        const int64_t y[] = {3, 5};
        struct fixture_request run;
        struct xop_group group = {};
        struct xop_error error = {XOP_OK, ""};
        fixture_reset(fixture);
        linear_make(fixture, &run, XOP_F32, &layer, false);
        if (pass == XOP_BACKWARD)
            run.in[2] = linear_input(fixture, XOP_F32, 2, y, 4, false);
        struct xop_call call = fixture_prepare(fixture, op, (enum xop_pass)pass, &run, 7, 0);
        const struct xop_plan *plan = &run.plan;
        group.op = op;
        group.pass = (enum xop_pass)pass;
        group.ncalls = 1;
        group.calls = &call;
        group.plans = &plan;
        enum xop_status status = fixture_run(fixture->api, fixture->backend, &group, &error);
        tally_check(&tally, status == XOP_UNIMPLEMENTED, "its status is %s",
                    xop_status_name(status));
        tally_check(&tally, strstr(error.message, "install") != NULL, "it says: %s", error.message);
    }
    operators_edges(fixture, XOP_F32);
    tally_end(&tally);
}

#endif
