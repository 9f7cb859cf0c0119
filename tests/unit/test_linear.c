#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/reference/reference.h"
#include "kernels/cpu/blas.h"
#include "kernels/linear.h"
#include "tests/unit/cpu_fixture.h"

static const enum xop_dtype dtypes[] = {XOP_F16, XOP_BF16, XOP_F32, XOP_F64};
#define NDTYPES 4
#define ABSENT UINT32_MAX

/* Of a result, and of what is computed in. */
static double roundoff(enum xop_dtype dtype) {
    static const double u[XOP_DTYPE_COUNT] = {
        [XOP_F16] = 0x1p-11, [XOP_BF16] = 0x1p-8, [XOP_F32] = 0x1p-24, [XOP_F64] = 0x1p-53};
    return u[dtype];
}
static double computed(enum xop_dtype dtype) { return dtype == XOP_F64 ? 0x1p-53 : 0x1p-24; }

/* ---- The judge ---- */

static struct reference_tensor mirror(const struct xop_tensor *tensor) {
    struct reference_tensor made = {.rank = tensor->rank, .absent = !tensor->data};
    if (made.absent)
        return made;
    memcpy(made.shape, tensor->shape, sizeof made.shape);
    assert_true(xop_tensor_elements(tensor, &made.n));
    made.data = calloc((size_t)made.n + 1, sizeof *made.data);
    assert_non_null(made.data);
    for (int64_t i = 0; i < made.n; i++)
        made.data[i] = fixture_get(tensor, i);
    return made;
}

/* Outputs that were not wanted are not looked at. whole: every sum is exact. */
static void judge(enum xop_pass pass, const struct xop_tensor *in, const struct xop_tensor *out,
                  bool whole) {
    const struct reference *reference = reference_find("linear");
    struct reference_arithmetic arithmetic = {.max = INFINITY};
    struct reference_tensor from[3], to[3] = {0};
    uint32_t nout = pass == XOP_FORWARD ? 1 : 3;

    assert_non_null(reference);
    for (int i = 0; i < 3; i++)
        from[i] = mirror(&in[i]);
    assert_true(reference->shape(pass, from, to));
    for (uint32_t i = 0; i < nout; i++) {
        to[i].n = 1;
        for (uint32_t d = 0; d < to[i].rank; d++)
            to[i].n *= to[i].shape[d];
        to[i].data = calloc((size_t)to[i].n + 1, sizeof *to[i].data);
        to[i].scale = calloc((size_t)to[i].n + 1, sizeof *to[i].scale);
        assert_true(to[i].data && to[i].scale);
    }
    (pass == XOP_FORWARD ? reference->forward : reference->backward)(&arithmetic, from, to);
    for (uint32_t i = 0; i < nout; i++) {
        enum xop_dtype dtype = in[0].dtype;
        assert_int_equal(out[i].rank, to[i].rank);
        assert_memory_equal(out[i].shape, to[i].shape, to[i].rank * sizeof *to[i].shape);
        for (int64_t k = 0; out[i].data && k < to[i].n; k++) {
            double got = fixture_get(&out[i], k), want = to[i].data[k];
            double n = (double)to[i].terms, u = computed(dtype);
            double allowed = roundoff(dtype) * fabs(want);
            if (!whole)
                allowed += n * u / (1 - n * u) * to[i].scale[k];
            if (dtype == XOP_F16) /* the smallest are not rounded relative to their size */
                allowed += 0x1p-25;
            if (!(fabs(got - want) <= allowed))
                fail_msg("%s pass %d output %u[%lld] is %.17g, not %.17g", xop_dtype_name(dtype),
                         pass, i, (long long)k, got, want);
        }
    }
    for (int i = 0; i < 3; i++) {
        free(from[i].data);
        free(to[i].data);
        free(to[i].scale);
    }
}

/* ---- Shapes ---- */

