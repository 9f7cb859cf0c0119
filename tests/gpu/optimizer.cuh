/*
 * Tests of sgd, adam and adamw: every setting of their references, apart and in place, in host and
 * in device memory, aligned or not, alone and in groups. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_OPTIMIZER_CUH
#define TESTS_GPU_OPTIMIZER_CUH

#include "tests/gpu/judge.cuh"
#include "tests/gpu/memory.cuh"

static const char *const optimizer_names[] = {"sgd", "adam", "adamw"};
#define OPTIMIZER_INPUTS 5

/* Inputs in the inbox: param, states where the setting takes them, gradient. Averages of squares
 * are not negative, and nothing cancels in them. false where the setting does not go with `states`.
 */
static bool optimizer_make(struct fixture *fixture, const struct reference *reference,
                           const struct reference_setting *setting, enum xop_dtype dtype, int64_t n,
                           uint32_t states, size_t skew, struct fixture_request *request) {
    struct reference_tensor like[OPTIMIZER_INPUTS] = {};
    uint32_t nin = reference->nin;

    memset(request->in, 0, sizeof request->in);
    for (uint32_t i = 0; i < nin; i++) {
        like[i].absent = i > 0 && i + 1 < nin && !(states >> i & 1);
        like[i].rank = 1;
        like[i].shape[0] = n;
    }
    if (!reference->takes(setting, like))
        return false;
    for (uint32_t i = 0; i < nin; i++) {
        if (like[i].absent)
            continue;
        request->in[i] = operators_input(fixture, dtype, 1, &n, i + 1, skew);
        void *data = fixture_writable(fixture, request->in[i].data);
        for (int64_t k = 0; k < n; k++) /* [0.05, 2.05) */
            reference_set(dtype, data, k, reference_get(dtype, data, k) / 2 + 1.05);
    }
    return true;
}

static void optimizer_run(struct fixture *fixture, struct tally *tally, const struct xop_op *op,
                          struct fixture_request *request, struct xop_call *call) {
    const struct xop_plan *plan = &request->plan;
    struct xop_group group = {};
    struct xop_error error = {XOP_OK, ""};
    group.op = op;
    group.ncalls = 1;
    group.calls = call;
    group.plans = &plan;
    tally_check(tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK, "%s",
                error.message);
}

/* The same step where every output takes its input's place, in the outbox or on the device. A state
 * that is left out comes into being there. */
static void optimizer_in_place(struct fixture *fixture, struct tally *tally,
                               const struct xop_op *op, const struct fixture_request *apart,
                               struct memory_made *device, size_t skew) {
    const struct xop_signature *step = &op->pass[XOP_FORWARD];
    struct fixture_request there = *apart;
    uint64_t at = skew;

    for (uint32_t i = 0; i < step->nin; i++) {
        uint64_t bytes = 0;
        if (!apart->in[i].data)
            continue;
        xop_tensor_bytes(&apart->in[i], &bytes);
        if (device) {
            there.in[i].data = (char *)device->base + at;
            at += (bytes + 511) / 256 * 256;
        } else {
            fixture_place(&fixture->outbox, &there.in[i], skew);
        }
        if (bytes > 0)
            memory_copy(fixture, tally, there.in[i].data, apart->in[i].data, bytes);
    }
    struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &there, 0, 0);
    for (uint32_t i = 0; i < step->nout; i++) {
        there.out[i].data = there.in[i].data;
        if (!there.out[i].data && apart->out[i].data)
            fixture_place(&fixture->outbox, &there.out[i], skew);
    }
    optimizer_run(fixture, tally, op, &there, &call);
    for (uint32_t i = 0; i < step->nout; i++) {
        uint64_t bytes = 0;
        xop_tensor_bytes(&apart->out[i], &bytes);
        tally_check(tally,
                    bytes == 0 ||
                        memory_holds(fixture, tally, there.out[i].data, apart->out[i].data, bytes),
                    "%s differs in place, of %llu bytes", step->out[i].name,
                    (unsigned long long)bytes);
    }
}

