#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/loops.h"
#include "kernels/row.h"
#include "tests/unit/cpu_fixture.h"

static const char *const names[] = {"softmax", "log_softmax", "layer_norm", "rms_norm"};

/* ---- How a tensor is seen ---- */

static struct row_size softmax_size(uint32_t rank, const int64_t *shape, int64_t dim) {
    struct xop_tensor x = {.dtype = XOP_F32, .rank = rank};
    struct xop_attr attr = {.type = XOP_ATTR_INT, .value.i = dim};
    struct xop_call call = {.in = &x, .attrs = &attr};
    struct row_size size;
    memcpy(x.shape, shape, rank * sizeof *shape);
    row_softmax_measure(&call, &size);
    return size;
}

static void check_size(struct row_size size, int64_t outer, int64_t n, int64_t inner) {
    assert_int_equal(size.outer, outer);
    assert_int_equal(size.n, n);
    assert_int_equal(size.inner, inner);
}

static void a_dimension_makes_rows(void **state) {
    const int64_t shape[] = {2, 3, 5, 7}, empty[] = {INT64_MAX, 0, INT64_MAX};
    (void)state;
    check_size(softmax_size(4, shape, 0), 1, 2, 105);
    check_size(softmax_size(4, shape, 1), 2, 3, 35);
    check_size(softmax_size(4, shape, 3), 30, 7, 1);
    check_size(softmax_size(4, shape, -1), 30, 7, 1);
    check_size(softmax_size(4, shape, -4), 1, 2, 105);
    check_size(softmax_size(0, shape, -1), 1, 1, 1);
    check_size(softmax_size(3, empty, 0), 0, 0, 1);
}

static struct row_size norm_size(uint32_t rank, const int64_t *shape, uint32_t dims) {
    struct xop_tensor x = {.dtype = XOP_F32, .rank = rank};
    struct xop_attr attrs[2] = {{.type = XOP_ATTR_INTS, .count = dims}};
    struct xop_call call = {.in = &x, .attrs = attrs};
    struct row_size size;
    memcpy(x.shape, shape, rank * sizeof *shape);
    row_norm_measure(&call, &size);
    return size;
}

static void the_last_dimensions_make_rows(void **state) {
    const int64_t shape[] = {2, 3, 5}, no_rows[] = {4, 0, 5}, empty[] = {INT64_MAX, INT64_MAX, 0};
    (void)state;
    check_size(norm_size(3, shape, 0), 6, 5, 1);
    check_size(norm_size(3, shape, 1), 6, 5, 1);
    check_size(norm_size(3, shape, 2), 2, 15, 1);
    check_size(norm_size(3, shape, 3), 1, 30, 1);
    check_size(norm_size(3, no_rows, 1), 0, 5, 1);
    assert_int_equal(norm_size(3, empty, 1).n, 0);
}

/* Every row is in one piece, pieces are in order, and what they need is bounded. */
static void columns_are_cut_by_the_shape(void **state) {
    static const int64_t rows[] = {1, 15, 16, 17, 4096, 4097, 1000003},
                         n[] = {1, 64, 4096, 5000000};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
            struct row_size size = {rows[i], n[k], 1};
            struct row_columns columns;
            row_norm_columns(&size, XOP_F32, &columns);
            assert_in_range(columns.pieces, 1, 256);
            assert_true((columns.pieces - 1) * columns.piece < rows[i]);
            assert_true(columns.pieces * columns.piece >= rows[i]);
            assert_true(columns.pieces == 1 || columns.pieces * n[k] <= 1 << 20);
            assert_true(columns.stats_offset >= columns.pieces * (uint64_t)n[k] * 16);
            assert_true(columns.workspace_bytes - columns.stats_offset >=
                        (n[k] > 4096 ? (uint64_t)rows[i] * 16 : 0));
        }
    struct row_size none = {0, 5, 1};
    struct row_columns columns;
    row_norm_columns(&none, XOP_F32, &columns);
    assert_int_equal(columns.pieces, 0);
}

static void what_is_read_once_is_said(void **state) {
    struct row_size kept = {9, 4096, 1}, apart = {9, 4096, 2}, large = {9, 4100, 1};
    (void)state;
    assert_true(row_kept(&kept, XOP_F32));
    assert_false(row_kept(&kept, XOP_F64));
    assert_false(row_kept(&apart, XOP_F32));
    assert_false(row_kept(&large, XOP_F32));
    assert_true(row_kept(&large, XOP_BF16));
    assert_true(row_kept_backward(&kept, XOP_BF16));
    assert_false(row_kept_backward(&large, XOP_BF16)); /* its sums are in f32 */
}

/* ---- Loops ---- */

#define N 1999