struct layer {
    uint32_t x_rank, b_rank;
    int64_t x[XOP_MAX_RANK], out;
};
static const struct layer layers[] = {
    {1, 1, {1}, 1},
    {1, 1, {4}, 3},
    {2, 1, {3, 4}, 5},
    {2, ABSENT, {3, 4}, 5},
    {2, 1, {0, 4}, 3},
    {2, 1, {3, 0}, 4},
    {2, ABSENT, {3, 0}, 4},
    {2, 1, {3, 4}, 0},
    {3, 1, {2, 0, 4}, 3},
    {2, 1, {0, 0}, 0},
    {8, 1, {2, 1, 3, 1, 2, 1, 2, 7}, 5},
    {2, 1, {7, 13}, 11},
    {2, ABSENT, {127, 129}, 131},
    {2, 1, {129, 257}, 128},
    {2, 1, {1, 1031}, 517},
    {2, 1, {257, 3}, 300},
    {2, 1, {3001, 5}, 3},
    {2, 1, {5, 3}, 3001},
    {2, 1, {3, 20011}, 2},
    {3, 1, {6, 50, 63}, 65},
};
#define NLAYERS (sizeof layers / sizeof *layers)

static void make(struct xop_tensor in[3], enum xop_dtype dtype, const struct layer *layer,
                 bool whole) {
    int64_t w[] = {layer->out, layer->x[layer->x_rank - 1]};
    in[0] = fixture_random(dtype, layer->x_rank, layer->x, 1);
    in[1] = fixture_random(dtype, 2, w, 2);
    in[2] = (struct xop_tensor){0};
    if (layer->b_rank != ABSENT)
        in[2] = fixture_random(dtype, 1, w, 3);
    for (int i = 0; whole && i < 3; i++) {
        int64_t n = 0;
        assert_true(xop_tensor_elements(&in[i], &n));
        for (int64_t k = 0; in[i].data && k < n; k++)
            fixture_set(&in[i], k, floor(fixture_get(&in[i], k)));
    }
}

static void drop(struct xop_tensor in[3]) {
    for (int i = 0; i < 3; i++)
        fixture_free(&in[i]);
}

static void check_layer(struct xop_backend *backend, enum xop_dtype dtype,
                        const struct layer *layer, bool whole) {
    const struct xop_op *op = fixture_op("linear");
    struct fixture_request forward, backward;
    struct xop_tensor in[3], grad_y;

    make(in, dtype, layer, whole);
    fixture_run_one(backend, &forward, op, XOP_FORWARD, in, 1);
    judge(XOP_FORWARD, in, forward.out, whole);
    fixture_free(&in[2]);
    grad_y = fixture_random(dtype, forward.out[0].rank, forward.out[0].shape, 4);
    in[2] = grad_y;
    if (whole) {
        int64_t n = 0;
        assert_true(xop_tensor_elements(&grad_y, &n));
        for (int64_t k = 0; k < n; k++)
            fixture_set(&grad_y, k, floor(fixture_get(&grad_y, k)));
    }
    fixture_run_one(backend, &backward, op, XOP_BACKWARD, in, 7);
    judge(XOP_BACKWARD, in, backward.out, whole);
    /* One gradient alone: the same bits. */
    for (uint32_t i = 0; i < 3; i++) {
        struct fixture_request alone;
        uint64_t bytes = 0;
        fixture_run_one(backend, &alone, op, XOP_BACKWARD, in, 1u << i);
        assert_true(xop_tensor_bytes(&alone.out[i], &bytes));
        assert_memory_equal(alone.out[i].data, backward.out[i].data, bytes);
        fixture_finish(&alone);
    }
    fixture_finish(&forward);
    fixture_finish(&backward);
    drop(in);
}

static void check_layers(void) {
    struct xop_backend *backend = fixture_open(3, 0);
    for (size_t d = 0; d < NDTYPES; d++)
        for (size_t i = 0; i < NLAYERS; i++) {
            check_layer(backend, dtypes[d], &layers[i], false);
            check_layer(backend, dtypes[d], &layers[i], true);
        }
    api->close(backend);
}

static void agrees_with_the_reference_by_our_own_loops(void **state) {
    (void)state;
    setenv("XOP_CPU_BLAS", "none", 1);
    check_layers();
    assert_null(blas_best());
    unsetenv("XOP_CPU_BLAS");
}

