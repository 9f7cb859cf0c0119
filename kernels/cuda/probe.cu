#include "kernels/cuda/probe.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/copy.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.h"

#define RUNS 50
#define WARM_UP 5
#define LEAST_RUNS 5
#define ENOUGH_NS UINT64_C(1000000000) /* after which no further run begins */
#define MOST_BYTES (UINT64_C(1) << 30)
#define UNROLL 4 /* loads that a thread has in flight, as operators have */

/* ---- Kernels ---- */

static __global__ void probe_empty() {}

/* Reads all vectors of `in` and writes all of `out`, where there are any: what is written depends
 * on what was read, so that nothing can be left out. */
static __global__ void __launch_bounds__(ELEMENT_BLOCK)
    probe_move(const uint4 *in, uint64_t nin, uint4 *out, uint64_t nout, uint4 *sink) {
    const uint64_t tile = ELEMENT_BLOCK * UNROLL, most = nin > nout ? nin : nout;
    uint32_t all = 0;

    for (uint64_t at = blockIdx.x * tile; at < most; at += gridDim.x * tile) {
        uint4 raw[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            uint64_t i = at + threadIdx.x + u * ELEMENT_BLOCK;
            raw[u] = i < nin ? __ldcs(in + i) : make_uint4(1, 2, 3, 4);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            uint64_t i = at + threadIdx.x + u * ELEMENT_BLOCK;
            all |= raw[u].x | raw[u].y | raw[u].z | raw[u].w;
            if (i < nout)
                __stcs(out + i, raw[u]);
        }
    }
    if (all == 0xffffffffu) /* never: the inputs are zero */
        *sink = make_uint4(all, all, all, all);
}

/* ---- Measuring ---- */

struct probe_state {
    cudaStream_t stream;
    cudaEvent_t done;
    uint64_t bytes_in, bytes_out; /* multiples of 16 */
    uint32_t blocks;              /* of launches on host memory */
    cudaMemPool_t pool;           /* NULL: there is none */
    char *host, *device;          /* each: what is read, what is written, a sink of 16 bytes */
};

static enum xop_status run_launch(const struct probe_state *state, struct xop_error *error) {
    probe_empty<<<1, 32, 0, state->stream>>>();
    return CHECK_CUDA(error, cudaGetLastError());
}

static enum xop_status run_move(const struct probe_state *state, char *memory, uint32_t most,
                                struct xop_error *error) {
    uint64_t nin = state->bytes_in / 16, nout = state->bytes_out / 16;
    uint64_t vectors = nin > nout ? nin : nout;
    uint64_t tiles = (vectors + ELEMENT_BLOCK * UNROLL - 1) / (ELEMENT_BLOCK * UNROLL);
    uint32_t blocks = most > 0 && tiles > most ? most : (uint32_t)tiles;

    probe_move<<<blocks, ELEMENT_BLOCK, 0, state->stream>>>(
        (const uint4 *)memory, nin, (uint4 *)(memory + state->bytes_in), nout,
        (uint4 *)(memory + state->bytes_in + state->bytes_out));
    return CHECK_CUDA(error, cudaGetLastError());
}

static enum xop_status run_direct(const struct probe_state *state, struct xop_error *error) {
    return run_move(state, state->host, state->blocks, error);
}

static enum xop_status run_device(const struct probe_state *state, struct xop_error *error) {
    return run_move(state, state->device, 0, error);
}

