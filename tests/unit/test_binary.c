/* The binary operators' table: what it declares and refuses, the loops, and gradients in the places
 * of their inputs. Values are judged by the references (xopctl verify) and beside PyTorch
 * (test_pytorch.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/cpu/loops.h"
#include "tests/unit/cpu_fixture.h"

static const enum xop_dtype dtypes[] = {XOP_F16, XOP_BF16, XOP_F32, XOP_F64};
#define NDTYPES (sizeof dtypes / sizeof *dtypes)

static const double arguments[] = {0.0, -0.0,  NAN,    INFINITY, -INFINITY, 1e-40, -1e-40,
                                   0.5, -0.5,  1,      -1,       2,         -2,    3,
                                   -3,  60000, -60000, 1e30,     -1e30};
#define NARGUMENTS (sizeof arguments / sizeof *arguments)
#define N 1031

/* Every argument above beside every other, among random ones. */
static struct xop_tensor mixed(enum xop_dtype dtype, uint32_t seed, bool is_first) {
    const int64_t shape[] = {N};
    struct xop_tensor tensor = fixture_random(dtype, 1, shape, seed);
    for (size_t i = 0; i < NARGUMENTS * NARGUMENTS; i++)
        fixture_set(&tensor, (int64_t)i * 2, arguments[is_first ? i / NARGUMENTS : i % NARGUMENTS]);
    return tensor;
}

static void every_line_declares_an_operator(void **state) {
    (void)state;
    for (int kind = 0; kind < BINARY_OPS; kind++) {
        const struct xop_op *op = &binary_declarations[kind];
        const struct xop_operand *x = &op->pass[XOP_BACKWARD].in[BROADCAST_X];
        char first[80];
        snprintf(first, sizeof first, "`%s` is ", op->name);
        assert_int_equal(strncmp(op->doc, first, strlen(first)), 0);
        assert_int_equal(op->dtypes, XOP_FLOATS);
        assert_int_equal(x->flags == XOP_OPERAND_SHAPE_ONLY, !binary_saves((enum binary_kind)kind));
        assert_string_equal(op->name, binary_terms_declarations[kind].name);
    }
    assert_false(binary_saves(BINARY_sub));
    assert_true(binary_saves(BINARY_div));
}

static enum xop_status infer(const struct xop_op *op, enum xop_pass pass,
                             const struct xop_tensor *in, struct xop_plan *plan,
                             struct xop_error *error) {
    struct xop_call call = {.in = in};
    memset(plan, 0, sizeof *plan);
    return op->pass[pass].infer(&call, plan, error);
}

static void what_does_not_fit_is_refused_by_name(void **state) {
    const struct xop_op *op = &binary_declarations[BINARY_pow];
    struct xop_tensor in[3] = {{.dtype = XOP_F32, .rank = 2, .shape = {3, 4}},
                               {.dtype = XOP_F32, .rank = 1, .shape = {3}},
                               {.dtype = XOP_F32, .rank = 2, .shape = {3, 4}}};
    struct xop_plan plan;
    struct xop_error error;
    (void)state;
    assert_int_equal(infer(op, XOP_FORWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "x of shape (3, 4) and b of shape (3,)"));
    in[1].shape[0] = 4;
    assert_int_equal(infer(op, XOP_BACKWARD, in, &plan, &error), XOP_OK);
    in[2].shape[0] = 1;
    assert_int_equal(infer(op, XOP_BACKWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "grad_y has shape (1, 4)"));
    in[1].dtype = XOP_F16;
    assert_int_equal(infer(op, XOP_FORWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "x is f32 but b is f16"));
}

/* Terms of y's shape in the type computed in, for each gradient that is a sum of products. */
static void workspace_holds_the_terms_of_sums(void **state) {
    struct xop_tensor in[3] = {{.dtype = XOP_F16, .rank = 2, .shape = {300, 1}},
                               {.dtype = XOP_F16, .rank = 2, .shape = {1, 300}},
                               {.dtype = XOP_F16, .rank = 2, .shape = {300, 300}}};
    struct xop_plan terms, plain;
    struct xop_error error;
    uint64_t bytes = UINT64_C(300) * 300 * 4;
    (void)state;
    bytes = (bytes + 255) / 256 * 256;
    for (int kind = 0; kind < BINARY_OPS; kind++) {
        bool saves = binary_saves((enum binary_kind)kind);
        assert_int_equal(infer(&binary_terms_declarations[kind], XOP_BACKWARD, in, &terms, &error),
                         XOP_OK);
        assert_int_equal(infer(&binary_declarations[kind], XOP_BACKWARD, in, &plain, &error),
                         XOP_OK);
        assert_int_equal(terms.workspace_bytes - plain.workspace_bytes, saves ? 2 * bytes : 0);
    }
}

/* ---- Loops ---- */

struct operands {
    struct xop_tensor x, b, g;
    int step_x, step_b;
};

typedef void (*check_fn)(const struct loops *loops, enum binary_kind op, enum binary_result result,
                         const struct operands *all);

static void run(const struct loops *loops, enum binary_kind op, enum binary_result result,
                const struct operands *all, void *out, bool computed, int64_t at, int64_t n) {
    size_t skip = (size_t)at * xop_dtype_size(all->x.dtype);
    const struct loops_operands in = {(char *)all->x.data + (all->step_x ? skip : 0),
                                      (char *)all->b.data + (all->step_b ? skip : 0),
                                      (char *)all->g.data + skip, all->step_x, all->step_b};
    loops_binary(loops, op, result, all->x.dtype, out, computed, &in, n);
}

