#include "kernels/cpu/launch.h"

#define CALL_BYTES (UINT64_C(256) << 10) /* that are worth handing to another thread */

struct each {
    const struct xop_launch *launch;
    void (*run)(const struct xop_host *host, const struct xop_call *call);
};

static void run_range(void *arg, int64_t begin, int64_t end) {
    const struct each *each = arg;
    for (int64_t i = begin; i < end; i++)
        each->run(each->launch->host, &each->launch->calls[i]);
}

void launch_each(const struct xop_launch *launch,
                 void (*run)(const struct xop_host *host, const struct xop_call *call)) {
    struct each each = {launch, run};
    uint64_t bytes = 0, grain;

    if (launch->ncalls == 1) {
        run(launch->host, &launch->calls[0]);
        return;
    }
    for (uint32_t i = 0; i < launch->ncalls; i++)
        bytes += launch->plans[i]->bytes;
    grain = bytes > 0 ? CALL_BYTES * launch->ncalls / bytes : launch->ncalls;
    launch->host->parallel(launch->host, launch->ncalls, grain > 0 ? (int64_t)grain : 1, run_range,
                           &each);
}
