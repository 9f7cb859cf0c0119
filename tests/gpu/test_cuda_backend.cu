/*
 * The CUDA backend and its operators, driven through kernels/backend.h as a worker drives them, and
 * compared with double precision on the host.
 *
 *     test_cuda_backend [--reduced] [PATH OF xop-cuda.so]
 *     test_cuda_backend --huge [PATH]     needs 14 GB of device memory
 *     test_cuda_backend --no-cublaslt [PATH]  what is left without that library
 *     test_cuda_backend --fault [PATH]    breaks the device, so that it must come last
 *
 * --reduced leaves out the large shapes, for compute-sanitizer.
 */
#include "tests/gpu/binary.cuh"
#include "tests/gpu/cast.cuh"
#include "tests/gpu/company.cuh"
#include "tests/gpu/elementwise.cuh"
#include "tests/gpu/fixture.h"
#include "tests/gpu/fold.cuh"
#include "tests/gpu/huge.cuh"
#include "tests/gpu/judged.cuh"
#include "tests/gpu/keeps.cuh"
#include "tests/gpu/lanes.cuh"
#include "tests/gpu/linear.cuh"
#include "tests/gpu/loss.cuh"
#include "tests/gpu/matmul.cuh"
#include "tests/gpu/memory.cuh"
#include "tests/gpu/operators.cuh"
#include "tests/gpu/optimizer.cuh"
#include "tests/gpu/registered.cuh"
#include "tests/gpu/row.cuh"
#include "tests/gpu/seam.cuh"

static struct fixture fixture;
static bool reduced;

static const enum xop_dtype dtypes[] = {XOP_F16, XOP_BF16, XOP_F32, XOP_F64};

/* Other grids must not change a bit: three blocks take turns at all the work. */
static struct xop_backend *open_with_few_blocks(void) {
    struct xop_backend *backend;
    struct xop_error error;
    setenv("XOP_CUDA_DIRECT_BLOCKS", "3", 1);
    backend = fixture_start(fixture.api, 1);
    unsetenv("XOP_CUDA_DIRECT_BLOCKS");
    if (fixture.api->unregister_host(fixture.backend, fixture.inbox.seen, &error) != XOP_OK ||
        fixture.api->unregister_host(fixture.backend, fixture.outbox.seen, &error) != XOP_OK ||
        fixture.api->register_host(backend, fixture.inbox.seen, fixture.inbox.bytes, true,
                                   &error) != XOP_OK ||
        fixture.api->register_host(backend, fixture.outbox.seen, fixture.outbox.bytes, false,
                                   &error) != XOP_OK)
        FIXTURE_DIE("%s", error.message);
    return backend;
}

static void test_operators(void) {
    for (enum xop_dtype dtype : dtypes) {
        operators_square_bias(&fixture, dtype, reduced);
        for (int kind = 0; kind < 3; kind++)
            operators_activation(&fixture, kind, dtype, reduced);
        operators_edges(&fixture, dtype);
        for (const char *name : reference_activations)
            company_groups(&fixture, name, dtype, reduced);
        binary_all(&fixture, dtype, reduced);
        linear_all(&fixture, dtype, reduced);
        matmul_all(&fixture, dtype, reduced);
        optimizer_all(&fixture, dtype, reduced);
        elementwise_all(&fixture, dtype, reduced);
        cast_all(&fixture, dtype, reduced);
        row_all(&fixture, dtype, reduced);
        fold_all(&fixture, dtype, reduced);
        judged_all(&fixture, dtype, reduced);
        loss_all(&fixture, dtype);
    }
    operators_every_half(&fixture, XOP_F16);
    operators_every_half(&fixture, XOP_BF16);
    operators_long_sums(&fixture);
    company_cut_sums(&fixture);
    linear_keeps_digits(&fixture);
}

static void test_grids(void) {
    struct company_bits (*const bits[])(struct fixture *, bool) = {
        company_all_bits, company_product_bits, row_all_bits};
    struct company_bits few[3], many[3];
    struct tally tally = tally_begin("any grid gives the same bits");

    for (int i = 0; i < 3; i++)
        many[i] = bits[i](&fixture, reduced);
    struct xop_backend *first = fixture.backend;
    fixture.backend = open_with_few_blocks();
    for (int i = 0; i < 3; i++) {
        few[i] = bits[i](&fixture, reduced);
        tally_check(&tally,
                    few[i].bytes == many[i].bytes &&
                        memcmp(few[i].data, many[i].data, many[i].bytes) == 0,
                    "8 and 3 blocks differ somewhere in %zu bytes", many[i].bytes);
        free(few[i].data);
        free(many[i].data);
    }
    tally_end(&tally);
    fixture.api->close(first);
}

int main(int argc, char **argv) {
    const char *build = getenv("XOP_BUILD");
    char path[4096];
    bool fault = false, huge = false, missing = false;

    if (argc == 4 && strcmp(argv[1], MEMORY_MAKER) == 0)
        return memory_maker(argv[3], atoi(argv[2]));
    snprintf(path, sizeof path, "%s/xop-cuda.so", build ? build : "build");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--reduced") == 0)
            reduced = true;
        else if (strcmp(argv[i], "--fault") == 0)
            fault = true;
        else if (strcmp(argv[i], "--huge") == 0)
            huge = true;
        else if (strcmp(argv[i], "--no-cublaslt") == 0)
            missing = true;
        else
            snprintf(path, sizeof path, "%s", argv[i]);
    }
    if (missing)
        setenv("XOP_CUBLASLT", "/nonexistent/libcublasLt.so", 1);
    fixture_open(&fixture, path, (size_t)192 << 20, (size_t)192 << 20);
    seam_print_device(&fixture);
    if (fault || huge || missing) {
        if (missing)
            linear_missing(&fixture);
        if (huge)
            huge_all(&fixture);
        if (fault)
            lanes_fault(&fixture);
        return tally_total();
    }
    seam_registration(&fixture);
    seam_refusals(&fixture);
    seam_staging(&fixture, reduced);
    seam_indices(&fixture);
    lanes_all(&fixture);
    lanes_sleeping(&fixture);
    lanes_failures(&fixture);
    memory_all(&fixture, path);
    keeps_all(&fixture, reduced);
    registered_all(&fixture, reduced);
    test_operators();
    test_grids();
    fixture.api->close(fixture.backend);
    return tally_total();
}
