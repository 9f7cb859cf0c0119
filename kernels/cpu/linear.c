/*
 * linear on the CPU: a product is cut into tiles of its result, which the pool's threads compute
 * whole. f16 and bf16 pass through f32, a block at a time, and are rounded when a tile is done.
 */
#include "kernels/linear.h"

#include <string.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/reduce.h"

#define TILE 128 /* rows and columns */
/* Larger ones copy less, where there are enough of them to keep every thread busy. */
#define LARGE_TILE 256
#define ENOUGH_TILES 32
#define HALF_INNER 256 /* of a block that is converted */

/* C (rows, columns) = A (rows, inner) B (inner, columns) + bias, which may be NULL. */
struct product {
    const struct loops *loops;
    const struct blas *blas;
    enum xop_dtype dtype;
    size_t size;
    int64_t rows, columns, inner;
    struct gemm_matrix a, b;
    const void *bias;
    char *c;
    int64_t tile, across; /* tiles in a row of them */
};

/* Where in the result a tile lies. */
struct place {
    int64_t row, column, rows, columns;
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static struct place place_of(const struct product *p, int64_t tile) {
    int64_t row = tile / p->across * p->tile, column = tile % p->across * p->tile;
    return (struct place){row, column, least(p->tile, p->rows - row),
                          least(p->tile, p->columns - column)};
}

/* Computed where the result is to be. */
static void tile_whole(const struct product *p, const struct place *at) {
    char *c = p->c + (size_t)(at->row * p->columns + at->column) * p->size;
    size_t bytes = (size_t)at->columns * p->size, step = (size_t)p->columns * p->size;
    struct gemm gemm = {.dtype = p->dtype,
                        .rows = at->rows,
                        .columns = at->columns,
                        .inner = p->inner,
                        .a = gemm_part(&p->a, at->row, 0, p->size),
                        .b = gemm_part(&p->b, 0, at->column, p->size),
                        .c = c,
                        .step_c = p->columns};

    for (int64_t i = 0; i < at->rows; i++)
        if (p->bias)
            memcpy(c + (size_t)i * step, (const char *)p->bias + (size_t)at->column * p->size,
                   bytes);
        else
            memset(c + (size_t)i * step, 0, bytes);
    gemm_run(p->loops, p->blas, &gemm);
}

static void load(const struct product *p, float *to, const void *from, int64_t n) {
    (p->dtype == XOP_F16 ? p->loops->f16_to_f32 : p->loops->bf16_to_f32)(to, from, n);
}

static void store(const struct product *p, void *to, const float *from, int64_t n) {
    (p->dtype == XOP_F16 ? p->loops->f32_to_f16 : p->loops->f32_to_bf16)(to, from, n);
}

/* A part of a matrix in f32, as it is stored. */
static struct gemm_matrix convert(const struct product *p, const struct gemm_matrix *matrix,
                                  int64_t row, int64_t column, int64_t rows, int64_t columns,
                                  float *to) {
    struct gemm_matrix part = gemm_part(matrix, row, column, p->size);
    int64_t lines = matrix->transposed ? columns : rows;
    int64_t length = matrix->transposed ? rows : columns;

    for (int64_t i = 0; i < lines; i++)
        load(p, to + i * length, (const uint16_t *)part.data + i * part.step, length);
    return (struct gemm_matrix){to, length, matrix->transposed};
}

static void tile_half(const struct product *p, const struct place *at) {
    _Alignas(64) float a[TILE * HALF_INNER], b[TILE * HALF_INNER], c[TILE * TILE];

    if (p->bias)
        load(p, c, (const uint16_t *)p->bias + at->column, at->columns);
    else
        memset(c, 0, (size_t)at->columns * sizeof *c);
    for (int64_t i = 1; i < at->rows; i++)
        memcpy(c + i * at->columns, c, (size_t)at->columns * sizeof *c);
    for (int64_t k = 0; k < p->inner; k += HALF_INNER) {
        int64_t inner = least(HALF_INNER, p->inner - k);
        struct gemm gemm = {.dtype = XOP_F32,
                            .rows = at->rows,
                            .columns = at->columns,
                            .inner = inner,
                            .a = convert(p, &p->a, at->row, k, at->rows, inner, a),
                            .b = convert(p, &p->b, k, at->column, inner, at->columns, b),
                            .c = c,
                            .step_c = at->columns};
        gemm_run(p->loops, p->blas, &gemm);
    }
    for (int64_t i = 0; i < at->rows; i++)
        store(p, (uint16_t *)(void *)p->c + (at->row + i) * p->columns + at->column,
              c + i * at->columns, at->columns);
}

static void run_tiles(void *arg, int64_t begin, int64_t end) {
    const struct product *p = arg;
    for (int64_t i = begin; i < end; i++) {
        struct place at = place_of(p, i);
        if (p->size == sizeof(uint16_t))
            tile_half(p, &at);
        else
            tile_whole(p, &at);
    }
}

static int64_t tiles_of(const struct product *p, int64_t tile) {
    return ((p->rows - 1) / tile + 1) * ((p->columns - 1) / tile + 1);
}

static void product_run(struct product *p, const struct xop_host *host) {
    if (!p->c || p->rows == 0 || p->columns == 0)
        return;
    p->loops = loops_best();
    p->blas = blas_best();
    p->size = xop_dtype_size(p->dtype);
    p->tile = TILE;
    if (p->size != sizeof(uint16_t) && tiles_of(p, LARGE_TILE) >= ENOUGH_TILES)
        p->tile = LARGE_TILE;
    p->across = (p->columns - 1) / p->tile + 1;
    host->parallel(host, tiles_of(p, p->tile), 1, run_tiles, p);
}

static void forward_call(const struct xop_host *host, const struct xop_call *call) {
    struct linear_size size;
    struct product y = {.dtype = call->in[LINEAR_X].dtype};

    linear_measure(call, &size);
    y.rows = size.rows;
    y.columns = size.out;
    y.inner = size.in;
    y.a = (struct gemm_matrix){call->in[LINEAR_X].data, size.in, false};
    y.b = (struct gemm_matrix){call->in[LINEAR_W].data, size.in, true};
    y.bias = call->in[LINEAR_B].data;
    y.c = call->out[0].data;
    product_run(&y, host);
}

static void backward_call(const struct xop_host *host, const struct xop_call *call) {
    const struct xop_tensor *grad_y = &call->in[LINEAR_GRAD_Y];
    struct linear_size size;
    struct product grad_x = {.dtype = grad_y->dtype}, grad_w = {.dtype = grad_y->dtype};

    linear_measure(call, &size);
    grad_x.rows = size.rows;
    grad_x.columns = size.in;
    grad_x.inner = size.out;
    grad_x.a = (struct gemm_matrix){grad_y->data, size.out, false};
    grad_x.b = (struct gemm_matrix){call->in[LINEAR_W].data, size.in, false};
    grad_x.c = call->out[LINEAR_GRAD_X].data;
    product_run(&grad_x, host);

    grad_w.rows = size.out;
    grad_w.columns = size.in;
    grad_w.inner = size.rows;
    grad_w.a = (struct gemm_matrix){grad_y->data, size.out, true};
    grad_w.b = (struct gemm_matrix){call->in[LINEAR_X].data, size.in, false};
    grad_w.c = call->out[LINEAR_GRAD_W].data;
    product_run(&grad_w, host);

    if (call->out[LINEAR_GRAD_B].data) {
        struct shape_reduction sum;
        struct reduce reduce = {.shape = &sum,
                                .dtype = grad_y->dtype,
                                .full = grad_y->data,
                                .scale = 1,
                                .out = call->out[LINEAR_GRAD_B].data};
        reduce.partials = call->workspace;
        linear_bias_sum(&size, grad_y->dtype, &sum);
        reduce_run(&reduce, host);
    }
}

LAUNCH_EACH(linear, forward_call, backward_call)
