/*
 * Tests of the backend itself: registered memory, refusals, staging, index checks, lanes, failing
 * launches, and a lost device. The operators here are the test's own. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_SEAM_CUH
#define TESTS_GPU_SEAM_CUH

#include "tests/gpu/fixture.h"
#include "tests/gpu/operators.cuh"
#include <xop/check.h>

static void seam_print_device(const struct fixture *fixture) {
    struct xop_device_info info;
    fixture->api->info(fixture->backend, &info);
    printf("# %s, %s, %s, %u lanes, %.1f of %.1f GiB free\n", info.backend, info.device,
           info.runtime, info.lanes, (double)info.memory_free / (1 << 30),
           (double)info.memory_total / (1 << 30));
}

/* ---- An operator whose launch does what the test says; its operands are staged or not ---- */

static enum xop_status (*seam_behaviour)(const struct xop_launch *launch, struct xop_error *error);
static uint32_t seam_read_once, seam_write_once;
static uint64_t seam_workspace;

static enum xop_status seam_launch(const struct xop_launch *launch, struct xop_error *error) {
    return seam_behaviour(launch, error);
}

static enum xop_status seam_infer(const struct xop_call *call, struct xop_plan *plan,
                                  struct xop_error *error) {
    (void)error;
    plan->out[0] = call->in[0];
    plan->out[0].data = NULL;
    plan->read_once = seam_read_once;
    plan->write_once = seam_write_once;
    plan->workspace_bytes = seam_workspace;
    xop_tensor_bytes(&call->in[0], &plan->bytes);
    return XOP_OK;
}

static struct xop_op seam_op(int32_t index_operand) {
    static const struct xop_operand in[] = {{"x", "", XOP_OPERAND_OWN_DTYPE, 0}};
    static const struct xop_operand out[] = {{"y", "", XOP_OPERAND_OWN_DTYPE, 0}};
    struct xop_op op = {};
    op.abi = XOP_OP_ABI;
    op.name = "own";
    op.doc = "";
    op.pass[0].in = in;
    op.pass[0].out = out;
    op.pass[0].nin = op.pass[0].nout = 1;
    op.pass[0].infer = seam_infer;
    op.pass[0].launch = seam_launch;
    op.pass[0].max_group = 64;
    op.pass[0].index_operand = index_operand;
    return op;
}

/* Runs a group of calls of seam_op on byte arrays of these sizes; results in requests. */
static enum xop_status seam_run(struct fixture *fixture, const struct xop_op *op,
                                struct fixture_request *requests, uint32_t n,
                                struct xop_group *group, struct xop_error *error) {
    static struct xop_call calls[64];
    static const struct xop_plan *plans[64];
    for (uint32_t i = 0; i < n; i++) {
        calls[i] = fixture_prepare(fixture, op, XOP_FORWARD, &requests[i], 1, 0);
        plans[i] = &requests[i].plan;
    }
    memset(group, 0, sizeof *group);
    group->op = op;
    group->ncalls = n;
    group->calls = calls;
    group->plans = plans;
    return fixture_run(fixture->api, fixture->backend, group, error);
}

/* y = x + 1, by way of the workspace where there is one. */
static __global__ void seam_add_one(const int32_t *x, int32_t *y, int32_t *scratch, int64_t n) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        if (scratch)
            scratch[i] = x[i];
        y[i] = (scratch ? scratch[i] : x[i]) + 1;
    }
}

static enum xop_status seam_launch_add(const struct xop_launch *launch, struct xop_error *error) {
    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        int64_t n = call->in[0].shape[0];
        if ((uintptr_t)call->workspace % 256 != 0)
            return xop_fail(error, XOP_INTERNAL, "the workspace is not aligned");
        if (call->out[0].data && n > 0)
            seam_add_one<<<1, 256, 0, (cudaStream_t)launch->stream>>>(
                (const int32_t *)call->in[0].data, (int32_t *)call->out[0].data,
                (int32_t *)call->workspace, n);
    }
    return CHECK_CUDA(error, cudaGetLastError());
}

/* ---- Registering ---- */

