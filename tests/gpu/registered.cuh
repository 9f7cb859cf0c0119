/*
 * Tests of host memory that is registered in pieces, of memory in use, of the helper's thread
 * beside the loop, and of probes. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_REGISTERED_CUH
#define TESTS_GPU_REGISTERED_CUH

#include "tests/gpu/memory.cuh"

static void registered_pieces(struct fixture *fixture) {
    const uint64_t piece = 64 << 20;
    struct tally tally = tally_begin("tensors lie across the pieces of registered memory");
    struct fixture_memory more = fixture_map(3 * piece, false);
    struct memory_made made = memory_make(fixture->api, fixture->backend, 2 * piece, false);
    const struct xop_backend_api *api = fixture->api;
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    struct xop_error error = {XOP_OK, ""};
    uint64_t edge = piece - (uintptr_t)more.seen % piece; /* the first boundary, from the start */

    if (api->register_host(fixture->backend, more.seen, more.bytes, false, &error) != XOP_OK)
        FIXTURE_DIE("%s", error.message);
    for (uint64_t n : {(uint64_t)1000, (uint64_t)100000, piece / 4 + 1000}) {
        float *x = (float *)(more.seen + edge - 400);
        struct fixture_request run;
        struct xop_group group = {};
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0] = run.in[1] = memory_tensor(XOP_F32, (int64_t)n, x);
        for (uint64_t i = 0; i < n; i++)
            x[i] = (float)(i % 1000);
        struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &run, 1, 0);
        const struct xop_plan *plan = &run.plan;
        group.op = op;
        group.ncalls = 1;
        group.calls = &call;
        group.plans = &plan;
        tally_check(&tally, fixture_run(api, fixture->backend, &group, &error) == XOP_OK, "%s",
                    error.message);
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < n; i++)
            wrong += ((float *)run.out[0].data)[i] != x[i] * x[i] + x[i];
        tally_check(&tally, wrong == 0, "%llu of %llu elements are wrong",
                    (unsigned long long)wrong, (unsigned long long)n);
        memory_copy(fixture, &tally, made.base, x, 4 * n);
        tally_check(&tally, memory_holds(fixture, &tally, made.base, x, 4 * n),
                    "%llu bytes changed on the way", (unsigned long long)(4 * n));
        memset(x, 0, 4 * n);
        memory_copy(fixture, &tally, x, made.base, 4 * n);
        tally_check(&tally, x[0] == 0 && x[1] == 1 && x[n - 1] == (float)((n - 1) % 1000),
                    "it did not come back");
    }
    tally_check(&tally,
                api->unregister_host(fixture->backend, more.seen + edge, &error) == XOP_NOT_FOUND,
                "a piece was given back");
    tally_check(&tally, api->unregister_host(fixture->backend, more.seen, &error) == XOP_OK, "%s",
                error.message);
    const struct memory_copy copy = {made.base, more.seen + edge, 100};
    tally_check(&tally, memory_copy_all(api, fixture->backend, &copy, 1, &error) == XOP_INTERNAL,
                "a piece was left behind");
    memory_drop(fixture, &made);
    munmap(more.seen, more.bytes);
    tally_end(&tally);
}