static void agrees_with_the_reference_by_openblas(void **state) {
    (void)state;
    blas_open();
    if (!blas_best())
        skip();
    check_layers();
}

/* A long sum in f16 or bf16 would stop growing, one in f32 as well from 2^24 on. */
static void long_sums_keep_their_precision(void **state) {
    struct xop_backend *backend = fixture_open(1, 0);
    const int64_t shape[] = {1, 50021};
    (void)state;
    for (size_t d = 0; d < NDTYPES; d++) {
        struct xop_tensor in[3] = {fixture_random(dtypes[d], 2, shape, 1),
                                   fixture_random(dtypes[d], 2, shape, 1)};
        struct fixture_request run;
        for (int64_t i = 0; i < shape[1]; i++) {
            fixture_set(&in[0], i, 1);
            fixture_set(&in[1], i, 1);
        }
        fixture_run_one(backend, &run, fixture_op("linear"), XOP_FORWARD, in, 1);
        judge(XOP_FORWARD, in, run.out, true);
        fixture_finish(&run);
        drop(in);
    }
    api->close(backend);
}

/* ---- Edge values ---- */

static void infinities_and_nans_spread_as_in_a_sum(void **state) {
    static const struct {
        double x, w, b, y; /* y = x*w + 0*1 + b */
    } cases[] = {{INFINITY, 2, 1, INFINITY},
                 {INFINITY, -2, 1, -INFINITY},
                 {INFINITY, 0, 1, NAN},
                 {0, NAN, 1, NAN},
                 {NAN, 0, 1, NAN},
                 {1, 1, NAN, NAN},
                 {INFINITY, 1, -INFINITY, NAN},
                 {2, 3, -INFINITY, -INFINITY},
                 {0x1p-14, 1, 0, 0x1p-14},
                 {-0.0, 1, 0, 0}};
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct xop_backend *backend;
        if (off)
            setenv("XOP_CPU_BLAS", "none", 1);
        backend = fixture_open(1, 0);
        for (size_t d = 0; d < NDTYPES; d++)
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                const int64_t row[] = {1, 2};
                struct xop_tensor in[3] = {fixture_random(dtypes[d], 2, row, 1),
                                           fixture_random(dtypes[d], 2, row, 1),
                                           fixture_random(dtypes[d], 1, row, 1)};
                struct fixture_request run;
                double got;
                fixture_set(&in[0], 0, cases[i].x);
                fixture_set(&in[0], 1, 0);
                fixture_set(&in[1], 0, cases[i].w);
                fixture_set(&in[1], 1, 1);
                fixture_set(&in[2], 0, cases[i].b);
                fixture_run_one(backend, &run, fixture_op("linear"), XOP_FORWARD, in, 1);
                got = fixture_get(&run.out[0], 0);
                if (isnan(cases[i].y) ? !isnan(got) : got != cases[i].y)
                    fail_msg("%s: %g * %g + %g gives %g", xop_dtype_name(dtypes[d]), cases[i].x,
                             cases[i].w, cases[i].b, got);
                fixture_finish(&run);
                drop(in);
            }
        api->close(backend);
    }
    unsetenv("XOP_CPU_BLAS");
}

/* ---- Groups, threads, places ---- */

#define TOGETHER 9

