/*
 * The loops themselves. Included by loops.c, through isa.h, once for each vector extension. No
 * include guard.
 */

static void ISA(f16_to_f32)(float *to, const uint16_t *from, int64_t n) {
    int64_t i = 0;
#ifdef ISA_F16C
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
#endif
    for (; i < n; i++)
        to[i] = convert_f16_to_f32(from[i]);
}

static void ISA(f32_to_f16)(uint16_t *to, const float *from, int64_t n) {
    int64_t i = 0;
#ifdef ISA_F16C
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        to[i] = convert_f32_to_f16(from[i]);
}

static void ISA(bf16_to_f32)(float *to, const uint16_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = convert_bf16_to_f32(from[i]);
}

static void ISA(f32_to_bf16)(uint16_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = convert_f32_to_bf16(from[i]);
}

/* Elementwise loops in f32 and f64. out may be p or q itself, never overlap one in part, so no
 * iteration depends on another: the pragma says what the compiler cannot know. */
#define LOOP(name, type, body)                                                                     \
    static void ISA(name)(type * out, const type *p, int step_p, const type *q, int step_q,        \
                          int64_t n) {                                                             \
        if (step_p && step_q) {                                                                    \
            INDEPENDENT for (int64_t i = 0; i < n; i++) out[i] = body(p[i], q[i]);                 \
        } else if (step_p) {                                                                       \
            const type second = *q;                                                                \
            INDEPENDENT for (int64_t i = 0; i < n; i++) out[i] = body(p[i], second);               \
        } else if (step_q) {                                                                       \
            const type first = *p;                                                                 \
            INDEPENDENT for (int64_t i = 0; i < n; i++) out[i] = body(first, q[i]);                \
        } else {                                                                                   \
            const type value = body(*p, *q);                                                       \
            INDEPENDENT for (int64_t i = 0; i < n; i++) out[i] = value;                            \
        }                                                                                          \
    }
#define LOOP_OF_ONE(name, type, body)                                                              \
    static void ISA(name)(type * out, const type *p, int step_p, const type *q, int step_q,        \
                          int64_t n) {                                                             \
        (void)q;                                                                                   \
        (void)step_p;                                                                              \
        (void)step_q;                                                                              \
        INDEPENDENT for (int64_t i = 0; i < n; i++) out[i] = body(p[i]);                           \
    }

LOOP(square_bias_f32, float, scalar_square_bias_f32)
LOOP(square_bias_f64, double, scalar_square_bias_f64)
LOOP(twice_product_f32, float, scalar_twice_product_f32)
LOOP(twice_product_f64, double, scalar_twice_product_f64)
LOOP(sigmoid_grad_f32, float, scalar_sigmoid_grad_f32)
LOOP(sigmoid_grad_f64, double, scalar_sigmoid_grad_f64)
LOOP(sigmoid_compl_grad_f32, float, scalar_sigmoid_compl_grad_f32)
LOOP(sigmoid_compl_grad_f64, double, scalar_sigmoid_compl_grad_f64)
LOOP(bose_einstein_grad_f32, float, scalar_bose_einstein_grad_f32)
LOOP(bose_einstein_grad_f64, double, scalar_bose_einstein_grad_f64)
LOOP_OF_ONE(sigmoid_f32, float, scalar_sigmoid_f32)
LOOP_OF_ONE(sigmoid_f64, double, scalar_sigmoid_f64)
LOOP_OF_ONE(sigmoid_complement_f32, float, scalar_sigmoid_complement_f32)
LOOP_OF_ONE(sigmoid_complement_f64, double, scalar_sigmoid_complement_f64)
LOOP_OF_ONE(bose_einstein_f32, float, scalar_bose_einstein_f32)
LOOP_OF_ONE(bose_einstein_f64, double, scalar_bose_einstein_f64)

/* Sums run in SUM_LANES lanes that the compiler keeps in vector registers, a block at a time, so
 * that rounding errors grow with the number of blocks and not with that of terms. */
#define SUM_LOOP(name, type)                                                                       \
    static double ISA(name)(const type *from, double factor, int64_t n) {                          \
        double total = 0;                                                                          \
        while (n > 0) {                                                                            \
            int64_t block = n < SUM_BLOCK ? n : SUM_BLOCK, i = 0;                                  \
            double lane[SUM_LANES] = {0};                                                          \
            for (; i + SUM_LANES <= block; i += SUM_LANES)                                         \
                for (int j = 0; j < SUM_LANES; j++)                                                \
                    lane[j] += factor * (double)from[i + j];                                       \
            for (int j = 0; i + j < block; j++)                                                    \
                lane[j] += factor * (double)from[i + j];                                           \
            for (int half = SUM_LANES / 2; half > 0; half /= 2)                                    \
                for (int j = 0; j < half; j++)                                                     \
                    lane[j] += lane[j + half];                                                     \
            total += lane[0];                                                                      \
            from += block;                                                                         \
            n -= block;                                                                            \
        }                                                                                          \
        return total;                                                                              \
    }
