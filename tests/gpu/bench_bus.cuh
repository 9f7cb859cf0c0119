/*
 * The backend on host memory: large requests beside a bare program that copies in chunks, and many
 * small ones in groups. Part of bench_kernels.
 */
#ifndef TESTS_GPU_BENCH_BUS_CUH
#define TESTS_GPU_BENCH_BUS_CUH

#include "tests/gpu/bench.h"

#define BUS_REPEATS 31

/* A group over memory of the fixture, made once and submitted often. */
struct bus_group {
    struct xop_group group;
    struct xop_call *calls;
    struct fixture_request *requests;
    const struct xop_plan **plans;
};

static struct bus_group bus_make(struct fixture *fixture, uint32_t ncalls, int64_t n) {
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    struct bus_group made = {};
    made.calls = (struct xop_call *)calloc(ncalls, sizeof *made.calls);
    made.requests = (struct fixture_request *)calloc(ncalls, sizeof *made.requests);
    made.plans = (const struct xop_plan **)calloc(ncalls, sizeof *made.plans);
    if (!made.calls || !made.requests || !made.plans)
        FIXTURE_DIE("no memory");
    for (uint32_t i = 0; i < ncalls; i++) {
        for (int k = 0; k < 2; k++) {
            struct xop_tensor *in = &made.requests[i].in[k];
            in->dtype = XOP_F32;
            in->rank = 1;
            in->shape[0] = n;
            fixture_place(&fixture->inbox, in, 0);
            float *data = (float *)fixture_writable(fixture, in->data);
            for (int64_t j = 0; j < n; j++)
                data[j] = (float)(j % 1000) * 0.001f + (float)k;
        }
        made.calls[i] = fixture_prepare(fixture, op, XOP_FORWARD, &made.requests[i], 1, 0);
        made.plans[i] = &made.requests[i].plan;
    }
    made.group.op = op;
    made.group.ncalls = ncalls;
    made.group.calls = made.calls;
    made.group.plans = made.plans;
    return made;
}

static void bus_free(struct bus_group *made) {
    free(made->calls);
    free(made->requests);
    free(made->plans);
}

/* Submits and waits, polling; the host's time. */
static double bus_time(const struct fixture *fixture, struct xop_backend *backend,
                       struct xop_group *group) {
    struct xop_error error;
    double begin = bench_now();
    if (fixture_run(fixture->api, backend, group, &error) != XOP_OK)
        FIXTURE_DIE("%s", error.message);
    return bench_now() - begin;
}

/* ---- The rival: copy in, kernel, copy out, in chunks over two streams ---- */

static __global__ void bus_plain(const float *x, const float *b, float *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] * x[i] + b[i];
}

struct bus_rival {
    cudaStream_t stream[2];
    float *x, *b, *y;
};

static struct bus_rival bus_rival_open(size_t most) {
    struct bus_rival rival;
    for (cudaStream_t &stream : rival.stream)
        BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    BENCH_CUDA(cudaMalloc((void **)&rival.x, most * sizeof(float)));
    BENCH_CUDA(cudaMalloc((void **)&rival.b, most * sizeof(float)));
    BENCH_CUDA(cudaMalloc((void **)&rival.y, most * sizeof(float)));
    return rival;
}

static void bus_rival_close(struct bus_rival *rival) {
    for (cudaStream_t stream : rival->stream)
        BENCH_CUDA(cudaStreamDestroy(stream));
    BENCH_CUDA(cudaFree(rival->x));
    BENCH_CUDA(cudaFree(rival->b));
    BENCH_CUDA(cudaFree(rival->y));
}

static double bus_rival_time(const struct bus_rival *rival, const struct fixture_request *request,
                             size_t chunks) {
    size_t n = (size_t)request->in[0].shape[0], piece = (n + chunks - 1) / chunks;
    const float *x = (const float *)request->in[0].data, *b = (const float *)request->in[1].data;
    float *y = (float *)request->out[0].data;
    double begin = bench_now();
    for (size_t c = 0, at = 0; at < n; c++, at += piece) {
        size_t some = n - at < piece ? n - at : piece, bytes = some * sizeof(float);
        cudaStream_t stream = rival->stream[c % 2];
        BENCH_CUDA(cudaMemcpyAsync(rival->x + at, x + at, bytes, cudaMemcpyHostToDevice, stream));
        BENCH_CUDA(cudaMemcpyAsync(rival->b + at, b + at, bytes, cudaMemcpyHostToDevice, stream));
        bus_plain<<<(unsigned)((some + 255) / 256), 256, 0, stream>>>(rival->x + at, rival->b + at,
                                                                      rival->y + at, some);
        BENCH_CUDA(cudaGetLastError());
        BENCH_CUDA(cudaMemcpyAsync(y + at, rival->y + at, bytes, cudaMemcpyDeviceToHost, stream));
    }
    BENCH_CUDA(cudaStreamSynchronize(rival->stream[0]));
    BENCH_CUDA(cudaStreamSynchronize(rival->stream[1]));
    return bench_now() - begin;
}

/* ---- Tables ---- */