static void a_group_and_any_number_of_threads_give_the_same_bits(void **state) {
    const struct xop_op *op;
    struct xop_tensor in[TOGETHER][3];
    struct fixture_request alone[TOGETHER], together[TOGETHER];
    struct xop_call calls[TOGETHER];
    const struct xop_plan *plans[TOGETHER];
    struct xop_backend *one = fixture_open(1, 0), *many;
    (void)state;

    op = fixture_op("linear");
    for (int i = 0; i < TOGETHER; i++) {
        struct layer layer = {2, 1, {40 * i + 1, 77 * i + 3}, 50 * (int64_t)i + 2};
        make(in[i], dtypes[i % NDTYPES], &layer, false);
        fixture_run_one(one, &alone[i], op, XOP_FORWARD, in[i], 1);
    }
    api->close(one);
    many = fixture_open(4, 0);
    for (int i = 0; i < TOGETHER; i++) {
        calls[i] = fixture_prepare(&together[i], op, XOP_FORWARD, in[i], 1);
        plans[i] = &together[i].plan;
    }
    for (int i = 0; i < TOGETHER; i++) { /* those of one dtype, of which there may be several */
        struct xop_call group[TOGETHER];
        const struct xop_plan *group_plans[TOGETHER];
        uint32_t n = 0;
        for (int k = 0; i < NDTYPES && k < TOGETHER; k++)
            if (k % NDTYPES == i) {
                group[n] = calls[k];
                group_plans[n++] = plans[k];
            }
        if (n > 0)
            fixture_run(many, op, XOP_FORWARD, group, group_plans, n);
    }
    for (int i = 0; i < TOGETHER; i++) {
        uint64_t bytes = 0;
        assert_true(xop_tensor_bytes(&alone[i].out[0], &bytes));
        assert_memory_equal(alone[i].out[0].data, together[i].out[0].data, bytes);
        fixture_finish(&alone[i]);
        fixture_finish(&together[i]);
        drop(in[i]);
    }
    api->close(many);
}

/* Every element of an output is a sum over many of the inputs, so no output may lie on one. */
static void no_output_may_be_in_place(void **state) {
    const struct xop_op *ops[] = {&linear_declaration, &linear_workspace_declaration};
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int pass = 0; pass < XOP_PASS_COUNT; pass++)
            for (uint32_t i = 0; i < ops[k]->pass[pass].nout; i++)
                assert_false(ops[k]->pass[pass].out[i].flags & XOP_OPERAND_IN_PLACE);
}

static void backward_needs_x_and_w_but_not_b(void **state) {
    const struct xop_signature *backward = &linear_declaration.pass[XOP_BACKWARD];
    (void)state;
    assert_int_equal(backward->nin, 3);
    assert_string_equal(backward->in[0].name, "x");
    assert_string_equal(backward->in[1].name, "w");
    assert_string_equal(backward->in[2].name, "grad_y");
    assert_true(linear_declaration.pass[XOP_FORWARD].in[LINEAR_B].flags & XOP_OPERAND_OPTIONAL);
}

/* ---- Refusals ---- */

static struct xop_tensor shaped(enum xop_dtype dtype, uint32_t rank, int64_t a, int64_t b) {
    return (struct xop_tensor){.dtype = dtype, .rank = rank, .shape = {a, b}};
}

