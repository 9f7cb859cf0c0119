#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/activation.h"
#include "kernels/shape.h"
#include "kernels/square_bias.h"

/* SHAPE(3, 4) is an f32 tensor of shape (3, 4). */
#define SHAPE(...)                                                                                 \
    make(sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t) - 1, (int64_t[]){__VA_ARGS__})
#define SCALAR make(0, NULL)

static struct xop_tensor make(size_t rank, const int64_t *shape) {
    struct xop_tensor tensor = {.dtype = XOP_F32, .rank = (uint32_t)rank};
    for (size_t i = 0; i < rank; i++)
        tensor.shape[i] = shape[i];
    return tensor;
}

static void assert_shape(const struct xop_tensor *got, struct xop_tensor want) {
    char got_text[SHAPE_TEXT], want_text[SHAPE_TEXT];
    assert_string_equal(shape_format(got, got_text), shape_format(&want, want_text));
}

static void shapes_are_written_as_in_python(void **state) {
    char text[SHAPE_TEXT];
    struct xop_tensor none = SCALAR, one = SHAPE(3), two = SHAPE(3, 4);
    const int64_t large[XOP_MAX_RANK] = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN,
                                         INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN};
    struct xop_tensor longest = make(XOP_MAX_RANK, large);
    (void)state;
    assert_string_equal(shape_format(&none, text), "()");
    assert_string_equal(shape_format(&one, text), "(3,)");
    assert_string_equal(shape_format(&two, text), "(3, 4)");
    assert_int_equal(strlen(shape_format(&longest, text)), 8 * 20 + 7 * 2 + 2);
}

static struct xop_tensor broadcast(struct xop_tensor a, struct xop_tensor b) {
    struct xop_tensor out;
    struct xop_error error = {0};
    assert_int_equal(shape_broadcast("a", &a, "b", &b, &out, &error), XOP_OK);
    return out;
}

static void shapes_broadcast_as_in_numpy(void **state) {
    struct xop_tensor out;
    (void)state;
    out = broadcast(SHAPE(3, 4), SHAPE(3, 4));
    assert_shape(&out, SHAPE(3, 4));
    out = broadcast(SHAPE(3, 4), SCALAR);
    assert_shape(&out, SHAPE(3, 4));
    out = broadcast(SHAPE(4), SHAPE(3, 1));
    assert_shape(&out, SHAPE(3, 4));
    out = broadcast(SHAPE(8, 1, 6, 1), SHAPE(7, 1, 5));
    assert_shape(&out, SHAPE(8, 7, 6, 5));
    out = broadcast(SHAPE(0, 3), SHAPE(1, 1));
    assert_shape(&out, SHAPE(0, 3));
    out = broadcast(SCALAR, SCALAR);
    assert_shape(&out, SCALAR);
}

static void what_does_not_broadcast_is_told_by_name_and_shape(void **state) {
    struct xop_tensor a = SHAPE(3, 4), b = SHAPE(3), out;
    struct xop_error error = {0};
    (void)state;
    assert_int_equal(shape_broadcast("x", &a, "b", &b, &out, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "x of shape (3, 4)"));
    assert_non_null(strstr(error.message, "b of shape (3,)"));
    a = SHAPE(0, 4);
    b = SHAPE(2, 1);
    assert_int_equal(shape_broadcast("x", &a, "b", &b, &out, &error), XOP_INVALID_ARGUMENT);
    a = SHAPE(INT64_C(1) << 40, 1);
    b = SHAPE(1, INT64_C(1) << 40);
    assert_int_equal(shape_broadcast("x", &a, "b", &b, &out, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "bytes"));
}

static struct shape_map collapse(struct xop_tensor x, struct xop_tensor b) {
    struct xop_tensor out = broadcast(x, b);
    struct shape_map map;
    shape_collapse(&x, &b, &out, &map);
    return map;
}

static void assert_map(struct shape_map map, enum shape_form x, enum shape_form b, uint32_t ndims) {
    assert_int_equal(map.x_form, x);
    assert_int_equal(map.b_form, b);
    assert_int_equal(map.ndims, ndims);
}

static void assert_dim(const struct shape_dim *dim, int64_t size, int64_t x, int64_t b) {
    assert_int_equal(dim->size, size);
    assert_int_equal(dim->stride_x, x);
    assert_int_equal(dim->stride_b, b);
}

