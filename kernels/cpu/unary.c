#include "kernels/unary.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"

struct job {
    const struct loops *loops;
    enum unary_kind kind;
    enum xop_pass pass;
    enum xop_dtype dtype;
    size_t size;
    char *out;
    const char *a, *b;
    double p[UNARY_PARAMETERS];
};

static void run_piece(void *arg, int64_t begin, int64_t end) {
    const struct job *job = arg;
    size_t at = (size_t)begin * job->size;
    loops_unary(job->loops, job->kind, job->pass, job->dtype, job->out + at, job->a + at,
                job->b + at, job->p, end - begin);
}

/* Where a pass has one input only, it is the second, too. */
static void run(const struct xop_host *host, const struct xop_call *call, enum unary_kind op,
                enum xop_pass pass) {
    uint32_t second = unary_declarations[op].pass[pass].nin - 1;
    const struct xop_tensor *a = &call->in[0], *b = &call->in[second];
    struct job job = {.loops = loops_best(),
                      .pass = pass,
                      .dtype = a->dtype,
                      .size = xop_dtype_size(a->dtype),
                      .out = call->out[0].data,
                      .a = a->data,
                      .b = b->data};
    int64_t n;

    job.kind = unary_parameters(op, call->attrs, job.p);
    if (job.out && xop_tensor_elements(a, &n) && n > 0)
        host->parallel(host, n, LAUNCH_GRAIN, run_piece, &job);
}

#define UNARY(name, ...)                                                                           \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        run(host, call, UNARY_##name, XOP_FORWARD);                                                \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        run(host, call, UNARY_##name, XOP_BACKWARD);                                               \
    }                                                                                              \
    LAUNCH_EACH(unary_##name, name##_forward, name##_backward)
#include "kernels/unary.def"