static void seam_registration(struct fixture *fixture) {
    struct tally tally = tally_begin("host memory is registered once, and given back");
    struct fixture_memory more = fixture_map(1 << 20, false);
    const struct xop_backend_api *api = fixture->api;
    struct xop_backend *backend = fixture->backend;
    struct xop_error error;

    tally_check(&tally,
                api->register_host(backend, more.write + 8, 4096, false, &error) ==
                    XOP_INVALID_ARGUMENT,
                "memory that begins inside a page was taken");
    tally_check(&tally,
                api->register_host(backend, more.write, more.bytes, false, &error) == XOP_OK, "%s",
                error.message);
    tally_check(&tally,
                api->register_host(backend, more.write + 4096, 4096, false, &error) ==
                    XOP_ALREADY_EXISTS,
                "overlapping memory was taken");
    tally_check(&tally, api->unregister_host(backend, more.write + 4096, &error) == XOP_NOT_FOUND,
                "the middle of a range was given back");
    tally_check(&tally, api->unregister_host(backend, more.write, &error) == XOP_OK, "%s",
                error.message);
    tally_check(&tally, api->unregister_host(backend, more.write, &error) == XOP_NOT_FOUND,
                "a range was given back twice");
    tally_check(&tally,
                api->register_host(backend, more.write, more.bytes, false, &error) == XOP_OK,
                "again: %s", error.message);
    tally_check(&tally, api->unregister_host(backend, more.write, &error) == XOP_OK, "%s",
                error.message);
    munmap(more.write, more.bytes);
    tally_end(&tally);
}

static void seam_refusals(struct fixture *fixture) {
    struct tally tally = tally_begin("what cannot run is refused and leaves the lane free");
    struct fixture_request run[2];
    const int64_t n = 100;
    struct xop_op op = seam_op(-1);
    struct xop_group group;
    struct xop_error error;
    uint32_t lanes = fixture->api->free_lanes(fixture->backend);
    static unsigned char elsewhere[4096];

    seam_behaviour = seam_launch_add;
    seam_read_once = seam_write_once = 1;
    seam_workspace = 0;
    fixture_reset(fixture);
    memset(run, 0, sizeof run);
    run[0].in[0] = operators_input(fixture, XOP_I32, 1, &n, 1, 0);
    run[1] = run[0];
    tally_check(&tally, seam_run(fixture, &op, run, 1, &group, &error) == XOP_OK, "%s",
                error.message);
    op.pass[0].max_group = 1;
    tally_check(&tally, seam_run(fixture, &op, run, 2, &group, &error) == XOP_INTERNAL,
                "more calls than the operator takes");
    op.pass[0].launch = NULL;
    tally_check(&tally, seam_run(fixture, &op, run, 1, &group, &error) == XOP_UNIMPLEMENTED,
                "a pass that is not there");
    op = seam_op(-1);
    run[0].in[0].data = elsewhere;
    tally_check(&tally, seam_run(fixture, &op, run, 1, &group, &error) == XOP_INTERNAL,
                "an input that is not registered");
    run[0].in[0].data = fixture->inbox.seen + fixture->inbox.bytes - 4;
    tally_check(&tally, seam_run(fixture, &op, run, 1, &group, &error) == XOP_INTERNAL,
                "an input that ends outside");
    seam_workspace = UINT64_MAX - 100;
    tally_check(&tally,
                seam_run(fixture, &op, run + 1, 1, &group, &error) == XOP_RESOURCE_EXHAUSTED,
                "a workspace that is larger than any memory");
    seam_workspace = UINT64_C(1) << 50;
    tally_check(&tally,
                seam_run(fixture, &op, run + 1, 1, &group, &error) == XOP_RESOURCE_EXHAUSTED,
                "a workspace that the device does not have");
    seam_workspace = 0;
    tally_check(&tally, seam_run(fixture, &op, run + 1, 1, &group, &error) == XOP_OK,
                "afterwards: %s", error.message);
    tally_check(&tally, fixture->api->free_lanes(fixture->backend) == lanes, "a lane is missing");
    tally_end(&tally);
}

/* ---- Staging ---- */

static void seam_stage_sizes(struct fixture *fixture, struct tally *tally, const struct xop_op *op,
                             const int64_t *sizes, uint32_t n, size_t skew) {
    static struct fixture_request run[64];
    struct xop_group group;
    struct xop_error error = {XOP_OK, ""};

    fixture_reset(fixture);
    memset(run, 0, sizeof run);
    for (uint32_t i = 0; i < n; i++) {
        run[i].in[0] = operators_input(fixture, XOP_I32, 1, &sizes[i], i, skew);
        int32_t *x = (int32_t *)fixture_writable(fixture, run[i].in[0].data);
        for (int64_t k = 0; k < sizes[i]; k++)
            x[k] = (int32_t)(k * 7 + (int64_t)i);
    }
    tally_check(tally, seam_run(fixture, op, run, n, &group, &error) == XOP_OK, "%s",
                error.message);
    for (uint32_t i = 0; i < n; i++) {
        int64_t wrong = -1;
        for (int64_t k = 0; k < sizes[i] && wrong < 0; k++)
            if (((int32_t *)run[i].out[0].data)[k] != (int32_t)(k * 7 + (int64_t)i) + 1)
                wrong = k;
        tally_check(tally, wrong < 0, "element %lld of call %u of %u", (long long)wrong, i, n);
        tally_check(tally, fixture_guarded(&run[i].out[0]), "wrote outside call %u of %u", i, n);
    }
    struct xop_device_info info;
    fixture->api->info(fixture->backend, &info);
    if (seam_read_once && seam_write_once && !strstr(info.runtime, "not pinned"))
        tally_check(tally, group.copy_ns == 0, "%llu ns of copies where nothing is staged",
                    (unsigned long long)group.copy_ns);
}