static void fill(double *values, uint32_t seed) {
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (double)(seed >> 8) / (1 << 21) - 4;
    }
}

/* What every loop makes of the same numbers. */
static void run_loops(const struct row_loops *loops, double *out) {
    const struct row_stats stats = {0.25, 1.5};
    double x[N], g[N], w[N], b[N], uh = 0;
    fill(x, 1);
    fill(g, 2);
    fill(w, 3);
    fill(b, 4);
    double most = loops->max(x, -INFINITY, N), at[8];
    at[0] = most;
    at[1] = loops->exp_sum(out, x, most, N);
    at[2] = loops->sum(x, N);
    at[3] = loops->dot(x, g, N);
    at[4] = loops->squares(x, 0.5, N);
    at[5] = loops->norm_sums(out + N, &uh, x, stats, g, w, N);
    at[6] = uh;
    at[7] = 0;
    loops->softmax(out + 2 * N, out, at[1], N);
    loops->log_softmax(out + 3 * N, x, most, log(at[1]), N);
    loops->softmax_grad(out + 4 * N, x, g, at[3], N);
    loops->log_softmax_grad(out + 5 * N, x, g, at[2], N);
    loops->norm(out + 6 * N, x, stats, w, b, N);
    loops->norm_columns(w, b, x, stats, g, N);
    loops->norm_grad(out + 7 * N, x, stats, out + N, 0.5, 0.25, N);
    memcpy(out + 8 * N, w, sizeof w);
    memcpy(out + 9 * N, b, sizeof b);
    memcpy(out + 10 * N, at, sizeof at);
}

static void every_extension_gives_the_same_bits(void **state) {
    static double best[10 * N + 8], other[10 * N + 8];
    (void)state;
    run_loops(loops_best()->rows, best);
    for (uint32_t i = 0; loops_supported(i); i++) {
        memset(other, 0, sizeof other);
        run_loops(loops_supported(i)->rows, other);
        assert_memory_equal(best, other, sizeof best);
    }
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += best[2 * N + i];
    assert_true(fabs(sum - 1) < 1e-12);
}

/* ---- Requests ---- */

struct shape {
    uint32_t rank;
    int64_t shape[3];
};
static const struct shape shapes[] = {{2, {3, 0}},     {2, {0, 5}},    {1, {1}},
                                      {2, {700, 129}}, {2, {3, 5000}}, {3, {17, 30, 40}}};

/* Attributes of the operators, all along the last dimension. */
static const struct xop_attr softmax_attrs[] = {{"dim", XOP_ATTR_INT, 1, {.i = -1}}};
static const struct xop_attr column_attrs[] = {{"dim", XOP_ATTR_INT, 1, {.i = 0}}};
static const struct xop_attr norm_attrs[] = {{"normalized_shape", XOP_ATTR_INTS, 0, {.ints = NULL}},
                                             {"eps", XOP_ATTR_FLOAT, 1, {.f = 1e-3}}};

static bool is_norm(int op) { return op > 1; }

/* x and the parameters forward; what backward takes, any y doing. */
static uint32_t make(int op, enum xop_pass pass, enum xop_dtype dtype, const struct shape *shape,
                     struct xop_tensor in[3]) {
    uint32_t nin = is_norm(op) ? 3 : 1u + pass;
    memset(in, 0, 3 * sizeof *in);
    for (uint32_t i = 0; i < nin; i++)
        if (is_norm(op) && (i == 1 || (i == 2 && pass == XOP_FORWARD)))
            in[i] = fixture_random(dtype, 1, &shape->shape[shape->rank - 1], i);
        else
            in[i] = fixture_random(dtype, shape->rank, shape->shape, i);
    return nin;
}

static bool same(const struct xop_tensor *a, const struct xop_tensor *b) {
    uint64_t bytes = 0;
    assert_true(xop_tensor_bytes(a, &bytes));
    return memcmp(a->data, b->data, bytes) == 0;
}

/* Whatever the number of threads, and whatever else is wanted. */
static void the_same_request_gives_the_same_bits(void **state) {
    struct xop_backend *one = fixture_open(1, 1), *many = fixture_open(4, 2);
    (void)state;
    for (int op = 0; op < 4; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int pass = 0; pass < XOP_PASS_COUNT; pass++)
                for (int column = 0; column < (is_norm(op) ? 1 : 2); column++) {
                    const struct xop_op *what = fixture_op(names[op]);
                    uint32_t nout = what->pass[pass].nout;
                    struct fixture_request alone, among, some;
                    struct xop_tensor in[3];
                    fixture_attrs = is_norm(op) ? norm_attrs
                                    : column    ? column_attrs
                                                : softmax_attrs;
                    make(op, (enum xop_pass)pass, XOP_F32, &shapes[i], in);
                    fixture_run_one(one, &alone, what, (enum xop_pass)pass, in, 7);
                    fixture_run_one(many, &among, what, (enum xop_pass)pass, in, 7);
                    for (uint32_t k = 0; k < nout; k++) {
                        assert_true(same(&alone.out[k], &among.out[k]));
                        fixture_run_one(many, &some, what, (enum xop_pass)pass, in, 1u << k);
                        assert_true(same(&alone.out[k], &some.out[k]));
                        fixture_finish(&some);
                    }
                    fixture_finish(&alone);
                    fixture_finish(&among);
                    for (int k = 0; k < 3; k++)
                        fixture_free(&in[k]);
                }
    fixture_attrs = NULL;
    api->close(one);
    api->close(many);
}

