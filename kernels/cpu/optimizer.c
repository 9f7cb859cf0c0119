/*
 * sgd, adam and adamw on the CPU: a block of elements at a time is brought into the type computed
 * in, updated there and put where it goes, so that a result may take its input's place.
 */
#include "kernels/optimizer.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"

#define BLOCK 512 /* elements; all slots of it stay in the first-level cache */

struct run {
    const struct loops *loops;
    enum xop_dtype dtype;
    size_t size;
    struct optimizer_step step;
};

#define FUNCTION static inline
#define R float
#define F(f) f##_f32
#define SQRT(x) sqrtf(x)
#include "kernels/optimizer_math.h"
#undef R
#undef F
#undef SQRT
#define R double
#define F(f) f##_f64
#define SQRT(x) sqrt(x)
#include "kernels/optimizer_math.h"
#undef R
#undef F
#undef SQRT

#define PIECE(type, suffix, computed)                                                              \
    static void run_##suffix(const struct run *r, int64_t begin, int64_t end) {                    \
        _Alignas(64) type slot[OPTIMIZER_SLOTS][BLOCK];                                            \
        const struct optimizer_##suffix o = optimizer_of_##suffix(&r->step);                       \
        for (int64_t at = begin, n; at < end; at += n) {                                           \
            size_t byte = (size_t)at * r->size;                                                    \
            n = end - at < BLOCK ? end - at : BLOCK;                                               \
            for (int i = 0; i < OPTIMIZER_SLOTS; i++)                                              \
                if (r->step.in[i])                                                                 \
                    loops_cast(r->loops, computed, slot[i], r->dtype,                              \
                               (const char *)r->step.in[i] + byte, n);                             \
                else                                                                               \
                    memset(slot[i], 0, (size_t)n * sizeof(type));                                  \
            if (r->step.kind == OPTIMIZER_SGD)                                                     \
                for (int64_t i = 0; i < n; i++)                                                    \
                    optimizer_sgd_##suffix(&o, &slot[OPTIMIZER_PARAM][i],                          \
                                           &slot[OPTIMIZER_FIRST][i], slot[OPTIMIZER_GRAD][i]);    \
            else                                                                                   \
                for (int64_t i = 0; i < n; i++)                                                    \
                    optimizer_adam_##suffix(&o, &slot[OPTIMIZER_PARAM][i],                         \
                                            &slot[OPTIMIZER_FIRST][i], &slot[OPTIMIZER_SECOND][i], \
                                            &slot[OPTIMIZER_LARGEST][i], slot[OPTIMIZER_GRAD][i]); \
            for (int i = 0; i < OPTIMIZER_STATES; i++)                                             \
                if (r->step.out[i])                                                                \
                    loops_cast(r->loops, r->dtype, (char *)r->step.out[i] + byte, computed,        \
                               slot[i], n);                                                        \
        }                                                                                          \
    }
PIECE(float, f32, XOP_F32)
PIECE(double, f64, XOP_F64)

static void run_piece(void *arg, int64_t begin, int64_t end) {
    const struct run *r = arg;
    if (r->dtype == XOP_F64)
        run_f64(r, begin, end);
    else
        run_f32(r, begin, end);
}

static void run(enum optimizer_kind kind, const struct xop_host *host,
                const struct xop_call *call) {
    struct run r = {.loops = loops_best(), .dtype = call->in[OPTIMIZER_PARAM].dtype};

    r.size = xop_dtype_size(r.dtype);
    optimizer_step_of(kind, call, &r.step);
    if (r.step.n > 0)
        host->parallel(host, r.step.n, LAUNCH_GRAIN, run_piece, &r);
}

#define OPTIMIZER(name, kind)                                                                      \
    static void name##_call(const struct xop_host *host, const struct xop_call *call) {            \
        run(kind, host, call);                                                                     \
    }                                                                                              \
    enum xop_status name##_cpu_forward(const struct xop_launch *launch, struct xop_error *error) { \
        (void)error;                                                                               \
        launch_each(launch, name##_call);                                                          \
        return XOP_OK;                                                                             \
    }
OPTIMIZER(sgd, OPTIMIZER_SGD)
OPTIMIZER(adam, OPTIMIZER_ADAM)
OPTIMIZER(adamw, OPTIMIZER_ADAMW)