static void seam_staging(struct fixture *fixture, bool reduced) {
    static const int64_t single[] = {1, 3, 4, 5, 255, 4096, 4099, 16384, 16385, 1000003};
    int64_t many[64];
    struct tally tally = tally_begin("staged operands arrive and come back");
    struct xop_op op = seam_op(-1);

    seam_behaviour = seam_launch_add;
    for (int i = 0; i < 64; i++)
        many[i] = i == 13 ? 100000 : i * i;
    for (uint32_t way = 0; way < 8; way++) {
        seam_read_once = way & 1;
        seam_write_once = way >> 1 & 1;
        for (int64_t size : single) {
            seam_workspace = way & 4 ? 4 * (uint64_t)size : 0;
            if (!reduced || size < 100000)
                seam_stage_sizes(fixture, &tally, &op, &size, 1, way & 4 ? 0 : 4);
        }
        seam_workspace = way & 4 ? 4 * 100000 : 0;
        seam_stage_sizes(fixture, &tally, &op, many, 64, 0);
        seam_stage_sizes(fixture, &tally, &op, many, 9, 12);
    }
    tally_end(&tally);
}

/* ---- Indices that are out of range ---- */

static __global__ void seam_check_indices(const int32_t *x, int32_t *y, int64_t n,
                                          struct xop_bad_index *bad) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        int64_t value = xop_index(XOP_I32, x, (uint64_t)i);
        if (value < 0 || value >= 1000)
            atomicMin((unsigned long long *)&bad->at, (unsigned long long)i);
        else
            y[i] = (int32_t)value;
    }
}

static enum xop_status seam_launch_indices(const struct xop_launch *launch,
                                           struct xop_error *error) {
    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct xop_call *call = &launch->calls[i];
        seam_check_indices<<<1, 256, 0, (cudaStream_t)launch->stream>>>(
            (const int32_t *)call->in[0].data, (int32_t *)call->out[0].data, call->in[0].shape[0],
            call->bad_index);
    }
    return CHECK_CUDA(error, cudaGetLastError());
}

static void seam_indices(struct fixture *fixture) {
    static struct fixture_request run[20];
    static struct xop_call calls[20];
    static const struct xop_plan *plans[20];
    static struct xop_bad_index bad[20];
    struct tally tally = tally_begin("the first bad index of each call is reported");
    struct xop_op op = seam_op(0);
    struct xop_group group = {};
    struct xop_error error = {XOP_OK, ""};
    const int64_t n = 1000;

    seam_behaviour = seam_launch_indices;
    seam_read_once = seam_write_once = 1;
    seam_workspace = 512;
    fixture_reset(fixture);
    memset(run, 0, sizeof run);
    for (int i = 0; i < 20; i++) {
        run[i].in[0] = operators_input(fixture, XOP_I32, 1, &n, 1, 0);
        int32_t *x = (int32_t *)fixture_writable(fixture, run[i].in[0].data);
        for (int32_t k = 0; k < n; k++)
            x[k] = k;
        if (i % 2)
            x[40 * i] = x[999] = i % 4 == 1 ? -1 : 1000;
        calls[i] = fixture_prepare(fixture, &op, XOP_FORWARD, &run[i], 1, 0);
        calls[i].bad_index = &bad[i];
        plans[i] = &run[i].plan;
    }
    group.op = &op;
    group.ncalls = 20;
    group.calls = calls;
    group.plans = plans;
    tally_check(&tally, fixture_run(fixture->api, fixture->backend, &group, &error) == XOP_OK, "%s",
                error.message);
    for (uint64_t i = 0; i < 20; i++)
        tally_check(&tally,
                    bad[i].at == (i % 2 ? 40 * i : UINT64_MAX) &&
                        (i % 2 == 0 || bad[i].value == (i % 4 == 1 ? -1 : 1000)),
                    "call %llu says %lld at %llu", (unsigned long long)i, (long long)bad[i].value,
                    (unsigned long long)bad[i].at);
    tally_end(&tally);
}

#endif
