/*
 * Host side of the sums: from a shape_reduction to jobs. The sums of a group go as one launch for
 * each kind that occurs, and one more for what was cut into pieces.
 */
#ifndef KERNELS_CUDA_REDUCE_ADD_CUH
#define KERNELS_CUDA_REDUCE_ADD_CUH

#include "kernels/cuda/reduce.cuh"

struct reduce_rows_family {
    using job = reduce_job;
    template <class T> using task = reduce_rows<T>;
};
struct reduce_columns_family {
    using job = reduce_job;
    template <class T> using task = reduce_columns<T>;
};
struct reduce_any_family {
    using job = reduce_any_job;
    template <class T> using task = reduce_any<T>;
};
struct reduce_finish_family {
    using job = reduce_finish_job;
    template <class T> using task = reduce_finish<T>;
};

struct reduce_builders {
    table_builder<reduce_rows_family> rows;
    table_builder<reduce_columns_family> columns;
    table_builder<reduce_any_family> any;
    table_builder<reduce_finish_family> finish;

    reduce_builders(const struct xop_launch *launch, enum xop_dtype dtype, struct xop_error *error)
        : rows(launch, dtype, error), columns(launch, dtype, error), any(launch, dtype, error),
          finish(launch, dtype, error) {}
};

/* What is to be summed: the fields of reduce_job that say so. */
struct reduce_request {
    const struct shape_reduction *shape;
    const void *g, *factor;
    bool twice;
    void *sum;
    double *partial;
    const void *x; /* with `each`: FULL, SCALAR, ROW and COLUMN only */
    void *each;
};

static inline bool reduce_is_simple(enum shape_form form) {
    return form == SHAPE_SCALAR || form == SHAPE_ROW || form == SHAPE_COLUMN;
}

/* Launches everything; the stream keeps what was cut and its end in order. */
static inline enum xop_status reduce_launch(struct reduce_builders *all) {
    enum xop_status status = all->rows.finish();
    if (status == XOP_OK)
        status = all->columns.finish();
    if (status == XOP_OK)
        status = all->any.finish();
    if (status == XOP_OK)
        status = all->finish.finish();
    return status;
}

static inline void reduce_add_finish(struct reduce_builders *all,
                                     const struct reduce_result *result, int64_t outputs) {
    struct reduce_finish_job job = {};
    job.result = *result;
    job.outputs = outputs;
    uint64_t tiles;
    job.lanes = reduce_power(result->pieces, 32);
    tiles = (uint64_t)reduce_ceil(outputs, ELEMENT_BLOCK / job.lanes);
    if (all->finish.full(tiles)) /* its launch must come behind those that it finishes */
        reduce_launch(all);
    all->finish.add(job, tiles);
}

static inline void reduce_add_any(struct reduce_builders *all, const struct reduce_request *request,
                                  struct reduce_result *result) {
    const struct shape_reduction *shape = request->shape;
    struct reduce_any_job job = {};
    bool outer = shape->nkept > 0 && shape->kept[shape->nkept - 1].stride == 1;

    result->pieces = shape->partials;
    if (outer)
        result->flags |= REDUCE_OUTER_AXIS;
    job.g = request->g;
    job.factor = request->factor;
    job.result = *result;
    job.outputs = shape->outputs;
    job.reduced = shape->reduced;
    job.piece = shape->piece;
    job.nkept = shape->nkept;
    job.nreduced = shape->nreduced;
    for (uint32_t i = 0; i < XOP_MAX_RANK; i++) {
        job.kept[i] = shape->kept[i];
        job.axis[i] = shape->axis[i];
    }
    if (outer)
        all->any.add(job, (uint64_t)reduce_ceil(shape->outputs, ELEMENT_BLOCK) * shape->partials);
    else
        all->any.add(job,
                     (uint64_t)reduce_ceil(shape->outputs * shape->partials, ELEMENT_BLOCK / 32));
}

static inline void reduce_add_simple(struct reduce_builders *all,
                                     const struct reduce_request *request,
                                     struct reduce_result *result, int64_t vector_size) {
    const struct shape_reduction *shape = request->shape;
    struct reduce_job job = {request->g, request->factor, request->x, request->each, {}, 0, 0, 0, 0,
                             0};
    bool by_columns = shape->form == SHAPE_ROW, vectors;
    int64_t width, tiles;

    job.rows = by_columns ? shape->axis[0].size : shape->form == SHAPE_SCALAR ? 1 : shape->outputs;
    job.columns = by_columns ? shape->kept[0].size : shape->reduced;
    vectors = job.columns % vector_size == 0 || shape->form == SHAPE_SCALAR;
    width = vectors ? vector_size : 1;
    job.piece = shape->piece;
    result->pieces = shape->partials;
    if (vectors)
        result->flags |= REDUCE_VECTORS;
    if (element_aligned(request->g) &&
        (!request->each || !request->x || element_aligned(request->x)) &&
        element_aligned(request->each))
        result->flags |= REDUCE_ALIGNED;
    if (by_columns) {
        job.lanes = reduce_power(job.columns / width, 32);
        tiles = reduce_ceil(job.columns, job.lanes * width) * result->pieces;
    } else {
        /* Pieces begin where vectors do. They only get longer and fewer, so that the partial sums
         * still fit. */
        int64_t whole = (int64_t)ELEMENT_BLOCK * REDUCE_UNROLL * vector_size;
        job.piece = reduce_ceil(job.piece, whole) * whole;
        result->pieces = (uint32_t)reduce_ceil(job.columns, job.piece);
        job.lanes = job.columns >= REDUCE_LONG_ROW
                        ? ELEMENT_BLOCK
                        : reduce_power(reduce_ceil(job.columns, width), 32);
        tiles = reduce_ceil(job.rows * result->pieces, ELEMENT_BLOCK / job.lanes);
    }
    job.result = *result;
    if (by_columns)
        all->columns.add(job, (uint64_t)tiles);
    else
        all->rows.add(job, (uint64_t)tiles);
}

/* Adds a sum; one without outputs is none, one without terms is 0. */
static inline void reduce_add(struct reduce_builders *all, const struct reduce_request *request) {
    const struct shape_reduction *shape = request->shape;
    struct reduce_result result = {request->sum, request->partial, 0,
                                   request->twice ? (uint32_t)REDUCE_TWICE : 0};

    if (shape->outputs == 0)
        return;
    if (shape->reduced > 0) {
        if (reduce_is_simple(shape->form))
            reduce_add_simple(all, request, &result,
                              (int64_t)(16 / xop_dtype_size(all->rows.dtype)));
        else
            reduce_add_any(all, request, &result);
        if (result.pieces <= 1)
            return;
    }
    reduce_add_finish(all, &result, shape->outputs);
}

static inline enum xop_status reduce_preload(struct xop_error *error) {
    enum xop_status status = table_builder<reduce_rows_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<reduce_columns_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<reduce_any_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<reduce_finish_family>::preload(error);
    return status;
}

#endif
