/*
 * Kernels on data that lies in device memory, beside the device's own copy in the same run: bytes
 * that must move over time. Part of bench_kernels.
 */
#ifndef TESTS_GPU_BENCH_DEVICE_CUH
#define TESTS_GPU_BENCH_DEVICE_CUH

#include "tests/gpu/bench.h"

#define DEVICE_REPEATS 15

struct device_case {
    const char *label, *op;
    enum xop_pass pass;
    /* Shapes as rows x columns, of n elements in all for the full one: F full, R row, C column, S
     * scalar, V a vector of columns. */
    const char *in;
    uint32_t wanted;
    int moves; /* full arrays that must be read or written */
};
static const struct device_case device_cases[] = {
    {"square_bias, b full", "square_bias", XOP_FORWARD, "FF", 1, 3},
    {"square_bias, b scalar", "square_bias", XOP_FORWARD, "FS", 1, 2},
    {"square_bias, b row", "square_bias", XOP_FORWARD, "FR", 1, 2},
    {"square_bias, b column", "square_bias", XOP_FORWARD, "FC", 1, 2},
    {"its backward, b full, both", "square_bias", XOP_BACKWARD, "FFF", 3, 4},
    {"its backward, b full, grad_x", "square_bias", XOP_BACKWARD, "FFF", 1, 3},
    {"its backward, b scalar, both", "square_bias", XOP_BACKWARD, "FSF", 3, 3},
    {"its backward, b row, both", "square_bias", XOP_BACKWARD, "FRF", 3, 3},
    {"its backward, b column, both", "square_bias", XOP_BACKWARD, "FCF", 3, 3},
    {"its backward, b scalar, grad_b", "square_bias", XOP_BACKWARD, "FSF", 2, 1},
    {"its backward, b row, grad_b", "square_bias", XOP_BACKWARD, "FRF", 2, 1},
    {"its backward, b column, grad_b", "square_bias", XOP_BACKWARD, "FCF", 2, 1},
};

/* Of the operators over rows, with the defaults of their attributes. */
static const struct device_case device_row_cases[] = {
    {"softmax", "softmax", XOP_FORWARD, "F", 1, 2},
    {"its backward", "softmax", XOP_BACKWARD, "FF", 1, 3},
    {"log_softmax", "log_softmax", XOP_FORWARD, "F", 1, 2},
    {"its backward", "log_softmax", XOP_BACKWARD, "FF", 1, 3},
    {"layer_norm", "layer_norm", XOP_FORWARD, "FVV", 1, 2},
    {"its backward, all gradients", "layer_norm", XOP_BACKWARD, "FVF", 7, 3},
    {"its backward, grad_x", "layer_norm", XOP_BACKWARD, "FVF", 1, 3},
    {"rms_norm", "rms_norm", XOP_FORWARD, "FV", 1, 2},
    {"its backward, all gradients", "rms_norm", XOP_BACKWARD, "FVF", 3, 3},
    {"sum", "sum", XOP_FORWARD, "F", 1, 1},
    {"max", "max", XOP_FORWARD, "F", 1, 1},
    {"logsumexp", "logsumexp", XOP_FORWARD, "F", 1, 1},
    {"var", "var", XOP_FORWARD, "F", 1, 1},
};

struct device_memory {
    char *buffer[6]; /* three inputs, three outputs */
    char *workspace;
    size_t bytes, workspace_bytes;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    int multiprocessors;
};

static double device_time(struct device_memory *memory, const struct xop_op *op,
                          const struct xop_launch *launch) {
    struct xop_error error;
    float ms = 0;
    BENCH_CUDA(cudaEventRecord(memory->begin, memory->stream));
    if (!op)
        BENCH_CUDA(cudaMemcpyAsync(memory->buffer[3], memory->buffer[0], memory->bytes,
                                   cudaMemcpyDeviceToDevice, memory->stream));
    else if (op->pass[launch->pass].launch(launch, &error) != XOP_OK)
        FIXTURE_DIE("%s: %s", op->name, error.message);
    BENCH_CUDA(cudaEventRecord(memory->end, memory->stream));
    BENCH_CUDA(cudaEventSynchronize(memory->end));
    BENCH_CUDA(cudaEventElapsedTime(&ms, memory->begin, memory->end));
    return (double)ms * 1e-3;
}

static struct xop_tensor device_tensor(enum xop_dtype dtype, char form, int64_t rows,
                                       int64_t columns, void *data) {
    struct xop_tensor tensor = {};
    tensor.dtype = dtype;
    tensor.rank = form == 'S' ? 0 : form == 'V' ? 1 : 2;
    tensor.shape[0] = form == 'V' ? columns : form == 'F' || form == 'C' ? rows : 1;
    tensor.shape[1] = form == 'F' || form == 'R' ? columns : 1;
    tensor.data = data;
    return tensor;
}