static void common_forms_are_recognised(void **state) {
    struct shape_map map;
    (void)state;
    assert_map(collapse(SCALAR, SCALAR), SHAPE_FULL, SHAPE_FULL, 0);
    assert_map(collapse(SHAPE(1, 1), SHAPE(1)), SHAPE_FULL, SHAPE_FULL, 0);
    map = collapse(SHAPE(2, 3, 4), SHAPE(2, 3, 4));
    assert_map(map, SHAPE_FULL, SHAPE_FULL, 1);
    assert_dim(&map.dim[0], 24, 1, 1);
    map = collapse(SHAPE(2, 3, 4), SHAPE(1, 1));
    assert_map(map, SHAPE_FULL, SHAPE_SCALAR, 1);
    assert_dim(&map.dim[0], 24, 1, 0);
    map = collapse(SHAPE(2, 3, 4), SHAPE(4));
    assert_map(map, SHAPE_FULL, SHAPE_ROW, 2);
    assert_dim(&map.dim[0], 6, 4, 0);
    assert_dim(&map.dim[1], 4, 1, 1);
    map = collapse(SHAPE(2, 3, 4), SHAPE(2, 3, 1));
    assert_map(map, SHAPE_FULL, SHAPE_COLUMN, 2);
    assert_dim(&map.dim[0], 6, 4, 1);
    assert_dim(&map.dim[1], 4, 1, 0);
    map = collapse(SHAPE(5), SHAPE(7, 1));
    assert_map(map, SHAPE_ROW, SHAPE_COLUMN, 2);
    assert_dim(&map.dim[0], 7, 0, 1);
    assert_dim(&map.dim[1], 5, 1, 0);
    map = collapse(SHAPE(2, 3, 4), SHAPE(2, 1, 4));
    assert_map(map, SHAPE_FULL, SHAPE_GENERAL, 3);
    assert_dim(&map.dim[1], 3, 4, 0);
    assert_map(collapse(SHAPE(2, 1, 4), SHAPE(1, 3, 1)), SHAPE_GENERAL, SHAPE_GENERAL, 3);
    /* A dimension of 1 in the middle keeps nothing apart. */
    assert_map(collapse(SHAPE(2, 1, 4), SHAPE(2, 1, 4)), SHAPE_FULL, SHAPE_FULL, 1);
}

static void an_empty_array_has_no_elements_whatever_its_extents(void **state) {
    const int64_t large = INT64_C(1) << 40;
    struct xop_tensor x = SHAPE(large, large, 0), b = SHAPE(1, 1, 0), out = x;
    struct shape_map map;
    struct shape_reduction reduction;
    (void)state;
    assert_int_equal(collapse(SHAPE(0, 3), SHAPE(3)).elements, 0);
    shape_collapse(&x, &b, &out, &map);
    assert_int_equal(map.elements, 0);
    shape_reduce(&b, &x, &reduction);
    assert_int_equal(reduction.outputs, 0);
    assert_int_equal(reduction.reduced, 0);
    x = SHAPE(0, 3);
    b = SHAPE(3);
    shape_reduce(&b, &x, &reduction);
    assert_int_equal(reduction.outputs, 3);
    assert_int_equal(reduction.reduced, 0);
    assert_int_equal(reduction.partials, 1);
}

/* Every element of the full array belongs to exactly one term of one output, and pieces cover the
 * terms without a gap. */
static void assert_reduction(struct xop_tensor operand, struct xop_tensor full) {
    struct shape_reduction r;
    int64_t kept = 1, reduced = 1, elements;

    shape_reduce(&operand, &full, &r);
    assert_true(xop_tensor_elements(&full, &elements));
    for (uint32_t i = 0; i < r.nkept; i++)
        kept *= r.kept[i].size;
    for (uint32_t i = 0; i < r.nreduced; i++)
        reduced *= r.axis[i].size;
    assert_int_equal(kept, r.outputs);
    assert_int_equal(reduced, r.reduced);
    assert_int_equal(kept * reduced, elements);
    assert_in_range(r.partials, 1, SHAPE_MAX_PARTIALS);
    assert_true(r.partials == 1 || r.outputs * r.partials <= SHAPE_MAX_PARTIALS_ALL);
    assert_true((r.partials - 1) * r.piece < r.reduced);
    assert_true(r.partials * r.piece >= r.reduced);
    if (r.partials > 1)
        assert_true(shape_reduction_workspace(&r) >=
                    (uint64_t)r.outputs * r.partials * sizeof(double));
    else
        assert_int_equal(shape_reduction_workspace(&r), 0);
}

static void sums_are_cut_into_pieces_that_cover_all_terms(void **state) {
    (void)state;
    assert_reduction(SCALAR, SHAPE(1));
    assert_reduction(SCALAR, SHAPE(1000000007));
    assert_reduction(SCALAR, SHAPE(1 << 20, 1 << 20));
    assert_reduction(SHAPE(1280), SHAPE(1280, 1280));
    assert_reduction(SHAPE(1280, 1), SHAPE(1280, 1280));
    assert_reduction(SHAPE(3), SHAPE(1000001, 3));
    assert_reduction(SHAPE(1000001, 1), SHAPE(1000001, 3));
    assert_reduction(SHAPE(1 << 21), SHAPE(4096, 1 << 21));
    assert_reduction(SHAPE(5, 1, 7), SHAPE(3, 5, 6, 7));
    assert_reduction(SHAPE(3, 4), SHAPE(3, 4));
}

