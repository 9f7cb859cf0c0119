/* The unary operators' table and cast: what they declare and refuse, and the loops of both. Values
 * are judged by the references (test_xopctl.py) and beside PyTorch (test_pytorch.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/cast.h"
#include "kernels/cpu/loops.h"
#include "tests/unit/cpu_fixture.h"

static const enum xop_dtype dtypes[] = {XOP_F16, XOP_BF16, XOP_F32, XOP_F64};
#define NDTYPES (sizeof dtypes / sizeof *dtypes)

/* Arguments at which formulas change, and beyond which they have other ways. */
static const double arguments[] = {
    0.0,  -0.0,  NAN,    INFINITY,  -INFINITY, 1e-40, -1e-40, 1e-3,   -1e-3,  0.5,    -0.5,
    1,    -1,    3,      -3,        20.5,      -20.5, 88.5,   -88.5,  104.5,  -104.5, 746,
    -746, 60000, -60000, 1048576.5, -3e6,      1e30,  -1e30,  3.4e38, -3.4e38};
#define NARGUMENTS (sizeof arguments / sizeof *arguments)
#define N 1031

/* The arguments above among random ones. */
static struct xop_tensor mixed(enum xop_dtype dtype, uint32_t seed) {
    const int64_t shape[] = {N};
    struct xop_tensor tensor = fixture_random(dtype, 1, shape, seed);
    for (size_t i = 0; i < NARGUMENTS; i++)
        fixture_set(&tensor, (int64_t)(i * 33), arguments[i]);
    return tensor;
}

static void defaults(const struct xop_op *op, struct xop_attr *attrs) {
    for (uint32_t i = 0; i < op->nattrs; i++)
        attrs[i] = op->attrs[i].fallback;
}

static enum xop_status infer(const struct xop_op *op, enum xop_pass pass,
                             const struct xop_tensor *in, const struct xop_attr *attrs,
                             struct xop_error *error) {
    struct xop_plan plan = {.workspace_bytes = 0};
    struct xop_call call = {.in = in, .attrs = attrs};
    return op->pass[pass].infer(&call, &plan, error);
}

static void every_line_declares_an_operator(void **state) {
    (void)state;
    for (int kind = 0; kind < UNARY_OPS; kind++) {
        const struct xop_op *op = &unary_declarations[kind];
        char first[80];
        snprintf(first, sizeof first, "`%s` is ", op->name);
        assert_int_equal(strncmp(op->doc, first, strlen(first)), 0);
        assert_int_equal(op->dtypes, XOP_FLOATS);
        assert_string_equal(op->pass[XOP_FORWARD].in[0].name, "x");
        assert_string_equal(op->pass[XOP_FORWARD].out[0].name, "y");
        const struct xop_signature *backward = &op->pass[XOP_BACKWARD];
        assert_string_equal(backward->in[backward->nin - 1].name, "grad_y");
        assert_string_equal(backward->out[0].name, "grad_x");
    }
    assert_string_equal(unary_declarations[UNARY_relu].pass[XOP_BACKWARD].in[0].name, "y");
    assert_string_equal(unary_declarations[UNARY_silu].pass[XOP_BACKWARD].in[0].name, "x");
    assert_int_equal(unary_declarations[UNARY_neg].pass[XOP_BACKWARD].nin, 1);
    assert_int_equal(unary_declarations[UNARY_softplus].nattrs, 2);
}

static void attributes_become_parameters_and_forms(void **state) {
    struct xop_attr attrs[XOP_MAX_ATTRS];
    double p[UNARY_PARAMETERS];
    (void)state;
    defaults(&unary_declarations[UNARY_softplus], attrs);
    assert_int_equal(unary_parameters(UNARY_softplus, attrs, p), UNARY_softplus);
    assert_true(p[0] == 1 && p[1] == 20);
    defaults(&unary_declarations[UNARY_clamp], attrs);
    attrs[1].value.f = 0.25;
    assert_int_equal(unary_parameters(UNARY_clamp, attrs, p), UNARY_clamp);
    assert_true(p[0] == -INFINITY && p[1] == 0.25);
    defaults(&unary_declarations[UNARY_gelu], attrs);
    assert_int_equal(unary_parameters(UNARY_gelu, attrs, p), UNARY_gelu);
    attrs[0].value.string = "tanh";
    assert_int_equal(unary_parameters(UNARY_gelu, attrs, p), UNARY_gelu_tanh);
    assert_int_equal(unary_parameters(UNARY_relu, NULL, p), UNARY_relu);
}

