/*
 * One launch for many calls. What the calls have to do is a table of jobs, each cut into tiles of
 * work that blocks take in turn; the table travels as the kernel's parameter, so that a launch
 * needs no copy before it. Which block does a tile has no influence on what the tile computes.
 *
 * A parameter may have 32764 bytes since CUDA 12.1, 4096 before; jobs that do not fit go in further
 * launches. A second, small table serves single calls, which would pay for the large one's bytes.
 */
#ifndef KERNELS_CUDA_TABLE_CUH
#define KERNELS_CUDA_TABLE_CUH

#include "kernels/cuda/check.h"
#include "kernels/cuda/element.cuh"
#include <xop/op.h>

#if CUDART_VERSION >= 12010
#define TABLE_BYTES 32000
#else
#define TABLE_BYTES 4000
#endif
#define TABLE_SMALL 8 /* jobs of a small table */

/* JOB has a member `uint32_t first_tile`, the number of tiles of the jobs before it. */
template <class JOB, int CAPACITY> struct table {
    uint32_t njobs, tiles;
    JOB job[CAPACITY];
};

template <class JOB> constexpr int table_capacity() {
    return TABLE_BYTES / sizeof(JOB) < 256 ? TABLE_BYTES / sizeof(JOB) : 256;
}

/* The job that a tile belongs to. All threads of a block look for the same one. */
template <class JOB, int CAPACITY>
__device__ const JOB &table_find(const table<JOB, CAPACITY> &jobs, uint32_t tile) {
    uint32_t low = 0, high = jobs.njobs;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (jobs.job[middle].first_tile <= tile)
            low = middle;
        else
            high = middle;
    }
    return jobs.job[low];
}

/* A kernel over tables of JOB: TASK::run(job, tile) is what a block does for a tile. */
template <class TASK, class JOB, int CAPACITY>
__global__ void __launch_bounds__(ELEMENT_BLOCK)
    table_kernel(const __grid_constant__ table<JOB, CAPACITY> jobs) {
    for (uint64_t tile = blockIdx.x; tile < jobs.tiles; tile += gridDim.x) {
        const JOB &job = table_find(jobs, (uint32_t)tile);
        TASK::run(job, (uint32_t)tile - job.first_tile);
    }
}

/* Collects jobs and launches them, whenever the table is full and at the end. FAMILY names the type
 * of a job, FAMILY::job, and the task for elements of type T, FAMILY::task<T>. One at a time, on
 * the stack of a launch function. */
template <class FAMILY> struct table_builder {
    using JOB = typename FAMILY::job;
    template <class T> using TASK = typename FAMILY::template task<T>;
    const struct xop_launch *launch;
    enum xop_dtype dtype;
    struct xop_error *error;
    enum xop_status status;
    table<JOB, table_capacity<JOB>()> jobs;

    table_builder(const struct xop_launch *its_launch, enum xop_dtype its_dtype,
                  struct xop_error *its_error)
        : launch(its_launch), dtype(its_dtype), error(its_error), status(XOP_OK) {
        jobs.njobs = jobs.tiles = 0;
    }

    /* Whether a job of so many tiles would have those before it launched at once. */
    bool full(uint64_t tiles) const {
        return jobs.njobs == table_capacity<JOB>() || tiles > UINT32_MAX - jobs.tiles;
    }

    /* tiles > 0. */
    void add(const JOB &job, uint64_t tiles) {
        if (tiles > UINT32_MAX) {
            status = xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                              "a call needs %llu tiles of work, and a launch can hold 2^32-1",
                              (unsigned long long)tiles);
            return;
        }
        if (full(tiles))
            flush();
        jobs.job[jobs.njobs] = job;
        jobs.job[jobs.njobs].first_tile = jobs.tiles;
        jobs.njobs++;
        jobs.tiles += (uint32_t)tiles;
    }

    /* Launches what is left; the first failure of all launches. */
    enum xop_status finish() {
        flush();
        return status;
    }

    static enum xop_status preload(struct xop_error *error) {
        const void *const kernels[] = {
            kernel<__half, TABLE_SMALL>(),        kernel<__half, table_capacity<JOB>()>(),
            kernel<__nv_bfloat16, TABLE_SMALL>(), kernel<__nv_bfloat16, table_capacity<JOB>()>(),
            kernel<float, TABLE_SMALL>(),         kernel<float, table_capacity<JOB>()>(),
            kernel<double, TABLE_SMALL>(),        kernel<double, table_capacity<JOB>()>(),
        };
        enum xop_status status = XOP_OK;
        for (const void *one : kernels) {
            cudaFuncAttributes attributes;
            if (status == XOP_OK)
                status = CHECK_CUDA(error, cudaFuncGetAttributes(&attributes, one));
        }
        return status;
    }

    template <class T, int CAPACITY> static const void *kernel() {
        return (const void *)table_kernel<TASK<T>, JOB, CAPACITY>;
    }

    template <class T> enum xop_status start() {
        uint32_t most = launch->host->max_blocks, blocks = jobs.tiles;
        cudaStream_t stream = (cudaStream_t)launch->stream;
        if (most > 0 && blocks > most)
            blocks = most;
        if (blocks > INT32_MAX)
            blocks = INT32_MAX;
        if (jobs.njobs <= TABLE_SMALL) {
            table<JOB, TABLE_SMALL> few;
            few.njobs = jobs.njobs;
            few.tiles = jobs.tiles;
            for (uint32_t i = 0; i < jobs.njobs; i++)
                few.job[i] = jobs.job[i];
            table_kernel<TASK<T>, JOB, TABLE_SMALL><<<blocks, ELEMENT_BLOCK, 0, stream>>>(few);
        } else {
            table_kernel<TASK<T>, JOB, table_capacity<JOB>()>
                <<<blocks, ELEMENT_BLOCK, 0, stream>>>(jobs);
        }
        return CHECK_CUDA(error, cudaGetLastError());
    }

    enum xop_status start_typed() {
        switch (dtype) {
        case XOP_F16: return start<__half>();
        case XOP_BF16: return start<__nv_bfloat16>();
        case XOP_F32: return start<float>();
        case XOP_F64: return start<double>();
        default:
            return xop_fail(error, XOP_INTERNAL, "no kernel computes in %s", xop_dtype_name(dtype));
        }
    }

    void flush() {
        if (jobs.njobs > 0 && status == XOP_OK)
            status = start_typed();
        jobs.njobs = jobs.tiles = 0;
    }
};

#endif