static void wrong_calls_are_refused_with_a_sentence(void **state) {
    const struct xop_tensor none = {0}, f = shaped(XOP_F32, 2, 3, 4), w = shaped(XOP_F32, 2, 5, 4);
    const int64_t huge = INT64_C(1) << 40;
    const struct {
        enum xop_pass pass;
        struct xop_tensor in[3];
        const char *says;
    } cases[] = {
        {XOP_FORWARD, {shaped(XOP_F32, 0, 0, 0), w, none}, "x is a scalar"},
        {XOP_FORWARD, {f, shaped(XOP_F32, 1, 4, 0), none}, "w has shape (4,)"},
        {XOP_FORWARD, {f, shaped(XOP_F32, 2, 4, 5), none}, "x has shape (3, 4) and w (4, 5)"},
        {XOP_FORWARD, {f, shaped(XOP_F64, 2, 5, 4), none}, "x is f32 but w is f64"},
        {XOP_FORWARD, {f, w, shaped(XOP_F16, 1, 5, 0)}, "x is f32 but b is f16"},
        {XOP_FORWARD, {f, w, shaped(XOP_F32, 1, 4, 0)}, "b has shape (4,) but w (5, 4)"},
        {XOP_FORWARD, {f, w, shaped(XOP_F32, 2, 1, 5)}, "b has shape (1, 5) but w (5, 4)"},
        {XOP_FORWARD, {f, w, shaped(XOP_F32, 0, 0, 0)}, "b has shape () but w (5, 4)"},
        {XOP_FORWARD,
         {shaped(XOP_F32, 2, huge, 1), shaped(XOP_F32, 2, huge, 1), none},
         "would exceed 2^63-1 bytes"},
        {XOP_FORWARD,
         {{XOP_F32, 3, {huge, huge, 0}, NULL}, shaped(XOP_F32, 2, 1, 0), none},
         "would exceed 2^63-1 bytes"},
        {XOP_BACKWARD, {f, w, shaped(XOP_F32, 2, 5, 3)}, "grad_y has shape (5, 3)"},
        {XOP_BACKWARD, {f, w, shaped(XOP_F32, 1, 15, 0)}, "grad_y has shape (15,)"},
        {XOP_BACKWARD, {f, w, shaped(XOP_BF16, 2, 3, 5)}, "x is f32 but grad_y is bf16"},
        {XOP_BACKWARD, {f, shaped(XOP_F32, 2, 4, 5), f}, "last dimensions"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct xop_call call = {.in = cases[i].in};
        struct xop_plan plan = {0};
        struct xop_error error = {XOP_OK, ""};
        xop_infer_fn infer = linear_workspace_declaration.pass[cases[i].pass].infer;
        assert_int_equal(infer(&call, &plan, &error), XOP_INVALID_ARGUMENT);
        assert_int_equal(error.status, XOP_INVALID_ARGUMENT);
        if (!strstr(error.message, cases[i].says))
            fail_msg("case %zu says: %s", i, error.message);
    }
}

static void the_plan_says_what_a_call_takes(void **state) {
    struct xop_tensor in[3] = {{XOP_F16, 3, {2, 3, 4}, NULL}, shaped(XOP_F16, 2, 5, 4), {0}};
    struct xop_call call = {.in = in};
    struct xop_plan plan = {0}, with = {0};
    struct xop_error error;
    (void)state;
    assert_int_equal(linear_declaration.pass[XOP_FORWARD].infer(&call, &plan, &error), XOP_OK);
    assert_int_equal(plan.out[0].rank, 3);
    assert_int_equal(plan.out[0].shape[2], 5);
    assert_int_equal(plan.bytes, 2 * (24 + 20 + 30));
    assert_int_equal(plan.flops, 2 * 6 * 4 * 5);
    assert_int_equal(plan.workspace_bytes, 0);
    /* A library's share is bounded on both sides, and the sum for grad_b comes before it. */
    assert_int_equal(linear_workspace_declaration.pass[XOP_FORWARD].infer(&call, &with, &error),
                     XOP_OK);
    assert_int_equal(with.workspace_bytes, 1 << 20);
    in[0] = shaped(XOP_F32, 2, 8192, 4096);
    in[1] = shaped(XOP_F32, 2, 4096, 4096);
    in[2] = shaped(XOP_F32, 2, 8192, 4096);
    memset(&plan, 0, sizeof plan);
    memset(&with, 0, sizeof with);
    assert_int_equal(linear_declaration.pass[XOP_BACKWARD].infer(&call, &plan, &error), XOP_OK);
    assert_int_equal(linear_workspace_declaration.pass[XOP_BACKWARD].infer(&call, &with, &error),
                     XOP_OK);
    assert_true(plan.workspace_bytes > 0);
    assert_int_equal(with.workspace_bytes, plan.workspace_bytes + (32 << 20));
    assert_int_equal(plan.flops, UINT64_C(4) * 8192 * 4096 * 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_reference_by_our_own_loops),
        cmocka_unit_test(agrees_with_the_reference_by_openblas),
        cmocka_unit_test(long_sums_keep_their_precision),
        cmocka_unit_test(infinities_and_nans_spread_as_in_a_sum),
        cmocka_unit_test(a_group_and_any_number_of_threads_give_the_same_bits),
        cmocka_unit_test(no_output_may_be_in_place),
        cmocka_unit_test(backward_needs_x_and_w_but_not_b),
        cmocka_unit_test(wrong_calls_are_refused_with_a_sentence),
        cmocka_unit_test(the_plan_says_what_a_call_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
