#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/loops.h"
#include "tests/unit/cpu_fixture.h"

static const enum xop_dtype dtypes[] = {XOP_F16, XOP_BF16, XOP_F32, XOP_F64};
#define NDTYPES 4

/* A few units in the last place of each dtype, and its smallest number. */
static double relative(enum xop_dtype dtype) {
    static const double eps[XOP_DTYPE_COUNT] = {
        [XOP_F16] = 0x1p-10, [XOP_BF16] = 0x1p-7, [XOP_F32] = 0x1p-22, [XOP_F64] = 0x1p-50};
    return eps[dtype];
}
static double smallest(enum xop_dtype dtype) {
    static const double tiny[XOP_DTYPE_COUNT] = {
        [XOP_F16] = 0x1p-24, [XOP_BF16] = 0x1p-133, [XOP_F32] = 0x1p-149, [XOP_F64] = 0x1p-1074};
    return tiny[dtype];
}

static void assert_near(enum xop_dtype dtype, double got, double want, double size) {
    double allowed = relative(dtype) * size + smallest(dtype);
    if (isnan(want) ? !isnan(got)
                    : !(got == want || (isfinite(want) && fabs(got - want) <= allowed)))
        fail_msg("%s: %.17g instead of %.17g", xop_dtype_name(dtype), got, want);
}

struct pair {
    uint32_t x_rank, b_rank;
    int64_t x[XOP_MAX_RANK], b[XOP_MAX_RANK];
};
/* Every form, on both sides, below and above what is computed at once. */
static const struct pair pairs[] = {
    {0, 0, {0}, {0}},
    {1, 1, {1}, {1}},
    {1, 0, {0}, {0}},
    {2, 1, {0, 3}, {3}},
    {2, 2, {3, 0}, {3, 1}},
    {2, 2, {1, 4}, {0, 1}},
    {1, 1, {17}, {17}},
    {2, 2, {300, 301}, {300, 301}},
    {1, 0, {1027}, {0}},
    {0, 1, {0}, {1027}},
    {1, 1, {100003}, {1}},
    {1, 1, {1}, {100003}},
    {2, 1, {37, 41}, {41}},
    {2, 1, {3001, 3}, {3}},
    {2, 1, {3001, 128}, {128}},
    {2, 1, {5, 129}, {129}},
    {2, 1, {211, 523}, {523}},
    {1, 2, {523}, {211, 523}},
    {2, 2, {211, 523}, {211, 1}},
    {2, 2, {3001, 3}, {3001, 1}},
    {2, 2, {2, 70001}, {2, 1}},
    {2, 2, {211, 1}, {1, 523}},
    {2, 2, {1, 523}, {211, 1}},
    {4, 3, {3, 5, 7, 11}, {5, 1, 11}},
    {4, 4, {3, 1, 7, 1}, {1, 5, 1, 11}},
    {4, 4, {3, 5, 7, 11}, {1, 5, 1, 11}},
    {4, 4, {3, 5, 7, 11}, {3, 1, 7, 1}},
    {8, 8, {2, 1, 3, 1, 2, 1, 3, 1}, {1, 2, 1, 3, 1, 2, 1, 3}},
    {5, 3, {1, 1, 40, 3, 600}, {40, 1, 600}},
};
#define NPAIRS (sizeof pairs / sizeof *pairs)

/* Where operand holds what belongs to element i of full, from the definition. */
static int64_t source(const struct xop_tensor *operand, const struct xop_tensor *full, int64_t i) {
    int64_t at = 0, step = 1;
    for (uint32_t d = 1; d <= operand->rank; d++) {
        int64_t size = operand->shape[operand->rank - d], extent = full->shape[full->rank - d];
        at += size == 1 ? 0 : i % extent * step;
        i /= extent;
        step *= size;
    }
    return at;
}

static void check_forward(const struct xop_tensor *in, const struct xop_tensor *y) {
    int64_t n = 0;
    assert_true(xop_tensor_elements(y, &n));
    for (int64_t i = 0; i < n; i++) {
        double x = fixture_get(&in[0], source(&in[0], y, i));
        double b = fixture_get(&in[1], source(&in[1], y, i));
        assert_near(y->dtype, fixture_get(y, i), x * x + b, x * x + fabs(b));
    }
}

