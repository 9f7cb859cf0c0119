#include "kernels/cpu/row_loops.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/scalar.h"

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define SUM_LANES 16
#define SUM_BLOCK 1024

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define ISA(name) JOIN(name, ISA_SUFFIX)

/* exp(y) for any y; results are subject to one rounding more above 0. */
static inline double exp_of(double y) {
    double e = scalar_exp_f64(fabs(y)).exp;
    return y > 0 ? 1 / e : e;
}

#define ISA_SUFFIX _base
#include "kernels/cpu/row_loops_body.h"
#undef ISA_SUFFIX

#if defined(__x86_64__)
#define ISA_SUFFIX _avx2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#include "kernels/cpu/row_loops_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ISA_SUFFIX

#define ISA_SUFFIX _avx512
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl"))),   \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#include "kernels/cpu/row_loops_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ISA_SUFFIX
#endif

#if defined(__x86_64__)
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

const struct row_loops *row_loops_supported(uint32_t i) {
    const struct row_loops *all[] = {has_avx512() ? &row_loops_avx512 : NULL,
                                     __builtin_cpu_supports("avx2") ? &row_loops_avx2 : NULL,
                                     &row_loops_base};
    for (uint32_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k] && i-- == 0)
            return all[k];
    return NULL;
}
#else
const struct row_loops *row_loops_supported(uint32_t i) { return i == 0 ? &row_loops_base : NULL; }
#endif

const struct row_loops *row_loops_best(void) {
    /* Asking the processor is slow under a hypervisor. Every thread finds the same answer. */
    static const struct row_loops *_Atomic best;
    const struct row_loops *loops = atomic_load_explicit(&best, memory_order_relaxed);
    if (!loops) {
        loops = row_loops_supported(0);
        atomic_store_explicit(&best, loops, memory_order_relaxed);
    }
    return loops;
}
