/*
 * Tests of the operators: every form of broadcasting, sizes around the edges of vectors, tiles and
 * pieces, groups, alignment, special values. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_OPERATORS_CUH
#define TESTS_GPU_OPERATORS_CUH

#include "tests/gpu/fixture.h"
#include "tests/gpu/reference.h"
#include "tests/gpu/tally.h"

/* Bounds in ulps. f16 and bf16 are computed in f32, so that all that is lost is one rounding. */
#define EXACT 0.505
#define HALF_ACTIVATION 0.55
#define FULL_ACTIVATION 4.0
#define GRADIENT 2.5

struct operators_pair {
    uint32_t x_rank, b_rank;
    int64_t x[XOP_MAX_RANK], b[XOP_MAX_RANK];
    bool large;
};
static const struct operators_pair operators_pairs[] = {
    {0, 0, {0}, {0}, false},
    {1, 1, {1}, {1}, false},
    {1, 0, {0}, {0}, false},
    {2, 1, {0, 3}, {3}, false},
    {2, 2, {3, 0}, {3, 1}, false},
    {2, 2, {1, 4}, {0, 1}, false},
    {1, 1, {3}, {3}, false},
    {1, 1, {4}, {4}, false},
    {1, 1, {5}, {5}, false},
    {1, 1, {31}, {31}, false},
    {1, 1, {127}, {127}, false},
    {1, 1, {1023}, {1023}, false},
    {1, 1, {1024}, {1024}, false},
    {1, 1, {1025}, {1025}, false},
    {2, 2, {300, 301}, {300, 301}, false},
    {1, 1, {(1 << 20) + 3}, {(1 << 20) + 3}, true},
    {1, 0, {1027}, {0}, false},
    {0, 1, {0}, {1027}, false},
    {1, 1, {5000}, {1}, false},
    {1, 1, {1}, {5000}, false},
    {1, 0, {(1 << 20) + 3}, {0}, true},
    {0, 1, {0}, {(1 << 20) + 3}, true},
    {2, 1, {37, 41}, {41}, false},
    {2, 1, {65, 48}, {48}, false},
    {2, 1, {3001, 3}, {3}, false},
    {2, 1, {3001, 8}, {8}, false},
    {2, 1, {211, 523}, {523}, false},
    {2, 1, {700, 1024}, {1024}, true},
    {2, 1, {3, 70001}, {70001}, true},
    {1, 2, {523}, {211, 523}, false},
    {1, 2, {1024}, {300, 1024}, true},
    {2, 2, {211, 523}, {211, 1}, false},
    {2, 2, {129, 512}, {129, 1}, false},
    {2, 2, {3001, 3}, {3001, 1}, false},
    {2, 2, {17, 2048}, {17, 1}, false},
    {2, 2, {2, 70001}, {2, 1}, true},
    {2, 2, {3, 65536}, {3, 1}, true},
    {2, 2, {211, 1}, {211, 523}, false},
    {2, 2, {211, 1}, {1, 523}, false},
    {2, 2, {1, 523}, {211, 1}, false},
    {4, 3, {3, 5, 7, 11}, {5, 1, 11}, false},
    {4, 4, {3, 1, 7, 1}, {1, 5, 1, 11}, false},
    {4, 4, {3, 5, 7, 11}, {1, 5, 1, 11}, false},
    {4, 4, {3, 5, 7, 11}, {3, 1, 7, 1}, false},
    {3, 3, {4, 1, 512}, {4, 33, 512}, false},
    {8, 8, {2, 1, 3, 1, 2, 1, 3, 1}, {1, 2, 1, 3, 1, 2, 1, 3}, false},
    {5, 3, {1, 1, 40, 3, 600}, {40, 1, 600}, false},
    {4, 4, {7, 90, 3, 64}, {1, 90, 1, 64}, false},
    {3, 3, {6, 50, 300}, {6, 1, 300}, false},
    {3, 3, {50, 6, 700}, {1, 6, 1}, false},
};

/* ---- Making inputs ---- */

static uint32_t operators_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* A tensor of random elements in [-2, 2), in the inbox. */
static struct xop_tensor operators_input(struct fixture *fixture, enum xop_dtype dtype,
                                         uint32_t rank, const int64_t *shape, uint32_t seed,
                                         size_t skew) {
    struct xop_tensor tensor = {};
    int64_t n = 0;
    void *data;
    tensor.dtype = dtype;
    tensor.rank = rank;
    for (uint32_t i = 0; i < rank; i++)
        tensor.shape[i] = shape[i];
    fixture_place(&fixture->inbox, &tensor, skew);
    data = fixture_writable(fixture, tensor.data);
    xop_tensor_elements(&tensor, &n);
    for (int64_t i = 0; i < n; i++)
        reference_set(dtype, data, i, (double)operators_random(&seed) / (1 << 22) - 2);
    return tensor;
}

