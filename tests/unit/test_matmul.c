#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/reference/reference.h"
#include "kernels/cpu/blas.h"
#include "kernels/matmul.h"
#include "tests/unit/cpu_fixture.h"

static const enum xop_dtype dtypes[] = {XOP_F16, XOP_BF16, XOP_F32, XOP_F64};
#define NDTYPES 4

struct shapes {
    uint32_t a_rank, b_rank;
    int64_t a[XOP_MAX_RANK], b[XOP_MAX_RANK];
    int transpose_a, transpose_b;
};
static const struct shapes shapes[] = {
    {1, 1, {7}, {7}, 0, 0},
    {2, 1, {3, 7}, {7}, 0, 0},
    {1, 3, {7}, {4, 7, 2}, 0, 0},
    {3, 1, {4, 3, 7}, {7}, 0, 0},
    {2, 2, {7, 3}, {7, 5}, 1, 0},
    {2, 2, {3, 7}, {5, 7}, 0, 1},
    {3, 2, {6, 7, 3}, {5, 7}, 1, 1},
    {2, 3, {3, 7}, {6, 7, 5}, 0, 0},
    {4, 3, {2, 1, 3, 7}, {4, 7, 5}, 0, 0},
    {6, 6, {2, 1, 2, 1, 3, 7}, {1, 3, 1, 2, 5, 7}, 0, 1},
    {3, 3, {300, 3, 7}, {1, 7, 5}, 0, 0},
    {3, 3, {1, 7, 3}, {300, 7, 5}, 1, 0},
    {3, 2, {0, 3, 7}, {7, 5}, 0, 0},
    {3, 3, {2, 3, 0}, {2, 0, 5}, 0, 0},
    {2, 2, {130, 257}, {131, 257}, 0, 1},
    {3, 3, {3, 129, 65}, {3, 129, 67}, 1, 0},
};
#define NSHAPES (sizeof shapes / sizeof *shapes)

static const struct xop_attr *attrs_of(const struct shapes *s) {
    static struct xop_attr attrs[4];
    for (int i = 0; i < 4; i++)
        attrs[i] = matmul_declaration.attrs[i].fallback;
    attrs[0].value.i = s->transpose_a;
    attrs[1].value.i = s->transpose_b;
    return attrs;
}

/* Small whole numbers, so that every sum is exact. */
static struct xop_tensor whole(enum xop_dtype dtype, uint32_t rank, const int64_t *shape,
                               uint32_t seed) {
    struct xop_tensor made = fixture_random(dtype, rank, shape, seed);
    int64_t n = 0;
    assert_true(xop_tensor_elements(&made, &n));
    for (int64_t i = 0; i < n; i++)
        fixture_set(&made, i, floor(fixture_get(&made, i)));
    return made;
}

static struct reference_tensor mirror(const struct xop_tensor *tensor) {
    struct reference_tensor made = {.rank = tensor->rank};
    memcpy(made.shape, tensor->shape, sizeof made.shape);
    assert_true(xop_tensor_elements(tensor, &made.n));
    made.data = calloc((size_t)made.n + 1, sizeof *made.data);
    made.scale = calloc((size_t)made.n + 1, sizeof *made.scale);
    assert_true(made.data && made.scale);
    for (int64_t i = 0; tensor->data && i < made.n; i++)
        made.data[i] = fixture_get(tensor, i);
    return made;
}

static void judge(const struct shapes *s, enum xop_pass pass, const struct xop_tensor *in,
                  const struct xop_tensor *out) {
    const struct reference *reference = reference_find("matmul");
    struct reference_setting setting = {.nattrs = 2};
    struct reference_arithmetic arithmetic = {.max = INFINITY, .setting = &setting};
    struct reference_tensor from[3] = {0}, to[2] = {0};
    uint32_t nin = pass == XOP_FORWARD ? 2 : 3, nout = pass == XOP_FORWARD ? 1 : 2;

    memcpy(setting.attr, attrs_of(s), 2 * sizeof *setting.attr);
    setting.attr[0].name = "transpose_a";
    setting.attr[1].name = "transpose_b";
    for (uint32_t i = 0; i < nin; i++)
        from[i] = mirror(&in[i]);
    for (uint32_t i = 0; i < nout; i++)
        to[i] = mirror(&out[i]);
    assert_true(reference->shape_for(&setting, pass, from, to));
    (pass == XOP_FORWARD ? reference->forward : reference->backward)(&arithmetic, from, to);
    for (uint32_t i = 0; i < nout; i++) {
        assert_int_equal(out[i].rank, to[i].rank);
        assert_memory_equal(out[i].shape, to[i].shape, to[i].rank * sizeof *to[i].shape);
        for (int64_t k = 0; k < to[i].n; k++) {
            double got = fixture_get(&out[i], k), want = to[i].data[k];
            /* The sum is exact and rounded once. */
            struct xop_tensor rounded = {out[i].dtype, 0, {0}, &(uint64_t){0}};
            fixture_set(&rounded, 0, want);
            if (got != fixture_get(&rounded, 0))
                fail_msg("%s shapes %zu pass %d output %u[%lld] is %.17g, not %.17g",
                         xop_dtype_name(out[i].dtype), (size_t)(s - shapes), pass, i, (long long)k,
                         got, want);
        }
    }
    for (int i = 0; i < 3; i++) {
        free(from[i].data);
        free(from[i].scale);
    }
    for (int i = 0; i < 2; i++) {
        free(to[i].data);
        free(to[i].scale);
    }
}

