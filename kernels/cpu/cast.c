#include "kernels/cast.h"

#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"

struct job {
    enum xop_dtype from_dtype, to_dtype;
    const char *from;
    char *to;
};

static void run_piece(void *arg, int64_t begin, int64_t end) {
    const struct job *job = arg;
    loops_cast(loops_best(), job->to_dtype, job->to + (size_t)begin * xop_dtype_size(job->to_dtype),
               job->from_dtype, job->from + (size_t)begin * xop_dtype_size(job->from_dtype),
               end - begin);
}

static void run(const struct xop_host *host, const struct xop_call *call,
                const struct xop_tensor *from) {
    const struct xop_tensor *to = &call->out[0];
    struct job job = {from->dtype, to->dtype, from->data, to->data};
    int64_t n;

    if (job.to && xop_tensor_elements(from, &n) && n > 0)
        host->parallel(host, n, LAUNCH_GRAIN, run_piece, &job);
}

static void forward_call(const struct xop_host *host, const struct xop_call *call) {
    run(host, call, &call->in[0]);
}

static void backward_call(const struct xop_host *host, const struct xop_call *call) {
    run(host, call, &call->in[1]);
}

LAUNCH_EACH(cast, forward_call, backward_call)
