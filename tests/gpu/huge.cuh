/*
 * Arrays of more than 2^31 elements, in device memory, since host memory for them is not to be had
 * everywhere: the launch functions are called directly. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_HUGE_CUH
#define TESTS_GPU_HUGE_CUH

#include "tests/gpu/fixture.h"
#include "tests/gpu/reference.h"
#include "tests/gpu/tally.h"

#define HUGE_COLUMNS INT64_C(4099)
#define HUGE_ROWS INT64_C(523913)
#define HUGE_N (HUGE_ROWS * HUGE_COLUMNS) /* 2^31 and some thousands */

#define HUGE_CUDA(call)                                                                            \
    do {                                                                                           \
        struct xop_error huge_error;                                                               \
        if (CHECK_CUDA(&huge_error, call) != XOP_OK)                                               \
            FIXTURE_DIE("%s", huge_error.message);                                                 \
    } while (0)

/* Small integers, which bf16 holds exactly, as it does their squares' sums with others. */
static __device__ float huge_x(int64_t i) { return (float)(i % 11 - 5); }
static __device__ float huge_b(int64_t i) { return (float)(i % 7); }

static __global__ void huge_fill(__nv_bfloat16 *x, __nv_bfloat16 *g, __nv_bfloat16 *b) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < HUGE_N;
         i += (int64_t)gridDim.x * blockDim.x) {
        x[i] = __float2bfloat16_rn(huge_x(i));
        g[i] = __float2bfloat16_rn(1.0f);
        if (i < HUGE_ROWS)
            b[i] = __float2bfloat16_rn(huge_b(i));
    }
}

/* Counts wrong elements of y, where b's index is i modulo `modulo` divided by `divisor`; or, with
 * a divisor of 0, of 2*x. */
static __global__ void huge_check(const __nv_bfloat16 *y, int64_t modulo, int64_t divisor,
                                  unsigned long long *wrong) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < HUGE_N;
         i += (int64_t)gridDim.x * blockDim.x) {
        float x = huge_x(i);
        float want = divisor ? x * x + huge_b(i % modulo / divisor) : 2 * x;
        if (!(__bfloat162float(y[i]) == want))
            atomicAdd(wrong, 1ull);
    }
}

struct huge_memory {
    __nv_bfloat16 *x, *g, *y, *b, *sums;
    char *workspace;
    unsigned long long *wrong;
};

