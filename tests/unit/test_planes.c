#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/planes.h"
#include "tests/unit/cpu_fixture.h"

static struct planes_plan measured(bool batch, enum xop_pass pass, uint32_t rank,
                                   const int64_t *shape, int64_t groups) {
    struct xop_tensor x = {.dtype = XOP_F32, .rank = rank};
    struct xop_attr attrs[3] = {{.type = XOP_ATTR_INT, .value.i = batch ? 1 : groups}};
    struct xop_call call = {.in = &x, .attrs = attrs};
    struct planes_plan plan;
    memcpy(x.shape, shape, rank * sizeof *shape);
    planes_measure(pass, &call, batch, &plan);
    return plan;
}

static void check_strands(const struct planes_strands *strands, int64_t count, int64_t n,
                          int64_t run, int64_t step, int64_t stride) {
    assert_int_equal(strands->strands, count);
    assert_int_equal(strands->n, n);
    assert_int_equal(strands->run, run);
    assert_int_equal(strands->step, step);
    if (n > run)
        assert_int_equal(strands->stride, stride);
}

static void what_is_normalized_together_is_found(void **state) {
    const int64_t shape[] = {5, 6, 3, 7}, flat[] = {9, 4}, empty[] = {0, INT64_MAX, INT64_MAX};
    (void)state;
    struct planes_plan groups = measured(false, XOP_BACKWARD, 4, shape, 2);
    check_strands(&groups.together, 10, 63, 63, 63, 0);
    check_strands(&groups.channel, 6, 105, 21, 21, 126);
    struct planes_plan batch = measured(true, XOP_FORWARD, 4, shape, 0);
    check_strands(&batch.together, 6, 105, 21, 21, 126);
    batch = measured(true, XOP_FORWARD, 2, flat, 0);
    check_strands(&batch.together, 4, 9, 1, 1, 4);
    assert_true(planes_side_by_side(&batch.together));
    groups = measured(false, XOP_FORWARD, 3, empty, 1);
    assert_int_equal(groups.elements, 0);
    assert_int_equal(groups.together.strands, 0);
    assert_int_equal(groups.channel.n, 0);
}

/* Every element is in one piece, and the workspace holds all that is kept. */
static void strands_are_cut_by_the_shape(void **state) {
    static const int64_t samples[] = {1, 2, 31, 4096, 1000003}, channels[] = {1, 6, 4096, 100000};
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        for (size_t k = 0; k < sizeof channels / sizeof *channels; k++) {
            const int64_t shape[] = {samples[i], channels[k], 4};
            struct planes_plan plan = measured(false, XOP_BACKWARD, 3, shape, 1);
            const struct planes_strands *both[] = {&plan.together, &plan.channel};
            for (int b = 0; b < 2; b++) {
                assert_in_range(both[b]->pieces, 1, 256);
                assert_true((both[b]->pieces - 1) * both[b]->piece < both[b]->n);
                assert_true(both[b]->pieces * both[b]->piece >= both[b]->n);
                assert_true(both[b]->pieces == 1 || both[b]->pieces * both[b]->strands <= 4096);
            }
            uint64_t pairs = (uint64_t)plan.together.strands * (plan.together.pieces + 2) +
                             (uint64_t)plan.channel.strands * (plan.channel.pieces + 1);
            assert_true(plan.workspace_bytes >= pairs * 2 * sizeof(double));
        }
}

static void infer_refuses_what_would_overflow(void **state) {
    struct xop_tensor in[3] = {{.dtype = XOP_F32, .rank = 3, .shape = {2, 6, 4}}};
    struct xop_attr attrs[2] = {{.type = XOP_ATTR_INT, .value.i = INT64_MIN}};
    struct xop_call call = {.in = in, .attrs = attrs};
    struct xop_plan plan = {0};
    struct xop_error error;
    const xop_infer_fn infer = group_norm_declaration.pass[XOP_FORWARD].infer;
    (void)state;
    assert_int_equal(infer(&call, &plan, &error), XOP_INVALID_ARGUMENT);
    attrs[0].value.i = INT64_MAX;
    assert_int_equal(infer(&call, &plan, &error), XOP_INVALID_ARGUMENT);
    attrs[0].value.i = 6;
    assert_int_equal(infer(&call, &plan, &error), XOP_OK);
    in[0].rank = 1;
    assert_int_equal(infer(&call, &plan, &error), XOP_INVALID_ARGUMENT);
}