static void what_does_not_fit_is_refused_by_name(void **state) {
    const struct xop_op *silu = &unary_declarations[UNARY_silu];
    const struct xop_op *clamp = &unary_declarations[UNARY_clamp];
    const struct xop_op *gelu = &unary_declarations[UNARY_gelu];
    struct xop_tensor in[2] = {{.dtype = XOP_F32, .rank = 2, .shape = {3, 4}},
                               {.dtype = XOP_F32, .rank = 2, .shape = {3, 4}}};
    struct xop_attr attrs[XOP_MAX_ATTRS];
    struct xop_error error;
    (void)state;
    assert_int_equal(infer(silu, XOP_BACKWARD, in, NULL, &error), XOP_OK);
    in[1].shape[1] = 5;
    assert_int_equal(infer(silu, XOP_BACKWARD, in, NULL, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "x has shape (3, 4) but grad_y has shape (3, 5)"));
    in[1].dtype = XOP_F16;
    assert_int_equal(infer(silu, XOP_BACKWARD, in, NULL, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "x is f32 but grad_y is f16"));
    defaults(clamp, attrs);
    assert_int_equal(infer(clamp, XOP_FORWARD, in, attrs, &error), XOP_OK);
    attrs[0].value.f = NAN;
    assert_int_equal(infer(clamp, XOP_FORWARD, in, attrs, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "min is NaN"));
    defaults(gelu, attrs);
    attrs[0].value.string = "sigmoid";
    assert_int_equal(infer(gelu, XOP_FORWARD, in, attrs, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "approximate is \"sigmoid\""));
}

typedef void (*check_fn)(const struct loops *loops, enum unary_kind kind, enum xop_pass pass,
                         const struct xop_tensor *a, const struct xop_tensor *b);

static void run(const struct loops *loops, enum unary_kind kind, enum xop_pass pass,
                enum xop_dtype dtype, void *out, const void *a, const void *b, int64_t n) {
    const double p[UNARY_PARAMETERS] = {0.5, 2};
    loops_unary(loops, kind, pass, dtype, out, a, b, p, n);
}

static void each_kind(check_fn check) {
    for (size_t d = 0; d < NDTYPES; d++) {
        struct xop_tensor a = mixed(dtypes[d], 1), b = mixed(dtypes[d], 2);
        for (int kind = 0; kind < UNARY_KINDS; kind++)
            for (int pass = 0; pass < XOP_PASS_COUNT; pass++)
                for (uint32_t i = 0; loops_supported(i); i++)
                    check(loops_supported(i), (enum unary_kind)kind, (enum xop_pass)pass, &a, &b);
        fixture_free(&a);
        fixture_free(&b);
    }
}

/* NaN may differ in its sign: which of two operands it is taken from is the processor's matter. */
static void assert_same(enum xop_dtype dtype, void *got, void *want, int64_t n) {
    struct xop_tensor x = {.dtype = dtype, .data = got}, y = {.dtype = dtype, .data = want};
    size_t size = xop_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(fixture_get(&x, i)) || !isnan(fixture_get(&y, i)))
            assert_memory_equal((char *)got + (size_t)i * size, (char *)want + (size_t)i * size,
                                size);
}

static void check_best(const struct loops *loops, enum unary_kind kind, enum xop_pass pass,
                       const struct xop_tensor *a, const struct xop_tensor *b) {
    double want[N], got[N];
    run(loops_best(), kind, pass, a->dtype, want, a->data, b->data, N);
    run(loops, kind, pass, a->dtype, got, a->data, b->data, N);
    assert_same(a->dtype, got, want, N);
}

static void every_vector_extension_gives_the_same_bits(void **state) {
    (void)state;
    each_kind(check_best);
}

/* Vectors, what is left over at the end, and sines of large numbers beside small ones. */
static void check_alone(const struct loops *loops, enum unary_kind kind, enum xop_pass pass,
                        const struct xop_tensor *a, const struct xop_tensor *b) {
    size_t size = xop_dtype_size(a->dtype);
    double together[N], alone[N];
    run(loops, kind, pass, a->dtype, together, a->data, b->data, N);
    for (size_t i = 0; i < N; i++)
        run(loops, kind, pass, a->dtype, (char *)alone + i * size, (char *)a->data + i * size,
            (char *)b->data + i * size, 1);
    assert_same(a->dtype, together, alone, N);
}

static void an_element_does_not_depend_on_its_neighbours(void **state) {
    (void)state;
    each_kind(check_alone);
}

static void check_in_place(const struct loops *loops, enum unary_kind kind, enum xop_pass pass,
                           const struct xop_tensor *a, const struct xop_tensor *b) {
    size_t bytes = N * xop_dtype_size(a->dtype);
    double apart[N], there[N];
    run(loops, kind, pass, a->dtype, apart, a->data, b->data, N);
    memcpy(there, a->data, bytes);
    run(loops, kind, pass, a->dtype, there, there, b->data, N);
    assert_same(a->dtype, there, apart, N);
    memcpy(there, b->data, bytes);
    run(loops, kind, pass, a->dtype, there, a->data, there, N);
    assert_same(a->dtype, there, apart, N);
}

static void results_may_take_either_argument_s_place(void **state) {
    (void)state;
    each_kind(check_in_place);
}

