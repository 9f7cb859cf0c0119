/*
 * Host side of the sums: from a shape_reduction to jobs. The sums of a group go as one launch for
 * each kind that occurs, and one more for what was cut into pieces. The kernels are compiled once,
 * in reduce.cu.
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
    uint32_t flags; /* of reduce_flags, those about the finished sum */
    void *sum;
    double *partial;
    const void *x; /* with `each`: FULL, SCALAR, ROW and COLUMN only */
    void *each;
};

static inline bool reduce_is_simple(enum shape_form form) {
    return form == SHAPE_SCALAR || form == SHAPE_ROW || form == SHAPE_COLUMN;
}

/* Adds a sum; one without outputs is none, one without terms is 0. */
void reduce_add(struct reduce_builders *all, const struct reduce_request *request);

/* Launches everything; the stream keeps what was cut and its end in order. */
enum xop_status reduce_launch(struct reduce_builders *all);

enum xop_status reduce_preload(struct xop_error *error);

#endif
