/*
 * linear on data that lies in device memory: floating-point operations over time, for each product
 * and for all that backward does. bench_pytorch.py measures what PyTorch makes of the same sizes
 * beside it. Part of bench_kernels.
 */
#ifndef TESTS_GPU_BENCH_LINEAR_CUH
#define TESTS_GPU_BENCH_LINEAR_CUH

#include "tests/gpu/bench_device.cuh"

#define LINEAR_REPEATS 15

struct linear_case {
    enum xop_dtype dtype;
    int64_t rows, in, out;
};
static const struct linear_case linear_cases[] = {
    {XOP_BF16, 8192, 8192, 8192}, {XOP_F16, 8192, 8192, 8192}, {XOP_F32, 4096, 4096, 4096},
    {XOP_F64, 4096, 4096, 4096},  {XOP_BF16, 1, 4096, 4096},   {XOP_BF16, 64, 4096, 4096},
};

/* Shapes: x, w, and b or grad_y. */
static void bench_linear_operands(const struct linear_case *one, enum xop_pass pass,
                                  struct xop_tensor *in, struct device_memory *memory) {
    const int64_t shapes[3][2] = {{one->rows, one->in}, {one->out, one->in}, {one->rows, one->out}};
    for (int i = 0; i < 3; i++) {
        in[i].dtype = one->dtype;
        in[i].rank = 2;
        in[i].shape[0] = shapes[i][0];
        in[i].shape[1] = shapes[i][1];
        in[i].data = memory->buffer[i];
    }
    if (pass == XOP_FORWARD) {
        in[2].rank = 1;
        in[2].shape[0] = one->out;
    }
}

static void bench_linear_time(const struct fixture *fixture, struct device_memory *memory,
                              const struct linear_case *one, enum xop_pass pass, uint32_t wanted,
                              const char *label) {
    const struct xop_op *op = fixture_op(fixture, "linear");
    double times[LINEAR_REPEATS], products = wanted == 3 || wanted == 7 ? 2 : 1;
    struct xop_tensor in[3] = {}, out[3] = {};
    struct xop_plan plan = {};
    struct xop_call call = {};
    const struct xop_plan *plans[] = {&plan};
    struct xop_host host = {};
    struct xop_launch launch = {};
    struct xop_error error;

    bench_linear_operands(one, pass, in, memory);
    call.in = in;
    call.out = out;
    call.workspace = memory->workspace;
    if (op->pass[pass].infer(&call, &plan, &error) != XOP_OK)
        FIXTURE_DIE("linear: %s", error.message);
    if (plan.workspace_bytes > memory->workspace_bytes)
        FIXTURE_DIE("linear needs %llu bytes of workspace",
                    (unsigned long long)plan.workspace_bytes);
    for (uint32_t i = 0; i < op->pass[pass].nout; i++) {
        out[i] = plan.out[i];
        out[i].data = wanted & 1u << i ? memory->buffer[3 + i] : NULL;
    }
    host.multiprocessors = memory->multiprocessors;
    launch.host = &host;
    launch.pass = pass;
    launch.ncalls = 1;
    launch.calls = &call;
    launch.plans = plans;
    launch.stream = memory->stream;
    for (int i = 0; i < 3; i++)
        device_time(memory, op, &launch);
    for (double &time : times)
        time = device_time(memory, op, &launch);
    double median = bench_quantile(times, LINEAR_REPEATS, 0.5);
    double flops = 2 * products * (double)one->rows * (double)one->in * (double)one->out;
    printf("| %5lld x %5lld x %5lld | %-4s | %-16s | %10.1f | %8.1f |\n", (long long)one->rows,
           (long long)one->in, (long long)one->out, xop_dtype_name(one->dtype), label, median * 1e6,
           flops / median * 1e-12);
    fflush(stdout);
}

static void bench_linear_all(const struct fixture *fixture) {
    struct device_memory memory = {};
    struct cudaDeviceProp properties;
    const size_t bytes = (size_t)8192 * 8192 * 2; /* and 4096 * 4096 f64 */

    BENCH_CUDA(cudaGetDeviceProperties(&properties, 0));
    memory.multiprocessors = properties.multiProcessorCount;
    memory.workspace_bytes = (size_t)64 << 20;
    BENCH_CUDA(cudaMalloc((void **)&memory.workspace, memory.workspace_bytes));
    for (char *&buffer : memory.buffer)
        BENCH_CUDA(cudaMalloc((void **)&buffer, bytes));
    BENCH_CUDA(cudaStreamCreateWithFlags(&memory.stream, cudaStreamNonBlocking));
    BENCH_CUDA(cudaEventCreate(&memory.begin));
    BENCH_CUDA(cudaEventCreate(&memory.end));
    printf("\nlinear in device memory, rows x in x out, medians of %d\n\n", LINEAR_REPEATS);
    printf("| size                  | type | what             | us         | TFLOP/s  |\n");
    printf("| --- | --- | --- | --- | --- |\n");
    for (const struct linear_case &one : linear_cases) {
        for (char *buffer : memory.buffer)
            bench_fill<<<1024, 256, 0, memory.stream>>>((uint32_t *)buffer, bytes / 4,
                                                        (uint32_t)xop_dtype_size(one.dtype));
        BENCH_CUDA(cudaGetLastError());
        bench_linear_time(fixture, &memory, &one, XOP_FORWARD, 1, "forward, bias");
        bench_linear_time(fixture, &memory, &one, XOP_BACKWARD, 1, "grad_x");
        bench_linear_time(fixture, &memory, &one, XOP_BACKWARD, 2, "grad_w");
        bench_linear_time(fixture, &memory, &one, XOP_BACKWARD, 7, "all gradients");
    }
    for (char *buffer : memory.buffer)
        BENCH_CUDA(cudaFree(buffer));
    BENCH_CUDA(cudaFree(memory.workspace));
    BENCH_CUDA(cudaEventDestroy(memory.begin));
    BENCH_CUDA(cudaEventDestroy(memory.end));
    BENCH_CUDA(cudaStreamDestroy(memory.stream));
}

#endif
