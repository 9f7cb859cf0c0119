/* The sums' kernels, and their jobs. */
#include "kernels/cuda/reduce_add.cuh"

enum xop_status reduce_launch(struct reduce_builders *all) {
    enum xop_status status = all->rows.finish();
    if (status == XOP_OK)
        status = all->columns.finish();
    if (status == XOP_OK)
        status = all->any.finish();
    if (status == XOP_OK)
        status = all->finish.finish();
    return status;
}

static void reduce_add_finish(struct reduce_builders *all, const struct reduce_result *result,
                              int64_t outputs) {
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

static void reduce_add_any(struct reduce_builders *all, const struct reduce_request *request,
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

static void reduce_add_simple(struct reduce_builders *all, const struct reduce_request *request,
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

void reduce_add(struct reduce_builders *all, const struct reduce_request *request) {
    const struct shape_reduction *shape = request->shape;
    struct reduce_result result = {request->sum, request->partial, 0, request->flags};

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

enum xop_status reduce_preload(struct xop_error *error) {
    enum xop_status status = table_builder<reduce_rows_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<reduce_columns_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<reduce_any_family>::preload(error);
    if (status == XOP_OK)
        status = table_builder<reduce_finish_family>::preload(error);
    return status;
}
