/*
 * Tests of operands in device memory and of what groups keep there. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_KEEPS_CUH
#define TESTS_GPU_KEEPS_CUH

#include "tests/gpu/memory.cuh"

struct keeps_job {
    struct fixture_request host, there;
    void *keep[3];
    int64_t n;
};

/* square_bias of `n` calls: with all operands in host memory, then with those of the mask `device`
 * (x, b, y) in made memory, and those of the mask `kept` kept. The bits must be the same. */
static void keeps_run(struct fixture *fixture, struct tally *tally, uint32_t n, uint32_t device,
                      uint32_t kept, bool large) {
    static struct keeps_job jobs[MEMORY_MOST];
    static struct xop_call calls[MEMORY_MOST];
    static const struct xop_plan *plans[MEMORY_MOST];
    static void *const *keeps[MEMORY_MOST];
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    const uint64_t slot = large ? 1 << 20 : 1 << 15;
    struct memory_made made = memory_make(fixture->api, fixture->backend, 6 * slot * n, true);
    struct xop_error error = {XOP_OK, ""};
    struct xop_group group = {};

    fixture_reset(fixture);
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < n; i++) {
        struct keeps_job *job = &jobs[i];
        unsigned char *at = made.base + 6 * slot * i;
        job->n = large ? 200001 : 1 + 29 * (int64_t)i % 8000;
        for (uint32_t k = 0; k < 2; k++)
            job->host.in[k] = operators_input(fixture, XOP_F32, 1, &job->n, 2 * i + k, 0);
        operators_run_one(fixture, tally, op, XOP_FORWARD, &job->host, 1, 0);
        job->there = job->host;
        calls[i] = fixture_prepare(fixture, op, XOP_FORWARD, &job->there, device & 4 ? 0 : 1, 0);
        for (uint32_t k = 0; k < 3; k++) {
            struct xop_tensor *tensor = k < 2 ? &job->there.in[k] : &job->there.out[0];
            if (device >> k & 1) {
                if (k < 2)
                    memory_copy(fixture, tally, at + k * slot, tensor->data, (uint64_t)job->n * 4);
                tensor->data = at + k * slot;
            }
            job->keep[k] = kept >> k & 1 ? at + (3 + k) * slot : NULL;
        }
        plans[i] = &job->there.plan;
        keeps[i] = kept ? job->keep : NULL;
    }
    group.op = op;
    group.ncalls = n;
    group.calls = calls;
    group.plans = plans;
    group.keeps = kept ? keeps : NULL;
    tally_check(tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK,
                "%u calls, device %u, kept %u: %s", n, device, kept, error.message);
    for (uint32_t i = 0; i < n; i++) {
        struct keeps_job *job = &jobs[i];
        uint64_t bytes = (uint64_t)job->n * 4;
        const struct xop_tensor *y = &job->there.out[0];
        const void *want[] = {job->host.in[0].data, job->host.in[1].data, job->host.out[0].data};
        tally_check(tally,
                    device & 4 ? memory_holds(fixture, tally, y->data, want[2], bytes)
                               : memcmp(y->data, want[2], bytes) == 0,
                    "y of call %u of %u differs, device %u, kept %u", i, n, device, kept);
        if (!(device & 4))
            tally_check(tally, fixture_guarded(y), "wrote outside y of call %u of %u", i, n);
        for (uint32_t k = 0; k < 3; k++)
            if (job->keep[k])
                tally_check(tally, memory_holds(fixture, tally, job->keep[k], want[k], bytes),
                            "operand %u of call %u of %u was not kept, device %u, kept %u", k, i, n,
                            device, kept);
    }
    memory_drop(fixture, &made);
}

static void keeps_operands(struct fixture *fixture, bool reduced) {
    struct tally tally = tally_begin("operands in device memory, and what is kept of them");

    for (uint32_t device = 0; device < 8; device++)
        for (uint32_t kept = 0; kept < 8; kept++) {
            keeps_run(fixture, &tally, 3, device, kept, false);
            keeps_run(fixture, &tally, 1, device, kept, true);
        }
    for (uint32_t way : {0x00u, 0x70u, 0x07u, 0x77u, 0x25u})
        if (!reduced)
            keeps_run(fixture, &tally, MEMORY_MOST, way & 7, way >> 4, false);
    tally_end(&tally);
}

