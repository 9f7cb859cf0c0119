#include "kernels/cpu/loops.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/cpu/unary_scalar.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define SUM_LANES 16
#define SUM_BLOCK 1024

#define ISA_BODY "kernels/cpu/loops_body.h"
#include "kernels/cpu/isa.h"

#if defined(__x86_64__)
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
                                 has_avx2() ? &loops_avx2 : NULL, &loops_sse2};
    for (uint32_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k] && i-- == 0)
            return all[k];
    return NULL;
}
#elif defined(__aarch64__)
const struct loops *loops_supported(uint32_t i) { return i == 0 ? &loops_neon : NULL; }
#else
const struct loops *loops_supported(uint32_t i) { return i == 0 ? &loops_plain : NULL; }
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

/* ---- Unary operators ---- */

static float far_f32(enum unary_kind kind, enum xop_pass pass, float x, float g) {
    bool sine = (kind == UNARY_sin) == (pass == XOP_FORWARD);
    float value = sine ? sinf(x) : cosf(x);
    return pass == XOP_FORWARD ? value : kind == UNARY_sin ? g * value : g * -value;
}

static double far_f64(enum unary_kind kind, enum xop_pass pass, double x, double g) {
    bool sine = (kind == UNARY_sin) == (pass == XOP_FORWARD);
    double value = sine ? sin(x) : cos(x);
    return pass == XOP_FORWARD ? value : kind == UNARY_sin ? g * value : g * -value;
}

/* Runs a loop and then, where sine and cosine have arguments that are too large for it, the library
 * for those; out may be a or b, so that the arguments are kept until then. */
#define RUN_UNARY(name, type, FABS)                                                                \
    static bool any_##name(const type *a, int64_t n) {                                             \
        bool any = false;                                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            any |= FABS(a[i]) > (type)UNARY_FAR;                                                   \
        return any;                                                                                \
    }                                                                                              \
    static void run_unary_##name(unary_##name##_fn run, enum unary_kind kind, enum xop_pass pass,  \
                                 type *out, const type *a, const type *b, const type *p,           \
                                 int64_t n) {                                                      \
        type x[CHUNK], g[CHUNK];                                                                   \
        if ((kind != UNARY_sin && kind != UNARY_cos) || !any_##name(a, n)) {                       \
            run(out, a, b, p, n);                                                                  \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i += CHUNK) {                                                   \
            int64_t m = chunk_of(n - i);                                                           \
            memcpy(x, a + i, (size_t)m * sizeof *x);                                               \
            memcpy(g, b + i, (size_t)m * sizeof *g);                                               \
            run(out + i, x, g, p, m);                                                              \
            for (int64_t j = 0; j < m; j++)                                                        \
                if (FABS(x[j]) > (type)UNARY_FAR)                                                  \
                    out[i + j] = far_##name(kind, pass, x[j], g[j]);                               \
        }                                                                                          \
    }
RUN_UNARY(f32, float, fabsf)
RUN_UNARY(f64, double, fabs)

void loops_unary(const struct loops *loops, enum unary_kind kind, enum xop_pass pass,
                 enum xop_dtype dtype, void *out, const void *a, const void *b,
                 const double p[UNARY_PARAMETERS], int64_t n) {
    const float p32[UNARY_PARAMETERS] = {(float)p[0], (float)p[1]};
    unary_f32_fn run = loops->unary->f32[kind][pass];
    struct half half = half_of(loops, dtype);
    float a32[CHUNK], b32[CHUNK], out32[CHUNK];

    if (dtype == XOP_F32) {
        run_unary_f32(run, kind, pass, out, a, b, p32, n);
        return;
    }
    if (dtype == XOP_F64) {
        run_unary_f64(loops->unary->f64[kind][pass], kind, pass, out, a, b, p, n);
        return;
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = chunk_of(n - i);
        half.load(a32, (const uint16_t *)a + i, m);
        if (a != b)
            half.load(b32, (const uint16_t *)b + i, m);
        run_unary_f32(run, kind, pass, out32, a32, a == b ? a32 : b32, p32, m);
        half.store((uint16_t *)out + i, out32, m);
    }
}

/* ---- Binary operators ---- */

/* A chunk of halves in f32, or the first alone where it serves for all. */
static void load_operand(const struct half *half, float *to, const uint16_t *from, int step,
                         int64_t at, int64_t n) {
    if (step)
        half->load(to, from + at, n);
    else if (at == 0)
        half->load(to, from, 1);
}

static void binary_half(binary_f32_fn run, const struct half *half, void *out, bool computed,
                        const struct loops_operands *in, int64_t n) {
    float x32[CHUNK], b32[CHUNK], g32[CHUNK], out32[CHUNK];

    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = chunk_of(n - i);
        load_operand(half, x32, in->x, in->step_x, i, m);
        load_operand(half, b32, in->b, in->step_b, i, m);
        if (in->g)
            load_operand(half, g32, in->g, 1, i, m);
        run(computed ? (float *)out + i : out32, x32, in->step_x, b32, in->step_b, g32, m);
        if (!computed)
            half->store((uint16_t *)out + i, out32, m);
    }
}

void loops_binary(const struct loops *loops, enum binary_kind op, enum binary_result result,
                  enum xop_dtype dtype, void *out, bool computed, const struct loops_operands *in,
                  int64_t n) {
    struct half half = half_of(loops, dtype);

    if (n <= 0)
        return;
    if (dtype == XOP_F32)
        loops->binary->f32[op][result](out, in->x, in->step_x, in->b, in->step_b, in->g, n);
    else if (dtype == XOP_F64)
        loops->binary->f64[op][result](out, in->x, in->step_x, in->b, in->step_b, in->g, n);
    else
        binary_half(loops->binary->f32[op][result], &half, out, computed, in, n);
}

/* ---- Sums and conversions ---- */

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

static void load_f32(const struct loops *loops, enum xop_dtype dtype, float *to, const void *from,
                     int64_t n) {
    if (dtype == XOP_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        half_of(loops, dtype).load(to, from, n);
}

void loops_cast(const struct loops *loops, enum xop_dtype to_dtype, void *to,
                enum xop_dtype from_dtype, const void *from, int64_t n) {
    size_t size = xop_dtype_size(from_dtype);
    float buffer[CHUNK];

    if (to_dtype == from_dtype) {
        memcpy(to, from, (size_t)n * size);
    } else if (to_dtype == XOP_F64) {
        loops_load(loops, from_dtype, to, from, n);
    } else if (from_dtype == XOP_F64) {
        loops_store(loops, to_dtype, to, from, n);
    } else if (to_dtype == XOP_F32) {
        load_f32(loops, from_dtype, to, from, n);
    } else {
        for (int64_t i = 0; i < n; i += CHUNK) {
            int64_t m = chunk_of(n - i);
            load_f32(loops, from_dtype, buffer, (const char *)from + (size_t)i * size, m);
            half_of(loops, to_dtype).store((uint16_t *)to + i, buffer, m);
        }
    }
}