static void device_case_run(const struct fixture *fixture, struct device_memory *memory,
                            const struct device_case *one, enum xop_dtype dtype, int64_t n) {
    const struct xop_op *op = fixture_op(fixture, one->op);
    const int64_t columns = 4096, rows = n / columns;
    double kernel[DEVICE_REPEATS], copy[DEVICE_REPEATS];
    struct xop_tensor in[3] = {}, out[3] = {};
    struct xop_attr attrs[XOP_MAX_ATTRS];
    struct xop_plan plan = {};
    struct xop_call call = {};
    const struct xop_plan *plans[] = {&plan};
    struct xop_host host = {};
    struct xop_launch launch = {};
    struct xop_error error;

    for (int i = 0; one->in[i]; i++)
        in[i] = device_tensor(dtype, one->in[i], rows, columns, memory->buffer[i]);
    fixture_defaults(op, attrs);
    call.in = in;
    call.out = out;
    call.attrs = attrs;
    call.workspace = memory->workspace;
    if (op->pass[one->pass].infer(&call, &plan, &error) != XOP_OK)
        FIXTURE_DIE("%s: %s", op->name, error.message);
    if (plan.workspace_bytes > memory->workspace_bytes)
        FIXTURE_DIE("%s needs %llu bytes of workspace", one->label,
                    (unsigned long long)plan.workspace_bytes);
    for (int i = 0; i < 3; i++) {
        out[i] = plan.out[i];
        out[i].data = one->wanted & 1u << i ? memory->buffer[3 + i] : NULL;
    }
    host.multiprocessors = memory->multiprocessors;
    launch.host = &host;
    launch.pass = one->pass;
    launch.ncalls = 1;
    launch.calls = &call;
    launch.plans = plans;
    launch.stream = memory->stream;
    memory->bytes = (size_t)n * xop_dtype_size(dtype);
    for (int i = 0; i < 3; i++) {
        device_time(memory, op, &launch);
        device_time(memory, NULL, NULL);
    }
    for (int i = 0; i < DEVICE_REPEATS; i++) {
        copy[i] = device_time(memory, NULL, NULL);
        kernel[i] = device_time(memory, op, &launch);
    }
    double copied = 2 * (double)memory->bytes / bench_quantile(copy, DEVICE_REPEATS, 0.5) * 1e-9;
    double moved =
        one->moves * (double)memory->bytes / bench_quantile(kernel, DEVICE_REPEATS, 0.5) * 1e-9;
    printf("| %-31s | %-4s | %9.0f | %9.0f | %.3f |\n", one->label, xop_dtype_name(dtype), moved,
           copied, moved / copied);
    fflush(stdout);
}

/* Every operator that makes one element of one, forward and backward. */
static void device_elementwise(const struct fixture *fixture, struct device_memory *memory,
                               enum xop_dtype dtype, int64_t n) {
    const struct xop_library *library = fixture->api->library();
    for (uint32_t i = 0; i < library->nops; i++) {
        const struct xop_op *op = library->ops[i];
        if (!fixture_elementwise(op))
            continue;
        struct device_case one = {op->name, op->name, XOP_FORWARD, "F", 1, 2};
        device_case_run(fixture, memory, &one, dtype, n);
        one.label = "its backward";
        one.pass = XOP_BACKWARD;
        one.moves = 1 + (int)op->pass[XOP_BACKWARD].nin;
        one.in = one.moves == 3 ? "FF" : "F";
        device_case_run(fixture, memory, &one, dtype, n);
    }
}

static void device_all(const struct fixture *fixture, int log2_n, const struct device_case *cases,
                       size_t ncases) {
    const enum xop_dtype dtypes[] = {XOP_F32, XOP_BF16};
    int64_t n = INT64_C(1) << log2_n;
    struct device_memory memory = {};
    struct cudaDeviceProp properties;

    BENCH_CUDA(cudaGetDeviceProperties(&properties, 0));
    memory.multiprocessors = properties.multiProcessorCount;
    memory.workspace_bytes = (size_t)32 << 20;
    BENCH_CUDA(cudaMalloc((void **)&memory.workspace, memory.workspace_bytes));
    for (char *&buffer : memory.buffer)
        BENCH_CUDA(cudaMalloc((void **)&buffer, (size_t)n * sizeof(float)));
    BENCH_CUDA(cudaStreamCreateWithFlags(&memory.stream, cudaStreamNonBlocking));
    BENCH_CUDA(cudaEventCreate(&memory.begin));
    BENCH_CUDA(cudaEventCreate(&memory.end));
    printf("\nIn device memory, 2^%d elements, GB/s of the bytes that must move, medians of %d "
           "alternating pairs\n\n",
           log2_n, DEVICE_REPEATS);
    printf("| kernel                          | type | GB/s      | its copy  | ratio |\n");
    printf("| --- | --- | --- | --- | --- |\n");
    for (enum xop_dtype dtype : dtypes) {
        for (char *buffer : memory.buffer)
            bench_fill<<<1024, 256, 0, memory.stream>>>((uint32_t *)buffer, (size_t)n,
                                                        (uint32_t)xop_dtype_size(dtype));
        BENCH_CUDA(cudaGetLastError());
        for (size_t i = 0; i < ncases; i++)
            device_case_run(fixture, &memory, &cases[i], dtype, n);
        if (cases == device_cases)
            device_elementwise(fixture, &memory, dtype, n);
    }
    for (char *buffer : memory.buffer)
        BENCH_CUDA(cudaFree(buffer));
    BENCH_CUDA(cudaFree(memory.workspace));
    BENCH_CUDA(cudaEventDestroy(memory.begin));
    BENCH_CUDA(cudaEventDestroy(memory.end));
    BENCH_CUDA(cudaStreamDestroy(memory.stream));
}

static void device_elements(const struct fixture *fixture, int log2_n) {
    device_all(fixture, log2_n, device_cases, sizeof device_cases / sizeof *device_cases);
}

/* 4096 columns, and so 32768 rows of the 2^27 elements. */
static void device_rows(const struct fixture *fixture) {
    device_all(fixture, 27, device_row_cases, sizeof device_row_cases / sizeof *device_row_cases);
}

#endif
