/*
 * Tests of matmul: every way in which batches meet, with every transposition, sums over a batch in
 * one slice and in many, addresses that are hardly aligned, groups, and the attributes that leave
 * the library more freedom. Part of test_cuda_backend.
 *
 * Inputs are small whole numbers, of which sums are exact in any order, or have all their digits
 * and are judged by the bound for any order (see linear.cuh).
 */
#ifndef TESTS_GPU_MATMUL_CUH
#define TESTS_GPU_MATMUL_CUH

#include "tests/gpu/judge.cuh"
#include "tests/gpu/linear.cuh"

struct matmul_case {
    uint32_t a_rank, b_rank;
    int64_t a[XOP_MAX_RANK], b[XOP_MAX_RANK]; /* as they are without transpositions */
    bool large;
};
static const struct matmul_case matmul_cases[] = {
    {1, 1, {7}, {7}, false},
    {1, 1, {0}, {0}, false},
    {2, 1, {3, 7}, {7}, false},
    {1, 2, {7}, {7, 3}, false},
    {1, 3, {7}, {4, 7, 2}, false},
    {3, 1, {4, 3, 7}, {7}, false},
    {2, 2, {1, 1}, {1, 1}, false},
    {2, 2, {3, 7}, {7, 5}, false},
    {2, 2, {64, 64}, {64, 64}, false},
    {2, 2, {127, 129}, {129, 131}, false},
    {2, 2, {3, 0}, {0, 5}, false},
    {2, 2, {0, 3}, {3, 5}, false},
    {3, 2, {0, 3, 7}, {7, 5}, false},
    {3, 3, {0, 3, 7}, {1, 7, 5}, false},
    {3, 3, {2, 3, 0}, {2, 0, 5}, false},
    {3, 3, {5, 3, 7}, {5, 7, 5}, false},
    {3, 3, {5, 16, 24}, {5, 24, 8}, false},
    {3, 2, {5, 16, 24}, {24, 8}, false},
    {2, 3, {16, 24}, {5, 24, 8}, false},
    {3, 3, {5, 16, 24}, {1, 24, 8}, false},
    {4, 3, {2, 1, 3, 7}, {4, 7, 5}, false},
    {4, 4, {3, 1, 8, 8}, {1, 9, 8, 8}, false},
    {4, 4, {3, 9, 8, 8}, {3, 1, 8, 8}, false},
    {6, 6, {2, 1, 2, 1, 3, 7}, {1, 3, 1, 2, 7, 5}, false},
    {8, 8, {2, 1, 2, 1, 2, 1, 3, 4}, {1, 2, 1, 2, 1, 2, 4, 3}, false},
    {3, 2, {700, 3, 4}, {4, 5}, false}, /* more terms than slices */
    {2, 3, {3, 4}, {700, 4, 5}, false},
    {4, 4, {600, 2, 3, 4}, {1, 2, 4, 5}, false},
    {3, 2, {2, 1, 2048}, {2048, 2048}, true},   /* one slice */
    {3, 2, {9, 1, 1024}, {1024, 1024}, true},   /* as many as fit, and one left over */
    {3, 3, {70000, 2, 3}, {70000, 3, 2}, true}, /* more than a grid counts */
    {8, 8, {9, 1, 9, 1, 9, 1, 2, 3}, {1, 9, 1, 9, 1, 9, 3, 2}, true}, /* too many for the library */
    {3, 2, {9, 128, 64}, {64, 96}, true},
    {3, 3, {5, 128, 96}, {5, 96, 160}, true},
};

static struct reference_setting matmul_setting(bool transpose_a, bool transpose_b) {
    static const char *const names[] = {"transpose_a", "transpose_b"};
    const bool values[] = {transpose_a, transpose_b};
    struct reference_setting setting = {};
    for (int i = 0; i < 2; i++) {
        setting.attr[i].name = names[i];
        setting.attr[i].type = XOP_ATTR_BOOL;
        setting.attr[i].count = 1;
        setting.attr[i].value.i = values[i];
    }
    setting.nattrs = 2;
    return setting;
}

static struct xop_tensor matmul_input(struct fixture *fixture, enum xop_dtype dtype, uint32_t rank,
                                      const int64_t *shape, bool transposed, uint32_t seed,
                                      bool whole) {
    int64_t stored[XOP_MAX_RANK];
    memcpy(stored, shape, sizeof stored);
    if (transposed) {
        stored[rank - 1] = shape[rank - 2];
        stored[rank - 2] = shape[rank - 1];
    }
    return linear_input(fixture, dtype, rank, stored, seed, whole);
}