SUM_LOOP(sum_f32, float)
SUM_LOOP(sum_f64, double)

#define ADD_LOOP(name, type)                                                                       \
    static void ISA(name)(double *to, const type *from, const double *factor, int64_t n) {         \
        INDEPENDENT for (int64_t i = 0; i < n; i++) to[i] += factor[i] * (double)from[i];          \
    }
ADD_LOOP(add_f32, float)
ADD_LOOP(add_f64, double)

/* The whole tile stays in vector registers. */
#define GEMM_LOOP(name, type)                                                                      \
    static void ISA(name)(int64_t inner, const type *a, const type *b, type *c) {                  \
        typedef type vec __attribute__((vector_size(ISA_BYTES), may_alias));                       \
        enum { VECTORS = LOOPS_GEMM_BYTES / ISA_BYTES, WIDTH = ISA_BYTES / (int)sizeof(type) };    \
        vec sum[LOOPS_GEMM_ROWS][VECTORS] = {0};                                                   \
        for (int64_t k = 0; k < inner; k++) {                                                      \
            vec row[VECTORS];                                                                      \
            for (int j = 0; j < VECTORS; j++)                                                      \
                row[j] = *(const vec *)(b + j * WIDTH);                                            \
            for (int i = 0; i < LOOPS_GEMM_ROWS; i++)                                              \
                for (int j = 0; j < VECTORS; j++)                                                  \
                    sum[i][j] += row[j] * a[i];                                                    \
            a += LOOPS_GEMM_ROWS;                                                                  \
            b += VECTORS * WIDTH;                                                                  \
        }                                                                                          \
        memcpy(c, sum, sizeof sum);                                                                \
    }
GEMM_LOOP(gemm_f32, float)
GEMM_LOOP(gemm_f64, double)

static const struct loops ISA(loops) = {
    .name = ISA_TEXT,
    .unary = &ISA(unary_loops),
    .binary = &ISA(binary_loops),
    .rows = &ISA(row_loops),
    .f16_to_f32 = ISA(f16_to_f32),
    .f32_to_f16 = ISA(f32_to_f16),
    .bf16_to_f32 = ISA(bf16_to_f32),
    .f32_to_bf16 = ISA(f32_to_bf16),
    .f32 = {[LOOPS_SQUARE_BIAS] = ISA(square_bias_f32),
            [LOOPS_TWICE_PRODUCT] = ISA(twice_product_f32),
            [LOOPS_SIGMOID] = ISA(sigmoid_f32),
            [LOOPS_SIGMOID_COMPLEMENT] = ISA(sigmoid_complement_f32),
            [LOOPS_BOSE_EINSTEIN] = ISA(bose_einstein_f32),
            [LOOPS_SIGMOID_GRAD] = ISA(sigmoid_grad_f32),
            [LOOPS_SIGMOID_COMPL_GRAD] = ISA(sigmoid_compl_grad_f32),
            [LOOPS_BOSE_EINSTEIN_GRAD] = ISA(bose_einstein_grad_f32)},
    .f64 = {[LOOPS_SQUARE_BIAS] = ISA(square_bias_f64),
            [LOOPS_TWICE_PRODUCT] = ISA(twice_product_f64),
            [LOOPS_SIGMOID] = ISA(sigmoid_f64),
            [LOOPS_SIGMOID_COMPLEMENT] = ISA(sigmoid_complement_f64),
            [LOOPS_BOSE_EINSTEIN] = ISA(bose_einstein_f64),
            [LOOPS_SIGMOID_GRAD] = ISA(sigmoid_grad_f64),
            [LOOPS_SIGMOID_COMPL_GRAD] = ISA(sigmoid_compl_grad_f64),
            [LOOPS_BOSE_EINSTEIN_GRAD] = ISA(bose_einstein_grad_f64)},
    .sum_f32 = ISA(sum_f32),
    .sum_f64 = ISA(sum_f64),
    .add_f32 = ISA(add_f32),
    .add_f64 = ISA(add_f64),
    .gemm_f32 = ISA(gemm_f32),
    .gemm_f64 = ISA(gemm_f64),
};

#undef LOOP
#undef LOOP_OF_ONE
#undef SUM_LOOP
#undef ADD_LOOP
#undef GEMM_LOOP
