/*
 * rotary_embedding on the CPU, in f64 for every dtype.
 */
#include "kernels/cpu/rotary.h"

#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/rotary.h"

struct rotary {
    struct rotary_plan plan;
    const void *x, *cosine, *sine;
    void *y;
    bool back; /* by the negative angle: backward */
};

#define TYPED_BODY "kernels/cpu/rotary_body.h"
#include "kernels/cpu/typed.h"

static void run(const struct xop_host *host, const struct xop_call *call, enum xop_pass pass) {
    static const typed_loop runs[XOP_DTYPE_COUNT] = TYPED_TABLE(rotate);
    const bool back = pass == XOP_BACKWARD;
    struct rotary s = {.x = call->in[back ? ROTARY_GRAD_Y : ROTARY_X].data,
                       .cosine = call->in[back ? ROTARY_BACKWARD_COS : ROTARY_COS].data,
                       .sine = call->in[back ? ROTARY_BACKWARD_SIN : ROTARY_SIN].data,
                       .y = call->out[0].data,
                       .back = back};

    rotary_measure(pass, call, &s.plan);
    if (s.y && s.plan.rows > 0)
        host->parallel(host, s.plan.rows, LAUNCH_GRAIN / 4 / (s.plan.width + 1) + 1,
                       runs[call->in[0].dtype], &s);
}

static void forward_call(const struct xop_host *host, const struct xop_call *call) {
    run(host, call, XOP_FORWARD);
}
static void backward_call(const struct xop_host *host, const struct xop_call *call) {
    run(host, call, XOP_BACKWARD);
}
LAUNCH_EACH(rotary_embedding, forward_call, backward_call)
