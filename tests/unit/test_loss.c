#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/loss.h"
#include "tests/unit/cpu_fixture.h"
#include <xop/check.h>

/* ---- How rows are cut ---- */

static void every_row_is_in_one_piece(void **state) {
    static const int64_t outers[] = {1, 2, 255, 257, 1000}, ns[] = {0, 1, 15, 17, 1000, 50257},
                         inners[] = {1, 2, 31, 32, 33, 1000};
    (void)state;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 6; j++)
            for (int k = 0; k < 6; k++) {
                struct row_size size = {outers[i], ns[j], inners[k]};
                struct loss_cut cut;
                int64_t first, end, next = 0;
                loss_classes_cut(&size, XOP_F16, &cut);
                for (int64_t piece = 0; piece < cut.pieces; piece++) {
                    loss_cut_rows(&size, &cut, piece, &first, &end);
                    assert_int_equal(first, next);
                    assert_true(end > first);
                    next = end;
                }
                assert_int_equal(next, size.outer * size.inner);
            }
}

static void where_there_are_no_rows_there_is_no_piece(void **state) {
    struct row_size size = {0, 10, 1};
    struct loss_cut cut;
    (void)state;
    loss_classes_cut(&size, XOP_F32, &cut);
    assert_int_equal(cut.pieces, 0);
    assert_int_equal(loss_pieces(0), 0);
    assert_int_equal(loss_pieces(LOSS_PIECE), 1);
    assert_int_equal(loss_pieces(LOSS_PIECE + 1), 2);
}

/* ---- Indices ---- */

/* Rows as many threads do: the first of many that are bad is named. */
static void the_first_bad_index_is_named(void **state) {
    const int64_t shape[] = {40000, 11}, bad[] = {-1, 11, INT64_MIN, INT64_MAX};
    static const char *const names[] = {"cross_entropy", "nll_loss"};
    struct xop_backend *backend = fixture_open(3, 1);
    (void)state;
    for (int which = 0; which < 8; which++) {
        const struct xop_op *op = fixture_op(names[which % 2]);
        const struct xop_attr attrs[] = {
            {"reduction", XOP_ATTR_STRING, 4, {.string = which & 4 ? "none" : "mean"}},
            {"ignore_index", XOP_ATTR_INT, 1, {.i = 3}},
            {"label_smoothing", XOP_ATTR_FLOAT, 1, {.f = 0}}};
        struct xop_tensor in[4] = {fixture_random(XOP_F32, 2, shape, 1)};
        struct fixture_request request;
        in[1] = (struct xop_tensor){.dtype = XOP_I64, .rank = 1, .shape = {shape[0]}};
        fixture_allocate(&in[1]);
        in[3] = fixture_random(XOP_F32, which & 4 ? 1 : 0, shape, 2);
        for (int64_t i = 0; i < shape[0]; i++)
            ((int64_t *)in[1].data)[i] = i % 11;
        for (int64_t i = 12345; i < shape[0]; i += 100)
            ((int64_t *)in[1].data)[i] = bad[which % 4];
        fixture_attrs = attrs;
        for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
            struct xop_bad_index found = {.at = UINT64_MAX};
            struct xop_call call = fixture_prepare(&request, op, (enum xop_pass)pass, in, 1);
            const struct xop_plan *plan = &request.plan;
            assert_int_equal(request.plan.index_limit, 11);
            call.bad_index = &found;
            fixture_run(backend, op, (enum xop_pass)pass, &call, &plan, 1);
            assert_int_equal(found.at, 12345);
            assert_int_equal(found.value, bad[which % 4]);
            fixture_finish(&request);
        }
        for (int i = 0; i < 4; i++)
            fixture_free(&in[i]);
    }
    fixture_attrs = NULL;
    api->close(backend);
}

static void the_least_position_stays(void **state) {
    struct xop_bad_index bad = {.at = UINT64_MAX};
    (void)state;
    xop_index_bad(&bad, 7);
    xop_index_bad(&bad, 9);
    assert_int_equal(bad.at, 7);
    xop_index_bad(&bad, 0);
    assert_int_equal(bad.at, 0);
}

/* ---- The same bits, whoever computes them ---- */

static void any_number_of_threads_gives_the_same_bits(void **state) {
    const int64_t shape[] = {30011, 7};
    struct xop_tensor in[3] = {fixture_random(XOP_F32, 2, shape, 1),
                               fixture_random(XOP_F32, 2, shape, 2)};
    const struct xop_attr mean[] = {{"reduction", XOP_ATTR_STRING, 4, {.string = "mean"}},
                                    {"ignore_index", XOP_ATTR_INT, 1, {.i = -100}},
                                    {"label_smoothing", XOP_ATTR_FLOAT, 1, {.f = 0}}};
    static const char *const names[] = {"mse_loss", "cross_entropy"};
    (void)state;
    fixture_attrs = mean;
    for (int which = 0; which < 2; which++) {
        float y[2];
        for (uint32_t threads = 0; threads < 2; threads++) {
            struct xop_backend *backend = fixture_open(1 + 4 * threads, 1);
            struct fixture_request request;
            fixture_run_one(backend, &request, fixture_op(names[which]), XOP_FORWARD, in, 1);
            y[threads] = *(const float *)request.out[0].data;
            fixture_finish(&request);
            api->close(backend);
        }
        assert_true(isfinite(y[0]));
        assert_memory_equal(&y[0], &y[1], sizeof y[0]);
    }
    fixture_attrs = NULL;
    fixture_free(&in[0]);
    fixture_free(&in[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_in_one_piece),
        cmocka_unit_test(where_there_are_no_rows_there_is_no_piece),
        cmocka_unit_test(the_first_bad_index_is_named),
        cmocka_unit_test(the_least_position_stays),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
