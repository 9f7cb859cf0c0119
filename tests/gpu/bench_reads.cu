/*
 * How many reads under way a kernel on host memory needs to fill the bus, and how long a small one
 * waits beside it: y = x*x + b of 1280x1280 f32, again and again on one stream, with one of 1024
 * elements at a time on another of high priority. For several numbers of blocks, of vectors that a
 * thread has under way, and for bulk copies into shared memory. A bare program, without the
 * backend.
 */
#include <cuda_runtime.h>
#include <stdint.h>

#include "tests/gpu/bench.h"

#define THREADS 256
#define LARGE (1280 * 1280 / 4) /* vectors of 16 bytes */
#define SMALL (1024 / 4)
#define STAGES 4 /* pieces of a block that are under way */
#define LAUNCHES 40
#define SAMPLES 200

static __device__ float4 square_bias(float4 x, float4 b) {
    return make_float4(x.x * x.x + b.x, x.y * x.y + b.y, x.z * x.z + b.z, x.w * x.w + b.w);
}

template <int UNROLL>
static __global__ void __launch_bounds__(THREADS)
    by_vectors(const float4 *x, const float4 *b, float4 *y, uint32_t n) {
    const uint32_t tile = THREADS * UNROLL;
    for (uint32_t at = blockIdx.x * tile; at < n; at += gridDim.x * tile) {
        float4 u[UNROLL], v[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            u[k] = __ldcs(x + at + k * THREADS + threadIdx.x);
            v[k] = __ldcs(b + at + k * THREADS + threadIdx.x);
        }
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            __stcs(y + at + k * THREADS + threadIdx.x, square_bias(u[k], v[k]));
    }
}

static __device__ uint32_t shared_address(const void *at) {
    return (uint32_t)__cvta_generic_to_shared(at);
}

static __device__ void bulk_read(void *to, const void *from, uint32_t bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

static __device__ void bulk_wait(uint64_t *barrier, uint32_t phase) {
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(phase)
                     : "memory");
}

/* n is a multiple of a piece, of `vectors` vectors. From Hopper on. */
static __global__ void __launch_bounds__(THREADS)
    by_bulk(const float4 *x, const float4 *b, float4 *y, uint32_t n, uint32_t vectors) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) float4 piece[];
    __shared__ uint64_t full[STAGES];
    const uint32_t pieces = n / vectors, bytes = vectors * (uint32_t)sizeof(float4);
    const uint32_t mine = (pieces - blockIdx.x + gridDim.x - 1) / gridDim.x;
    auto start = [&](uint32_t k) {
        uint32_t stage = k % STAGES, at = (blockIdx.x + k * gridDim.x) * vectors;
        asm volatile(
            "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(full + stage)),
            "r"(2 * bytes)
            : "memory");
        bulk_read(piece + 2 * stage * vectors, x + at, bytes, full + stage);
        bulk_read(piece + (2 * stage + 1) * vectors, b + at, bytes, full + stage);
    };
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < STAGES; i++)
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(full + i)));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (uint32_t k = 0; k < STAGES && k < mine; k++)
            start(k);
    for (uint32_t k = 0; k < mine; k++) {
        uint32_t stage = k % STAGES, at = (blockIdx.x + k * gridDim.x) * vectors;
        bulk_wait(full + stage, k / STAGES & 1);
        for (uint32_t i = threadIdx.x; i < vectors; i += THREADS)
            y[at + i] =
                square_bias(piece[2 * stage * vectors + i], piece[(2 * stage + 1) * vectors + i]);
        __syncthreads();
        if (threadIdx.x == 0 && k + STAGES < mine)
            start(k + STAGES);
    }
#endif
}

struct reads_memory {
    float4 *x, *b, *y, *small; /* small: x, b and y, one after the other */
    cudaStream_t large[2], urgent;
    cudaEvent_t begin, end, small_begin, small_end;
};

static void reads_open(struct reads_memory *m) {
    int lowest = 0, highest = 0;
    for (float4 **at : {&m->x, &m->b, &m->y})
        BENCH_CUDA(cudaHostAlloc((void **)at, LARGE * sizeof(float4), cudaHostAllocMapped));
    BENCH_CUDA(cudaHostAlloc((void **)&m->small, 3 * SMALL * sizeof(float4), cudaHostAllocMapped));
    memset(m->x, 0, LARGE * sizeof(float4));
    memset(m->b, 0, LARGE * sizeof(float4));
    memset(m->small, 0, 3 * SMALL * sizeof(float4));
    BENCH_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    for (cudaStream_t &stream : m->large)
        BENCH_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, lowest));
    BENCH_CUDA(cudaStreamCreateWithPriority(&m->urgent, cudaStreamNonBlocking, highest));
    for (cudaEvent_t *event : {&m->begin, &m->end, &m->small_begin, &m->small_end})
        BENCH_CUDA(cudaEventCreate(event));
}