static void check_backward(const struct xop_tensor *in, const struct xop_tensor *out) {
    for (int which = 0; which < 2; which++) {
        const struct xop_tensor *operand = &in[which], *grad_y = &in[2], *grad = &out[which];
        int64_t n = 0, m = 0;
        double *sum, *size;
        assert_true(xop_tensor_elements(grad_y, &n));
        assert_true(xop_tensor_elements(operand, &m));
        sum = calloc((size_t)m + 1, sizeof *sum);
        size = calloc((size_t)m + 1, sizeof *size);
        for (int64_t i = 0; i < n; i++) {
            int64_t k = source(operand, grad_y, i);
            double term = fixture_get(grad_y, i);
            if (which == 0)
                term *= 2 * fixture_get(operand, k);
            sum[k] += term;
            size[k] += fabs(term);
        }
        for (int64_t k = 0; k < m; k++)
            assert_near(grad->dtype, fixture_get(grad, k), sum[k],
                        fabs(sum[k]) + size[k] * 1e-12 / relative(grad->dtype));
        free(sum);
        free(size);
    }
}

static void square_bias_agrees_with_a_plain_loop_in_every_form(void **state) {
    struct xop_backend *backend = fixture_open(3, 0);
    const struct xop_op *op = fixture_op("square_bias");
    (void)state;
    for (size_t d = 0; d < NDTYPES; d++)
        for (size_t p = 0; p < NPAIRS; p++) {
            struct xop_tensor in[3] = {fixture_random(dtypes[d], pairs[p].x_rank, pairs[p].x, 1),
                                       fixture_random(dtypes[d], pairs[p].b_rank, pairs[p].b, 2)};
            struct fixture_request forward, backward;
            fixture_run_one(backend, &forward, op, XOP_FORWARD, in, 1);
            check_forward(in, &forward.out[0]);
            in[2] = fixture_random(dtypes[d], forward.out[0].rank, forward.out[0].shape, 3);
            fixture_run_one(backend, &backward, op, XOP_BACKWARD, in, 3);
            check_backward(in, backward.out);
            fixture_finish(&forward);
            fixture_finish(&backward);
            for (int i = 0; i < 3; i++)
                fixture_free(&in[i]);
        }
    api->close(backend);
}

static void backward_needs_the_shape_of_b_only_and_what_is_wanted(void **state) {
    const int64_t shape[] = {300, 200};
    struct xop_backend *backend = fixture_open(1, 0);
    const struct xop_op *op = fixture_op("square_bias");
    (void)state;
    for (uint32_t wanted = 0; wanted < 4; wanted++) {
        struct xop_tensor in[3] = {fixture_random(XOP_F32, 2, shape, 1),
                                   {.dtype = XOP_F32, .rank = 1, .shape = {200}},
                                   fixture_random(XOP_F32, 2, shape, 2)};
        struct fixture_request all, some;
        fixture_run_one(backend, &all, op, XOP_BACKWARD, in, 3);
        fixture_run_one(backend, &some, op, XOP_BACKWARD, in, wanted);
        if (wanted & 1)
            assert_memory_equal(some.out[0].data, all.out[0].data, 300 * 200 * 4);
        if (wanted & 2)
            assert_memory_equal(some.out[1].data, all.out[1].data, 200 * 4);
        fixture_finish(&all);
        fixture_finish(&some);
        fixture_free(&in[0]);
        fixture_free(&in[2]);
    }
    api->close(backend);
}

/* All results of all forms with a backend of so many threads, one after the other. */
static unsigned char *all_results(uint32_t threads, size_t *length) {
    struct xop_backend *backend = fixture_open(threads, 0);
    const struct xop_op *op = fixture_op("square_bias");
    unsigned char *all = NULL;
    *length = 0;
    for (size_t d = 0; d < NDTYPES; d++)
        for (size_t p = 0; p < NPAIRS; p++) {
            struct xop_tensor in[3] = {fixture_random(dtypes[d], pairs[p].x_rank, pairs[p].x, 1),
                                       fixture_random(dtypes[d], pairs[p].b_rank, pairs[p].b, 2)};
            struct fixture_request run[2];
            fixture_run_one(backend, &run[0], op, XOP_FORWARD, in, 1);
            in[2] = fixture_random(dtypes[d], run[0].out[0].rank, run[0].out[0].shape, 3);
            fixture_run_one(backend, &run[1], op, XOP_BACKWARD, in, 3);
            for (int i = 0; i < 3; i++) {
                const struct xop_tensor *out = i < 1 ? &run[0].out[0] : &run[1].out[i - 1];
                uint64_t bytes = 0;
                assert_true(xop_tensor_bytes(out, &bytes));
                all = realloc(all, *length + bytes + 1);
                memcpy(all + *length, out->data, bytes);
                *length += bytes;
            }
            fixture_finish(&run[0]);
            fixture_finish(&run[1]);
            for (int i = 0; i < 3; i++)
                fixture_free(&in[i]);
        }
    api->close(backend);
    return all;
}

