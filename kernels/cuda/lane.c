#include "kernels/cuda/lane.h"

#include <string.h>

#include "kernels/cuda/check.h"

#define LEAST_MEMORY (UINT64_C(1) << 20)
#define LARGE_MEMORY                                                                               \
    (UINT64_C(256) << 20) /* from here on growth is by this much, not by doubling */

static enum xop_status make_stream(cudaStream_t *stream, int priority, struct xop_error *error) {
    return CHECK_CUDA(error, cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, priority));
}

enum xop_status lane_make_bus(cudaStream_t *stream, struct xop_error *error) {
    int lowest = 0, highest = 0;
    enum xop_status status = CHECK_CUDA(error, cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    return status == XOP_OK ? make_stream(stream, lowest, error) : status;
}

enum xop_status lane_open(struct lane *lane, cudaMemPool_t pool, struct xop_error *error) {
    cudaEvent_t *const events[] = {&lane->begin, &lane->ready, &lane->done, &lane->end};
    int lowest = 0, highest = 0;
    enum xop_status status = CHECK_CUDA(error, cudaDeviceGetStreamPriorityRange(&lowest, &highest));

    lane->pool = pool;
    if (status == XOP_OK)
        status = make_stream(&lane->normal, lowest, error);
    if (status == XOP_OK)
        status = make_stream(&lane->urgent, highest, error);
    for (size_t i = 0; i < sizeof events / sizeof *events && status == XOP_OK; i++)
        status = CHECK_CUDA(error, cudaEventCreateWithFlags(events[i], cudaEventDefault));
    lane->stream = lane->normal;
    return status;
}

void lane_close(struct lane *lane, bool usable) {
    const cudaEvent_t events[] = {lane->begin, lane->ready, lane->done, lane->end};
    const cudaStream_t streams[] = {lane->normal, lane->urgent};

    if (usable)
        lane_release(lane);
    for (size_t i = 0; usable && i < sizeof streams / sizeof *streams; i++)
        if (streams[i]) {
            cudaStreamSynchronize(streams[i]); /* a host function may still be on its way */
            cudaStreamDestroy(streams[i]);
        }
    for (size_t i = 0; usable && i < sizeof events / sizeof *events; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    stage_close(&lane->stage, usable);
    memset(lane, 0, sizeof *lane);
}

static uint64_t rounded(uint64_t bytes) {
    uint64_t size = LEAST_MEMORY;
    if (bytes > LARGE_MEMORY)
        return bytes > UINT64_MAX - LARGE_MEMORY
                   ? bytes
                   : (bytes + LARGE_MEMORY - 1) / LARGE_MEMORY * LARGE_MEMORY;
    while (size < bytes)
        size *= 2;
    return size;
}

/* Freeing plainly waits for the whole device, so that is done where there is no pool only. */
void lane_free(cudaMemPool_t pool, void *memory, cudaStream_t stream) {
    if (pool)
        cudaFreeAsync(memory, stream);
    else
        cudaFree(memory);
}

void lane_release(struct lane *lane) {
    if (!lane->memory)
        return;
    lane_free(lane->pool, lane->memory, lane->stream);
    if (lane->pool)
        cudaStreamSynchronize(lane->stream); /* idle: this does not wait */
    lane->memory = NULL;
    lane->memory_bytes = 0;
}

enum xop_status lane_reserve(struct lane *lane, uint64_t bytes, struct xop_error *error) {
    uint64_t size = rounded(bytes);
    cudaError_t code;

    if (bytes <= lane->memory_bytes)
        return XOP_OK;
    lane_release(lane);
    code = lane->pool ? cudaMallocFromPoolAsync(&lane->memory, size, lane->pool, lane->stream)
                      : cudaMalloc(&lane->memory, size);
    if (code == cudaSuccess) {
        lane->memory_bytes = size;
        return XOP_OK;
    }
    cudaGetLastError(); /* not a later call's failure */
    lane->memory = NULL;
    return xop_fail(
        error, check_status(code) == XOP_DEVICE_FAULT ? XOP_DEVICE_FAULT : XOP_RESOURCE_EXHAUSTED,
        "%llu bytes of device memory for staging cannot be had: %s (%s)", (unsigned long long)size,
        cudaGetErrorString(code), cudaGetErrorName(code));
}

static enum xop_status between(cudaEvent_t from, cudaEvent_t to, uint64_t *ns,
                               struct xop_error *error) {
    float ms = 0;
    enum xop_status status = CHECK_CUDA(error, cudaEventElapsedTime(&ms, from, to));
    if (status == XOP_OK)
        *ns += ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return status;
}

enum xop_status lane_times(const struct lane *lane, uint64_t *copy_ns, uint64_t *run_ns,
                           struct xop_error *error) {
    bool in = stage_has_in(&lane->stage), out = stage_has_out(&lane->stage);
    enum xop_status status = XOP_OK;

    *copy_ns = *run_ns = 0;
    if (in)
        status = between(lane->begin, lane->ready, copy_ns, error);
    if (status == XOP_OK)
        status =
            between(in ? lane->ready : lane->begin, out ? lane->done : lane->end, run_ns, error);
    if (status == XOP_OK && out)
        status = between(lane->done, lane->end, copy_ns, error);
    return status;
}
