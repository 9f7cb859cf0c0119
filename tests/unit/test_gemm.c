#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/gemm.h"

static uint32_t seed = 1;

/* A small whole number: sums of products of them are exact in any order. */
static double whole(void) {
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 24 & 7) - 3;
}

static double get(enum xop_dtype dtype, const void *data, int64_t i) {
    return dtype == XOP_F32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static void set(enum xop_dtype dtype, void *data, int64_t i, double value) {
    if (dtype == XOP_F32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

#define OUTSIDE 77.0 /* between the rows of what is written */

/* A matrix whose rows are further apart than they are long. */
static struct gemm_matrix matrix(enum xop_dtype dtype, int64_t rows, int64_t columns,
                                 bool transposed) {
    int64_t lines = transposed ? columns : rows, length = transposed ? rows : columns;
    struct gemm_matrix made = {.step = length + 3, .transposed = transposed};
    size_t n = (size_t)(lines * made.step) + 1;
    void *data = calloc(n, xop_dtype_size(dtype));
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        set(dtype, data, (int64_t)i, OUTSIDE);
    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < length; j++)
            set(dtype, data, i * made.step + j, whole());
    made.data = data;
    return made;
}

static double at(enum xop_dtype dtype, const struct gemm_matrix *m, int64_t row, int64_t column) {
    return get(dtype, m->data, m->transposed ? column * m->step + row : row * m->step + column);
}

static void check(const struct loops *loops, const struct blas *blas, enum xop_dtype dtype,
                  int64_t rows, int64_t columns, int64_t inner, bool ta, bool tb) {
    struct gemm_matrix a = matrix(dtype, rows, inner, ta), b = matrix(dtype, inner, columns, tb);
    struct gemm_matrix c = matrix(dtype, rows, columns, false);
    size_t bytes = (size_t)(rows * c.step + 1) * xop_dtype_size(dtype);
    void *before = malloc(bytes);
    struct gemm_matrix was = {before, c.step, false};
    struct gemm gemm = {dtype, rows, columns, inner, a, b, (void *)(uintptr_t)c.data, c.step};

    assert_non_null(before);
    memcpy(before, c.data, bytes);
    gemm_run(loops, blas, &gemm);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double want = at(dtype, &was, i, j);
            for (int64_t k = 0; k < inner; k++)
                want += at(dtype, &a, i, k) * at(dtype, &b, k, j);
            if (at(dtype, &c, i, j) != want)
                fail_msg("%s %s, %lld %lld %lld, %d%d: c[%lld][%lld] is %g, not %g",
                         blas ? blas->name : loops->name, xop_dtype_name(dtype), (long long)rows,
                         (long long)columns, (long long)inner, ta, tb, (long long)i, (long long)j,
                         at(dtype, &c, i, j), want);
        }
        for (int64_t j = columns; j < c.step; j++)
            assert_true(at(dtype, &c, i, j) == OUTSIDE);
    }
    free((void *)(uintptr_t)a.data);
    free((void *)(uintptr_t)b.data);
    free((void *)(uintptr_t)c.data);
    free(before);
}

/* Around the tile of registers, and around each block. */
static const int64_t sizes[][3] = {
    {0, 3, 3},     {3, 0, 3},     {3, 3, 0},    {1, 1, 1},       {5, 15, 2},     {6, 16, 7},
    {7, 17, 1},    {1, 33, 257},  {12, 1, 300}, {95, 127, 255},  {96, 128, 256}, {97, 129, 257},
    {193, 31, 40}, {31, 257, 40}, {5, 9, 5003}, {130, 140, 520},
};

static void check_all(const struct loops *loops, const struct blas *blas) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int form = 0; form < 4; form++)
            for (int k = 0; k < 2; k++)
                check(loops, blas, k ? XOP_F64 : XOP_F32, sizes[i][0], sizes[i][1], sizes[i][2],
                      form & 1, form & 2);
}

static void our_loops_are_exact_with_every_vector_extension(void **state) {
    (void)state;
    for (uint32_t i = 0; loops_supported(i); i++)
        check_all(loops_supported(i), NULL);
}

static void the_library_is_exact_where_it_is(void **state) {
    (void)state;
    unsetenv("XOP_CPU_BLAS");
    blas_open();
    if (!blas_best())
        skip();
    check_all(loops_best(), blas_best());
}

static void the_library_can_be_turned_off_and_on(void **state) {
    const struct blas *there;
    (void)state;
    unsetenv("XOP_CPU_BLAS");
    blas_open();
    there = blas_best();
    setenv("XOP_CPU_BLAS", "none", 1);
    blas_open();
    assert_null(blas_best());
    unsetenv("XOP_CPU_BLAS");
    blas_open();
    assert_ptr_equal(blas_best(), there);
}

static void every_vector_extension_gives_the_same_bits(void **state) {
    enum { M = 37, N = 53, K = 611 };
    static float a[M * K], b[K * N], first[M * N], c[M * N];
    struct gemm gemm = {XOP_F32, M, N, K, {a, K, false}, {b, N, false}, first, N};
    (void)state;
    for (int i = 0; i < M * K; i++)
        a[i] = (float)whole() / 3;
    for (int i = 0; i < K * N; i++)
        b[i] = (float)whole() / 7;
    gemm_run(loops_supported(0), NULL, &gemm);
    gemm.c = c;
    for (uint32_t i = 1; loops_supported(i); i++) {
        memset(c, 0, sizeof c);
        gemm_run(loops_supported(i), NULL, &gemm);
        assert_memory_equal(c, first, sizeof c);
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double want = 0, size = 0;
            for (int k = 0; k < K; k++) {
                want += (double)a[i * K + k] * (double)b[k * N + j];
                size += fabs((double)a[i * K + k] * (double)b[k * N + j]);
            }
            assert_true(fabs((double)first[i * N + j] - want) <= K * 0x1p-24 * size);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_loops_are_exact_with_every_vector_extension),
        cmocka_unit_test(the_library_is_exact_where_it_is),
        cmocka_unit_test(the_library_can_be_turned_off_and_on),
        cmocka_unit_test(every_vector_extension_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
