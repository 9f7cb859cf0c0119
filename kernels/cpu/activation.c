#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"

struct job {
    const struct loops *loops;
    enum loops_kind kind;
    enum xop_dtype dtype;
    size_t size;
    char *out;
    const char *p, *q;
};

static void run_piece(void *arg, int64_t begin, int64_t end) {
    const struct job *job = arg;
    size_t at = (size_t)begin * job->size;
    loops_run(job->loops, job->kind, job->dtype, job->out + at, job->p + at, 1, job->q + at, 1,
              end - begin);
}

/* The second argument is the second input, or the first again where there is one only. */
static void run(const struct xop_host *host, const struct xop_call *call, enum loops_kind kind,
                uint32_t second) {
    const struct xop_tensor *p = &call->in[0], *q = &call->in[second];
    struct job job = {loops_best(),      kind,    p->dtype, xop_dtype_size(p->dtype),
                      call->out[0].data, p->data, q->data};
    int64_t n;

    if (job.out && xop_tensor_elements(p, &n) && n > 0)
        host->parallel(host, n, LAUNCH_GRAIN, run_piece, &job);
}

#define ACTIVATION(name, kind, grad_kind)                                                          \
    static void name##_forward(const struct xop_host *host, const struct xop_call *call) {         \
        run(host, call, kind, 0);                                                                  \
    }                                                                                              \
    static void name##_backward(const struct xop_host *host, const struct xop_call *call) {        \
        run(host, call, grad_kind, 1);                                                             \
    }                                                                                              \
    LAUNCH_EACH(name, name##_forward, name##_backward)

ACTIVATION(sigmoid, LOOPS_SIGMOID, LOOPS_SIGMOID_GRAD)
ACTIVATION(sigmoid_complement, LOOPS_SIGMOID_COMPLEMENT, LOOPS_SIGMOID_COMPL_GRAD)
ACTIVATION(bose_einstein, LOOPS_BOSE_EINSTEIN, LOOPS_BOSE_EINSTEIN_GRAD)