static void operators_run_one(struct fixture *fixture, struct tally *tally, const struct xop_op *op,
                              enum xop_pass pass, struct fixture_request *request, uint32_t wanted,
                              size_t skew) {
    struct xop_call call = fixture_prepare(fixture, op, pass, request, wanted, skew);
    const struct xop_plan *plan = &request->plan;
    struct xop_group group = {};
    struct xop_error error = {XOP_OK, ""};
    group.op = op;
    group.pass = pass;
    group.ncalls = 1;
    group.calls = &call;
    group.plans = &plan;
    enum xop_status status = fixture_run(fixture->api, fixture->backend, &group, &error);
    if (status == XOP_DEVICE_FAULT)
        FIXTURE_DIE("%s: %s", tally->name, error.message);
    tally_check(tally, status == XOP_OK, "%s", error.message);
    for (uint32_t i = 0; i < op->pass[pass].nout; i++)
        tally_check(tally, fixture_guarded(&request->out[i]), "wrote outside output %u", i);
}

/* ---- square_bias ---- */

static void operators_check_forward(struct tally *tally, const struct xop_tensor *in,
                                    const struct xop_tensor *y) {
    double loss = y->dtype == XOP_F64 ? 0x1p-52 : 0x1p-23;
    int64_t n = 0;
    xop_tensor_elements(y, &n);
    for (int64_t i = 0; i < n; i++) {
        double x = reference_get(y->dtype, in[0].data, reference_source(&in[0], y, i));
        double b = reference_get(y->dtype, in[1].data, reference_source(&in[1], y, i));
        double got = reference_get(y->dtype, y->data, i);
        tally_error(tally, reference_error(y->dtype, got, x * x + b, x * x * loss), EXACT,
                    "y[%lld] is %.17g, not %.17g", (long long)i, got, x * x + b);
    }
}

static void operators_check_backward(struct tally *tally, const struct xop_tensor *in,
                                     const struct xop_tensor *out) {
    for (int which = 0; which < 2; which++) {
        const struct xop_tensor *operand = &in[which], *grad_y = &in[2], *grad = &out[which];
        int64_t n = 0, m = 0;
        if (!grad->data)
            continue;
        xop_tensor_elements(grad_y, &n);
        xop_tensor_elements(operand, &m);
        double *sum = (double *)calloc((size_t)m + 1, sizeof *sum);
        double *size = (double *)calloc((size_t)m + 1, sizeof *size);
        if (!sum || !size)
            FIXTURE_DIE("no memory");
        for (int64_t i = 0; i < n; i++) {
            int64_t k = reference_source(operand, grad_y, i);
            double term = reference_get(grad_y->dtype, grad_y->data, i);
            if (which == 0)
                term *= 2 * reference_get(operand->dtype, operand->data, k);
            sum[k] += term;
            size[k] += fabs(term);
        }
        for (int64_t k = 0; k < m; k++) {
            double got = reference_get(grad->dtype, grad->data, k);
            double excuse = m == n ? 0 : size[k] * 1e-13;
            tally_error(tally, reference_error(grad->dtype, got, sum[k], excuse), EXACT,
                        "grad_%s[%lld] is %.17g, not %.17g", which ? "b" : "x", (long long)k, got,
                        sum[k]);
        }
        free(sum);
        free(size);
    }
}

static void operators_square_bias(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    struct tally forward = tally_begin("square_bias forward %s", xop_dtype_name(dtype));
    struct tally backward = tally_begin("square_bias backward %s", xop_dtype_name(dtype));

    for (const struct operators_pair &pair : operators_pairs) {
        struct fixture_request there, back;
        if (reduced && pair.large)
            continue;
        fixture_reset(fixture);
        memset(&there, 0, sizeof there);
        there.in[0] = operators_input(fixture, dtype, pair.x_rank, pair.x, 1, 0);
        there.in[1] = operators_input(fixture, dtype, pair.b_rank, pair.b, 2, 0);
        operators_run_one(fixture, &forward, op, XOP_FORWARD, &there, 1, 0);
        operators_check_forward(&forward, there.in, &there.out[0]);
        back = there;
        back.in[2] = operators_input(fixture, dtype, there.out[0].rank, there.out[0].shape, 3, 0);
        operators_run_one(fixture, &backward, op, XOP_BACKWARD, &back, 3, 0);
        operators_check_backward(&backward, back.in, back.out);
        /* One gradient alone, and b's shape without its elements: the same bits. */
        for (uint32_t wanted = 0; wanted < 3; wanted++) {
            struct fixture_request some = back;
            some.in[1].data = NULL;
            operators_run_one(fixture, &backward, op, XOP_BACKWARD, &some, wanted, 0);
            for (uint32_t k = 0; k < 2; k++) {
                uint64_t bytes = 0;
                if (some.out[k].data && xop_tensor_bytes(&some.out[k], &bytes))
                    tally_check(&backward, memcmp(some.out[k].data, back.out[k].data, bytes) == 0,
                                "gradient %u differs when it is wanted alone", k);
            }
        }
    }
    tally_end(&forward);
    tally_end(&backward);
}

