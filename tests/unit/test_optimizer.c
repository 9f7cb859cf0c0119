#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/optimizer.h"
#include "tests/unit/cpu_fixture.h"

static const enum xop_dtype dtypes[] = {XOP_F16, XOP_BF16, XOP_F32, XOP_F64};
#define NDTYPES 4

enum { SGD, ADAM, ADAMW, KINDS };
static const struct xop_op *const declarations[] = {&sgd_declaration, &adam_declaration,
                                                    &adamw_declaration};

/* Every state is used: momentum, amsgrad. */
static const struct xop_attr *attrs_of(int kind) {
    static struct xop_attr attrs[7];
    for (uint32_t i = 0; i < declarations[kind]->nattrs; i++)
        attrs[i] = declarations[kind]->attrs[i].fallback;
    if (kind == SGD) {
        attrs[0].value.f = 0.1;
        attrs[1].value.f = 0.75;
        attrs[3].value.f = 0.1;
    } else {
        attrs[0].value.i = 3;
        attrs[1].value.f = 0.1;
        attrs[5].value.i = 1;
    }
    return attrs;
}

/* param, states, gradient; averages of squares are not negative. */
static uint32_t make(int kind, enum xop_dtype dtype, int64_t n, struct xop_tensor *in) {
    uint32_t nin = declarations[kind]->pass[XOP_FORWARD].nin;
    for (uint32_t i = 0; i < nin; i++) {
        in[i] = fixture_random(dtype, 1, &n, i + 1);
        for (int64_t k = 0; kind != SGD && (i == 2 || i == 3) && k < n; k++)
            fixture_set(&in[i], k, fabs(fixture_get(&in[i], k)));
    }
    return nin;
}

static void same(const struct xop_tensor *got, const struct xop_tensor *want) {
    uint64_t bytes = 0;
    assert_true(xop_tensor_bytes(want, &bytes));
    assert_memory_equal(got->data, want->data, bytes);
}

static void each(void (*check)(struct xop_backend *, int kind, enum xop_dtype, int64_t n)) {
    static const int64_t sizes[] = {0, 1, 511, 512, 513, 1025, 100003};
    struct xop_backend *backend = fixture_open(2, 1);
    for (int kind = 0; kind < KINDS; kind++)
        for (int d = 0; d < NDTYPES; d++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                check(backend, kind, dtypes[d], sizes[i]);
    fixture_attrs = NULL;
    api->close(backend);
}

static void check_in_place(struct xop_backend *backend, int kind, enum xop_dtype dtype, int64_t n) {
    const struct xop_op *op = fixture_op(declarations[kind]->name);
    struct fixture_request apart, there;
    const struct xop_plan *plan = &there.plan;
    struct xop_tensor in[OPTIMIZER_SLOTS];
    struct xop_call call;
    uint32_t nin = make(kind, dtype, n, in);

    fixture_attrs = attrs_of(kind);
    fixture_run_one(backend, &apart, op, XOP_FORWARD, in, 15);
    call = fixture_prepare(&there, op, XOP_FORWARD, in, 0);
    for (uint32_t i = 0; i + 1 < nin; i++)
        there.out[i].data = in[i].data;
    fixture_run(backend, op, XOP_FORWARD, &call, &plan, 1);
    for (uint32_t i = 0; i + 1 < nin; i++) {
        same(&there.out[i], &apart.out[i]);
        there.out[i].data = NULL;
    }
    fixture_finish(&there);
    fixture_finish(&apart);
    for (uint32_t i = 0; i < nin; i++)
        fixture_free(&in[i]);
}

static void in_place_is_the_same_bits(void **state) {
    (void)state;
    each(check_in_place);
}

static void check_single_outputs(struct xop_backend *backend, int kind, enum xop_dtype dtype,
                                 int64_t n) {
    const struct xop_op *op = fixture_op(declarations[kind]->name);
    struct fixture_request all, one;
    struct xop_tensor in[OPTIMIZER_SLOTS];
    uint32_t nin = make(kind, dtype, n, in);

    fixture_attrs = attrs_of(kind);
    fixture_run_one(backend, &all, op, XOP_FORWARD, in, 15);
    for (uint32_t i = 0; i + 1 < nin; i++) {
        fixture_run_one(backend, &one, op, XOP_FORWARD, in, 1u << i);
        same(&one.out[i], &all.out[i]);
        fixture_finish(&one);
    }
    fixture_finish(&all);
    for (uint32_t i = 0; i < nin; i++)
        fixture_free(&in[i]);
}

static void an_output_alone_is_the_same_bits(void **state) {
    (void)state;
    each(check_single_outputs);
}

/* What is left out on the first step is what zeros would be; sgd has no dampening then. */
static void the_first_step_needs_no_states(void **state) {
    struct xop_backend *backend = fixture_open(0, 1);
    const int64_t n = 700;
    (void)state;
    for (int kind = ADAM; kind < KINDS; kind++) {
        const struct xop_op *op = fixture_op(declarations[kind]->name);
        struct fixture_request zeros, without;
        struct xop_tensor in[OPTIMIZER_SLOTS], few[OPTIMIZER_SLOTS] = {0};
        struct xop_attr attrs[7];
        uint32_t nin = make(kind, XOP_F32, n, in);
        memcpy(attrs, attrs_of(kind), sizeof attrs);
        attrs[0].value.i = 1;
        fixture_attrs = attrs;
        for (uint32_t i = 1; i + 1 < nin; i++)
            memset(in[i].data, 0, (size_t)n * sizeof(float));
        few[0] = in[0];
        few[nin - 1] = in[nin - 1];
        fixture_run_one(backend, &zeros, op, XOP_FORWARD, in, 15);
        fixture_run_one(backend, &without, op, XOP_FORWARD, few, 15);
        for (uint32_t i = 0; i + 1 < nin; i++)
            same(&without.out[i], &zeros.out[i]);
        fixture_finish(&zeros);
        fixture_finish(&without);
        for (uint32_t i = 0; i < nin; i++)
            fixture_free(&in[i]);
    }
    fixture_attrs = NULL;
    api->close(backend);
}

/* An output of no elements may have an address all the same, as the guards around it have here. */
static void a_state_that_is_not_used_is_not_written(void **state) {
    struct xop_backend *backend = fixture_open(0, 1);
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct fixture_request run;
        struct xop_tensor in[OPTIMIZER_SLOTS], few[OPTIMIZER_SLOTS] = {0};
        struct xop_attr attrs[7];
        uint32_t nin = make(kind, XOP_F32, 700, in), unused = kind == SGD ? 1 : 3;
        memcpy(attrs, attrs_of(kind), sizeof attrs);
        attrs[kind == SGD ? 1 : 5].value =
            declarations[kind]->attrs[kind == SGD ? 1 : 5].fallback.value;
        fixture_attrs = attrs;
        for (uint32_t i = 0; i < nin; i++)
            if (i != unused)
                few[i] = in[i];
        fixture_run_one(backend, &run, fixture_op(declarations[kind]->name), XOP_FORWARD, few, 15);
        assert_int_equal(run.out[unused].rank, 1);
        assert_int_equal(run.out[unused].shape[0], 0);
        fixture_finish(&run);
        for (uint32_t i = 0; i < nin; i++)
            fixture_free(&in[i]);
    }
    fixture_attrs = NULL;
    api->close(backend);
}

