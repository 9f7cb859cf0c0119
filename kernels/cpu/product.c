#include "kernels/cpu/product.h"

#include <string.h>

#include "kernels/cpu/gemm.h"
#include "kernels/size.h"

#define TILE 128 /* rows and columns */
/* Larger ones copy less, where there are enough of them to keep every thread busy. */
#define LARGE_TILE 256
#define ENOUGH_TILES 32
#define HALF_INNER 256 /* of a block that is converted */
/* Multiplications that are worth handing to another thread. */
#define ENOUGH_WORK (INT64_C(1) << 17)

struct run {
    const struct product *product;
    const struct loops *loops;
    const struct blas *blas;
    size_t size;
    struct gemm_matrix a, b;
    int64_t terms;
    int64_t tile, across, tiles; /* of one result, and how many are in a row of them */
};

/* Which result a tile belongs to, and where in it the tile lies. */
struct place {
    int64_t result, row, column, rows, columns;
};

static struct place place_of(const struct run *r, int64_t number) {
    int64_t tile = number % r->tiles;
    int64_t row = tile / r->across * r->tile, column = tile % r->across * r->tile;
    return (struct place){number / r->tiles, row, column,
                          size_least(r->tile, r->product->rows - row),
                          size_least(r->tile, r->product->columns - column)};
}

static char *result_at(const struct run *r, const struct place *at) {
    const struct product *p = r->product;
    int64_t offset = product_place_of(p, at->result, 0).c;
    return (char *)p->c + (size_t)(offset + at->row * p->columns + at->column) * r->size;
}

/* The matrices of a term, from the tile's first row and column on. */
static void operands(const struct run *r, const struct place *at, int64_t term,
                     struct gemm_matrix *a, struct gemm_matrix *b) {
    struct product_place offset = product_place_of(r->product, at->result, term);
    *a = gemm_part(&r->a, at->row, 0, r->size);
    *b = gemm_part(&r->b, 0, at->column, r->size);
    a->data = (const char *)a->data + (size_t)offset.a * r->size;
    b->data = (const char *)b->data + (size_t)offset.b * r->size;
}

/* Computed where the result is to be. */
static void tile_whole(const struct run *r, const struct place *at) {
    const struct product *p = r->product;
    char *c = result_at(r, at);
    size_t bytes = (size_t)at->columns * r->size, step = (size_t)p->columns * r->size;
    struct gemm gemm = {.dtype = p->dtype,
                        .rows = at->rows,
                        .columns = at->columns,
                        .inner = p->inner,
                        .c = c,
                        .step_c = p->columns};

    for (int64_t i = 0; i < at->rows; i++)
        if (p->bias)
            memcpy(c + (size_t)i * step, (const char *)p->bias + (size_t)at->column * r->size,
                   bytes);
        else
            memset(c + (size_t)i * step, 0, bytes);
    for (int64_t term = 0; term < r->terms; term++) {
        operands(r, at, term, &gemm.a, &gemm.b);
        gemm_run(r->loops, r->blas, &gemm);
    }
}

static void load(const struct run *r, float *to, const void *from, int64_t n) {
    (r->product->dtype == XOP_F16 ? r->loops->f16_to_f32 : r->loops->bf16_to_f32)(to, from, n);
}

static void store(const struct run *r, void *to, const float *from, int64_t n) {
    (r->product->dtype == XOP_F16 ? r->loops->f32_to_f16 : r->loops->f32_to_bf16)(to, from, n);
}

/* A part of a matrix in f32, as it is stored. */
static struct gemm_matrix convert(const struct run *r, const struct gemm_matrix *matrix,
                                  int64_t row, int64_t column, int64_t rows, int64_t columns,
                                  float *to) {
    struct gemm_matrix part = gemm_part(matrix, row, column, r->size);
    int64_t lines = matrix->transposed ? columns : rows;
    int64_t length = matrix->transposed ? rows : columns;

    for (int64_t i = 0; i < lines; i++)
        load(r, to + i * length, (const uint16_t *)part.data + i * part.step, length);
    return (struct gemm_matrix){to, length, matrix->transposed};
}

/* Adds a term to c, which is dense. */
static void add_half(const struct run *r, const struct place *at, int64_t term, float *c) {
    _Alignas(64) float a[TILE * HALF_INNER], b[TILE * HALF_INNER];
    struct gemm_matrix whole_a, whole_b;

    operands(r, at, term, &whole_a, &whole_b);
    for (int64_t k = 0; k < r->product->inner; k += HALF_INNER) {
        int64_t inner = size_least(HALF_INNER, r->product->inner - k);
        struct gemm gemm = {.dtype = XOP_F32,
                            .rows = at->rows,
                            .columns = at->columns,
                            .inner = inner,
                            .a = convert(r, &whole_a, 0, k, at->rows, inner, a),
                            .b = convert(r, &whole_b, k, 0, inner, at->columns, b),
                            .c = c,
                            .step_c = at->columns};
        gemm_run(r->loops, r->blas, &gemm);
    }
}

static void tile_half(const struct run *r, const struct place *at) {
    _Alignas(64) float c[TILE * TILE];
    const struct product *p = r->product;
    char *to = result_at(r, at);

    if (p->bias)
        load(r, c, (const uint16_t *)p->bias + at->column, at->columns);
    else
        memset(c, 0, (size_t)at->columns * sizeof *c);
    for (int64_t i = 1; i < at->rows; i++)
        memcpy(c + i * at->columns, c, (size_t)at->columns * sizeof *c);
    for (int64_t term = 0; term < r->terms; term++)
        add_half(r, at, term, c);
    for (int64_t i = 0; i < at->rows; i++)
        store(r, to + (size_t)(i * p->columns) * r->size, c + i * at->columns, at->columns);
}

static void run_tiles(void *arg, int64_t begin, int64_t end) {
    const struct run *r = arg;
    for (int64_t i = begin; i < end; i++) {
        struct place at = place_of(r, i);
        if (r->size == sizeof(uint16_t))
            tile_half(r, &at);
        else
            tile_whole(r, &at);
    }
}

static int64_t tiles_of(const struct product *p, int64_t tile) {
    return ((p->rows - 1) / tile + 1) * ((p->columns - 1) / tile + 1);
}

/* Tiles that are worth another thread together. */
static int64_t grain_of(const struct run *r) {
    const struct product *p = r->product;
    double work = (double)size_least(r->tile, p->rows) * (double)size_least(r->tile, p->columns) *
                  (double)(p->inner + 1) * (double)r->terms;
    return work < (double)ENOUGH_WORK ? (int64_t)((double)ENOUGH_WORK / (work + 1)) + 1 : 1;
}

void product_run(const struct product *p, const struct xop_host *host) {
    struct run r = {.product = p, .loops = loops_best(), .blas = blas_best()};
    int64_t kept = product_kept(p);

    if (!p->c || p->rows == 0 || p->columns == 0 || kept == 0)
        return;
    r.size = xop_dtype_size(p->dtype);
    r.a = (struct gemm_matrix){p->a, p->a_transposed ? p->rows : p->inner, p->a_transposed};
    r.b = (struct gemm_matrix){p->b, p->b_transposed ? p->inner : p->columns, p->b_transposed};
    r.terms = product_terms(p);
    r.tile = TILE;
    if (r.size != sizeof(uint16_t) && tiles_of(p, LARGE_TILE) >= ENOUGH_TILES)
        r.tile = LARGE_TILE;
    r.across = (p->columns - 1) / r.tile + 1;
    r.tiles = tiles_of(p, r.tile);
    host->parallel(host, kept * r.tiles, grain_of(&r), run_tiles, &r);
}