/* Staged operands: kept ones have their place for the launch where they are kept. */
static void keeps_staged(struct fixture *fixture) {
    struct tally tally = tally_begin("operands that would be staged are kept");
    struct memory_made made = memory_make(fixture->api, fixture->backend, 4 << 20, true);
    struct xop_op op = seam_op(-1);

    seam_behaviour = seam_launch_add;
    seam_workspace = 0;
    for (int64_t n : {100, 100000})
        for (uint32_t way = 0; way < 16; way++) {
            void *const keep[] = {way & 1 ? made.base : NULL,
                                  way & 2 ? made.base + (2 << 20) : NULL};
            void *const *const keeps[] = {keep};
            struct fixture_request run;
            struct xop_group group = {};
            struct xop_error error = {XOP_OK, ""};
            uint64_t bytes = (uint64_t)n * 4;
            seam_read_once = way >> 2 & 1;
            seam_write_once = way >> 3 & 1;
            fixture_reset(fixture);
            memset(&run, 0, sizeof run);
            run.in[0] = operators_input(fixture, XOP_I32, 1, &n, 1, 0);
            int32_t *x = (int32_t *)fixture_writable(fixture, run.in[0].data);
            for (int32_t i = 0; i < n; i++)
                x[i] = 3 * i + (int32_t)way;
            struct xop_call call = fixture_prepare(fixture, &op, XOP_FORWARD, &run, 1, 0);
            const struct xop_plan *plan = &run.plan;
            group.op = &op;
            group.ncalls = 1;
            group.calls = &call;
            group.plans = &plan;
            group.keeps = keeps;
            tally_check(&tally,
                        fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK, "%s",
                        error.message);
            const int32_t *y = (const int32_t *)run.out[0].data;
            tally_check(&tally, y[0] == x[0] + 1 && y[n - 1] == x[n - 1] + 1,
                        "y is wrong in way %u", way);
            tally_check(&tally, !keep[0] || memory_holds(fixture, &tally, keep[0], x, bytes),
                        "x was not kept in way %u", way);
            tally_check(&tally, !keep[1] || memory_holds(fixture, &tally, keep[1], y, bytes),
                        "y was not kept in way %u", way);
        }
    memory_drop(fixture, &made);
    tally_end(&tally);
}

/* What is wanted nowhere but kept, and what is kept where no memory is. */
static void keeps_only(struct fixture *fixture) {
    struct tally tally = tally_begin("an output may be kept alone, but only in device memory");
    struct memory_made made = memory_make(fixture->api, fixture->backend, 1 << 20, true);
    const struct xop_op *op = fixture_op(fixture, "sigmoid");
    const int64_t n = 10001;
    struct fixture_request apart, run;
    struct xop_group group = {};
    struct xop_error error = {XOP_OK, ""};

    fixture_reset(fixture);
    memset(&apart, 0, sizeof apart);
    apart.in[0] = operators_input(fixture, XOP_F32, 1, &n, 1, 0);
    operators_run_one(fixture, &tally, op, XOP_FORWARD, &apart, 1, 0);
    run = apart;
    struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &run, 0, 0);
    const struct xop_plan *plan = &run.plan;
    void *keep[] = {NULL, made.base};
    void *const *const keeps[] = {keep};
    run.out[0].data = made.base;
    group.op = op;
    group.ncalls = 1;
    group.calls = &call;
    group.plans = &plan;
    group.keeps = keeps;
    tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK, "%s",
                error.message);
    tally_check(&tally, group.copy_ns == 0, "something was copied");
    tally_check(&tally, memory_holds(fixture, &tally, made.base, apart.out[0].data, 4 * n),
                "y is wrong");
    keep[0] = fixture->outbox.seen;
    tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_INTERNAL,
                "x was kept in host memory");
    keep[0] = made.base + made.bytes - 4;
    tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_INTERNAL,
                "x was kept beyond the memory's end");
    memory_drop(fixture, &made);
    tally_end(&tally);
}

/* y in x's memory, the host's and the device's. */
static void keeps_in_place(struct fixture *fixture, enum xop_dtype dtype) {
    struct tally tally = tally_begin("activations over their input %s", xop_dtype_name(dtype));
    struct memory_made made = memory_make(fixture->api, fixture->backend, 8 << 20, false);

    for (int kind = 0; kind < 3; kind++)
        for (int64_t n : {1, 7, 1024, 5001, 400003})
            for (int place = 0; place < 2; place++) {
                const struct xop_op *op = fixture_op(fixture, reference_activations[kind]);
                uint64_t bytes = (uint64_t)n * xop_dtype_size(dtype);
                struct fixture_request apart, there;
                struct xop_group group = {};
                struct xop_error error = {XOP_OK, ""};
                fixture_reset(fixture);
                memset(&apart, 0, sizeof apart);
                apart.in[0] = operators_input(fixture, dtype, 1, &n, (uint32_t)n, 0);
                operators_run_one(fixture, &tally, op, XOP_FORWARD, &apart, 1, 0);
                there = apart;
                fixture_place(&fixture->outbox, &there.in[0], 0);
                if (place)
                    there.in[0].data = made.base;
                memory_copy(fixture, &tally, there.in[0].data, apart.in[0].data, bytes);
                struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &there, 0, 0);
                const struct xop_plan *plan = &there.plan;
                there.out[0].data = there.in[0].data;
                group.op = op;
                group.ncalls = 1;
                group.calls = &call;
                group.plans = &plan;
                tally_check(&tally,
                            fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK,
                            "%s", error.message);
                tally_check(
                    &tally,
                    memory_holds(fixture, &tally, there.in[0].data, apart.out[0].data, bytes),
                    "%s of %lld elements in place %d differs", op->name, (long long)n, place);
            }
    memory_drop(fixture, &made);
    tally_end(&tally);
}

static void keeps_all(struct fixture *fixture, bool reduced) {
    keeps_operands(fixture, reduced);
    keeps_staged(fixture);
    keeps_only(fixture);
    for (enum xop_dtype dtype : {XOP_F16, XOP_BF16, XOP_F32, XOP_F64})
        keeps_in_place(fixture, dtype);
}

#endif