static bool reads_is_done(cudaEvent_t event) {
    cudaError_t code = cudaEventQuery(event);
    if (code != cudaErrorNotReady)
        BENCH_CUDA(code);
    return code == cudaSuccess;
}

/* One small request, timed by events as the backend does it; in seconds, until it is seen done. */
static double reads_small(const struct reads_memory *m, double *on_device) {
    double begin = bench_now(), took;
    float ms = 0;
    BENCH_CUDA(cudaEventRecord(m->small_begin, m->urgent));
    by_vectors<1>
        <<<1, THREADS, 0, m->urgent>>>(m->small, m->small + SMALL, m->small + 2 * SMALL, SMALL);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaEventRecord(m->small_end, m->urgent));
    while (!reads_is_done(m->small_end))
        ;
    took = bench_now() - begin;
    BENCH_CUDA(cudaEventElapsedTime(&ms, m->small_begin, m->small_end));
    *on_device = (double)ms * 1e-3;
    return took;
}

/* LAUNCH(stream) starts a large one; with two streams they run side by side. */
template <class LAUNCH>
static void reads_measure(const struct reads_memory *m, const char *label, uint32_t under_way,
                          int streams, LAUNCH launch) {
    static double host[SAMPLES], device[SAMPLES];
    int n = 0;
    float ms = 0;
    while (n < SAMPLES) {
        int before = n;
        BENCH_CUDA(cudaEventRecord(m->begin, m->large[0]));
        for (int i = 0; i < LAUNCHES; i++)
            launch(m->large[i % streams]);
        BENCH_CUDA(cudaGetLastError());
        BENCH_CUDA(cudaEventRecord(m->end, m->large[0]));
        while (n < SAMPLES && !reads_is_done(m->end)) {
            host[n] = reads_small(m, &device[n]);
            n++;
        }
        BENCH_CUDA(cudaDeviceSynchronize());
        BENCH_CUDA(cudaEventElapsedTime(&ms, m->begin, m->end));
        if (n == before)
            FIXTURE_DIE("%s: the large ones were over at once", label);
    }
    printf("| %-26s | %7u | %8.1f | %8.1f | %8.1f | %8.1f |\n", label, under_way / 1024,
           (double)ms * 1e3 / LAUNCHES, bench_quantile(host, SAMPLES, 0.5) * 1e6,
           bench_quantile(host, SAMPLES, 0.99) * 1e6, bench_quantile(device, SAMPLES, 0.5) * 1e6);
    fflush(stdout);
}

template <int UNROLL>
static void reads_by_vectors(const struct reads_memory *m, uint32_t blocks, int streams) {
    char label[64];
    snprintf(label, sizeof label, "%u blocks, %d vectors%s", blocks, UNROLL,
             streams > 1 ? ", two" : "");
    reads_measure(m, label, (uint32_t)streams * blocks * THREADS * UNROLL * 2 * 16, streams,
                  [=](cudaStream_t stream) {
                      by_vectors<UNROLL><<<blocks, THREADS, 0, stream>>>(m->x, m->b, m->y, LARGE);
                  });
}

static void reads_by_bulk(const struct reads_memory *m, uint32_t blocks, uint32_t bytes) {
    uint32_t shared = 2 * STAGES * bytes;
    char label[64];
    snprintf(label, sizeof label, "%u blocks, bulk of %u", blocks, bytes);
    BENCH_CUDA(
        cudaFuncSetAttribute(by_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    reads_measure(m, label, blocks * shared, 1, [=](cudaStream_t stream) {
        by_bulk<<<blocks, THREADS, shared, stream>>>(m->x, m->b, m->y, LARGE,
                                                     bytes / (uint32_t)sizeof(float4));
    });
}

int main(void) {
    struct reads_memory m = {};
    struct cudaDeviceProp properties;
    BENCH_CUDA(cudaGetDeviceProperties(&properties, 0));
    reads_open(&m);
    printf("| 1280x1280 by | KiB under way | large, us | small p50 | small p99 | on the device |\n"
           "| --- | --- | --- | --- | --- | --- |\n");
    reads_by_vectors<4>(&m, 8, 2);
    for (uint32_t blocks : {4, 5, 6, 8, 16, 64})
        reads_by_vectors<4>(&m, blocks, 1);
    for (uint32_t blocks : {4, 6, 8, 10, 16})
        reads_by_vectors<2>(&m, blocks, 1);
    for (uint32_t blocks : {8, 16, 32})
        reads_by_vectors<1>(&m, blocks, 1);
    if (properties.major < 9)
        return 0;
    for (uint32_t blocks : {4, 6, 8, 16})
        reads_by_bulk(&m, blocks, 2048);
    for (uint32_t blocks : {2, 4, 8})
        reads_by_bulk(&m, blocks, 4096);
    return 0;
}
