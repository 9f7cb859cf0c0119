#include "kernels/product.h"

#include "kernels/size.h"

/* A library may cut a long sum into pieces that different multiprocessors compute and keep up to so
 * many of them for each element, in f32; more than the maximum never paid (32 MiB is what NVIDIA
 * recommends for its largest devices). */
#define PIECES 16
#define LEAST_WORKSPACE (INT64_C(1) << 20)
#define MOST_WORKSPACE (INT64_C(32) << 20)

/* Slices that a sum over a batch is dealt out to: as many as fit in so many bytes, and one at
 * least. With fewer, each is so large that the device is busy with it. */
#define SLICE_BYTES (INT64_C(32) << 20)
#define MOST_SLICES 512

static int64_t saturated(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static bool rows_join(const struct product *p, const struct product_dim *dim) {
    return dim->c != 0 && dim->b == 0 && !p->a_transposed && dim->a == p->rows * p->inner &&
           dim->c == p->rows * p->columns;
}

static bool sums_join(const struct product *p, const struct product_dim *dim) {
    return dim->c == 0 && p->a_transposed && !p->b_transposed && dim->a == p->rows * p->inner &&
           dim->b == p->inner * p->columns;
}

void product_join(struct product *p) {
    for (; p->ndims > 0; p->ndims--) {
        const struct product_dim *last = &p->dim[p->ndims - 1];
        if (rows_join(p, last))
            p->rows *= last->size;
        else if (sums_join(p, last))
            p->inner *= last->size;
        else
            return;
    }
}

int64_t product_kept(const struct product *p) {
    int64_t n = 1;
    for (uint32_t i = 0; i < p->ndims; i++)
        n *= p->dim[i].c != 0 ? p->dim[i].size : 1;
    return n;
}

int64_t product_terms(const struct product *p) {
    int64_t n = 1;
    for (uint32_t i = 0; i < p->ndims; i++)
        n *= p->dim[i].c == 0 ? p->dim[i].size : 1;
    return n;
}

struct product_place product_place_of(const struct product *p, int64_t kept, int64_t term) {
    struct product_place place = {0, 0, 0};
    for (uint32_t i = p->ndims; i-- > 0;) {
        const struct product_dim *dim = &p->dim[i];
        int64_t *number = dim->c != 0 ? &kept : &term, at = *number % dim->size;
        *number /= dim->size;
        place.a += at * dim->a;
        place.b += at * dim->b;
        place.c += at * dim->c;
    }
    return place;
}

/* The longest dimension, so that the fewest calls of the library are made. */
static uint32_t lane_of(const struct product *p) {
    uint32_t lane = 0;
    if (p->ndims == 0)
        return 0;
    for (uint32_t i = 1; i < p->ndims; i++)
        if (p->dim[i].size > p->dim[lane].size)
            lane = i;
    return lane;
}

static uint64_t library_bytes(const struct product *p) {
    int64_t bytes = saturated(saturated(p->rows, p->columns), PIECES * sizeof(float));
    if (p->ndims > 0)
        bytes = saturated(bytes, p->dim[lane_of(p)].size);
    bytes = bytes < MOST_WORKSPACE ? (int64_t)size_aligned((uint64_t)bytes) : MOST_WORKSPACE;
    return (uint64_t)(bytes > LEAST_WORKSPACE ? bytes : LEAST_WORKSPACE);
}

void product_cut_of(const struct product *p, struct product_cut *cut) {
    int64_t size = p->dtype == XOP_F64 ? sizeof(double) : sizeof(float);
    int64_t one = saturated(saturated(saturated(p->rows, p->columns), product_kept(p)), size);
    int64_t terms = product_terms(p);

    *cut = (struct product_cut){.lane = lane_of(p), .slices = 1};
    cut->library_bytes = library_bytes(p);
    if (cut->lane < p->ndims && p->dim[cut->lane].c == 0 && one > 0) {
        int64_t most = SLICE_BYTES / one < MOST_SLICES ? SLICE_BYTES / one : MOST_SLICES;
        cut->slices = p->dim[cut->lane].size < most ? p->dim[cut->lane].size : most;
        if (cut->slices < 1)
            cut->slices = 1;
    }
    cut->apart = terms > 1 && (cut->slices > 1 || xop_dtype_size(p->dtype) == 2);
    if (cut->apart) /* what saturates is refused by its size */
        cut->sum_bytes = size_aligned((uint64_t)saturated(one, cut->slices));
}

uint64_t product_flops(const struct product *p) {
    int64_t n = saturated(saturated(p->rows, p->columns), p->inner);
    n = saturated(saturated(n, product_kept(p)), product_terms(p));
    return (uint64_t)n > UINT64_MAX / 8 ? UINT64_MAX / 4 : 2 * (uint64_t)n;
}

void product_options(struct product *p, const struct xop_attr *attrs) {
    p->allow_tf32 = attrs && attrs[0].value.i;
    p->any_order = attrs && !attrs[1].value.i;
}