/* A result in f16 is rounded once: g + param would be rounded to 1 before it is halved. */
static void halves_are_rounded_once(void **state) {
    struct xop_backend *backend = fixture_open(0, 1);
    const struct xop_op *op = fixture_op("sgd");
    const int64_t n = 1;
    struct xop_tensor in[3] = {
        fixture_random(XOP_F16, 1, &n, 1), {0}, fixture_random(XOP_F16, 1, &n, 2)};
    struct xop_attr attrs[7];
    struct fixture_request run;
    (void)state;
    memcpy(attrs, attrs_of(SGD), sizeof attrs);
    attrs[0].value.f = 0.5;
    attrs[1].value.f = 0;
    attrs[3].value.f = 1;
    fixture_attrs = attrs;
    fixture_set(&in[0], 0, 1);
    fixture_set(&in[2], 0, 0x1p-11);
    fixture_run_one(backend, &run, op, XOP_FORWARD, in, 3);
    assert_true(fixture_get(&run.out[0], 0) == 0.5 - 0x1p-12);
    assert_int_equal(run.out[1].shape[0], 0);
    fixture_finish(&run);
    fixture_free(&in[0]);
    fixture_free(&in[2]);
    fixture_attrs = NULL;
    api->close(backend);
}

static void outputs_take_the_place_of_the_inputs_of_their_names(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct xop_signature *step = &declarations[kind]->pass[XOP_FORWARD];
        assert_int_equal(step->nout + 1, step->nin);
        for (uint32_t i = 0; i < step->nout; i++) {
            assert_string_equal(step->out[i].name, step->in[i].name);
            assert_true(step->out[i].flags & XOP_OPERAND_IN_PLACE);
        }
        assert_string_equal(step->in[step->nin - 1].name, "grad");
        assert_null(fixture_op(declarations[kind]->name)->pass[XOP_BACKWARD].launch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_place_is_the_same_bits),
        cmocka_unit_test(an_output_alone_is_the_same_bits),
        cmocka_unit_test(the_first_step_needs_no_states),
        cmocka_unit_test(a_state_that_is_not_used_is_not_written),
        cmocka_unit_test(halves_are_rounded_once),
        cmocka_unit_test(outputs_take_the_place_of_the_inputs_of_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
