/*
 * The loops of the binary operators: three for each line of binary.def in f32, three in f64.
 * Included by binary_loops.c, through isa.h, once for each vector extension. No include guard.
 */

/* The arguments, of which a formula may leave some out; where none is repeated, where x or b is,
 * and where both are. */
#define EACH(first_x, first_b, first_g, formula)                                                   \
    INDEPENDENT for (int64_t i = 0; i < n; i++) {                                                  \
        const R x = first_x, b = first_b, g = first_g;                                             \
        (void)x;                                                                                   \
        (void)b;                                                                                   \
        (void)g;                                                                                   \
        out[i] = formula;                                                                          \
    }
#define LOOP(name, its_g, formula)                                                                 \
    static void ISA(name)(R * out, const R *all_x, int step_x, const R *all_b, int step_b,         \
                          const R *all_g, int64_t n) {                                             \
        const R one_x = *all_x;                                                                    \
        const R one_b = *all_b;                                                                    \
        (void)all_g;                                                                               \
        if (step_x && step_b) {                                                                    \
            EACH(all_x[i], all_b[i], its_g, formula)                                               \
        } else if (step_x) {                                                                       \
            EACH(all_x[i], one_b, its_g, formula)                                                  \
        } else if (step_b) {                                                                       \
            EACH(one_x, all_b[i], its_g, formula)                                                  \
        } else {                                                                                   \
            EACH(one_x, one_b, its_g, formula)                                                     \
        }                                                                                          \
    }
#define BINARY_LOOPS(name, forward, grad_x, grad_b)                                                \
    LOOP(name##_y, 0, forward)                                                                     \
    LOOP(name##_grad_x, all_g[i], grad_x)                                                          \
    LOOP(name##_grad_b, all_g[i], grad_b)

#define R float
#define M(name) name##f
#define BINARY(name, saved, flops, ...) BINARY_LOOPS(binary_##name##_f32, __VA_ARGS__)
#include "kernels/binary.def"
#undef R
#undef M

#define R double
#define M(name) name
#define BINARY(name, saved, flops, ...) BINARY_LOOPS(binary_##name##_f64, __VA_ARGS__)
#include "kernels/binary.def"
#undef R
#undef M

#define ENTRY(name, type)                                                                          \
    [BINARY_##name] = {ISA(binary_##name##_##type##_y), ISA(binary_##name##_##type##_grad_x),      \
                       ISA(binary_##name##_##type##_grad_b)},
#define BINARY(name, ...) ENTRY(name, f32)
const struct binary_loops ISA(binary_loops) = {
    .f32 =
        {
#include "kernels/binary.def"
        },
#define BINARY(name, ...) ENTRY(name, f64)
    .f64 =
        {
#include "kernels/binary.def"
        },
};

#undef ENTRY
#undef BINARY_LOOPS
#undef LOOP
#undef EACH
