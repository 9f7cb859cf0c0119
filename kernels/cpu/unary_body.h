/*
 * The loops of the unary operators: two for each line of unary.def in f32, two in f64. Included by
 * unary_loops.c, through isa.h, once for each vector extension. No include guard.
 */

/* What a pass's arguments are called in its formula. */
#define ARGUMENTS_FORWARD const R x = a[i]
#define ARGUMENTS_X                                                                                \
    const R x = a[i];                                                                              \
    const R g = b[i]
#define ARGUMENTS_Y                                                                                \
    const R y = a[i];                                                                              \
    const R g = b[i]
#define ARGUMENTS_NONE const R g = a[i]

#define LOOP(name, arguments, formula)                                                             \
    static void ISA(name)(R * out, const R *a, const R *b, const R parameters[UNARY_PARAMETERS],   \
                          int64_t n) {                                                             \
        const R p[UNARY_PARAMETERS] = {parameters[0], parameters[1]};                              \
        (void)b;                                                                                   \
        (void)p;                                                                                   \
        INDEPENDENT for (int64_t i = 0; i < n; i++) {                                              \
            arguments;                                                                             \
            out[i] = formula;                                                                      \
        }                                                                                          \
    }
#define UNARY_KIND(name, saved, flops, forward, backward)                                          \
    LOOP(F(name##_forward), ARGUMENTS_FORWARD, forward)                                            \
    LOOP(F(name##_backward), ARGUMENTS_##saved, backward)

#define R float
#define F(f) unary_##f##_f32
#define M(name) name##f
#define K(c) ((float)(c))
#include "kernels/unary.def"
#undef R
#undef F
#undef M
#undef K

#define R double
#define F(f) unary_##f##_f64
#define M(f) f
#define K(c) ((double)(c))
#include "kernels/unary.def"
#undef R
#undef F
#undef M
#undef K
#undef UNARY_KIND

#define UNARY_KIND(name, ...)                                                                      \
    [UNARY_##name] = {ISA(unary_##name##_forward_f32), ISA(unary_##name##_backward_f32)},
const struct unary_loops ISA(unary_loops) = {
    .f32 =
        {
#include "kernels/unary.def"
        },
#undef UNARY_KIND
#define UNARY_KIND(name, ...)                                                                      \
    [UNARY_##name] = {ISA(unary_##name##_forward_f64), ISA(unary_##name##_backward_f64)},
    .f64 =
        {
#include "kernels/unary.def"
        },
};

#undef UNARY_KIND
#undef LOOP
#undef ARGUMENTS_FORWARD
#undef ARGUMENTS_X
#undef ARGUMENTS_Y
#undef ARGUMENTS_NONE
