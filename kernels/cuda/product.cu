#include "kernels/cuda/product.h"

#include "kernels/cuda/check.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/lt.h"

#define MOST_BLOCKS 1024 /* enough for the memory's whole bandwidth */
/* Matrices of a strided batch: kernels count them in a grid's third dimension. */
#define MOST_BATCH 65535
/* Calls of the library for a product, each of which takes the loop's thread some 5 us. Where a
 * batch would need more its matrices are small, and one kernel of ours computes it sooner. */
#define MOST_CALLS 1024

static uint32_t blocks_for(int64_t n) {
    int64_t blocks = (n - 1) / ELEMENT_BLOCK + 1;
    return (uint32_t)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

/* ---- What has an empty sum ---- */

/* Every row of c is the bias, or 0 where there is none. T: unsigned, of an element's size. */
template <class T>
static __global__ void __launch_bounds__(ELEMENT_BLOCK)
    product_fill(T *c, const T *bias, int64_t columns, int64_t n) {
    const int64_t step = (int64_t)gridDim.x * ELEMENT_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * ELEMENT_BLOCK + threadIdx.x; i < n; i += step)
        c[i] = bias ? bias[i % columns] : T(0);
}

template <class T>
static void fill_typed(const struct xop_launch *launch, const struct product *p, int64_t n) {
    product_fill<T><<<blocks_for(n), ELEMENT_BLOCK, 0, (cudaStream_t)launch->stream>>>(
        (T *)p->c, (const T *)p->bias, p->columns, n);
}

/* n > 0 elements of c, row by row. */
static enum xop_status fill(const struct xop_launch *launch, const struct product *p, int64_t n,
                            struct xop_error *error) {
    switch (xop_dtype_size(p->dtype)) {
    case 2: fill_typed<uint16_t>(launch, p, n); break;
    case 4: fill_typed<uint32_t>(launch, p, n); break;
    default: fill_typed<uint64_t>(launch, p, n); break;
    }
    return CHECK_CUDA(error, cudaGetLastError());
}

/* ---- Sums over a batch ---- */

/* c[i] = the sum of slice[s][i] over s, in order. Each slice has n elements. */
template <class T>
static __global__ void __launch_bounds__(ELEMENT_BLOCK)
    product_add_up(T *c, const typename element<T>::compute *slice, int64_t slices, int64_t n) {
    const int64_t step = (int64_t)gridDim.x * ELEMENT_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * ELEMENT_BLOCK + threadIdx.x; i < n; i += step) {
        typename element<T>::compute sum = slice[i];
        for (int64_t s = 1; s < slices; s++)
            sum += slice[s * n + i];
        c[i] = element<T>::store(sum);
    }
}

template <class T>
static void add_up_typed(const struct xop_launch *launch, const struct product *p,
                         const void *slices, int64_t count, int64_t n) {
    product_add_up<T><<<blocks_for(n), ELEMENT_BLOCK, 0, (cudaStream_t)launch->stream>>>(
        (T *)p->c, (const typename element<T>::compute *)slices, count, n);
}

static enum xop_status add_up(const struct xop_launch *launch, const struct product *p,
                              const void *slices, int64_t count, int64_t n,
                              struct xop_error *error) {
    switch (p->dtype) {
    case XOP_F16: add_up_typed<__half>(launch, p, slices, count, n); break;
    case XOP_BF16: add_up_typed<__nv_bfloat16>(launch, p, slices, count, n); break;
    case XOP_F64: add_up_typed<double>(launch, p, slices, count, n); break;
    default: add_up_typed<float>(launch, p, slices, count, n); break;
    }
    return CHECK_CUDA(error, cudaGetLastError());
}

/* ---- Many small products ---- */

/* Where a result's matrices begin, and those of its term: product_place_of, on the device. */
static __device__ product_place place_of(const struct product &p, int64_t kept, int64_t term) {
    product_place place = {0, 0, 0};
    for (uint32_t i = p.ndims; i-- > 0;) {
        const struct product_dim &dim = p.dim[i];
        int64_t &number = dim.c != 0 ? kept : term;
        const element_quotient split = element_divide(number, dim.size);
        number = split.quotient;
        place.a += split.rest * dim.a;
        place.b += split.rest * dim.b;
        place.c += split.rest * dim.c;
    }
    return place;
}

