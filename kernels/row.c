#include "kernels/row.h"

#include "kernels/size.h"

/* Rows under which a piece is not worth sums of its own; pieces at most; and sums of all pieces, at
 * most, where there is more than one. 256 pieces keep every multiprocessor of the largest devices
 * busy with two blocks, and cost 1% of what is moved at 32768 rows. */
#define PIECE_ROWS 16
#define MAX_PIECES 256
#define MAX_SUMS (INT64_C(1) << 20)

bool row_kept(const struct row_size *size, enum xop_dtype dtype) {
    return size->inner == 1 && size->n <= ROW_KEPT_BYTES &&
           size->n * (int64_t)xop_dtype_size(dtype) <= ROW_KEPT_BYTES;
}

bool row_kept_backward(const struct row_size *size, enum xop_dtype dtype) {
    int64_t computed = dtype == XOP_F64 ? sizeof(double) : sizeof(float);
    return size->n <= ROW_KEPT_BACKWARD_BYTES / computed;
}

/* Sizes were checked to fit, so nothing overflows: there are rows * n elements, and pieces beyond
 * the first are bounded. */
void row_norm_columns(const struct row_size *size, enum xop_dtype dtype,
                      struct row_columns *columns) {
    int64_t rows = size->outer, most = size->n > 0 ? MAX_SUMS / size->n : 0;
    int64_t wanted = size_ceil(rows, PIECE_ROWS);

    *columns = (struct row_columns){0};
    if (rows == 0 || size->n == 0)
        return;
    if (most > MAX_PIECES)
        most = MAX_PIECES;
    if (wanted > most)
        wanted = most;
    columns->piece = size_ceil(rows, wanted > 0 ? wanted : 1);
    columns->pieces = (uint32_t)size_ceil(rows, columns->piece);
    columns->stats_offset =
        size_aligned((uint64_t)columns->pieces * (uint64_t)size->n * 2 * sizeof(double));
    columns->workspace_bytes = columns->stats_offset;
    if (!row_kept_backward(size, dtype))
        columns->workspace_bytes += size_aligned((uint64_t)rows * 2 * sizeof(double));
}