static void matmul_one(struct fixture *fixture, struct tally *forward, struct tally *backward,
                       enum xop_dtype dtype, const struct matmul_case *one,
                       const struct reference_setting *setting, bool whole) {
    const struct xop_op *op = fixture_op(fixture, "matmul");
    const struct reference *reference = reference_find("matmul");
    struct fixture_request there = {}, back;
    struct xop_attr attrs[XOP_MAX_ATTRS];

    fixture_reset(fixture);
    judge_attrs(op, setting, attrs);
    there.attrs = attrs;
    there.in[0] =
        matmul_input(fixture, dtype, one->a_rank, one->a, setting->attr[0].value.i, 1, whole);
    there.in[1] =
        matmul_input(fixture, dtype, one->b_rank, one->b, setting->attr[1].value.i, 2, whole);
    operators_run_one(fixture, forward, op, XOP_FORWARD, &there, 1, 0);
    judge_outputs(forward, reference, setting, XOP_FORWARD, &op->pass[XOP_FORWARD], there.in,
                  there.out, whole);
    back = there;
    back.in[2] = linear_input(fixture, dtype, there.out[0].rank, there.out[0].shape, 3, whole);
    operators_run_one(fixture, backward, op, XOP_BACKWARD, &back, 3, 0);
    judge_outputs(backward, reference, setting, XOP_BACKWARD, &op->pass[XOP_BACKWARD], back.in,
                  back.out, whole);
    for (uint32_t i = 0; i < 2; i++) {
        struct fixture_request some = back;
        operators_run_one(fixture, backward, op, XOP_BACKWARD, &some, 1u << i, 0);
        tally_check(backward, judge_same(&some.out[i], &back.out[i]),
                    "gradient %u differs when it is wanted alone", i);
    }
}

static void matmul_operator(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    struct tally forward = tally_begin("matmul forward %s", xop_dtype_name(dtype));
    struct tally backward = tally_begin("matmul backward %s", xop_dtype_name(dtype));
    for (const struct matmul_case &one : matmul_cases)
        for (int k = 0; k < 8; k++) {
            struct reference_setting setting = matmul_setting(k & 1, k & 2);
            if ((k & 1 && one.a_rank < 2) || (k & 2 && one.b_rank < 2) || (one.large && reduced))
                continue;
            matmul_one(fixture, &forward, &backward, dtype, &one, &setting, k & 4);
        }
    tally_end(&forward);
    tally_end(&backward);
}

#define MATMUL_CALLS 12

/* As many calls at a time as the operator takes, of sizes that differ. */
static void matmul_groups(struct fixture *fixture, enum xop_dtype dtype) {
    static struct fixture_request alone[MATMUL_CALLS], together[MATMUL_CALLS];
    static struct xop_call calls[MATMUL_CALLS];
    static const struct xop_plan *plans[MATMUL_CALLS];
    const struct xop_op *op = fixture_op(fixture, "matmul");
    struct tally tally = tally_begin("matmul in groups %s", xop_dtype_name(dtype));
    struct reference_setting setting = matmul_setting(true, false);
    struct xop_attr attrs[XOP_MAX_ATTRS];

    judge_attrs(op, &setting, attrs);
    fixture_reset(fixture);
    for (int64_t i = 0; i < MATMUL_CALLS; i++) {
        const int64_t a[] = {i * 7 + 1, 5, i + 2}, b[] = {5, 9}, y[] = {a[0], a[2], 9};
        memset(&alone[i], 0, sizeof alone[i]);
        alone[i].attrs = attrs;
        alone[i].in[0] = linear_input(fixture, dtype, 3, a, 1, false);
        alone[i].in[1] = linear_input(fixture, dtype, 2, b, 2, false);
        alone[i].in[2] = linear_input(fixture, dtype, 3, y, 3, false);
        together[i] = alone[i];
        operators_run_one(fixture, &tally, op, XOP_BACKWARD, &alone[i], 3, 0);
        calls[i] = fixture_prepare(fixture, op, XOP_BACKWARD, &together[i], 3, 0);
        plans[i] = &together[i].plan;
    }
    for (uint32_t i = 0, most = op->pass[XOP_BACKWARD].max_group; i < MATMUL_CALLS; i += most) {
        struct xop_group group = {};
        struct xop_error error = {XOP_OK, ""};
        group.op = op;
        group.pass = XOP_BACKWARD;
        group.ncalls = MATMUL_CALLS - i < most ? MATMUL_CALLS - i : most;
        group.calls = calls + i;
        group.plans = plans + i;
        tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK,
                    "%s", error.message);
    }
    for (uint32_t i = 0; i < MATMUL_CALLS; i++)
        for (uint32_t k = 0; k < 2; k++) {
            tally_check(&tally, judge_same(&alone[i].out[k], &together[i].out[k]),
                        "gradient %u of call %u differs", k, i);
            tally_check(&tally, fixture_guarded(&together[i].out[k]),
                        "wrote outside gradient %u of call %u", k, i);
        }
    tally_end(&tally);
}