static void check(struct xop_backend *backend, enum xop_dtype dtype, const struct shapes *s) {
    const struct xop_op *op = fixture_op("matmul");
    struct fixture_request forward, backward, alone;
    struct xop_tensor in[3] = {whole(dtype, s->a_rank, s->a, 1), whole(dtype, s->b_rank, s->b, 2)};

    fixture_attrs = attrs_of(s);
    fixture_run_one(backend, &forward, op, XOP_FORWARD, in, 1);
    judge(s, XOP_FORWARD, in, forward.out);
    in[2] = whole(dtype, forward.out[0].rank, forward.out[0].shape, 3);
    fixture_run_one(backend, &backward, op, XOP_BACKWARD, in, 3);
    judge(s, XOP_BACKWARD, in, backward.out);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t bytes = 0;
        fixture_run_one(backend, &alone, op, XOP_BACKWARD, in, 1u << i);
        assert_true(xop_tensor_bytes(&alone.out[i], &bytes));
        assert_memory_equal(alone.out[i].data, backward.out[i].data, bytes);
        fixture_finish(&alone);
    }
    fixture_finish(&forward);
    fixture_finish(&backward);
    for (int i = 0; i < 3; i++)
        fixture_free(&in[i]);
    fixture_attrs = NULL;
}

static void every_sum_of_whole_numbers_is_exact(void **state) {
    (void)state;
    for (int ours = 0; ours < 2; ours++) {
        struct xop_backend *backend;
        if (ours)
            setenv("XOP_CPU_BLAS", "none", 1);
        backend = fixture_open(2, 1);
        if (ours)
            assert_null(blas_best());
        for (int d = 0; d < NDTYPES; d++)
            for (size_t i = 0; i < NSHAPES; i++)
                check(backend, dtypes[d], &shapes[i]);
        api->close(backend);
        unsetenv("XOP_CPU_BLAS");
    }
}

/* ---- How products are cut ---- */

static struct product product_for(enum xop_pass pass, int result, const struct shapes *s) {
    struct xop_tensor in[3] = {{XOP_F16, s->a_rank, {0}, NULL}, {XOP_F16, s->b_rank, {0}, NULL}};
    struct xop_call call = {.in = in, .attrs = attrs_of(s)};
    struct product product;
    memcpy(in[0].shape, s->a, sizeof s->a);
    memcpy(in[1].shape, s->b, sizeof s->b);
    matmul_product(&call, pass, result, &product);
    return product;
}

static void a_batch_of_one_matrix_is_one_product(void **state) {
    const struct shapes tall = {3, 2, {64, 5, 7}, {7, 3}, 0, 0};
    struct product y = product_for(XOP_FORWARD, MATMUL_Y, &tall);
    struct product grad_b = product_for(XOP_BACKWARD, MATMUL_GRAD_B, &tall);
    struct product grad_a = product_for(XOP_BACKWARD, MATMUL_GRAD_A, &tall);
    (void)state;
    assert_int_equal(y.ndims, 0);
    assert_int_equal(y.rows, 64 * 5);
    assert_int_equal(grad_a.ndims, 0);
    assert_int_equal(grad_a.rows, 64 * 5);
    assert_int_equal(grad_b.ndims, 0); /* one long sum, not 64 */
    assert_int_equal(grad_b.inner, 64 * 5);
    assert_int_equal(grad_b.rows, 7);
}