/* A thread sums an element of c, term by term. n: elements of all results. */
template <class T>
static __global__ void __launch_bounds__(ELEMENT_BLOCK)
    product_each(const __grid_constant__ struct product p, int64_t terms, int64_t n) {
    using C = typename element<T>::compute;
    const int64_t step = (int64_t)gridDim.x * ELEMENT_BLOCK;
    const int64_t step_a = p.a_transposed ? p.rows : 1, step_b = p.b_transposed ? 1 : p.columns;

    for (int64_t i = (int64_t)blockIdx.x * ELEMENT_BLOCK + threadIdx.x; i < n; i += step) {
        const element_quotient matrix = element_divide(i, p.rows * p.columns);
        const element_quotient at = element_divide(matrix.rest, p.columns);
        const int64_t in_a = p.a_transposed ? at.quotient : at.quotient * p.inner;
        const int64_t in_b = p.b_transposed ? at.rest * p.inner : at.rest;
        C sum = 0;
        for (int64_t term = 0; term < terms; term++) {
            const product_place place = place_of(p, matrix.quotient, term);
            const T *a = (const T *)p.a + place.a + in_a, *b = (const T *)p.b + place.b + in_b;
            for (int64_t k = 0; k < p.inner; k++)
                sum += element<T>::load(a[k * step_a]) * element<T>::load(b[k * step_b]);
        }
        ((T *)p.c)[place_of(p, matrix.quotient, 0).c + matrix.rest] = element<T>::store(sum);
    }
}

template <class T>
static void each_typed(const struct xop_launch *launch, const struct product *p, int64_t n) {
    product_each<T><<<blocks_for(n), ELEMENT_BLOCK, 0, (cudaStream_t)launch->stream>>>(
        *p, product_terms(p), n);
}

static enum xop_status each(const struct xop_launch *launch, const struct product *p, int64_t n,
                            struct xop_error *error) {
    switch (p->dtype) {
    case XOP_F16: each_typed<__half>(launch, p, n); break;
    case XOP_BF16: each_typed<__nv_bfloat16>(launch, p, n); break;
    case XOP_F64: each_typed<double>(launch, p, n); break;
    default: each_typed<float>(launch, p, n); break;
    }
    return CHECK_CUDA(error, cudaGetLastError());
}

/* ---- Products ---- */

/* Whether the library's way of adding the bias rounds once. In f16 and bf16 its kernels for rows
 * that do not begin on a multiple of 16 bytes were seen to round the product first, and what
 * cancels in the sum with the bias is then lost. */
static bool adds_bias_well(const struct lt_product *product) {
    int64_t size = (int64_t)xop_dtype_size(product->dtype);
    return size > 2 || (product->inner * size % 16 == 0 && product->columns * size % 16 == 0);
}

static enum xop_status multiply(const struct xop_launch *launch, const struct product *p,
                                struct lt_product *product, struct xop_error *error) {
    cudaStream_t stream = (cudaStream_t)launch->stream;
    bool unsupported = false;
    enum xop_status status;

    if (!product->bias || adds_bias_well(product)) {
        status = lt_product_enqueue(product, stream, &unsupported, error);
        if (!unsupported || !product->bias)
            return status;
    }
    /* Also, not every dtype and device has products that add a bias on the way. */
    status = fill(launch, p, p->rows * p->columns, error);
    if (status != XOP_OK)
        return status;
    product->bias = NULL;
    product->adds = true;
    return lt_product_enqueue(product, stream, &unsupported, error);
}

/* A run of neighbours along the lane, from `begin` on, at a place of the other dimensions. */
struct stretch {
    struct product_place at;
    int64_t begin, count;
    bool adds;
};

static enum xop_status run(const struct xop_launch *launch, const struct product *p,
                           const struct product_cut *cut, const struct stretch *stretch, void *c,
                           struct lt_product *product, int64_t results, struct xop_error *error) {
    const struct product_dim none = {1, 0, 0, 0};
    const struct product_dim *lane = cut->lane < p->ndims ? &p->dim[cut->lane] : &none;
    int64_t size = (int64_t)xop_dtype_size(p->dtype);
    int64_t c_size = (int64_t)xop_dtype_size(product->c_dtype);

    product->a = (const char *)p->a + (stretch->at.a + stretch->begin * lane->a) * size;
    product->b = (const char *)p->b + (stretch->at.b + stretch->begin * lane->b) * size;
    product->c = (char *)c + (stretch->at.c + stretch->begin * lane->c) * c_size;
    product->batch = stretch->count;
    product->step_a = lane->a;
    product->step_b = lane->b;
    product->step_c = lane->c != 0 ? lane->c : results; /* slice after slice */
    product->adds = stretch->adds;
    return multiply(launch, p, product, error);
}