/* A sum of ones in f16 would stop growing at 2048, one in f32 at 2^24. */
static void operators_long_sums(struct fixture *fixture) {
    const int64_t half[] = {50010}, single[] = {(1 << 24) + 1000};
    struct tally tally = tally_begin("long sums keep their precision");
    for (int k = 0; k < 2; k++) {
        struct fixture_request run;
        memset(&run, 0, sizeof run);
        fixture_reset(fixture);
        run.in[0] = operators_input(fixture, k ? XOP_F32 : XOP_F16, 1, k ? single : half, 1, 0);
        run.in[1].dtype = run.in[0].dtype;
        run.in[2] = run.in[0];
        for (int64_t i = 0; i < run.in[0].shape[0]; i++)
            reference_set(run.in[0].dtype, fixture_writable(fixture, run.in[0].data), i, 1);
        operators_run_one(fixture, &tally, fixture_op(fixture, "square_bias"), XOP_BACKWARD, &run,
                          2, 0);
        double got = reference_get(run.in[0].dtype, run.out[1].data, 0);
        double want = k ? (1 << 24) + 1000 : 50016; /* the nearest f16 */
        tally_check(&tally, got == want, "%.17g ones give %.17g", (double)run.in[0].shape[0], got);
    }
    tally_end(&tally);
}

/* ---- Activations ---- */

static void operators_check_activation(struct tally *tally, int kind, const struct xop_tensor *x,
                                       const struct xop_tensor *y) {
    double bound = xop_dtype_size(x->dtype) == 2 ? HALF_ACTIVATION : FULL_ACTIVATION;
    int64_t n = 0;
    xop_tensor_elements(x, &n);
    for (int64_t i = 0; i < n; i++) {
        double from = reference_get(x->dtype, x->data, i),
               got = reference_get(x->dtype, y->data, i);
        double want = reference_activation(kind, from);
        bool sign = isnan(want) || (signbit(got) != 0) == (signbit(want) != 0);
        tally_error(tally, sign ? reference_error(x->dtype, got, want, 0) : INFINITY, bound,
                    "at %.17g it is %.17g, not %.17g", from, got, want);
    }
}

static void operators_activation(struct fixture *fixture, int kind, enum xop_dtype dtype,
                                 bool reduced) {
    static const int64_t sizes[] = {0, 1, 3, 4, 5, 31, 127, 1023, 1024, 1025, 5600, (1 << 20) + 3};
    static const double scales[] = {1e-30, 1e-8, 1e-3, 0.3, 1, 5, 50, 350};
    const struct xop_op *op = fixture_op(fixture, reference_activations[kind]);
    struct tally forward = tally_begin("%s forward %s", op->name, xop_dtype_name(dtype));
    struct tally backward = tally_begin("%s backward %s", op->name, xop_dtype_name(dtype));

    for (int64_t size : sizes) {
        struct fixture_request there, back;
        if (reduced && size > 10000)
            continue;
        fixture_reset(fixture);
        memset(&there, 0, sizeof there);
        memset(&back, 0, sizeof back);
        there.in[0] = operators_input(fixture, dtype, 1, &size, 1, 0);
        void *x = fixture_writable(fixture, there.in[0].data);
        for (int64_t i = 0; i < size; i++)
            reference_set(dtype, x, i, reference_get(dtype, x, i) * scales[i % 8]);
        operators_run_one(fixture, &forward, op, XOP_FORWARD, &there, 1, 0);
        operators_check_activation(&forward, kind, &there.in[0], &there.out[0]);
        back.in[0] = there.out[0];
        back.in[1] = operators_input(fixture, dtype, 1, &size, 2, 0);
        operators_run_one(fixture, &backward, op, XOP_BACKWARD, &back, 1, 0);
        for (int64_t i = 0; i < size; i++) {
            double y = reference_get(dtype, back.in[0].data, i);
            double g = reference_get(dtype, back.in[1].data, i);
            double got = reference_get(dtype, back.out[0].data, i);
            double want = reference_activation_gradient(kind, y, g);
            if (isinf(y)) /* times 0 or not, the formula decides */
                want = kind == 2 ? -(g * y * (y + 1)) : want;
            double bound = xop_dtype_size(dtype) == 2 ? HALF_ACTIVATION : GRADIENT;
            tally_error(&backward, reference_error(dtype, got, want, 0), bound,
                        "at y = %.17g, grad_y = %.17g it is %.17g, not %.17g", y, g, got, want);
        }
    }
    tally_end(&forward);
    tally_end(&backward);
}

