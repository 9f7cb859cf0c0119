/*
 * Wrong: the elements that are computed. A known tutorial launches (n+3)/4 blocks of 4 threads and
 * has each take element blockIdx.x + blockDim.x*blockIdx.y. All threads of a block take the same
 * one then, and three quarters of the result are never written.
 */
#include "kernels/cpu/launch.h"
#include "tests/broken/broken.h"
#include "tests/broken/element.h"

static void forward(const struct xop_host *host, const struct xop_call *call) {
    const int64_t block_dim = 4, block_y = 0;
    int64_t n = element_count(call), blocks = (n + 3) / 4;

    (void)host;
    for (int64_t block_x = 0; block_x < blocks; block_x++)
        for (int64_t thread = 0; thread < block_dim; thread++) {
            int64_t index = block_x + block_dim * block_y;
            if (index < n)
                element_forward(call, index, index);
        }
}

static enum xop_status launch_forward(const struct xop_launch *launch, struct xop_error *error) {
    (void)error;
    launch_each(launch, forward);
    return XOP_OK;
}

BROKEN_LIBRARY("cpu", "broken_index", launch_forward, square_bias_cpu_backward);
