#include "kernels/cpu/gemm.h"

#include <limits.h>
#include <string.h>

/* Blocks of A and of B are copied into the order in which the innermost loop reads them, and stay
 * in the second-level cache meanwhile. */
#define BLOCK_ROWS 96
#define BLOCK_COLUMNS 128
#define BLOCK_INNER 256
#define MOST_COLUMNS (LOOPS_GEMM_BYTES / (int)sizeof(float)) /* of the innermost loop's tile */

struct gemm_matrix gemm_part(const struct gemm_matrix *matrix, int64_t row, int64_t column,
                             size_t size) {
    struct gemm_matrix part = *matrix;
    int64_t at = matrix->transposed ? column * matrix->step + row : row * matrix->step + column;
    part.data = (const char *)matrix->data + (size_t)at * size;
    return part;
}

/* ---- OpenBLAS ---- */

/* Its integers limit how long a sum it takes at once. */
#define BLAS_INNER (1 << 30)

static bool blas_takes(const struct gemm *gemm) {
    return gemm->rows <= INT_MAX && gemm->columns <= INT_MAX && gemm->a.step <= INT_MAX &&
           gemm->b.step <= INT_MAX && gemm->step_c <= INT_MAX;
}

static int transposition(const struct gemm_matrix *matrix) {
    return matrix->transposed ? BLAS_TRANSPOSED : BLAS_PLAIN;
}

static void run_blas(const struct blas *blas, const struct gemm *gemm) {
    size_t size = xop_dtype_size(gemm->dtype);
    for (int64_t k = 0; k < gemm->inner; k += BLAS_INNER) {
        int64_t inner = gemm->inner - k < BLAS_INNER ? gemm->inner - k : BLAS_INNER;
        struct gemm_matrix a = gemm_part(&gemm->a, 0, k, size);
        struct gemm_matrix b = gemm_part(&gemm->b, k, 0, size);
        if (gemm->dtype == XOP_F32)
            blas->sgemm(BLAS_ROW_MAJOR, transposition(&a), transposition(&b), (int)gemm->rows,
                        (int)gemm->columns, (int)inner, 1, a.data, (int)a.step, b.data, (int)b.step,
                        1, gemm->c, (int)gemm->step_c);
        else
            blas->dgemm(BLAS_ROW_MAJOR, transposition(&a), transposition(&b), (int)gemm->rows,
                        (int)gemm->columns, (int)inner, 1, a.data, (int)a.step, b.data, (int)b.step,
                        1, gemm->c, (int)gemm->step_c);
    }
}

/* ---- Our own ---- */

/* The types' versions of packing a block and of multiplying two. A block of A lies in strips of
 * LOOPS_GEMM_ROWS rows, each inner by inner; one of B in strips of as many columns as fill
 * LOOPS_GEMM_BYTES. Strips at the edge are filled up with zeros, whose products go nowhere. */
#define GEMM(type, suffix)                                                                         \
    static void pack_##suffix(type *to, const struct gemm_matrix *from, bool by_columns,           \
                              int64_t across, int64_t inner, int64_t strip) {                      \
        const type *data = from->data;                                                             \
        int64_t step_across = from->transposed == by_columns ? from->step : 1;                     \
        int64_t step_inner = from->transposed == by_columns ? 1 : from->step;                      \
        for (int64_t s = 0; s < across; s += strip, to += strip * inner) {                         \
            int64_t n = across - s < strip ? across - s : strip;                                   \
            for (int64_t k = 0; k < inner; k++) {                                                  \
                const type *line = data + s * step_across + k * step_inner;                        \
                for (int64_t i = 0; i < n; i++)                                                    \
                    to[k * strip + i] = line[i * step_across];                                     \
                for (int64_t i = n; i < strip; i++)                                                \
                    to[k * strip + i] = 0;                                                         \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void multiply_##suffix(const struct loops *loops, const type *a, const type *b,         \
                                  int64_t rows, int64_t columns, int64_t inner, type *c,           \
                                  int64_t step_c) {                                                \
        enum { WIDTH = LOOPS_GEMM_BYTES / (int)sizeof(type) };                                     \
        for (int64_t j = 0; j < columns; j += WIDTH)                                               \
            for (int64_t i = 0; i < rows; i += LOOPS_GEMM_ROWS) {                                  \
                _Alignas(64) type tile[LOOPS_GEMM_ROWS * WIDTH];                                   \
                int64_t m = rows - i < LOOPS_GEMM_ROWS ? rows - i : LOOPS_GEMM_ROWS;               \
                int64_t n = columns - j < WIDTH ? columns - j : WIDTH;                             \
                loops->gemm_##suffix(inner, a + i * inner, b + j * inner, tile);                   \
                for (int64_t r = 0; r < m; r++)                                                    \
                    for (int64_t k = 0; k < n; k++)                                                \
                        c[(i + r) * step_c + j + k] += tile[r * WIDTH + k];                        \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    static void run_##suffix(const struct loops *loops, const struct gemm *gemm) {                 \
        _Alignas(64) type a[BLOCK_ROWS * BLOCK_INNER], b[BLOCK_COLUMNS * BLOCK_INNER];             \
        type *c = gemm->c;                                                                         \
        for (int64_t j = 0; j < gemm->columns; j += BLOCK_COLUMNS)                                 \
            for (int64_t k = 0; k < gemm->inner; k += BLOCK_INNER) {                               \
                int64_t columns =                                                                  \
                    gemm->columns - j < BLOCK_COLUMNS ? gemm->columns - j : BLOCK_COLUMNS;         \
                int64_t inner = gemm->inner - k < BLOCK_INNER ? gemm->inner - k : BLOCK_INNER;     \
                struct gemm_matrix part = gemm_part(&gemm->b, k, j, sizeof(type));                 \
                pack_##suffix(b, &part, true, columns, inner,                                      \
                              LOOPS_GEMM_BYTES / (int64_t)sizeof(type));                           \
                for (int64_t i = 0; i < gemm->rows; i += BLOCK_ROWS) {                             \
                    int64_t rows = gemm->rows - i < BLOCK_ROWS ? gemm->rows - i : BLOCK_ROWS;      \
                    part = gemm_part(&gemm->a, i, k, sizeof(type));                                \
                    pack_##suffix(a, &part, false, rows, inner, LOOPS_GEMM_ROWS);                  \
                    multiply_##suffix(loops, a, b, rows, columns, inner, c + i * gemm->step_c + j, \
                                      gemm->step_c);                                               \
                }                                                                                  \
            }                                                                                      \
    }

GEMM(float, f32)
GEMM(double, f64)

_Static_assert(BLOCK_ROWS % LOOPS_GEMM_ROWS == 0 && BLOCK_COLUMNS % MOST_COLUMNS == 0,
               "filling strips up stays inside the blocks");

void gemm_run(const struct loops *loops, const struct blas *blas, const struct gemm *gemm) {
    if (gemm->rows == 0 || gemm->columns == 0 || gemm->inner == 0)
        return;
    if (blas && blas_takes(gemm))
        run_blas(blas, gemm);
    else if (gemm->dtype == XOP_F32)
        run_f32(loops, gemm);
    else
        run_f64(loops, gemm);
}