/* All 65536 arguments that there are. */
static void operators_every_half(struct fixture *fixture, enum xop_dtype dtype) {
    const int64_t shape[] = {65536};
    for (int kind = 0; kind < 3; kind++) {
        const struct xop_op *op = fixture_op(fixture, reference_activations[kind]);
        struct tally tally = tally_begin("%s of every %s", op->name, xop_dtype_name(dtype));
        struct fixture_request run;
        memset(&run, 0, sizeof run);
        fixture_reset(fixture);
        run.in[0] = operators_input(fixture, dtype, 1, shape, 1, 0);
        for (uint32_t i = 0; i < 65536; i++)
            ((uint16_t *)fixture_writable(fixture, run.in[0].data))[i] = (uint16_t)i;
        operators_run_one(fixture, &tally, op, XOP_FORWARD, &run, 1, 0);
        operators_check_activation(&tally, kind, &run.in[0], &run.out[0]);
        tally_end(&tally);
    }
}

static void operators_edges(struct fixture *fixture, enum xop_dtype dtype) {
    static const double arguments[] = {0.0,  -0.0, INFINITY, -INFINITY, NAN,  1000, -1000,
                                       6e4,  -6e4, 88.5,     -88.5,     17.0, 89.0, 103.5,
                                       -104, 720,  -720,     1e-7,      -1e-7};
    static const double squares[][3] = {{INFINITY, 1, INFINITY},
                                        {-INFINITY, INFINITY, INFINITY},
                                        {INFINITY, -INFINITY, NAN},
                                        {2, -INFINITY, -INFINITY},
                                        {NAN, 1, NAN},
                                        {1, NAN, NAN},
                                        {-0.0, -0.0, 0},
                                        {-3, -9, 0}};
    const int64_t n = sizeof arguments / sizeof *arguments, eight = 8;
    struct tally tally = tally_begin("edge values %s", xop_dtype_name(dtype));
    struct fixture_request run;

    for (int kind = 0; kind < 3; kind++) {
        memset(&run, 0, sizeof run);
        fixture_reset(fixture);
        run.in[0] = operators_input(fixture, dtype, 1, &n, 1, 0);
        for (int64_t i = 0; i < n; i++)
            reference_set(dtype, fixture_writable(fixture, run.in[0].data), i, arguments[i]);
        operators_run_one(fixture, &tally, fixture_op(fixture, reference_activations[kind]),
                          XOP_FORWARD, &run, 1, 0);
        operators_check_activation(&tally, kind, &run.in[0], &run.out[0]);
    }
    memset(&run, 0, sizeof run);
    run.in[0] = operators_input(fixture, dtype, 1, &eight, 1, 0);
    run.in[1] = operators_input(fixture, dtype, 1, &eight, 1, 0);
    for (int64_t i = 0; i < 8; i++)
        for (int k = 0; k < 2; k++)
            reference_set(dtype, fixture_writable(fixture, run.in[k].data), i, squares[i][k]);
    operators_run_one(fixture, &tally, fixture_op(fixture, "square_bias"), XOP_FORWARD, &run, 1, 0);
    for (int64_t i = 0; i < 8; i++) {
        double got = reference_get(dtype, run.out[0].data, i), want = squares[i][2];
        tally_check(&tally, isnan(want) ? isnan(got) : got == want,
                    "%g squared and %g give %g, not %g", squares[i][0], squares[i][1], got, want);
    }
    /* The gradient of an infinite x that was broadcast: what is not there must not be multiplied.
     */
    memset(&run, 0, sizeof run);
    const int64_t odd = 1027;
    run.in[0] = operators_input(fixture, dtype, 0, NULL, 1, 0);
    run.in[1] = run.in[2] = operators_input(fixture, dtype, 1, &odd, 1, 0);
    reference_set(dtype, fixture_writable(fixture, run.in[0].data), 0, INFINITY);
    for (int64_t i = 0; i < odd; i++)
        reference_set(dtype, fixture_writable(fixture, run.in[2].data), i, 1);
    operators_run_one(fixture, &tally, fixture_op(fixture, "square_bias"), XOP_BACKWARD, &run, 3,
                      0);
    double sum = reference_get(dtype, run.out[0].data, 0);
    tally_check(&tally, sum == INFINITY, "infinitely often 1 is %g", sum);
    tally_end(&tally);
}

#endif