static void the_number_of_threads_changes_no_bit(void **state) {
    size_t one_length, many_length;
    unsigned char *one = all_results(1, &one_length), *many = all_results(7, &many_length);
    (void)state;
    assert_int_equal(one_length, many_length);
    assert_memory_equal(one, many, one_length);
    free(one);
    free(many);
}

static void a_group_gives_each_call_the_bits_it_gets_alone(void **state) {
    enum { CALLS = 100 };
    static struct fixture_request alone[CALLS], together[CALLS];
    static struct xop_call calls[CALLS];
    static const struct xop_plan *plans[CALLS];
    static struct xop_tensor in[CALLS][3];
    struct xop_backend *backend = fixture_open(3, 0);
    const struct xop_op *op = fixture_op("square_bias");
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        const int64_t shape[] = {i % 7 + 1, 500 * (i % 5) + 1};
        for (int k = 0; k < 3; k++)
            in[i][k] = fixture_random(XOP_F32, 2, shape, (uint32_t)(3 * i + k));
        fixture_free(&in[i][1]);
        in[i][1] = fixture_random(XOP_F32, 1, shape + 1, (uint32_t)i);
        fixture_run_one(backend, &alone[i], op, XOP_BACKWARD, in[i], 3);
        calls[i] = fixture_prepare(&together[i], op, XOP_BACKWARD, in[i], 3);
        plans[i] = &together[i].plan;
    }
    fixture_run(backend, op, XOP_BACKWARD, calls, plans, CALLS);
    for (int i = 0; i < CALLS; i++) {
        for (int k = 0; k < 2; k++) {
            uint64_t bytes = 0;
            assert_true(xop_tensor_bytes(&alone[i].out[k], &bytes));
            assert_memory_equal(alone[i].out[k].data, together[i].out[k].data, bytes);
        }
        fixture_finish(&alone[i]);
        fixture_finish(&together[i]);
        for (int k = 0; k < 3; k++)
            fixture_free(&in[i][k]);
    }
    api->close(backend);
}

static void results_may_take_their_inputs_place(void **state) {
    const int64_t shape[] = {300, 200}, column[] = {300, 1};
    struct xop_backend *backend = fixture_open(2, 0);
    const struct xop_op *op = fixture_op("square_bias");
    (void)state;
    for (int reduced = 0; reduced < 2; reduced++) {
        struct xop_tensor in[3] = {fixture_random(XOP_F16, 2, reduced ? column : shape, 1),
                                   fixture_random(XOP_F16, 2, shape, 2),
                                   fixture_random(XOP_F16, 2, shape, 3)};
        struct fixture_request apart, in_place;
        struct xop_call call;
        const struct xop_plan *plan = &in_place.plan;
        uint64_t bytes = 0;
        fixture_run_one(backend, &apart, op, XOP_BACKWARD, in, 3);
        call = fixture_prepare(&in_place, op, XOP_BACKWARD, in, 2);
        in_place.out[0].data = in[0].data;
        fixture_run(backend, op, XOP_BACKWARD, &call, &plan, 1);
        assert_true(xop_tensor_bytes(&in[0], &bytes));
        assert_memory_equal(in[0].data, apart.out[0].data, bytes);
        in_place.out[0].data = NULL;
        fixture_finish(&apart);
        fixture_finish(&in_place);
        for (int i = 0; i < 3; i++)
            fixture_free(&in[i]);
    }
    api->close(backend);
}