/* Results take their input's place where the declaration allows it. */
static void results_take_their_inputs_place(void **state) {
    struct xop_backend *backend = fixture_open(2, 1);
    (void)state;
    for (int op = 0; op < 4; op++)
        for (int pass = 0; pass < XOP_PASS_COUNT; pass++)
            for (int column = 0; column < (is_norm(op) ? 1 : 2); column++) {
                const struct xop_op *what = fixture_op(names[op]);
                const struct shape shape = {2, {37, 2500}};
                struct fixture_request apart, there;
                struct xop_tensor in[3];
                if (!(what->pass[pass].out[0].flags & XOP_OPERAND_IN_PLACE))
                    continue;
                fixture_attrs = is_norm(op) ? norm_attrs : column ? column_attrs : softmax_attrs;
                make(op, (enum xop_pass)pass, XOP_F32, &shape, in);
                fixture_run_one(backend, &apart, what, (enum xop_pass)pass, in, 1);
                struct xop_call call = fixture_prepare(&there, what, (enum xop_pass)pass, in, 0);
                const struct xop_plan *plan = &there.plan;
                there.out[0].data = in[0].data;
                fixture_run(backend, what, (enum xop_pass)pass, &call, &plan, 1);
                assert_true(same(&apart.out[0], &in[0]));
                there.out[0].data = NULL;
                fixture_finish(&apart);
                fixture_finish(&there);
                for (int k = 0; k < 3; k++)
                    fixture_free(&in[k]);
            }
    fixture_attrs = NULL;
    api->close(backend);
}

static void half_types_are_rounded_at_the_end(void **state) {
    struct xop_backend *backend = fixture_open(1, 1);
    const struct shape shape = {2, {5, 300}};
    (void)state;
    for (int op = 0; op < 4; op++)
        for (enum xop_dtype dtype = XOP_F16; dtype <= XOP_BF16; dtype++) {
            const struct xop_op *what = fixture_op(names[op]);
            struct fixture_request narrow, wide;
            struct xop_tensor in[3], exact[3];
            int64_t n = 0;
            fixture_attrs = is_norm(op) ? norm_attrs : softmax_attrs;
            make(op, XOP_FORWARD, dtype, &shape, in);
            for (int k = 0; k < 3; k++) {
                exact[k] = in[k];
                if (!in[k].data)
                    continue;
                exact[k].dtype = XOP_F64;
                fixture_allocate(&exact[k]);
                assert_true(xop_tensor_elements(&in[k], &n));
                for (int64_t i = 0; i < n; i++)
                    fixture_set(&exact[k], i, fixture_get(&in[k], i));
            }
            fixture_run_one(backend, &narrow, what, XOP_FORWARD, in, 1);
            fixture_run_one(backend, &wide, what, XOP_FORWARD, exact, 1);
            assert_true(xop_tensor_elements(&narrow.out[0], &n));
            struct xop_tensor rounded = narrow.out[0];
            fixture_allocate(&rounded);
            for (int64_t i = 0; i < n; i++)
                fixture_set(&rounded, i, fixture_get(&wide.out[0], i));
            assert_true(same(&rounded, &narrow.out[0]));
            fixture_free(&rounded);
            fixture_finish(&narrow);
            fixture_finish(&wide);
            for (int k = 0; k < 3; k++) {
                fixture_free(&in[k]);
                fixture_free(&exact[k]);
            }
        }
    fixture_attrs = NULL;
    api->close(backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dimension_makes_rows),
        cmocka_unit_test(the_last_dimensions_make_rows),
        cmocka_unit_test(columns_are_cut_by_the_shape),
        cmocka_unit_test(what_is_read_once_is_said),
        cmocka_unit_test(every_extension_gives_the_same_bits),
        cmocka_unit_test(the_same_request_gives_the_same_bits),
        cmocka_unit_test(results_take_their_inputs_place),
        cmocka_unit_test(half_types_are_rounded_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
