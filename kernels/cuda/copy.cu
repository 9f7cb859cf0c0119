#include "kernels/cuda/copy.h"

#include "kernels/copy.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/table.cuh"

#define COPY_UNROLL 4
#define COPY_TILE (ELEMENT_BLOCK * COPY_UNROLL * 16)

struct copy_job {
    const char *from;
    char *to;
    uint64_t bytes;
    uint32_t first_tile, unit; /* unit: bytes that are moved at once: 16, 4 or 1 */
};

struct copy_task {
    template <class U> static __device__ void units(const char *from, char *to, int count) {
        for (int i = (int)threadIdx.x; i < count; i += ELEMENT_BLOCK)
            ((U *)to)[i] = ((const U *)from)[i];
    }

    static __device__ void run(const copy_job &job, uint32_t tile) {
        uint64_t begin = (uint64_t)tile * COPY_TILE, left = job.bytes - begin;
        int bytes = left < COPY_TILE ? (int)left : COPY_TILE, whole = bytes / 16;
        const char *from = job.from + begin;
        char *to = job.to + begin;
        uint4 raw[COPY_UNROLL];

        if (job.unit == 4)
            units<uint32_t>(from, to, bytes / 4);
        else if (job.unit == 1)
            units<char>(from, to, bytes);
        if (job.unit != 16)
            return;
#pragma unroll
        for (int u = 0; u < COPY_UNROLL; u++) {
            int i = (int)threadIdx.x + u * ELEMENT_BLOCK;
            if (i >= whole)
                break;
            raw[u] = __ldcs((const uint4 *)from + i);
        }
#pragma unroll
        for (int u = 0; u < COPY_UNROLL; u++) {
            int i = (int)threadIdx.x + u * ELEMENT_BLOCK;
            if (i >= whole)
                break;
            ((uint4 *)to)[i] = raw[u];
        }
        units<char>(from + 16 * whole, to + 16 * whole, bytes - 16 * whole);
    }
};

static uint32_t unit_of(const struct copy_range *range) {
    uintptr_t both = (uintptr_t)range->from | (uintptr_t)range->to;
    if (both % 16 == 0)
        return 16;
    return (both | range->bytes) % 4 == 0 ? 4 : 1;
}

/* One launch, for at most CAPACITY ranges. */
template <int CAPACITY>
static enum xop_status start(const struct copy_range *ranges, uint32_t n, uint32_t max_blocks,
                             cudaStream_t stream, struct xop_error *error) {
    table<copy_job, CAPACITY> jobs;
    uint32_t blocks;

    jobs.njobs = n;
    jobs.tiles = 0;
    for (uint32_t i = 0; i < n; i++) {
        jobs.job[i] = {(const char *)ranges[i].from, (char *)ranges[i].to, ranges[i].bytes,
                       jobs.tiles, unit_of(&ranges[i])};
        jobs.tiles += (uint32_t)((ranges[i].bytes + COPY_TILE - 1) / COPY_TILE);
    }
    blocks = max_blocks > 0 && jobs.tiles > max_blocks ? max_blocks : jobs.tiles;
    table_kernel<copy_task><<<blocks, ELEMENT_BLOCK, 0, stream>>>(jobs);
    return CHECK_CUDA(error, cudaGetLastError());
}

enum xop_status copy_enqueue(const struct copy_range *ranges, uint32_t n, uint32_t max_blocks,
                             cudaStream_t stream, struct xop_error *error) {
    const uint32_t most = (uint32_t)table_capacity<copy_job>();
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; i < n && status == XOP_OK; i += most) {
        uint32_t some = n - i < most ? n - i : most;
        status =
            some <= TABLE_SMALL
                ? start<TABLE_SMALL>(ranges + i, some, max_blocks, stream, error)
                : start<table_capacity<copy_job>()>(ranges + i, some, max_blocks, stream, error);
    }
    return status;
}

static uint64_t left_in_piece(const void *at) { return COPY_PIECE - (uintptr_t)at % COPY_PIECE; }

enum xop_status copy_large(void *to, const void *from, uint64_t bytes, cudaStream_t stream,
                           struct xop_error *error) {
    enum xop_status status = XOP_OK;

    for (uint64_t at = 0, some; at < bytes && status == XOP_OK; at += some) {
        char *target = (char *)to + at;
        const char *source = (const char *)from + at;
        some = bytes - at;
        if (some > left_in_piece(target))
            some = left_in_piece(target);
        if (some > left_in_piece(source))
            some = left_in_piece(source);
        status =
            CHECK_CUDA(error, cudaMemcpyAsync(target, source, some, cudaMemcpyDefault, stream));
    }
    return status;
}

enum xop_status copy_cuda_forward(const struct xop_launch *launch, struct xop_error *error) {
    cudaStream_t stream = (cudaStream_t)launch->stream;
    struct copy_range small[LAUNCH_CUDA_MAX_GROUP];
    enum xop_status status = XOP_OK;
    uint32_t n = 0;

    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++) {
        const struct xop_call *call = &launch->calls[i];
        uint64_t bytes = 0;
        status = copy_bytes(call, &bytes, error);
        if (status != XOP_OK || bytes == 0)
            continue;
        if (bytes <= COPY_SMALL)
            small[n++] = {call->in[0].data, call->out[0].data, bytes};
        else
            status = copy_large(call->out[0].data, call->in[0].data, bytes, stream, error);
    }
    if (status == XOP_OK && n > 0)
        status = copy_enqueue(small, n, launch->host->max_blocks, stream, error);
    return status;
}

enum xop_status copy_preload(struct xop_error *error) {
    cudaFuncAttributes attributes;
    enum xop_status status = CHECK_CUDA(
        error, cudaFuncGetAttributes(&attributes,
                                     (const void *)table_kernel<copy_task, copy_job, TABLE_SMALL>));
    if (status == XOP_OK)
        status = CHECK_CUDA(
            error,
            cudaFuncGetAttributes(
                &attributes,
                (const void *)table_kernel<copy_task, copy_job, table_capacity<copy_job>()>));
    return status;
}
