#include "kernels/shape.h"

#include <string.h>

#include "kernels/size.h"

const char *shape_format(const struct xop_tensor *tensor, char text[SHAPE_TEXT]) {
    uint32_t rank = tensor->rank <= XOP_MAX_RANK ? tensor->rank : XOP_MAX_RANK;
    size_t used = 0;

    text[used++] = '(';
    for (uint32_t i = 0; i < rank; i++) {
        int n = snprintf(text + used, SHAPE_TEXT - used, "%s%lld", i ? ", " : "",
                         (long long)tensor->shape[i]);
        used += (size_t)n;
    }
    snprintf(text + used, SHAPE_TEXT - used, "%s)", rank == 1 ? "," : "");
    return text;
}

bool shape_equal(const struct xop_tensor *a, const struct xop_tensor *b) {
    if (a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

void shape_copy(struct xop_tensor *to, const struct xop_tensor *from) {
    memset(to, 0, sizeof *to);
    to->dtype = from->dtype;
    to->rank = from->rank;
    memcpy(to->shape, from->shape, sizeof to->shape);
}

/* The extent at position i of a shape of `rank` dimensions once t is padded with leading ones. */
static int64_t extent(const struct xop_tensor *t, uint32_t rank, uint32_t i) {
    uint32_t missing = rank - t->rank;
    return i < missing ? 1 : t->shape[i - missing];
}

enum xop_status shape_check_bytes(const char *name, const struct xop_tensor *tensor,
                                  struct xop_error *error) {
    uint64_t bytes;
    if (xop_tensor_bytes(tensor, &bytes))
        return XOP_OK;
    return xop_fail(error, XOP_INVALID_ARGUMENT, "%s would exceed 2^63 bytes", name);
}

enum xop_status shape_broadcast(const char *a_name, const struct xop_tensor *a, const char *b_name,
                                const struct xop_tensor *b, struct xop_tensor *out,
                                struct xop_error *error) {
    char a_text[SHAPE_TEXT], b_text[SHAPE_TEXT];
    uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    uint64_t bytes;

    memset(out, 0, sizeof *out);
    out->dtype = a->dtype;
    out->rank = rank;
    for (uint32_t i = 0; i < rank; i++) {
        int64_t p = extent(a, rank, i), q = extent(b, rank, i);
        if (p != q && p != 1 && q != 1)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "%s of shape %s and %s of shape %s do not broadcast: %lld and %lld "
                            "meet, and neither is 1",
                            a_name, shape_format(a, a_text), b_name, shape_format(b, b_text),
                            (long long)p, (long long)q);
        out->shape[i] = p == 1 ? q : p;
    }
    if (!xop_tensor_bytes(out, &bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "%s of shape %s and %s of shape %s broadcast to more than 2^63-1 bytes",
                        a_name, shape_format(a, a_text), b_name, shape_format(b, b_text));
    return XOP_OK;
}

/* An empty array may have extents whose product overflows. Nothing is walked then, so the product
 * may wrap, but it must not be undefined. */
static int64_t wrapping_product(int64_t a, int64_t b) {
    int64_t product;
    (void)__builtin_mul_overflow(a, b, &product);
    return product;
}

static int64_t at_least_one(int64_t n) { return n > 1 ? n : 1; }

/* The steps of t at each of rank dimensions; extents of 0 count as 1, so that a step of 0 always
 * means that t is repeated. */
static void strides(const struct xop_tensor *t, const struct xop_tensor *out, int64_t *stride) {
    int64_t step = 1;
    for (uint32_t i = out->rank; i-- > 0;) {
        int64_t n = extent(t, out->rank, i);
        stride[i] = n == 1 && out->shape[i] != 1 ? 0 : step;
        step = wrapping_product(step, at_least_one(n));
    }
}

/* Whether one dimension does for the two: operands are dense, so an operand that walks both, or
 * neither, goes on from one to the other at an even step. */
static bool joins(const struct shape_dim *outer, const struct shape_dim *inner) {
    return (outer->stride_x == 0) == (inner->stride_x == 0) &&
           (outer->stride_b == 0) == (inner->stride_b == 0);
}

static enum shape_form form_of(const struct shape_map *map, const int64_t *stride) {
    uint32_t zeros = 0;
    for (uint32_t i = 0; i < map->ndims; i++)
        zeros += stride[i] == 0;
    if (zeros == 0)
        return SHAPE_FULL;
    if (zeros == map->ndims)
        return SHAPE_SCALAR;
    if (map->ndims != 2)
        return SHAPE_GENERAL;
    return stride[0] == 0 ? SHAPE_ROW : SHAPE_COLUMN;
}

void shape_collapse(const struct xop_tensor *x, const struct xop_tensor *b,
                    const struct xop_tensor *out, struct shape_map *map) {
    int64_t stride_x[XOP_MAX_RANK] = {0}, stride_b[XOP_MAX_RANK] = {0};
    uint32_t n = 0;

    memset(map, 0, sizeof *map);
    if (!xop_tensor_elements(out, &map->elements))
        map->elements = 0;
    strides(x, out, stride_x);
    strides(b, out, stride_b);
    for (uint32_t i = 0; i < out->rank; i++) {
        struct shape_dim dim = {out->shape[i], stride_x[i], stride_b[i]};
        if (dim.size == 1)
            continue;
        if (n > 0 && joins(&map->dim[n - 1], &dim)) {
            dim.size = wrapping_product(map->dim[n - 1].size, dim.size);
            map->dim[n - 1] = dim;
        } else {
            map->dim[n++] = dim;
        }
    }
    map->ndims = n;
    for (uint32_t i = 0; i < n; i++) {
        stride_x[i] = map->dim[i].stride_x;
        stride_b[i] = map->dim[i].stride_b;
    }
    map->x_form = form_of(map, stride_x);
    map->b_form = form_of(map, stride_b);
}

/* Terms under which a piece is not worth its own partial sum: rows, which many outputs are summed
 * along side by side, or terms that lie next to each other. */
#define PIECE_ROWS 64
#define PIECE_TERMS 1024

static void cut(struct shape_reduction *r) {
    int64_t most = r->outputs > 0 ? SHAPE_MAX_PARTIALS_ALL / r->outputs : 1;
    bool rows = r->nkept > 0 && r->kept[r->nkept - 1].stride == 1;
    int64_t least = rows ? PIECE_ROWS : PIECE_TERMS;
    int64_t wanted = size_ceil(r->reduced, least);

    if (most > SHAPE_MAX_PARTIALS)
        most = SHAPE_MAX_PARTIALS;
    if (wanted > most)
        wanted = most;
    wanted = at_least_one(wanted);
    r->piece = at_least_one(size_ceil(r->reduced, wanted));
    r->partials = (uint32_t)at_least_one(size_ceil(r->reduced, r->piece));
}

void shape_reduce(const struct xop_tensor *operand, const struct xop_tensor *full,
                  struct shape_reduction *reduction) {
    struct shape_map map;

    shape_collapse(full, operand, full, &map);
    memset(reduction, 0, sizeof *reduction);
    reduction->form = map.b_form;
    if (!xop_tensor_elements(operand, &reduction->outputs))
        reduction->outputs = 0;
    reduction->reduced = reduction->outputs > 0 ? map.elements / reduction->outputs : 0;
    for (uint32_t i = 0; i < map.ndims; i++) {
        struct shape_axis axis = {map.dim[i].size, map.dim[i].stride_x};
        if (map.dim[i].stride_b != 0)
            reduction->kept[reduction->nkept++] = axis;
        else
            reduction->axis[reduction->nreduced++] = axis;
    }
    cut(reduction);
}

uint64_t shape_reduction_workspace(const struct shape_reduction *reduction) {
    uint64_t bytes;
    if (reduction->partials <= 1)
        return 0;
    bytes = (uint64_t)reduction->outputs * reduction->partials * sizeof(double);
    return size_aligned(bytes);
}