static void each_kind(check_fn check) {
    for (size_t d = 0; d < NDTYPES; d++) {
        struct operands all = {.x = mixed(dtypes[d], 1, true),
                               .b = mixed(dtypes[d], 2, false),
                               .g = mixed(dtypes[d], 3, false)};
        for (int steps = 0; steps < 4; steps++) {
            all.step_x = steps & 1;
            all.step_b = steps >> 1;
            for (int op = 0; op < BINARY_OPS; op++)
                for (int result = 0; result < BINARY_RESULTS; result++)
                    for (uint32_t i = 0; loops_supported(i); i++)
                        check(loops_supported(i), (enum binary_kind)op, (enum binary_result)result,
                              &all);
        }
        fixture_free(&all.x);
        fixture_free(&all.b);
        fixture_free(&all.g);
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

static void check_best(const struct loops *loops, enum binary_kind op, enum binary_result result,
                       const struct operands *all) {
    double want[N], got[N];
    run(loops_best(), op, result, all, want, false, 0, N);
    run(loops, op, result, all, got, false, 0, N);
    assert_same(all->x.dtype, got, want, N);
}

static void every_vector_extension_gives_the_same_bits(void **state) {
    (void)state;
    each_kind(check_best);
}

static void check_alone(const struct loops *loops, enum binary_kind op, enum binary_result result,
                        const struct operands *all) {
    double together[N], alone[N];
    size_t size = xop_dtype_size(all->x.dtype);
    run(loops, op, result, all, together, false, 0, N);
    for (int64_t i = 0; i < N; i++)
        run(loops, op, result, all, (char *)alone + (size_t)i * size, false, i, 1);
    assert_same(all->x.dtype, together, alone, N);
}

static void an_element_does_not_depend_on_its_neighbours(void **state) {
    (void)state;
    each_kind(check_alone);
}

/* What is computed and then rounded is what comes rounded. */
static void check_computed(const struct loops *loops, enum binary_kind op,
                           enum binary_result result, const struct operands *all) {
    enum xop_dtype dtype = all->x.dtype, computed = dtype == XOP_F64 ? XOP_F64 : XOP_F32;
    double wide[N], rounded[N], want[N];
    run(loops, op, result, all, wide, true, 0, N);
    loops_cast(loops, dtype, rounded, computed, wide, N);
    run(loops, op, result, all, want, false, 0, N);
    assert_same(dtype, rounded, want, N);
}

static void terms_have_the_digits_of_the_type_computed_in(void **state) {
    (void)state;
    each_kind(check_computed);
}

/* ---- Calls ---- */

static const int64_t shapes[][2][2] = {
    {{7, 3001}, {7, 3001}}, {{7, 3001}, {1, 3001}}, {{1, 3001}, {7, 3001}},
    {{7, 1}, {1, 3001}},    {{1, 1}, {7, 3001}},
};

static void assert_tensors_same(const struct xop_tensor *got, const struct xop_tensor *want) {
    uint64_t bytes = 0;
    assert_true(xop_tensor_bytes(want, &bytes));
    assert_memory_equal(got->data, want->data, bytes);
}

/* Both gradients, grad_x where x was, and grad_b without it. */
static void check_places(struct xop_backend *backend, const struct xop_op *op,
                         struct xop_tensor *in) {
    struct fixture_request apart, in_place, alone;
    struct xop_call call;
    const struct xop_plan *plan = &in_place.plan;
    fixture_run_one(backend, &apart, op, XOP_BACKWARD, in, 3);
    fixture_run_one(backend, &alone, op, XOP_BACKWARD, in, 2);
    assert_tensors_same(&alone.out[1], &apart.out[1]);
    call = fixture_prepare(&in_place, op, XOP_BACKWARD, in, 2);
    in_place.out[0].data = in[0].data;
    fixture_run(backend, op, XOP_BACKWARD, &call, &plan, 1);
    assert_tensors_same(&in[0], &apart.out[0]);
    assert_tensors_same(&in_place.out[1], &apart.out[1]);
    in_place.out[0].data = NULL;
    fixture_finish(&apart);
    fixture_finish(&alone);
    fixture_finish(&in_place);
}

static void a_gradient_may_take_the_place_of_x(void **state) {
    struct xop_backend *backend = fixture_open(2, 1);
    const int64_t full[] = {7, 3001};
    (void)state;
    for (size_t d = 0; d < NDTYPES; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int op = 0; op < BINARY_OPS; op++) {
                struct xop_tensor in[] = {fixture_random(dtypes[d], 2, shapes[s][0], 1),
                                          fixture_random(dtypes[d], 2, shapes[s][1], 2),
                                          fixture_random(dtypes[d], 2, full, 3)};
                check_places(backend, fixture_op(binary_declarations[op].name), in);
                for (int i = 0; i < 3; i++)
                    fixture_free(&in[i]);
            }
    api->close(backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_declares_an_operator),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(workspace_holds_the_terms_of_sums),
        cmocka_unit_test(every_vector_extension_gives_the_same_bits),
        cmocka_unit_test(an_element_does_not_depend_on_its_neighbours),
        cmocka_unit_test(terms_have_the_digits_of_the_type_computed_in),
        cmocka_unit_test(a_gradient_may_take_the_place_of_x),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