/* Another backend with another number of blocks; the memory goes over to it. */
static void bus_reopen(struct fixture *fixture, const char *blocks) {
    struct xop_error error;
    struct xop_backend *old = fixture->backend;
    setenv("XOP_CUDA_DIRECT_BLOCKS", blocks, 1);
    fixture->backend = fixture_start(fixture->api, 0);
    if (fixture->api->unregister_host(old, fixture->inbox.seen, &error) != XOP_OK ||
        fixture->api->unregister_host(old, fixture->outbox.seen, &error) != XOP_OK ||
        fixture->api->register_host(fixture->backend, fixture->inbox.seen, fixture->inbox.bytes,
                                    true, &error) != XOP_OK ||
        fixture->api->register_host(fixture->backend, fixture->outbox.seen, fixture->outbox.bytes,
                                    false, &error) != XOP_OK)
        FIXTURE_DIE("%s", error.message);
    fixture->api->close(old);
}

static void bus_large(struct fixture *fixture, const char *label, int64_t n) {
    static const char *const blocks[] = {"0", "4", "5", "6", "8", "16", "64", "256", "1024"};
    struct bus_rival rival = bus_rival_open((size_t)n);
    struct bus_group made;

    fixture_reset(fixture);
    made = bus_make(fixture, 1, n);
    for (const char *count : blocks) {
        double ours[BUS_REPEATS], device[BUS_REPEATS], four[BUS_REPEATS], eight[BUS_REPEATS];
        bus_reopen(fixture, count);
        for (int i = -3; i < BUS_REPEATS; i++) {
            int k = i < 0 ? 0 : i;
            four[k] = bus_rival_time(&rival, made.requests, 4);
            eight[k] = bus_rival_time(&rival, made.requests, 8);
            ours[k] = bus_time(fixture, fixture->backend, &made.group);
            device[k] = (double)made.group.run_ns * 1e-9;
        }
        double a = bench_quantile(four, BUS_REPEATS, 0.5);
        double b = bench_quantile(eight, BUS_REPEATS, 0.5), best = a < b ? a : b;
        double mine = bench_quantile(ours, BUS_REPEATS, 0.5);
        printf("| %-9s | %6s | %9.1f | %9.1f | %9.1f | %9.1f | %.3f | %6.1f |\n", label, count,
               mine * 1e6, bench_quantile(device, BUS_REPEATS, 0.5) * 1e6, a * 1e6, b * 1e6,
               mine / best, 3 * 4 * (double)n / mine * 1e-9);
        fflush(stdout);
    }
    bus_free(&made);
    bus_rival_close(&rival);
}

/* Keeps so many groups in flight. */
static double bus_throughput(struct fixture *fixture, struct bus_group *groups, uint32_t flying,
                             uint32_t total) {
    struct xop_error error;
    struct xop_group *done[64];
    uint32_t started = 0, finished = 0, count;
    double begin = bench_now();
    while (started < flying && started < total)
        if (fixture->api->submit(fixture->backend, &groups[started++].group, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
    while (finished < total) {
        if (fixture->api->poll(fixture->backend, done, 64, &count, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
        for (uint32_t i = 0; i < count; i++, finished++)
            if (started < total) {
                if (fixture->api->submit(fixture->backend, done[i], &error) != XOP_OK)
                    FIXTURE_DIE("%s", error.message);
                started++;
            }
    }
    return bench_now() - begin;
}

static void bus_small(struct fixture *fixture) {
    static const uint32_t sizes[] = {1, 16, 64, 256};
    uint32_t lanes = fixture->api->free_lanes(fixture->backend);

    for (uint32_t calls : sizes) {
        struct bus_group groups[64];
        fixture_reset(fixture);
        for (uint32_t i = 0; i < lanes; i++)
            groups[i] = bus_make(fixture, calls, 1024);
        for (uint32_t flying = 1; flying <= lanes; flying = flying < lanes ? lanes : lanes + 1) {
            uint32_t total = 200;
            double samples[9];
            for (int i = -1; i < 9; i++)
                samples[i < 0 ? 0 : i] = bus_throughput(fixture, groups, flying, total);
            double took = bench_quantile(samples, 9, 0.5);
            printf("| %5u | %6u | %10.2f | %10.0f | %6.1f |\n", calls, flying, took / total * 1e6,
                   total * calls / took, (double)total * calls * 3 * 4096 / took * 1e-9);
            fflush(stdout);
        }
        for (uint32_t i = 0; i < lanes; i++)
            bus_free(&groups[i]);
    }
}

static void bus_latency(struct fixture *fixture) {
    enum { N = 5000 };
    static double samples[N];
    struct bus_group made;

    fixture_reset(fixture);
    made = bus_make(fixture, 1, 1024);
    for (int i = -100; i < N; i++)
        samples[i < 0 ? 0 : i] = bus_time(fixture, fixture->backend, &made.group);
    printf("One request of 1024 elements at a time, submit to done: p50 %.1f us, p99 %.1f us\n",
           bench_quantile(samples, N, 0.5) * 1e6, bench_quantile(samples, N, 0.99) * 1e6);
    bus_free(&made);
}

#endif