/* Operands in device memory, each an element past what is well aligned. */
static void matmul_misaligned(struct fixture *fixture, enum xop_dtype dtype) {
    const int64_t a[] = {3, 32, 16}, b[] = {3, 16, 64};
    const struct xop_op *op = fixture_op(fixture, "matmul");
    struct memory_made device = memory_make(fixture->api, fixture->backend, 4 << 20, true);
    struct tally tally = tally_begin("matmul, hardly aligned %s", xop_dtype_name(dtype));
    struct reference_setting setting = matmul_setting(false, false);
    struct fixture_request run = {};
    struct xop_attr attrs[XOP_MAX_ATTRS];
    struct xop_tensor host[2];
    uint64_t at = xop_dtype_size(dtype);

    fixture_reset(fixture);
    judge_attrs(op, &setting, attrs);
    run.attrs = attrs;
    run.in[0] = host[0] = linear_input(fixture, dtype, 3, a, 1, true);
    run.in[1] = host[1] = linear_input(fixture, dtype, 3, b, 2, true);
    for (int k = 0; k < 2; k++) {
        uint64_t bytes = 0;
        xop_tensor_bytes(&host[k], &bytes);
        run.in[k].data = (char *)device.base + at;
        memory_copy(fixture, &tally, run.in[k].data, host[k].data, bytes);
        at += (bytes + 255) / 256 * 256;
    }
    operators_run_one(fixture, &tally, op, XOP_FORWARD, &run, 1, 0);
    judge_outputs(&tally, reference_find("matmul"), &setting, XOP_FORWARD, &op->pass[XOP_FORWARD],
                  host, run.out, true);
    memory_drop(fixture, &device);
    tally_end(&tally);
}

/* TF32 has 11 digits: what is allowed to be cut down is at most that far off, and else not at all.
 * In any order, sums of whole numbers are still exact. */
static void matmul_options(struct fixture *fixture) {
    const struct xop_op *op = fixture_op(fixture, "matmul");
    const int64_t shape[] = {2, 256, 256};
    struct tally tally = tally_begin("matmul f32 with allow_tf32, and not deterministic");

    for (int k = 0; k < 4; k++) {
        struct fixture_request run = {};
        struct xop_attr attrs[XOP_MAX_ATTRS];
        double limit = k & 1 ? 0x1p-9 : 0;
        judge_attrs(op, NULL, attrs);
        attrs[2].value.i = k & 1;
        attrs[3].value.i = !(k & 2);
        fixture_reset(fixture);
        run.attrs = attrs;
        for (int i = 0; i < 2; i++) {
            run.in[i] = linear_input(fixture, XOP_F32, 3, shape, 1, true);
            for (int64_t e = 0; e < 2 * 256 * 256; e++)
                reference_set(XOP_F32, fixture_writable(fixture, run.in[i].data), e,
                              i == 0 ? (e % 257 == 0 ? 1 + 0x1p-12 : 0) : 1);
        }
        operators_run_one(fixture, &tally, op, XOP_FORWARD, &run, 1, 0);
        for (int64_t e = 0; e < 256 * 256; e++) { /* the first matrix has one such in each row */
            double got = reference_get(XOP_F32, run.out[0].data, e);
            tally_check(&tally, fabs(got - (1 + 0x1p-12)) <= limit, "y[%lld] is %.17g",
                        (long long)e, got);
        }
    }
    tally_end(&tally);
}

static void matmul_all(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    matmul_operator(fixture, dtype, reduced);
    matmul_groups(fixture, dtype);
    matmul_misaligned(fixture, dtype);
    if (dtype == XOP_F32)
        matmul_options(fixture);
}

#endif
