#include "kernels/cpu/loops.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/cpu/scalar.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

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

#define ISA_BYTES 16
#if defined(__x86_64__)
#define ISA_SUFFIX _sse2
#define ISA_TEXT "SSE2"
#elif defined(__aarch64__)
#define ISA_SUFFIX _neon
#define ISA_TEXT "NEON"
#else
#define ISA_SUFFIX _plain
#define ISA_TEXT "no vector extensions"
#endif
#include "kernels/cpu/loops_body.h"

#if defined(__x86_64__)
static const struct loops *const base_loops = &loops_sse2;
#elif defined(__aarch64__)
static const struct loops *const base_loops = &loops_neon;
#else
static const struct loops *const base_loops = &loops_plain;
#endif
#undef ISA_SUFFIX
#undef ISA_TEXT
#undef ISA_BYTES

#if defined(__x86_64__)
#define ISA_F16C

#define ISA_BYTES 32
#define ISA_SUFFIX _avx2
#define ISA_TEXT "AVX2, FMA, F16C"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#include "kernels/cpu/loops_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ISA_SUFFIX
#undef ISA_TEXT
#undef ISA_BYTES

#define ISA_BYTES 64
#define ISA_SUFFIX _avx512
#define ISA_TEXT "AVX-512 (F, BW, DQ, VL), F16C"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,"      \
                                                   "avx512vl"))),                                  \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#include "kernels/cpu/loops_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ISA_SUFFIX
#undef ISA_TEXT
#undef ISA_BYTES

/* __builtin_cpu_supports also asks whether the kernel saves the registers, but not every compiler
 * lets it be asked for F16C. */
static bool has_avx2(void) {
    unsigned a, b, c = 0, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct loops *loops_supported(uint32_t i) {
    const struct loops *all[] = {has_avx512() ? &loops_avx512 : NULL,
                                 has_avx2() ? &loops_avx2 : NULL, base_loops};
    for (uint32_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k] && i-- == 0)
            return all[k];
    return NULL;
}
#else
const struct loops *loops_supported(uint32_t i) { return i == 0 ? base_loops : NULL; }
#endif

const struct loops *loops_best(void) {
    /* Asking the processor is slow under a hypervisor. Every thread finds the same answer. */
    static const struct loops *_Atomic best;
    const struct loops *loops = atomic_load_explicit(&best, memory_order_relaxed);
    if (!loops) {
        loops = loops_supported(0);
        atomic_store_explicit(&best, loops, memory_order_relaxed);
    }
    return loops;
}

/* f16 and bf16 pass through buffers of this many elements, which stay in the first-level cache. */
#define CHUNK 512

struct half {
    void (*load)(float *to, const uint16_t *from, int64_t n);
    void (*store)(uint16_t *to, const float *from, int64_t n);
};

static struct half half_of(const struct loops *loops, enum xop_dtype dtype) {
    struct half half = {loops->f16_to_f32, loops->f32_to_f16};
    if (dtype == XOP_BF16)
        half = (struct half){loops->bf16_to_f32, loops->f32_to_bf16};
    return half;
}

static int64_t chunk_of(int64_t n) { return n < CHUNK ? n : CHUNK; }

static void run_half(loops_f32_fn run, struct half half, uint16_t *out, const uint16_t *p,
                     int step_p, const uint16_t *q, int step_q, int64_t n) {
    float p32[CHUNK], q32[CHUNK], out32[CHUNK];

    if (!step_p)
        half.load(p32, p, 1);
    if (!step_q)
        half.load(q32, q, 1);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = chunk_of(n - i);
        if (step_p)
            half.load(p32, p + i, m);
        if (step_q)
            half.load(q32, q + i, m);
        run(out32, p32, step_p, q32, step_q, m);
        half.store(out + i, out32, m);
    }
}

void loops_run(const struct loops *loops, enum loops_kind kind, enum xop_dtype dtype, void *out,
               const void *p, int step_p, const void *q, int step_q, int64_t n) {
    if (n <= 0)
        return;
    if (dtype == XOP_F32)
        loops->f32[kind](out, p, step_p, q, step_q, n);
    else if (dtype == XOP_F64)
        loops->f64[kind](out, p, step_p, q, step_q, n);
    else
        run_half(loops->f32[kind], half_of(loops, dtype), out, p, step_p, q, step_q, n);
}

double loops_sum(const struct loops *loops, enum xop_dtype dtype, const void *from, double factor,
                 int64_t n) {
    const uint16_t *halves = from;
    struct half half = half_of(loops, dtype);
    float buffer[CHUNK];
    double total = 0;

    if (dtype == XOP_F32)
        return loops->sum_f32(from, factor, n);
    if (dtype == XOP_F64)
        return loops->sum_f64(from, factor, n);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = chunk_of(n - i);
        half.load(buffer, halves + i, m);
        total += loops->sum_f32(buffer, factor, m);
    }
    return total;
}

void loops_add(const struct loops *loops, enum xop_dtype dtype, double *to, const void *from,
               const double *factor, int64_t n) {
    const uint16_t *halves = from;
    struct half half = half_of(loops, dtype);
    float buffer[CHUNK];

    if (dtype == XOP_F32) {
        loops->add_f32(to, from, factor, n);
    } else if (dtype == XOP_F64) {
        loops->add_f64(to, from, factor, n);
    } else {
        for (int64_t i = 0; i < n; i += CHUNK) {
            int64_t m = chunk_of(n - i);
            half.load(buffer, halves + i, m);
            loops->add_f32(to + i, buffer, factor + i, m);
        }
    }
}

void loops_load(const struct loops *loops, enum xop_dtype dtype, double *to, const void *from,
                int64_t n) {
    const float *singles = from;
    struct half half = half_of(loops, dtype);
    float buffer[CHUNK];

    if (dtype == XOP_F64) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = chunk_of(n - i);
        if (dtype == XOP_F32)
            memcpy(buffer, singles + i, (size_t)m * sizeof *buffer);
        else
            half.load(buffer, (const uint16_t *)from + i, m);
        for (int64_t j = 0; j < m; j++)
            to[i + j] = (double)buffer[j];
    }
}

void loops_store(const struct loops *loops, enum xop_dtype dtype, void *to, const double *from,
                 int64_t n) {
    float *singles = to;
    struct half half = half_of(loops, dtype);
    float buffer[CHUNK];

    if (dtype == XOP_F64) {
        memcpy(to, from, (size_t)n * sizeof *from);
        return;
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = chunk_of(n - i);
        for (int64_t j = 0; j < m; j++)
            buffer[j] = (float)from[i + j];
        if (dtype == XOP_F32)
            memcpy(singles + i, buffer, (size_t)m * sizeof *buffer);
        else
            half.store((uint16_t *)to + i, buffer, m);
    }
}
