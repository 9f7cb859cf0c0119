/*
 * Tests of the backend itself, continued: lanes, sleeping, failing launches, a lost device. Part of
 * test_cuda_backend.
 */
#ifndef TESTS_GPU_LANES_CUH
#define TESTS_GPU_LANES_CUH

#include "tests/gpu/seam.cuh"

/* Fills all lanes, then waits for them in any order. */
static void lanes_all(struct fixture *fixture) {
    enum { MOST = 64 };
    static struct fixture_request run[MOST];
    static struct xop_call calls[MOST];
    static const struct xop_plan *plans[MOST];
    static struct xop_group groups[MOST];
    struct tally tally = tally_begin("every lane takes a group, and gives it back once");
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    uint32_t lanes = fixture->api->free_lanes(fixture->backend), returned = 0;
    struct xop_error error = {XOP_OK, ""};
    bool back[MOST] = {};

    fixture_reset(fixture);
    memset(run, 0, sizeof run);
    for (uint32_t i = 0; i < lanes; i++) {
        const int64_t shape[] = {i % 2 ? 1000000 : 1000};
        run[i].in[0] = operators_input(fixture, XOP_F32, 1, shape, 2 * i, 0);
        run[i].in[1] = operators_input(fixture, XOP_F32, 1, shape, 2 * i + 1, 0);
        calls[i] = fixture_prepare(fixture, op, XOP_FORWARD, &run[i], 1, 0);
        plans[i] = &run[i].plan;
        memset(&groups[i], 0, sizeof groups[i]);
        groups[i].op = op;
        groups[i].ncalls = 1;
        groups[i].calls = &calls[i];
        groups[i].plans = &plans[i];
    }
    for (uint32_t i = 0; i < lanes; i++)
        tally_check(&tally, fixture->api->submit(fixture->backend, &groups[i], &error) == XOP_OK,
                    "%s", error.message);
    tally_check(&tally, fixture->api->free_lanes(fixture->backend) == 0, "a lane is still free");
    tally_check(&tally,
                fixture->api->submit(fixture->backend, &groups[0], &error) ==
                    XOP_RESOURCE_EXHAUSTED,
                "more groups than lanes");
    tally_check(&tally,
                fixture->api->unregister_host(fixture->backend, fixture->inbox.seen, &error) ==
                    XOP_FAILED_PRECONDITION,
                "memory in use was given back");
    while (returned < lanes) {
        struct xop_group *done[2];
        uint32_t count = 0;
        if (fixture->api->poll(fixture->backend, done, 2, &count, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
        for (uint32_t k = 0; k < count; k++) {
            size_t i = (size_t)(done[k] - groups);
            tally_check(&tally, i < lanes && !back[i], "group %zu came back again", i);
            back[i] = true;
            operators_check_forward(&tally, run[i].in, &run[i].out[0]);
        }
        returned += count;
    }
    tally_check(&tally, fixture->api->free_lanes(fixture->backend) == lanes, "a lane is missing");
    tally_end(&tally);
}

/* A loop may sleep while a long group runs. */
static void lanes_sleeping(struct fixture *fixture) {
    struct tally tally = tally_begin("a long group wakes a loop that sleeps");
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    const int64_t shape[] = {12 << 20}; /* 144 MiB in all */

    for (int i = 0; i < 20; i++) {
        struct fixture_request run;
        struct xop_group group = {}, *done = NULL;
        struct xop_error error = {XOP_OK, ""};
        uint32_t count = 0;
        int waits = 0;
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0].dtype = run.in[1].dtype = XOP_F32;
        run.in[0].rank = run.in[1].rank = 1;
        run.in[0].shape[0] = run.in[1].shape[0] = shape[0];
        fixture_place(&fixture->inbox, &run.in[0], 0);
        fixture_place(&fixture->inbox, &run.in[1], 0);
        struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &run, 1, 0);
        const struct xop_plan *plan = &run.plan;
        group.op = op;
        group.ncalls = 1;
        group.calls = &call;
        group.plans = &plan;
        if (fixture->api->submit(fixture->backend, &group, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
        struct pollfd wait = {fixture->api->descriptor(fixture->backend), POLLIN, 0};
        tally_check(&tally, wait.fd >= 0, "there is nothing to sleep on");
        while (count == 0 && wait.fd >= 0) {
            if (poll(&wait, 1, 60000) != 1 || ++waits > 10)
                FIXTURE_DIE("nothing woke the loop");
            if (fixture->api->poll(fixture->backend, &done, 1, &count, &error) != XOP_OK)
                FIXTURE_DIE("%s", error.message);
        }
        tally_check(&tally, done == &group && group.status == XOP_OK, "%s", group.error.message);
    }
    tally_end(&tally);
}

/* ---- Launches that fail ---- */

static enum xop_status lanes_fail(const struct xop_launch *launch, struct xop_error *error) {
    (void)launch;
    return xop_fail(error, XOP_UNIMPLEMENTED, "not on a Tuesday");
}

static enum xop_status lanes_fail_silently(const struct xop_launch *launch,
                                           struct xop_error *error) {
    (void)launch;
    (void)error;
    return XOP_INTERNAL;
}

static enum xop_status lanes_too_many_threads(const struct xop_launch *launch,
                                              struct xop_error *error) {
    seam_add_one<<<1, 4096, 0, (cudaStream_t)launch->stream>>>(NULL, NULL, NULL, 0);
    return CHECK_CUDA(error, cudaGetLastError());
}

static void lanes_failures(struct fixture *fixture) {
    struct tally tally = tally_begin("a launch that fails does no harm to the next");
    const struct {
        enum xop_status (*launch)(const struct xop_launch *, struct xop_error *);
        enum xop_status status;
    } ways[] = {{lanes_fail, XOP_UNIMPLEMENTED},
                {lanes_fail_silently, XOP_INTERNAL},
                {lanes_too_many_threads, XOP_INTERNAL}};
    const int64_t n = 1000;

    seam_read_once = seam_write_once = 1;
    seam_workspace = 0;
    for (const auto &way : ways) {
        struct xop_op op = seam_op(-1);
        struct fixture_request run;
        struct xop_group group;
        struct xop_error error = {XOP_OK, ""};
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0] = operators_input(fixture, XOP_I32, 1, &n, 1, 0);
        seam_behaviour = way.launch;
        tally_check(&tally, seam_run(fixture, &op, &run, 1, &group, &error) == way.status, "%s: %s",
                    xop_status_name(error.status), error.message);
        tally_check(&tally, error.message[0] != 0, "without a reason");
        seam_behaviour = seam_launch_add;
        tally_check(&tally, seam_run(fixture, &op, &run, 1, &group, &error) == XOP_OK,
                    "afterwards: %s", error.message);
    }
    tally_end(&tally);
}

/* ---- A lost device ---- */

static __global__ void lanes_stray(int32_t *nowhere) { nowhere[threadIdx.x] = 1; }

static enum xop_status lanes_break(const struct xop_launch *launch, struct xop_error *error) {
    lanes_stray<<<1, 32, 0, (cudaStream_t)launch->stream>>>((int32_t *)(uintptr_t)64);
    return CHECK_CUDA(error, cudaGetLastError());
}

static void lanes_fault(struct fixture *fixture) {
    struct tally tally = tally_begin("a stray store is a device fault, and stays one");
    struct xop_op op = seam_op(-1);
    struct fixture_request run;
    struct xop_group group;
    struct xop_error error = {XOP_OK, ""};
    const int64_t n = 1000;

    seam_behaviour = lanes_break;
    seam_read_once = seam_write_once = 1;
    fixture_reset(fixture);
    memset(&run, 0, sizeof run);
    run.in[0] = operators_input(fixture, XOP_I32, 1, &n, 1, 0);
    tally_check(&tally, seam_run(fixture, &op, &run, 1, &group, &error) == XOP_DEVICE_FAULT,
                "%s: %s", xop_status_name(error.status), error.message);
    printf("# %s\n", error.message);
    tally_check(&tally, strstr(error.message, "own forward") != NULL, "it does not name what ran");
    tally_check(&tally, seam_run(fixture, &op, &run, 1, &group, &error) == XOP_DEVICE_FAULT,
                "a later group: %s", error.message);
    fixture->api->close(fixture->backend);
    tally_end(&tally);
}

#endif