static enum xop_status infer(const struct xop_op *op, enum xop_pass pass, struct xop_tensor *in,
                             struct xop_plan *plan, struct xop_error *error) {
    struct xop_call call = {.in = in};
    memset(plan, 0, sizeof *plan);
    memset(error, 0, sizeof *error);
    return op->pass[pass].infer(&call, plan, error);
}

static void square_bias_infers_shapes_and_costs(void **state) {
    const struct xop_op *op = &square_bias_declaration;
    struct xop_tensor in[3] = {SHAPE(3, 4), SHAPE(4), SHAPE(3, 4)};
    struct xop_plan plan;
    struct broadcast_backward back;
    struct xop_error error;
    (void)state;
    assert_int_equal(infer(op, XOP_FORWARD, in, &plan, &error), XOP_OK);
    assert_shape(&plan.out[0], SHAPE(3, 4));
    assert_int_equal(plan.out[0].dtype, XOP_F32);
    assert_int_equal(plan.read_once, 1);
    assert_int_equal(plan.group, SQUARE_BIAS_SIMPLE);
    assert_int_equal(plan.bytes, (12 + 4 + 12) * 4);
    assert_int_equal(infer(op, XOP_BACKWARD, in, &plan, &error), XOP_OK);
    assert_shape(&plan.out[0], SHAPE(3, 4));
    assert_shape(&plan.out[1], SHAPE(4));
    assert_int_equal(plan.read_once, 1 | 4);
    in[1] = SHAPE(3, 4);
    assert_int_equal(infer(op, XOP_FORWARD, in, &plan, &error), XOP_OK);
    assert_int_equal(plan.read_once, 3);
    assert_int_equal(plan.group, SQUARE_BIAS_FLAT);
    in[0] = SHAPE(1);
    in[1] = SHAPE(100000);
    in[2] = SHAPE(100000);
    assert_int_equal(infer(op, XOP_BACKWARD, in, &plan, &error), XOP_OK);
    assert_true(plan.workspace_bytes > 0);
    broadcast_backward_plan(&in[0], &in[1], &in[2], &back);
    assert_int_equal(plan.workspace_bytes, back.workspace_bytes);
    assert_int_equal(plan.group, SQUARE_BIAS_GENERAL);
}

static void square_bias_refuses_with_both_sides_named(void **state) {
    const struct xop_op *op = &square_bias_declaration;
    struct xop_tensor in[3] = {SHAPE(3, 4), SHAPE(4), SHAPE(4)};
    struct xop_plan plan;
    struct xop_error error;
    (void)state;
    assert_int_equal(infer(op, XOP_BACKWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
    assert_string_equal(error.message, "grad_y has shape (4,) but x and b broadcast to (3, 4)");
    in[1].dtype = XOP_F16;
    assert_int_equal(infer(op, XOP_FORWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "x is f32 but b is f16"));
    in[1] = SHAPE(4);
    in[2] = SHAPE(3, 4);
    in[2].dtype = XOP_F64;
    assert_int_equal(infer(op, XOP_BACKWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "grad_y is f64"));
    in[1] = SHAPE(5);
    assert_int_equal(infer(op, XOP_FORWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
}

static void activations_want_one_shape_and_dtype(void **state) {
    const struct xop_op *ops[] = {&sigmoid_declaration, &sigmoid_complement_declaration,
                                  &bose_einstein_declaration};
    struct xop_plan plan;
    struct xop_error error;
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct xop_tensor in[2] = {SHAPE(3, 4), SHAPE(3, 4)};
        assert_int_equal(infer(ops[i], XOP_FORWARD, in, &plan, &error), XOP_OK);
        assert_shape(&plan.out[0], SHAPE(3, 4));
        assert_int_equal(plan.group, 0);
        assert_int_equal(infer(ops[i], XOP_BACKWARD, in, &plan, &error), XOP_OK);
        assert_int_equal(plan.read_once, 3);
        in[1] = SHAPE(4);
        assert_int_equal(infer(ops[i], XOP_BACKWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "(3, 4)"));
        assert_non_null(strstr(error.message, "(4,)"));
        in[1] = SHAPE(3, 4);
        in[1].dtype = XOP_BF16;
        assert_int_equal(infer(ops[i], XOP_BACKWARD, in, &plan, &error), XOP_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "bf16"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_written_as_in_python),
        cmocka_unit_test(shapes_broadcast_as_in_numpy),
        cmocka_unit_test(what_does_not_broadcast_is_told_by_name_and_shape),
        cmocka_unit_test(common_forms_are_recognised),
        cmocka_unit_test(an_empty_array_has_no_elements_whatever_its_extents),
        cmocka_unit_test(sums_are_cut_into_pieces_that_cover_all_terms),
        cmocka_unit_test(square_bias_infers_shapes_and_costs),
        cmocka_unit_test(square_bias_refuses_with_both_sides_named),
        cmocka_unit_test(activations_want_one_shape_and_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