struct edge {
    double x, sigmoid, complement, bose;
};
static const struct edge edges[] = {
    {0.0, 0.5, 0.5, INFINITY}, {-0.0, 0.5, 0.5, -INFINITY},
    {INFINITY, 1, 0, 0},       {-INFINITY, 0, 1, -1},
    {NAN, NAN, NAN, NAN},      {1000, 1, 0, 0},
    {-1000, 0, 1, -1},         {60000, 1, 0, 0},
    {-60000, 0, 1, -1},
};

static void activations_keep_their_edge_values(void **state) {
    enum { N = sizeof edges / sizeof *edges };
    static const char *const names[] = {"sigmoid", "sigmoid_complement", "bose_einstein"};
    const int64_t shape[] = {N};
    struct xop_backend *backend = fixture_open(1, 0);
    (void)state;
    for (size_t d = 0; d < NDTYPES; d++)
        for (int k = 0; k < 3; k++) {
            struct xop_tensor x = fixture_random(dtypes[d], 1, shape, 1);
            struct fixture_request run;
            for (int i = 0; i < N; i++)
                fixture_set(&x, i, edges[i].x);
            fixture_run_one(backend, &run, fixture_op(names[k]), XOP_FORWARD, &x, 1);
            for (int i = 0; i < N; i++) {
                const struct edge *e = &edges[i];
                double want = k == 0 ? e->sigmoid : k == 1 ? e->complement : e->bose;
                double got = fixture_get(&run.out[0], i);
                assert_near(dtypes[d], got, want, 0);
                if (!isnan(want))
                    assert_int_equal(signbit(got) != 0, signbit(want) != 0);
            }
            fixture_finish(&run);
            fixture_free(&x);
        }
    api->close(backend);
}

/* From the definitions, in a precision in which none of them is delicate. */
static double activation(int kind, double x) {
    long double value = (long double)x, e = expl(-fabsl(value));
    if (kind == 2)
        return (double)(1 / expm1l(value));
    return (double)(((kind == 0) == (x < 0) ? e : 1) / (1 + e));
}
static double gradient(int kind, double y, double g) {
    return kind == 0 ? g * y * (1 - y) : kind == 1 ? -g * y * (1 - y) : -g * y * (y + 1);
}

static void activations_and_gradients_are_accurate_over_their_range(void **state) {
    static const char *const names[] = {"sigmoid", "sigmoid_complement", "bose_einstein"};
    static const double scales[] = {1e-30, 1e-8, 1e-3, 0.3, 1, 5, 50, 350};
    const int64_t shape[] = {8, 700};
    struct xop_backend *backend = fixture_open(1, 0);
    (void)state;
    for (size_t d = 0; d < NDTYPES; d++)
        for (int k = 0; k < 3; k++) {
            struct xop_tensor x = fixture_random(dtypes[d], 2, shape, 1), in[2];
            struct fixture_request forward, backward;
            for (int64_t i = 0; i < 8 * 700; i++)
                fixture_set(&x, i, fixture_get(&x, i) * scales[i / 700]);
            fixture_run_one(backend, &forward, fixture_op(names[k]), XOP_FORWARD, &x, 1);
            in[0] = forward.out[0];
            in[1] = fixture_random(dtypes[d], 2, shape, 2);
            fixture_run_one(backend, &backward, fixture_op(names[k]), XOP_BACKWARD, in, 1);
            for (int64_t i = 0; i < 8 * 700; i++) {
                double y = fixture_get(&in[0], i), g = fixture_get(&in[1], i);
                double want = activation(k, fixture_get(&x, i)), slope = gradient(k, y, g);
                double largest = dtypes[d] == XOP_F16 ? 65504 : dtypes[d] < XOP_F64 ? 3e38 : 1e308;
                if (fabs(want) < largest)
                    assert_near(dtypes[d], y, want, fabs(want));
                if (fabs(slope) < largest && isfinite(y))
                    assert_near(dtypes[d], fixture_get(&backward.out[0], i), slope, fabs(slope));
            }
            fixture_finish(&backward);
            fixture_finish(&forward);
            fixture_free(&x);
            fixture_free(&in[1]);
        }
    api->close(backend);
}