static enum xop_status run_copy(const struct probe_state *state, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    if (state->bytes_in > 0)
        status = CHECK_CUDA(error, cudaMemcpyAsync(state->device, state->host, state->bytes_in,
                                                   cudaMemcpyHostToDevice, state->stream));
    if (status == XOP_OK && state->bytes_out > 0)
        status = CHECK_CUDA(
            error, cudaMemcpyAsync(state->host + state->bytes_in, state->device + state->bytes_in,
                                   state->bytes_out, cudaMemcpyDeviceToHost, state->stream));
    return status;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

typedef enum xop_status (*run_fn)(const struct probe_state *state, struct xop_error *error);

/* One run, until it is seen to be done in the way the backend sees it. */
static enum xop_status run_once(const struct probe_state *state, run_fn run, uint64_t *ns,
                                struct xop_error *error) {
    uint64_t begin = now_ns();
    enum xop_status status = run(state, error);
    cudaError_t code;

    if (status == XOP_OK)
        status = CHECK_CUDA(error, cudaEventRecord(state->done, state->stream));
    if (status != XOP_OK)
        return status;
    while ((code = cudaEventQuery(state->done)) == cudaErrorNotReady)
        cudaGetLastError(); /* not a later call's failure */
    *ns = now_ns() - begin;
    return CHECK_CUDA(error, code);
}

static enum xop_status measure(const struct probe_state *state, run_fn run, uint64_t *median,
                               struct xop_error *error) {
    uint64_t took[RUNS], begin = now_ns(), ignored;
    enum xop_status status = XOP_OK;
    size_t n = 0;

    for (int i = 0; i < WARM_UP && status == XOP_OK; i++)
        status = run_once(state, run, &ignored, error);
    while (status == XOP_OK && n < RUNS && (n < LEAST_RUNS || now_ns() - begin < ENOUGH_NS))
        status = run_once(state, run, &took[n++], error);
    if (status != XOP_OK)
        return status;
    qsort(took, n, sizeof *took, compare);
    *median = took[n / 2];
    return XOP_OK;
}

/* ---- From begin to end ---- */

static enum xop_status fail_memory(cudaError_t code, const char *where, uint64_t bytes,
                                   struct xop_error *error) {
    cudaGetLastError(); /* not a later call's failure */
    return xop_fail(error, check_status(code), "no %llu bytes of %s memory for a probe: %s (%s)",
                    (unsigned long long)bytes, where, cudaGetErrorString(code),
                    cudaGetErrorName(code));
}

static enum xop_status prepare(struct probe_state *state, struct xop_error *error) {
    uint64_t bytes = state->bytes_in + state->bytes_out + 16;
    enum xop_status status =
        CHECK_CUDA(error, cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking));
    cudaError_t code;

    if (status == XOP_OK)
        status = CHECK_CUDA(error, cudaEventCreateWithFlags(&state->done, cudaEventDisableTiming));
    if (status != XOP_OK)
        return status;
    code = cudaHostAlloc((void **)&state->host, bytes, cudaHostAllocMapped);
    if (code != cudaSuccess)
        return fail_memory(code, "pinned", bytes, error);
    memset(state->host, 0, bytes);
    code = state->pool
               ? cudaMallocFromPoolAsync((void **)&state->device, bytes, state->pool, state->stream)
               : cudaMalloc((void **)&state->device, bytes);
    if (code != cudaSuccess)
        return fail_memory(code, "device", bytes, error);
    return CHECK_CUDA(error, cudaMemsetAsync(state->device, 0, bytes, state->stream));
}

static void finish(struct probe_state *state) {
    if (state->device && state->pool)
        cudaFreeAsync(state->device, state->stream);
    else if (state->device)
        cudaFree(state->device);
    if (state->stream)
        cudaStreamSynchronize(state->stream);
    if (state->pool)
        cudaMemPoolTrimTo(state->pool, 0);
    if (state->host)
        cudaFreeHost(state->host);
    if (state->done)
        cudaEventDestroy(state->done);
    if (state->stream)
        cudaStreamDestroy(state->stream);
    cudaGetLastError(); /* not a later call's failure */
}

enum xop_status probe_cuda(uint64_t bytes_in, uint64_t bytes_out, uint32_t direct_blocks,
                           cudaMemPool_t pool, struct xop_probe *probe, struct xop_error *error) {
    struct probe_state state = {};
    enum xop_status status;

    memset(probe, 0, sizeof *probe);
    if (bytes_in > MOST_BYTES || bytes_out > MOST_BYTES)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                        "a probe moves up to %llu bytes either way, not %llu and %llu",
                        (unsigned long long)MOST_BYTES, (unsigned long long)bytes_in,
                        (unsigned long long)bytes_out);
    state.bytes_in = (bytes_in + 15) / 16 * 16;
    state.bytes_out = (bytes_out + 15) / 16 * 16;
    state.blocks = direct_blocks;
    state.pool = pool;
    status = prepare(&state, error);
    if (status == XOP_OK)
        status = measure(&state, run_launch, &probe->launch_ns, error);
    if (bytes_in + bytes_out > 0) {
        if (status == XOP_OK)
            status = measure(&state, run_direct, &probe->direct_ns, error);
        if (status == XOP_OK)
            status = measure(&state, run_copy, &probe->copy_ns, error);
        if (status == XOP_OK)
            status = measure(&state, run_device, &probe->device_ns, error);
    }
    finish(&state);
    return status;
}

enum xop_status probe_preload(struct xop_error *error) {
    cudaFuncAttributes attributes;
    enum xop_status status =
        CHECK_CUDA(error, cudaFuncGetAttributes(&attributes, (const void *)probe_empty));
    return status == XOP_OK
               ? CHECK_CUDA(error, cudaFuncGetAttributes(&attributes, (const void *)probe_move))
               : status;
}