/* Against long double, where our own series and the library's meet. */
static void own_functions_are_accurate_to_two_units(void **state) {
    static const struct {
        enum unary_kind kind;
        long double (*function)(long double);
        double low, high;
    } cases[] = {{UNARY_exp, expl, -80, 80},   {UNARY_log, logl, 1e-4, 3},
                 {UNARY_log, logl, 3, 1e30},   {UNARY_erf, erfl, -4, 4},
                 {UNARY_tanh, tanhl, -12, 12}, {UNARY_sin, sinl, -1e6, 1e6},
                 {UNARY_cos, cosl, -1e6, 1e6}, {UNARY_sin, sinl, -1e12, 1e12}};
    enum { MANY = 20011 };
    static float x32[MANY], y32[MANY];
    static double x64[MANY], y64[MANY];
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int i = 0; i < MANY; i++) {
            x64[i] = cases[c].low + (cases[c].high - cases[c].low) * i / MANY;
            x32[i] = (float)x64[i];
        }
        run(loops_best(), cases[c].kind, XOP_FORWARD, XOP_F32, y32, x32, x32, MANY);
        run(loops_best(), cases[c].kind, XOP_FORWARD, XOP_F64, y64, x64, x64, MANY);
        for (int i = 0; i < MANY; i++) {
            long double single = cases[c].function((long double)x32[i]);
            long double wide = cases[c].function((long double)x64[i]);
            assert_true(fabsl((long double)y32[i] - single) <= 3 * 0x1p-23L * fabsl(single));
            assert_true(fabsl((long double)y64[i] - wide) <= 3 * 0x1p-52L * fabsl(wide));
        }
    }
}

static void a_request_runs_with_its_attributes(void **state) {
    const int64_t shape[] = {4};
    struct xop_backend *backend = fixture_open(1, 0);
    const struct xop_op *op = fixture_op("clamp");
    struct xop_tensor x = fixture_random(XOP_BF16, 1, shape, 1);
    struct xop_attr attrs[XOP_MAX_ATTRS];
    struct fixture_request request = {.workspace = NULL};
    struct xop_call call = {.in = &x, .out = request.out, .attrs = attrs};
    struct xop_error error;
    (void)state;
    defaults(op, attrs);
    attrs[0].value.f = -1;
    for (int i = 0; i < 4; i++)
        fixture_set(&x, i, i - 3);
    assert_int_equal(op->pass[XOP_FORWARD].infer(&call, &request.plan, &error), XOP_OK);
    request.out[0] = request.plan.out[0];
    fixture_allocate(&request.out[0]);
    fixture_run(backend, op, XOP_FORWARD, &call, &(const struct xop_plan *){&request.plan}, 1);
    for (int i = 0; i < 4; i++)
        assert_true(fixture_get(&request.out[0], i) == (i < 2 ? -1 : i - 3));
    fixture_finish(&request);
    fixture_free(&x);
    api->close(backend);
}

/* ---- cast ---- */

static void a_cast_refuses_other_dtypes_and_shapes(void **state) {
    struct xop_attr attr = {.type = XOP_ATTR_STRING, .count = 3, .value.string = "f16"};
    struct xop_tensor in[2] = {{.dtype = XOP_F64, .rank = 1, .shape = {3}},
                               {.dtype = XOP_F16, .rank = 1, .shape = {3}}};
    struct xop_error error;
    (void)state;
    assert_int_equal(infer(&cast_declaration, XOP_FORWARD, in, &attr, &error), XOP_OK);
    assert_int_equal(infer(&cast_declaration, XOP_BACKWARD, in, &attr, &error), XOP_OK);
    in[1].shape[0] = 4;
    assert_int_equal(infer(&cast_declaration, XOP_BACKWARD, in, &attr, &error),
                     XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "x has shape (3,) but grad_y has shape (4,)"));
    in[1].dtype = XOP_F32;
    assert_int_equal(infer(&cast_declaration, XOP_BACKWARD, in, &attr, &error),
                     XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "grad_y is f32; y is f16"));
    attr.value.string = "i32";
    assert_int_equal(infer(&cast_declaration, XOP_FORWARD, in, &attr, &error),
                     XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "dtype is \"i32\""));
}

/* Element by element, through f32 where a half is made. */
static void casts_agree_with_single_conversions(void **state) {
    (void)state;
    for (size_t from = 0; from < NDTYPES; from++)
        for (size_t to = 0; to < NDTYPES; to++)
            for (uint32_t i = 0; loops_supported(i); i++) {
                struct xop_tensor x = mixed(dtypes[from], 1), y = mixed(dtypes[to], 2);
                double want[N];
                struct xop_tensor single = {.dtype = dtypes[to], .data = want};
                loops_cast(loops_supported(i), dtypes[to], y.data, dtypes[from], x.data, N);
                for (int64_t k = 0; k < N; k++)
                    fixture_set(&single, k, fixture_get(&x, k));
                assert_same(dtypes[to], y.data, want, N);
                fixture_free(&x);
                fixture_free(&y);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_declares_an_operator),
        cmocka_unit_test(attributes_become_parameters_and_forms),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(every_vector_extension_gives_the_same_bits),
        cmocka_unit_test(an_element_does_not_depend_on_its_neighbours),
        cmocka_unit_test(results_may_take_either_argument_s_place),
        cmocka_unit_test(own_functions_are_accurate_to_two_units),
        cmocka_unit_test(a_request_runs_with_its_attributes),
        cmocka_unit_test(a_cast_refuses_other_dtypes_and_shapes),
        cmocka_unit_test(casts_agree_with_single_conversions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
