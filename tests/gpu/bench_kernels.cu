/*
 * Measures the CUDA kernels and the backend's paths against what the same device does bare, in the
 * same run. Prints tables in Markdown.
 *
 *     bench_kernels [--quick | --linear | --rows] [PATH OF xop-cuda.so]
 *
 * --linear and --rows print the table of linear, or of the operators over rows, alone.
 */
#include "tests/gpu/bench_bus.cuh"
#include "tests/gpu/bench_device.cuh"
#include "tests/gpu/bench_linear.cuh"

int main(int argc, char **argv) {
    const char *build = getenv("XOP_BUILD");
    struct fixture fixture;
    struct xop_device_info info;
    char path[4096];
    bool quick = false, only_linear = false, only_rows = false;

    snprintf(path, sizeof path, "%s/xop-cuda.so", build ? build : "build");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--linear") == 0)
            only_linear = true;
        else if (strcmp(argv[i], "--rows") == 0)
            only_rows = true;
        else
            snprintf(path, sizeof path, "%s", argv[i]);
    }
    fixture_open(&fixture, path, (size_t)192 << 20, (size_t)96 << 20);
    fixture.api->info(fixture.backend, &info);
    printf("%s, %s\n", info.device, info.runtime);

    if (only_linear || only_rows) {
        (only_rows ? device_rows : bench_linear_all)(&fixture);
        fixture.api->close(fixture.backend);
        return 0;
    }
    device_elements(&fixture, quick ? 26 : 28);
    if (!quick)
        device_elements(&fixture, 26);
    device_rows(&fixture);
    bench_linear_all(&fixture);

    printf("\nsquare_bias f32 on host memory, medians of %d, microseconds: submit to done, the "
           "kernel, and a bare program that copies in 4 and in 8 chunks over two streams\n\n",
           BUS_REPEATS);
    printf("| elements  | blocks | backend   | kernel    | 4 chunks  | 8 chunks  | ratio | GB/s   "
           "|\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    bus_large(&fixture, "1280x1280", 1280 * 1280);
    bus_large(&fixture, "16 Mi", 16 << 20);

    bus_reopen(&fixture, "64");
    printf("\nsquare_bias f32, 1024 elements a request, grouped\n\n");
    printf("| calls | flying | us a group | requests/s | GB/s   |\n");
    printf("| --- | --- | --- | --- | --- |\n");
    bus_small(&fixture);
    printf("\n");
    bus_latency(&fixture);
    fixture.api->close(fixture.backend);
    return 0;
}