static void square_bias_keeps_infinities_and_nan(void **state) {
    static const double values[][3] = {{INFINITY, 1, INFINITY},
                                       {-INFINITY, INFINITY, INFINITY},
                                       {INFINITY, -INFINITY, NAN},
                                       {2, -INFINITY, -INFINITY},
                                       {NAN, 1, NAN},
                                       {1, NAN, NAN},
                                       {-0.0, -0.0, 0},
                                       {-3, -9, 0}};
    const int64_t shape[] = {8};
    struct xop_backend *backend = fixture_open(1, 0);
    (void)state;
    for (size_t d = 0; d < NDTYPES; d++) {
        struct xop_tensor in[2] = {fixture_random(dtypes[d], 1, shape, 1),
                                   fixture_random(dtypes[d], 1, shape, 1)};
        struct fixture_request run;
        for (int i = 0; i < 8; i++) {
            fixture_set(&in[0], i, values[i][0]);
            fixture_set(&in[1], i, values[i][1]);
        }
        fixture_run_one(backend, &run, fixture_op("square_bias"), XOP_FORWARD, in, 1);
        for (int i = 0; i < 8; i++)
            assert_near(dtypes[d], fixture_get(&run.out[0], i), values[i][2], 0);
        fixture_finish(&run);
        fixture_free(&in[0]);
        fixture_free(&in[1]);
    }
    api->close(backend);
}

/* A sum of ones in f16 would stop growing at 2048. */
static void long_sums_keep_their_precision(void **state) {
    const int64_t shape[] = {50010};
    struct xop_backend *backend = fixture_open(2, 0);
    struct xop_tensor in[3] = {fixture_random(XOP_F16, 1, shape, 1),
                               {.dtype = XOP_F16, .rank = 0},
                               fixture_random(XOP_F16, 1, shape, 1)};
    struct fixture_request run;
    (void)state;
    for (int64_t i = 0; i < shape[0]; i++)
        fixture_set(&in[2], i, 1);
    fixture_run_one(backend, &run, fixture_op("square_bias"), XOP_BACKWARD, in, 3);
    assert_true(fixture_get(&run.out[1], 0) == 50016); /* the nearest f16 */
    fixture_finish(&run);
    fixture_free(&in[0]);
    fixture_free(&in[2]);
    api->close(backend);
}

static void every_vector_extension_gives_the_same_bits(void **state) {
    enum { N = 1031 };
    static double p[N], q[N], want[N], got[N];
    const struct loops *best = loops_supported(0), *other;
    (void)state;
    for (uint32_t i = 1; (other = loops_supported(i)); i++)
        for (size_t d = 0; d < NDTYPES; d++) {
            const int64_t shape[] = {N};
            struct xop_tensor a = fixture_random(dtypes[d], 1, shape, 1);
            struct xop_tensor b = fixture_random(dtypes[d], 1, shape, 2);
            size_t bytes = N * xop_dtype_size(dtypes[d]);
            double sums[2];
            for (int k = 0; k < LOOPS_KINDS; k++) {
                loops_run(best, (enum loops_kind)k, dtypes[d], want, a.data, 1, b.data, 1, N);
                loops_run(other, (enum loops_kind)k, dtypes[d], got, a.data, 1, b.data, 1, N);
                assert_memory_equal(got, want, bytes);
            }
            sums[0] = loops_sum(best, dtypes[d], a.data, 0.3, N);
            sums[1] = loops_sum(other, dtypes[d], a.data, 0.3, N);
            assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
            memset(p, 0, sizeof p);
            memset(q, 0, sizeof q);
            loops_load(best, dtypes[d], want, a.data, N);
            loops_add(best, dtypes[d], p, b.data, want, N);
            loops_add(other, dtypes[d], q, b.data, want, N);
            assert_memory_equal(p, q, sizeof p);
            fixture_free(&a);
            fixture_free(&b);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(square_bias_agrees_with_a_plain_loop_in_every_form),
        cmocka_unit_test(backward_needs_the_shape_of_b_only_and_what_is_wanted),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(a_group_gives_each_call_the_bits_it_gets_alone),
        cmocka_unit_test(results_may_take_their_inputs_place),
        cmocka_unit_test(activations_keep_their_edge_values),
        cmocka_unit_test(activations_and_gradients_are_accurate_over_their_range),
        cmocka_unit_test(square_bias_keeps_infinities_and_nan),
        cmocka_unit_test(long_sums_keep_their_precision),
        cmocka_unit_test(every_vector_extension_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