/* Running statistics in their own place: what is read is what was there. */
static void running_statistics_are_replaced_in_place(void **state) {
    struct xop_backend *backend = fixture_open(0, 1);
    const struct xop_op *op = fixture_op("batch_norm");
    float x[] = {1, 2, 3, 6}, y[4], mean[2], invstd[2], running_mean[] = {10, 20},
          running_var[] = {1, 2};
    struct xop_tensor in[5] = {{XOP_F32, 2, {2, 2}, x},
                               {0},
                               {0},
                               {XOP_F32, 1, {2}, running_mean},
                               {XOP_F32, 1, {2}, running_var}};
    void *const to[] = {y, mean, invstd, running_mean, running_var};
    struct xop_tensor out[5];
    struct xop_attr attrs[] = {{.type = XOP_ATTR_BOOL, .value.i = 1},
                               {.type = XOP_ATTR_FLOAT, .value.f = 0.5},
                               {.type = XOP_ATTR_FLOAT, .value.f = 0}};
    struct xop_call call = {.in = in, .out = out, .attrs = attrs};
    struct xop_plan plan = {0};
    const struct xop_plan *plans[] = {&plan};
    struct xop_error error;
    (void)state;
    assert_int_equal(op->pass[XOP_FORWARD].infer(&call, &plan, &error), XOP_OK);
    for (int i = 0; i < 5; i++) {
        out[i] = plan.out[i];
        out[i].data = to[i];
    }
    fixture_run(backend, op, XOP_FORWARD, &call, plans, 1);
    assert_float_equal(running_mean[0], 6, 1e-6); /* halfway from 10 to 2 */
    assert_float_equal(running_mean[1], 12, 1e-6);
    assert_float_equal(running_var[0], 1.5, 1e-6); /* to 2, the unbiased variance of 1 and 3 */
    assert_float_equal(running_var[1], 5, 1e-6);
    assert_float_equal(invstd[1], 0.5, 1e-6);
    assert_float_equal(y[0], -1, 1e-6);
    assert_float_equal(y[3], 1, 1e-6);
    api->close(backend);
}

/* What backward gives of x that is cut into pieces, by so many threads. */
static void backward_with(uint32_t threads, const char *name, struct fixture_request *request) {
    const int64_t shape[] = {3, 4, 20011}, flat[] = {20011, 4}, vector[] = {4};
    const struct xop_attr attrs[] = {{.type = XOP_ATTR_INT, .value.i = 2},
                                     {.type = XOP_ATTR_FLOAT, .value.f = 0.1},
                                     {.type = XOP_ATTR_FLOAT, .value.f = 0.1}};
    const bool batch = strcmp(name, "batch_norm") == 0;
    struct xop_backend *backend = fixture_open(threads, 1);
    struct xop_tensor in[5] = {{0}};
    fixture_attrs = attrs;
    in[0] = fixture_random(XOP_F32, batch ? 2 : 3, batch ? flat : shape, 1);
    in[1] = fixture_random(XOP_F32, 1, vector, 2);
    in[batch ? 4 : 2] = fixture_random(XOP_F32, batch ? 2 : 3, batch ? flat : shape, 3);
    fixture_run_one(backend, request, fixture_op(name), XOP_BACKWARD, in, 7);
    for (int i = 0; i < 5; i++)
        fixture_free(&in[i]);
    fixture_attrs = NULL;
    api->close(backend);
}

static void threads_do_not_change_a_bit(void **state) {
    static const char *const names[] = {"group_norm", "batch_norm"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct fixture_request alone, many;
        backward_with(0, names[k], &alone);
        backward_with(3, names[k], &many);
        for (int i = 0; i < 3; i++) {
            uint64_t bytes = 0;
            assert_true(xop_tensor_bytes(&alone.out[i], &bytes));
            assert_memory_equal(alone.out[i].data, many.out[i].data, bytes);
            assert_true(isfinite(fixture_get(&alone.out[i], 0)));
        }
        fixture_finish(&alone);
        fixture_finish(&many);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_normalized_together_is_found),
        cmocka_unit_test(strands_are_cut_by_the_shape),
        cmocka_unit_test(infer_refuses_what_would_overflow),
        cmocka_unit_test(running_statistics_are_replaced_in_place),
        cmocka_unit_test(threads_do_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