static void registered_in_use(struct fixture *fixture) {
    struct tally tally = tally_begin("memory in use is not dropped");
    const struct xop_backend_api *api = fixture->api;
    const struct xop_op *op = fixture_op(fixture, "sigmoid");
    const int64_t n = 100000;
    struct xop_error error = {XOP_OK, ""};

    for (int way = 0; way < 3; way++) { /* as input, as output, as a keep */
        struct memory_made made = memory_make(api, fixture->backend, 1 << 20, true);
        struct fixture_request run;
        struct xop_group group = {}, *done = NULL;
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0] = operators_input(fixture, XOP_F32, 1, &n, 1, 0);
        struct xop_call call = fixture_prepare(fixture, op, XOP_FORWARD, &run, 1, 0);
        const struct xop_plan *plan = &run.plan;
        void *const keep[] = {NULL, way == 2 ? made.base : NULL};
        void *const *const keeps[] = {keep};
        if (way < 2)
            *(way ? &run.out[0].data : &run.in[0].data) = made.base + 4096;
        group.op = op;
        group.ncalls = 1;
        group.calls = &call;
        group.plans = &plan;
        group.keeps = keeps;
        if (api->submit(fixture->backend, &group, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
        tally_check(&tally,
                    api->memory_drop(fixture->backend, made.base, &error) ==
                        XOP_FAILED_PRECONDITION,
                    "dropped while a group used it in way %d", way);
        if (fixture_wait(api, fixture->backend, &done, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
        tally_check(&tally, api->memory_drop(fixture->backend, made.base, &error) == XOP_OK, "%s",
                    error.message);
        tally_check(&tally, done->status == XOP_OK, "%s", done->error.message);
        close(made.fd);
    }
    tally_end(&tally);
}

struct memory_helper {
    const struct fixture *fixture;
    bool stop; /* atomically */
    unsigned rounds, failures;
    struct xop_error error;
};

/* Memory comes and goes, of both kinds. */
static void *registered_help(void *arg) {
    struct memory_helper *helper = (struct memory_helper *)arg;
    const struct xop_backend_api *api = helper->fixture->api;
    struct xop_backend *backend = helper->fixture->backend;
    struct fixture_memory more = fixture_map(1 << 20, false);

    while (!__atomic_load_n(&helper->stop, __ATOMIC_ACQUIRE) || helper->rounds < 3) {
        uint64_t bytes = 1 << 20;
        struct xop_error *error = &helper->error;
        void *base = NULL, *again = NULL;
        int fd = -1;
        bool good = api->register_host(backend, more.seen, more.bytes, false, error) == XOP_OK &&
                    api->memory_make(backend, &bytes, true, &fd, &base, error) == XOP_OK &&
                    api->memory_import(backend, fd, bytes, &again, error) == XOP_OK &&
                    api->memory_drop(backend, base, error) == XOP_OK &&
                    api->memory_drop(backend, again, error) == XOP_OK &&
                    api->unregister_host(backend, more.seen, error) == XOP_OK;
        helper->failures += !good;
        helper->rounds++;
        close(fd);
    }
    munmap(more.seen, more.bytes);
    return NULL;
}

static void registered_beside_the_loop(struct fixture *fixture, bool reduced) {
    struct tally tally = tally_begin("memory comes and goes while groups run");
    struct memory_helper helper = {};
    pthread_t thread;

    helper.fixture = fixture;
    if (pthread_create(&thread, NULL, registered_help, &helper) != 0)
        FIXTURE_DIE("no thread");
    for (int i = 0; i < (reduced ? 20 : 2000); i++) {
        struct fixture_request run;
        const int64_t n = 1 + i * 37 % 5000;
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0] = operators_input(fixture, XOP_F32, 1, &n, (uint32_t)i, 0);
        run.in[1] = operators_input(fixture, XOP_F32, 1, &n, (uint32_t)i + 1, 0);
        operators_run_one(fixture, &tally, fixture_op(fixture, "square_bias"), XOP_FORWARD, &run, 1,
                          0);
        operators_check_forward(&tally, run.in, &run.out[0]);
    }
    __atomic_store_n(&helper.stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    tally_check(&tally, helper.failures == 0, "%u of %u rounds failed: %s", helper.failures,
                helper.rounds, helper.error.message);
    tally_end(&tally);
}

static void registered_probes(struct fixture *fixture) {
    struct tally tally = tally_begin("the bare device is timed");
    struct xop_error error = {XOP_OK, ""};
    struct xop_probe probe;

    for (uint64_t bytes : {UINT64_C(4), UINT64_C(100000), UINT64_C(64) << 20}) {
        tally_check(&tally,
                    fixture->api->probe(fixture->backend, bytes, bytes / 2, &probe, &error) ==
                        XOP_OK,
                    "%s", error.message);
        printf("# %llu bytes in, half out: launch %llu, direct %llu, copy %llu, device %llu ns\n",
               (unsigned long long)bytes, (unsigned long long)probe.launch_ns,
               (unsigned long long)probe.direct_ns, (unsigned long long)probe.copy_ns,
               (unsigned long long)probe.device_ns);
        tally_check(&tally,
                    probe.launch_ns > 0 && probe.direct_ns > 0 && probe.copy_ns > 0 &&
                        probe.device_ns > 0,
                    "something took no time");
    }
    tally_check(&tally, fixture->api->probe(fixture->backend, 0, 0, &probe, &error) == XOP_OK, "%s",
                error.message);
    tally_check(&tally, probe.launch_ns > 0 && probe.direct_ns == 0, "moving nothing took time");
    tally_check(&tally,
                fixture->api->probe(fixture->backend, UINT64_C(1) << 40, 0, &probe, &error) ==
                    XOP_RESOURCE_EXHAUSTED,
                "a probe of 1 TiB");
    tally_end(&tally);
}

static void registered_all(struct fixture *fixture, bool reduced) {
    registered_pieces(fixture);
    registered_in_use(fixture);
    registered_beside_the_loop(fixture, reduced);
    registered_probes(fixture);
}

#endif