/* All of the lane at one place of the other dimensions. `first`: nothing was summed there yet. */
static enum xop_status run_lane(const struct xop_launch *launch, const struct product *p,
                                const struct product_cut *cut, const struct product_place *at,
                                bool first, void *c, struct lt_product *product, int64_t results,
                                struct xop_error *error) {
    bool has_lane = cut->lane < p->ndims, summed = has_lane && p->dim[cut->lane].c == 0;
    int64_t size = has_lane ? p->dim[cut->lane].size : 1;
    int64_t most = summed ? cut->slices : MOST_BATCH;
    enum xop_status status = XOP_OK;

    for (int64_t begin = 0; begin < size && status == XOP_OK; begin += most) {
        struct stretch stretch = {*at, begin, size - begin < most ? size - begin : most,
                                  !first || (summed && begin > 0)};
        status = run(launch, p, cut, &stretch, c, product, results, error);
    }
    return status;
}

/* Every place of the dimensions but the lane, those that are summed innermost. */
static enum xop_status run_all(const struct xop_launch *launch, const struct product *p,
                               const struct product_cut *cut, void *c, struct lt_product *product,
                               int64_t results, struct xop_error *error) {
    struct product others = *p;
    enum xop_status status = XOP_OK;
    int64_t kept, terms;

    if (cut->lane < p->ndims)
        others.dim[cut->lane].size = 1;
    kept = product_kept(&others);
    terms = product_terms(&others);
    for (int64_t i = 0; i < kept && status == XOP_OK; i++)
        for (int64_t k = 0; k < terms && status == XOP_OK; k++) {
            struct product_place at = product_place_of(&others, i, k);
            status = run_lane(launch, p, cut, &at, k == 0, c, product, results, error);
        }
    return status;
}

/* How often run_all would call the library. */
static int64_t calls_of(const struct product *p, const struct product_cut *cut) {
    int64_t places = product_kept(p) * product_terms(p), size = 1, most = MOST_BATCH;
    if (cut->lane < p->ndims) {
        size = p->dim[cut->lane].size;
        most = p->dim[cut->lane].c == 0 ? cut->slices : MOST_BATCH;
    }
    return places / size * ((size - 1) / most + 1);
}

enum xop_status product_enqueue(const struct xop_launch *launch, const struct product *p,
                                void *workspace, struct xop_error *error) {
    int64_t results = product_kept(p) * p->rows * p->columns;
    struct lt_product product = {};
    struct product_cut cut;
    enum xop_status status;

    if (!p->c || results == 0)
        return XOP_OK;
    if (p->inner == 0 || product_terms(p) == 0)
        return fill(launch, p, results, error);
    product_cut_of(p, &cut);
    if (calls_of(p, &cut) > MOST_CALLS)
        return each(launch, p, results, error);
    product.dtype = p->dtype;
    product.c_dtype = cut.apart && p->dtype != XOP_F64 ? XOP_F32 : p->dtype;
    product.rows = p->rows;
    product.columns = p->columns;
    product.inner = p->inner;
    product.a_transposed = p->a_transposed;
    product.b_transposed = p->b_transposed;
    product.allow_tf32 = p->allow_tf32;
    product.any_order = p->any_order;
    product.bias = p->bias;
    product.workspace = (char *)workspace + cut.sum_bytes;
    product.workspace_bytes = cut.library_bytes;
    status = run_all(launch, p, &cut, cut.apart ? workspace : p->c, &product, results, error);
    if (status == XOP_OK && cut.apart)
        status = add_up(launch, p, workspace, cut.slices, results, error);
    return status;
}

enum xop_status product_preload(struct xop_error *error) {
    const void *const kernels[] = {
        (const void *)product_fill<uint16_t>,        (const void *)product_fill<uint32_t>,
        (const void *)product_fill<uint64_t>,        (const void *)product_add_up<__half>,
        (const void *)product_add_up<__nv_bfloat16>, (const void *)product_add_up<float>,
        (const void *)product_add_up<double>,        (const void *)product_each<__half>,
        (const void *)product_each<__nv_bfloat16>,   (const void *)product_each<float>,
        (const void *)product_each<double>};
    enum xop_status status = XOP_OK;
    for (const void *one : kernels) {
        cudaFuncAttributes attributes;
        if (status == XOP_OK)
            status = CHECK_CUDA(error, cudaFuncGetAttributes(&attributes, one));
    }
    return status;
}