static void sums_over_a_batch_are_dealt_out_to_slices(void **state) {
    const struct shapes wide = {3, 2, {1000, 7, 5}, {7, 3}, 1, 0};
    const struct shapes large = {3, 2, {9, 4096, 5}, {4096, 4096}, 1, 0};
    struct product grad_b = product_for(XOP_BACKWARD, MATMUL_GRAD_B, &wide);
    struct product_cut cut;
    (void)state;
    assert_int_equal(grad_b.ndims, 1);
    assert_int_equal(product_terms(&grad_b), 1000);
    assert_int_equal(product_kept(&grad_b), 1);
    product_cut_of(&grad_b, &cut);
    assert_int_equal(cut.lane, 0);
    assert_int_equal(cut.slices, 512);
    assert_true(cut.apart);
    assert_int_equal(cut.sum_bytes, (512 * 7 * 3 * 4 + 255) / 256 * 256);
    /* One slice is enough where it is large, in f32 for f16 and where it is for f32. */
    grad_b = product_for(XOP_BACKWARD, MATMUL_GRAD_B, &large);
    product_cut_of(&grad_b, &cut);
    assert_int_equal(cut.slices, 1);
    assert_true(cut.apart);
    assert_int_equal(cut.sum_bytes, INT64_C(4) * 4096 * 4096);
    grad_b.dtype = XOP_F32;
    product_cut_of(&grad_b, &cut);
    assert_false(cut.apart);
    assert_int_equal(cut.sum_bytes, 0);
}

/* The places that the cut leads to are those of the definition, each once. */
static void places_are_where_matrices_begin(void **state) {
    const struct shapes both = {4, 4, {2, 1, 3, 7}, {1, 5, 7, 4}, 0, 0};
    struct product p = product_for(XOP_BACKWARD, MATMUL_GRAD_A, &both);
    (void)state;
    assert_int_equal(product_kept(&p), 2);
    assert_int_equal(product_terms(&p), 5);
    for (int64_t kept = 0; kept < 2; kept++)
        for (int64_t term = 0; term < 5; term++) {
            struct product_place at = product_place_of(&p, kept, term);
            assert_int_equal(at.a, (kept * 5 + term) * 3 * 4); /* grad_y */
            assert_int_equal(at.b, term * 7 * 4);
            assert_int_equal(at.c, kept * 3 * 7);
        }
}

static void the_workspace_is_the_larger_gradients(void **state) {
    const struct shapes wide = {3, 2, {1000, 7, 5}, {7, 3}, 1, 0};
    struct xop_tensor in[3] = {{XOP_F16, 3, {1000, 7, 5}, NULL},
                               {XOP_F16, 2, {7, 3}, NULL},
                               {XOP_F16, 3, {1000, 5, 3}, NULL}};
    struct xop_call call = {.in = in, .attrs = attrs_of(&wide)};
    struct xop_plan plan = {0}, with = {0};
    struct xop_error error;
    (void)state;
    assert_int_equal(matmul_declaration.pass[XOP_BACKWARD].infer(&call, &plan, &error), XOP_OK);
    assert_int_equal(matmul_workspace_declaration.pass[XOP_BACKWARD].infer(&call, &with, &error),
                     XOP_OK);
    assert_int_equal(plan.workspace_bytes, 0);
    /* For grad_a, the larger: 16 pieces in f32 of each of 1000 matrices. */
    assert_int_equal(with.workspace_bytes, 1000 * 7 * 5 * 64);
    assert_int_equal(plan.flops, 2 * 2 * 1000 * 7 * 5 * 3);
}

static void no_output_may_be_in_place(void **state) {
    (void)state;
    for (int pass = 0; pass < XOP_PASS_COUNT; pass++)
        for (uint32_t i = 0; i < matmul_declaration.pass[pass].nout; i++)
            assert_false(matmul_declaration.pass[pass].out[i].flags & XOP_OPERAND_IN_PLACE);
}

static void a_product_that_is_too_large_is_refused(void **state) {
    const int64_t huge = INT64_C(1) << 40;
    struct xop_tensor in[2] = {{XOP_F32, 2, {huge, 0}, NULL}, {XOP_F32, 2, {0, huge}, NULL}};
    struct xop_call call = {.in = in};
    struct xop_plan plan = {0};
    struct xop_error error = {XOP_OK, ""};
    (void)state;
    assert_int_equal(matmul_declaration.pass[XOP_FORWARD].infer(&call, &plan, &error),
                     XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "would exceed 2^63-1 bytes"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sum_of_whole_numbers_is_exact),
        cmocka_unit_test(a_batch_of_one_matrix_is_one_product),
        cmocka_unit_test(sums_over_a_batch_are_dealt_out_to_slices),
        cmocka_unit_test(places_are_where_matrices_begin),
        cmocka_unit_test(the_workspace_is_the_larger_gradients),
        cmocka_unit_test(no_output_may_be_in_place),
        cmocka_unit_test(a_product_that_is_too_large_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