static void optimizer_operator(struct fixture *fixture, const char *name, enum xop_dtype dtype,
                               bool reduced) {
    const struct xop_op *op = fixture_op(fixture, name);
    const struct reference *reference = reference_find(name);
    struct memory_made device = memory_make(fixture->api, fixture->backend, 32 << 20, false);
    struct tally apart = tally_begin("%s %s", name, xop_dtype_name(dtype));
    struct tally there = tally_begin("%s in place %s", name, xop_dtype_name(dtype));
    const uint32_t outputs = (1u << reference->nout) - 1;

    for (uint32_t s = 0; s < reference->nsettings; s++)
        for (int64_t n : {0, 1, 7, 8, 1023, 5001, 400003})
            for (uint32_t states : {0u, 2u, 6u, 14u})
                for (size_t skew : {(size_t)0, xop_dtype_size(dtype)}) {
                    struct fixture_request run = {};
                    struct xop_attr attrs[XOP_MAX_ATTRS];
                    fixture_reset(fixture);
                    if (n > 10000 && reduced)
                        continue;
                    if (!optimizer_make(fixture, reference, &reference->settings[s], dtype, n,
                                        states, skew, &run))
                        continue;
                    judge_attrs(op, &reference->settings[s], attrs);
                    run.attrs = attrs;
                    operators_run_one(fixture, &apart, op, XOP_FORWARD, &run, outputs, skew);
                    judge_outputs(&apart, reference, &reference->settings[s], XOP_FORWARD,
                                  &op->pass[XOP_FORWARD], run.in, run.out, false);
                    optimizer_in_place(fixture, &there, op, &run, NULL, skew);
                    optimizer_in_place(fixture, &there, op, &run, &device, skew);
                }
    memory_drop(fixture, &device);
    tally_end(&apart);
    tally_end(&there);
}

#define OPTIMIZER_CALLS 200 /* more than a table holds */

/* The parameters of a model: sizes that differ, one launch. */
static void optimizer_groups(struct fixture *fixture, const char *name, enum xop_dtype dtype) {
    static struct fixture_request alone[OPTIMIZER_CALLS], together[OPTIMIZER_CALLS];
    static struct xop_call calls[OPTIMIZER_CALLS];
    static const struct xop_plan *plans[OPTIMIZER_CALLS];
    const struct xop_op *op = fixture_op(fixture, name);
    const struct reference *reference = reference_find(name);
    const uint32_t outputs = (1u << reference->nout) - 1;
    struct tally tally = tally_begin("%s in groups %s", name, xop_dtype_name(dtype));
    struct xop_attr attrs[XOP_MAX_ATTRS];
    struct xop_group group = {};
    struct xop_error error = {XOP_OK, ""};

    judge_attrs(op, &reference->settings[0], attrs);
    fixture_reset(fixture);
    for (int64_t i = 0; i < OPTIMIZER_CALLS; i++) {
        alone[i].attrs = attrs;
        optimizer_make(fixture, reference, &reference->settings[0], dtype, i % 7 * 333 + i, 0, 0,
                       &alone[i]);
        together[i] = alone[i];
        operators_run_one(fixture, &tally, op, XOP_FORWARD, &alone[i], outputs, 0);
        calls[i] = fixture_prepare(fixture, op, XOP_FORWARD, &together[i], outputs, 0);
        plans[i] = &together[i].plan;
    }
    group.op = op;
    group.ncalls = OPTIMIZER_CALLS;
    group.calls = calls;
    group.plans = plans;
    tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK, "%s",
                error.message);
    for (uint32_t i = 0; i < OPTIMIZER_CALLS; i++)
        for (uint32_t k = 0; k < reference->nout; k++) {
            tally_check(&tally, judge_same(&alone[i].out[k], &together[i].out[k]),
                        "output %u of call %u differs", k, i);
            tally_check(&tally, fixture_guarded(&together[i].out[k]),
                        "wrote outside output %u of call %u", k, i);
        }
    tally_end(&tally);
}

static void optimizer_all(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    for (const char *name : optimizer_names) {
        optimizer_operator(fixture, name, dtype, reduced);
        optimizer_groups(fixture, name, dtype);
    }
}

#endif