/* form: S scalar, R row, C column. */
static void huge_run(const struct fixture *fixture, struct tally *tally,
                     const struct huge_memory *memory, enum xop_pass pass, char form) {
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    struct xop_tensor in[3] = {}, out[2] = {};
    struct xop_plan plan = {};
    const struct xop_plan *plans[] = {&plan};
    struct xop_call call = {};
    struct xop_host host = {};
    struct xop_launch launch = {};
    struct xop_error error = {XOP_OK, ""};
    unsigned long long wrong = 0;

    in[0].dtype = XOP_BF16;
    in[0].rank = 2;
    in[0].shape[0] = HUGE_ROWS;
    in[0].shape[1] = HUGE_COLUMNS;
    in[0].data = memory->x;
    in[1] = in[2] = in[0];
    in[1].rank = form == 'S' ? 0 : 2;
    in[1].shape[form == 'R' ? 0 : 1] = 1;
    in[1].data = memory->b;
    in[2].data = memory->g;
    call.in = in;
    call.out = out;
    call.workspace = memory->workspace;
    if (op->pass[pass].infer(&call, &plan, &error) != XOP_OK)
        FIXTURE_DIE("%s", error.message);
    out[0] = plan.out[0];
    out[1] = plan.out[1];
    out[0].data = memory->y;
    out[1].data = memory->sums;
    host.multiprocessors = 1;
    launch.host = &host;
    launch.pass = pass;
    launch.ncalls = 1;
    launch.calls = &call;
    launch.plans = plans;
    HUGE_CUDA(cudaMemset(memory->y, FIXTURE_POISON, HUGE_N * sizeof *memory->y));
    HUGE_CUDA(cudaMemset(memory->wrong, 0, sizeof *memory->wrong));
    tally_check(tally, op->pass[pass].launch(&launch, &error) == XOP_OK, "%s", error.message);
    if (pass == XOP_FORWARD)
        huge_check<<<2048, 256>>>(memory->y, form == 'R' ? HUGE_COLUMNS : HUGE_N,
                                  form == 'S'   ? HUGE_N
                                  : form == 'R' ? 1
                                                : HUGE_COLUMNS,
                                  memory->wrong);
    else
        huge_check<<<2048, 256>>>(memory->y, 1, 0, memory->wrong);
    HUGE_CUDA(cudaGetLastError());
    HUGE_CUDA(cudaMemcpy(&wrong, memory->wrong, sizeof wrong, cudaMemcpyDeviceToHost));
    tally_check(tally, wrong == 0, "%llu elements are wrong, pass %d, b %c", wrong, pass, form);
    if (pass == XOP_BACKWARD) { /* sums of ones */
        int64_t n = form == 'S' ? 1 : form == 'R' ? HUGE_COLUMNS : HUGE_ROWS;
        __nv_bfloat16 *sums = (__nv_bfloat16 *)malloc((size_t)n * sizeof *sums);
        __nv_bfloat16 want = __float2bfloat16_rn((float)(HUGE_N / n));
        if (!sums)
            FIXTURE_DIE("no memory");
        HUGE_CUDA(cudaMemcpy(sums, memory->sums, (size_t)n * sizeof *sums, cudaMemcpyDeviceToHost));
        for (int64_t i = 0; i < n; i++)
            tally_check(tally, __bfloat162float(sums[i]) == __bfloat162float(want),
                        "sum %lld with b %c is %g", (long long)i, form,
                        (double)__bfloat162float(sums[i]));
        free(sums);
    }
}

static void huge_all(const struct fixture *fixture) {
    struct tally tally = tally_begin("arrays of more than 2^31 elements");
    struct huge_memory memory;
    struct xop_device_info info;

    fixture->api->info(fixture->backend, &info);
    if (info.memory_free < (uint64_t)14 << 30) {
        printf("# left out: arrays of more than 2^31 elements need 14 GiB of free device memory\n");
        return;
    }
    HUGE_CUDA(cudaMalloc((void **)&memory.x, HUGE_N * sizeof *memory.x));
    HUGE_CUDA(cudaMalloc((void **)&memory.g, HUGE_N * sizeof *memory.g));
    HUGE_CUDA(cudaMalloc((void **)&memory.y, HUGE_N * sizeof *memory.y));
    HUGE_CUDA(cudaMalloc((void **)&memory.b, HUGE_ROWS * sizeof *memory.b));
    HUGE_CUDA(cudaMalloc((void **)&memory.sums, HUGE_ROWS * sizeof *memory.sums));
    HUGE_CUDA(cudaMalloc((void **)&memory.workspace, (size_t)32 << 20));
    HUGE_CUDA(cudaMalloc((void **)&memory.wrong, sizeof *memory.wrong));
    huge_fill<<<2048, 256>>>(memory.x, memory.g, memory.b);
    HUGE_CUDA(cudaGetLastError());
    for (int pass = 0; pass < 2; pass++)
        for (char form : {'S', 'R', 'C'})
            huge_run(fixture, &tally, &memory, (enum xop_pass)pass, form);
    HUGE_CUDA(cudaFree(memory.x));
    HUGE_CUDA(cudaFree(memory.g));
    HUGE_CUDA(cudaFree(memory.y));
    HUGE_CUDA(cudaFree(memory.b));
    HUGE_CUDA(cudaFree(memory.sums));
    HUGE_CUDA(cudaFree(memory.workspace));
    HUGE_CUDA(cudaFree(memory.wrong));
    tally_end(&tally);
}

#endif
