/*
 * Tests of the operators over rows: lengths around vectors, warps, blocks and what a block keeps of
 * a row, every dimension, numbers of rows around the pieces in which columns are summed, addresses
 * that are hardly aligned, groups. Part of test_cuda_backend.
 *
 * A result may be off by one rounding and by what the sums on its way may lose: (2 + 2 log2(n + 1))
 * roundoffs of what is computed in, in proportion to the size of their terms.
 */
#ifndef TESTS_GPU_ROW_CUH
#define TESTS_GPU_ROW_CUH

#include "tests/gpu/company.cuh"
#include "tests/gpu/operators.cuh"

enum row_kind { ROW_TEST_SOFTMAX, ROW_TEST_LOG_SOFTMAX, ROW_TEST_LAYER_NORM, ROW_TEST_RMS_NORM };
static const char *const row_names[] = {"softmax", "log_softmax", "layer_norm", "rms_norm"};

struct row_case {
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK], dim; /* dim: softmax alone, the norms take the last */
    bool large;
};
static const struct row_case row_cases[] = {
    {0, {0}, -1, false},
    {1, {1}, 0, false},
    {2, {3, 0}, -1, false},
    {2, {0, 4}, -1, false},
    {2, {3, 1}, -1, false},
    {2, {5, 3}, -1, false},
    {2, {1000, 4}, -1, false},
    {2, {77, 8}, -1, false},
    {2, {33, 31}, -1, false},
    {2, {130, 32}, -1, false},
    {2, {67, 100}, -1, false},
    {2, {259, 128}, -1, false},
    {2, {35, 520}, -1, false},
    {2, {9, 1023}, -1, false},
    {2, {70, 1024}, -1, false},
    {2, {18, 1030}, -1, false},
    {2, {40, 2048}, -1, false},
    {2, {33, 2056}, -1, false},
    {2, {19, 4095}, -1, false},
    {2, {300, 4096}, -1, true},
    {2, {17, 4104}, -1, false},
    {2, {5, 8192}, -1, false},
    {2, {3, 8200}, -1, false},
    {2, {2, 16384}, -1, false},
    {2, {3, 50257}, -1, false},
    {2, {3, 100000}, -1, true},
    {2, {20011, 3}, -1, true},
    {2, {70001, 24}, -1, true},
    {2, {1, 300000}, -1, true},
    {2, {31, 7}, 0, false},
    {2, {1000, 1}, 0, false},
    {3, {5, 67, 3}, 1, false},
    {3, {3, 257, 32}, 1, false},
    {3, {2, 31, 100}, 1, false},
    {3, {1, 1000, 33}, 1, false},
    {3, {7, 3, 5}, 0, false},
    {4, {2, 3, 40, 5}, -2, false},
    {2, {30000, 40}, 0, true},
    {8, {2, 1, 3, 1, 2, 5, 2, 3}, -3, false},
};

/* ---- Judging ---- */

struct row_view {
    int64_t rows, n, step; /* of the row's elements */
};
static struct row_view row_view_of(const struct xop_tensor *x, int64_t dim) {
    struct row_view view = {0, 1, 1};
    int64_t elements = 0, rank = x->rank;
    xop_tensor_elements(x, &elements);
    if (rank > 0) {
        dim = dim < 0 ? dim + rank : dim;
        view.n = x->shape[dim];
        for (int64_t d = dim + 1; d < rank; d++)
            view.step *= x->shape[d];
    }
    view.rows = elements > 0 ? elements / view.n : 0;
    return view;
}
static int64_t row_at(const struct row_view *view, int64_t row, int64_t i) {
    return row / view->step * view->step * view->n + row % view->step + i * view->step;
}

static void row_judge(struct tally *tally, const struct xop_tensor *out, const char *name,
                      int64_t at, long double want, long double scale, int64_t terms) {
    double u = out->dtype == XOP_F64 ? 0x1p-53 : 0x1p-24;
    double excuse = u * (2 + 2 * log2((double)terms + 1)) * (double)scale;
    double got = reference_get(out->dtype, out->data, at);
    if (out->dtype == XOP_F64) /* what is left of long double's advantage */
        excuse += 1e-18 * (double)scale;
    tally_error(tally, reference_error(out->dtype, got, (double)want, excuse), EXACT,
                "%s[%lld], of %lld terms, is %.17g, not %.17g", name, (long long)at,
                (long long)terms, got, (double)want);
}

static void row_check_softmax(struct tally *tally, bool is_log, int64_t dim,
                              const struct xop_tensor *x, const struct xop_tensor *y) {
    struct row_view view = row_view_of(x, dim);
    for (int64_t row = 0; row < view.rows; row++) {
        long double most = -INFINITY, sum = 0, off = 0;
        for (int64_t i = 0; i < view.n; i++)
            most = fmaxl(most, reference_get(x->dtype, x->data, row_at(&view, row, i)));
        for (int64_t i = 0; i < view.n; i++) {
            long double d = reference_get(x->dtype, x->data, row_at(&view, row, i)) - most;
            sum += expl(d);
            off += expl(d) * -d;
        }
        off /= sum;
        for (int64_t i = 0; i < view.n; i++) {
            int64_t at = row_at(&view, row, i);
            long double d = reference_get(x->dtype, x->data, at) - most;
            if (is_log)
                row_judge(tally, y, "y", at, d - logl(sum), logl(sum) - d + 1 + off, view.n);
            else
                row_judge(tally, y, "y", at, expl(d) / sum, expl(d) / sum * (1 - d + off), view.n);
        }
    }
}

static void row_check_softmax_gradient(struct tally *tally, bool is_log, int64_t dim,
                                       const struct xop_tensor *in, const struct xop_tensor *out) {
    struct row_view view = row_view_of(&in[0], dim);
    for (int64_t row = 0; row < view.rows; row++) {
        long double sum = 0, size = 0;
        for (int64_t i = 0; i < view.n; i++) {
            int64_t at = row_at(&view, row, i);
            long double term = reference_get(in[1].dtype, in[1].data, at);
            if (!is_log)
                term *= reference_get(in[0].dtype, in[0].data, at);
            sum += term;
            size += fabsl(term);
        }
        for (int64_t i = 0; i < view.n; i++) {
            int64_t at = row_at(&view, row, i);
            long double y = reference_get(in[0].dtype, in[0].data, at);
            long double g = reference_get(in[1].dtype, in[1].data, at),
                        share = is_log ? expl(y) : y;
            row_judge(tally, out, "grad_x", at, is_log ? g - share * sum : share * (g - sum),
                      is_log ? fabsl(g) + share * size : share * (fabsl(g) + size), view.n);
        }
    }
}

struct row_test_stats {
    long double mean, scale, size;
};
static struct row_test_stats row_test_stats_of(const struct xop_tensor *x, int64_t row, int64_t n,
                                               bool centered, double eps) {
    struct row_test_stats stats = {0, 0, 0};
    long double squares = 0;
    for (int64_t i = 0; centered && i < n; i++) {
        stats.mean += reference_get(x->dtype, x->data, row * n + i);
        stats.size += fabs(reference_get(x->dtype, x->data, row * n + i));
    }
    stats.mean /= (long double)n;
    stats.size /= (long double)n;
    for (int64_t i = 0; i < n; i++) {
        long double d = reference_get(x->dtype, x->data, row * n + i) - stats.mean;
        squares += d * d;
    }
    stats.scale = 1 / sqrtl(squares / (long double)n + eps);
    return stats;
}

static double row_parameter(const struct xop_tensor *tensor, int64_t i, double fallback) {
    return tensor->data ? reference_get(tensor->dtype, tensor->data, i) : fallback;
}

static void row_check_norm(struct tally *tally, bool centered, double eps,
                           const struct xop_tensor *in, const struct xop_tensor *y) {
    struct row_view view = row_view_of(&in[0], -1);
    for (int64_t row = 0; row < view.rows; row++) {
        struct row_test_stats stats = row_test_stats_of(&in[0], row, view.n, centered, eps);
        for (int64_t i = 0; i < view.n; i++) {
            long double x = reference_get(y->dtype, in[0].data, row * view.n + i);
            double w = row_parameter(&in[1], i, 1), b = centered ? row_parameter(&in[2], i, 0) : 0;
            row_judge(tally, y, "y", row * view.n + i, (x - stats.mean) * stats.scale * w + b,
                      (fabsl(x) + stats.size) * stats.scale * fabs(w) + fabs(b), view.n);
        }
    }
}

static void row_check_norm_gradient(struct tally *tally, bool centered, double eps,
                                    const struct xop_tensor *in, const struct xop_tensor *out) {
    struct row_view view = row_view_of(&in[0], -1);
    const enum xop_dtype dtype = in[0].dtype;
    const int64_t n = view.n;
    /* What is summed for weight and for bias, and the size of the terms. */
    long double *sums = (long double *)calloc((size_t)(4 * n + 1), sizeof *sums);
    if (!sums)
        FIXTURE_DIE("no memory");
    for (int64_t row = 0; row < view.rows; row++) {
        struct row_test_stats stats = row_test_stats_of(&in[0], row, n, centered, eps);
        long double u_sum = 0, u_size = 0, uh_sum = 0, uh_size = 0;
        for (int64_t i = 0; i < n; i++) {
            long double x = reference_get(dtype, in[0].data, row * n + i);
            long double g = reference_get(dtype, in[2].data, row * n + i);
            long double u = g * row_parameter(&in[1], i, 1), h = (x - stats.mean) * stats.scale;
            long double h_size = (fabsl(x) + stats.size) * stats.scale;
            u_sum += centered ? u : 0;
            u_size += centered ? fabsl(u) : 0;
            uh_sum += u * h;
            uh_size += fabsl(u) * h_size;
            sums[i] += g * h;
            sums[n + i] += fabsl(g) * h_size;
            sums[2 * n + i] += g;
            sums[3 * n + i] += fabsl(g);
        }
        for (int64_t i = 0; i < n; i++) {
            long double x = reference_get(dtype, in[0].data, row * n + i);
            long double u = (long double)reference_get(dtype, in[2].data, row * n + i) *
                            row_parameter(&in[1], i, 1);
            long double h = (x - stats.mean) * stats.scale;
            long double h_size = (fabsl(x) + stats.size) * stats.scale;
            row_judge(tally, &out[0], "grad_x", row * n + i,
                      (u - (u_sum + h * uh_sum) / n) * stats.scale,
                      2 * (fabsl(u) + (u_size + h_size * uh_size) / n) * stats.scale, n);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        row_judge(tally, &out[1], "grad_weight", i, sums[i], sums[n + i], view.rows);
        if (centered)
            row_judge(tally, &out[2], "grad_bias", i, sums[2 * n + i], sums[3 * n + i], view.rows);
    }
    free(sums);
}

/* ---- Running ---- */

struct row_attrs {
    struct xop_attr list[2];
};
static struct row_attrs row_attrs_of(enum row_kind kind, int64_t dim, double eps) {
    struct row_attrs attrs = {};
    if (kind <= ROW_TEST_LOG_SOFTMAX) {
        attrs.list[0].type = XOP_ATTR_INT;
        attrs.list[0].value.i = dim;
    } else {
        attrs.list[0].type = XOP_ATTR_INTS;
        attrs.list[1].type = XOP_ATTR_FLOAT;
        attrs.list[1].value.f = eps;
    }
    return attrs;
}

static bool row_is_norm(enum row_kind kind) { return kind >= ROW_TEST_LAYER_NORM; }

/* Whether the operator takes the case. */
static bool row_takes(enum row_kind kind, const struct row_case *one) {
    return !row_is_norm(kind) || (one->rank > 0 && one->dim == -1);
}

static void row_make(struct fixture *fixture, struct fixture_request *request, enum row_kind kind,
                     enum xop_dtype dtype, const struct row_case *one, bool parameters,
                     size_t skew) {
    memset(request, 0, sizeof *request);
    request->in[0] = operators_input(fixture, dtype, one->rank, one->shape, 1, skew);
    for (uint32_t k = 1; k < (kind == ROW_TEST_LAYER_NORM ? 3u
                              : kind == ROW_TEST_RMS_NORM ? 2u
                                                          : 1u);
         k++)
        if (parameters)
            request->in[k] =
                operators_input(fixture, dtype, 1, &one->shape[one->rank - 1], 1 + k, 3 * skew);
}

/* Turns a forward that was run into its backward. */
static void row_turn(struct fixture *fixture, struct fixture_request *request, enum row_kind kind,
                     size_t skew) {
    const struct xop_tensor y = request->out[0];
    struct xop_tensor *grad_y = &request->in[row_is_norm(kind) ? 2 : 1];
    if (!row_is_norm(kind))
        request->in[0] = y;
    *grad_y = operators_input(fixture, y.dtype, y.rank, y.shape, 7, skew);
}

static uint32_t row_outputs(enum row_kind kind) {
    return kind == ROW_TEST_LAYER_NORM ? 7 : kind == ROW_TEST_RMS_NORM ? 3 : 1;
}

static void row_one_case(struct fixture *fixture, struct tally *forward, struct tally *backward,
                         enum row_kind kind, enum xop_dtype dtype, const struct row_case *one,
                         bool parameters) {
    const struct xop_op *op = fixture_op(fixture, row_names[kind]);
    const double eps = 1e-3;
    const struct row_attrs attrs = row_attrs_of(kind, one->dim, eps);
    const bool is_log = kind == ROW_TEST_LOG_SOFTMAX, centered = kind == ROW_TEST_LAYER_NORM;
    const size_t size = xop_dtype_size(dtype);
    struct fixture_request run, skewed, some;

    fixture_reset(fixture);
    row_make(fixture, &run, kind, dtype, one, parameters, 0);
    row_make(fixture, &skewed, kind, dtype, one, parameters, size);
    run.attrs = skewed.attrs = attrs.list;
    operators_run_one(fixture, forward, op, XOP_FORWARD, &run, 1, 0);
    operators_run_one(fixture, forward, op, XOP_FORWARD, &skewed, 1, size);
    tally_check(forward, company_same(&run.out[0], &skewed.out[0]),
                "y differs where operands are hardly aligned");
    if (row_is_norm(kind))
        row_check_norm(forward, centered, eps, run.in, &run.out[0]);
    else
        row_check_softmax(forward, is_log, one->dim, &run.in[0], &run.out[0]);

    row_turn(fixture, &run, kind, 0);
    row_turn(fixture, &skewed, kind, size);
    operators_run_one(fixture, backward, op, XOP_BACKWARD, &run, row_outputs(kind), 0);
    operators_run_one(fixture, backward, op, XOP_BACKWARD, &skewed, row_outputs(kind), size);
    for (uint32_t k = 0; k < op->pass[XOP_BACKWARD].nout; k++) {
        tally_check(backward, company_same(&run.out[k], &skewed.out[k]),
                    "gradient %u differs where operands are hardly aligned", k);
        some = run;
        operators_run_one(fixture, backward, op, XOP_BACKWARD, &some, 1u << k, 0);
        tally_check(backward, company_same(&run.out[k], &some.out[k]),
                    "gradient %u differs when it is wanted alone", k);
    }
    if (row_is_norm(kind))
        row_check_norm_gradient(backward, centered, eps, run.in, run.out);
    else
        row_check_softmax_gradient(backward, is_log, one->dim, run.in, &run.out[0]);
}

static void row_operator(struct fixture *fixture, enum row_kind kind, enum xop_dtype dtype,
                         bool reduced) {
    struct tally forward = tally_begin("%s forward %s", row_names[kind], xop_dtype_name(dtype));
    struct tally backward = tally_begin("%s backward %s", row_names[kind], xop_dtype_name(dtype));
    for (const struct row_case &one : row_cases)
        for (int parameters = row_is_norm(kind) && !one.large ? 0 : 1; parameters < 2; parameters++)
            if (row_takes(kind, &one) && (!one.large || !reduced))
                row_one_case(fixture, &forward, &backward, kind, dtype, &one, parameters);
    tally_end(&forward);
    tally_end(&backward);
}

/* What a row of x gives, by PyTorch: y is the same all over, or as the list says. */
static void row_edges(struct fixture *fixture, enum xop_dtype dtype) {
    static const struct {
        enum row_kind kind;
        double x[4], y[4];
    } cases[] = {
        {ROW_TEST_SOFTMAX, {-INFINITY, 0, 0, -INFINITY}, {0, 0.5, 0.5, 0}},
        {ROW_TEST_SOFTMAX, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {NAN, NAN, NAN, NAN}},
        {ROW_TEST_SOFTMAX, {0, INFINITY, 0, 1}, {NAN, NAN, NAN, NAN}},
        {ROW_TEST_SOFTMAX, {0, NAN, 0, -INFINITY}, {NAN, NAN, NAN, NAN}},
        {ROW_TEST_SOFTMAX, {1000, 1000, -1000, 0}, {0.5, 0.5, 0, 0}},
        {ROW_TEST_LOG_SOFTMAX,
         {-INFINITY, 5, -INFINITY, -INFINITY},
         {-INFINITY, 0, -INFINITY, -INFINITY}},
        {ROW_TEST_LOG_SOFTMAX, {0, INFINITY, 0, 1}, {NAN, NAN, NAN, NAN}},
        {ROW_TEST_LOG_SOFTMAX, {0, NAN, 0, 1}, {NAN, NAN, NAN, NAN}},
        {ROW_TEST_LAYER_NORM, {1, NAN, 1, 1}, {NAN, NAN, NAN, NAN}},
        {ROW_TEST_LAYER_NORM, {1, INFINITY, 1, 1}, {NAN, NAN, NAN, NAN}},
        {ROW_TEST_LAYER_NORM, {3, 3, 3, 3}, {0, 0, 0, 0}},
        {ROW_TEST_RMS_NORM, {1, INFINITY, 1, 1}, {0, NAN, 0, 0}},
        {ROW_TEST_RMS_NORM, {1, NAN, 1, 1}, {NAN, NAN, NAN, NAN}},
    };
    struct tally tally = tally_begin("rows with edge values %s", xop_dtype_name(dtype));
    for (const auto &one : cases)
        for (int64_t repeat : {1, 40, 9000}) { /* the edges first, then what is as the last */
            const struct row_case shape = {2, {2, 4 * repeat}, -1, false};
            const struct row_attrs attrs = row_attrs_of(one.kind, -1, 1e-3);
            struct fixture_request run;
            fixture_reset(fixture);
            row_make(fixture, &run, one.kind, dtype, &shape, false, 0);
            run.attrs = attrs.list;
            for (int64_t i = 0; i < 8 * repeat; i++) {
                bool even = one.kind <= ROW_TEST_LOG_SOFTMAX && i % (4 * repeat) >= 4;
                reference_set(dtype, fixture_writable(fixture, run.in[0].data), i,
                              even ? -INFINITY : one.x[i % 4]);
            }
            operators_run_one(fixture, &tally, fixture_op(fixture, row_names[one.kind]),
                              XOP_FORWARD, &run, 1, 0);
            for (int64_t i = 0; i < 8; i++) {
                double got = reference_get(dtype, run.out[0].data, i / 4 * 4 * repeat + i % 4);
                double want = one.y[i % 4];
                tally_check(
                    &tally, isnan(want) ? isnan(got) : fabs(got - want) < 1e-6 || got == want,
                    "%s of %g %g %g %g, %lld times, gives %g at %lld", row_names[one.kind],
                    one.x[0], one.x[1], one.x[2], one.x[3], (long long)repeat, got, (long long)i);
            }
        }
    tally_end(&tally);
}

#define ROW_CALLS 200

/* Calls of all lengths in one group, kept and walked. */
static void row_groups(struct fixture *fixture, enum row_kind kind, enum xop_dtype dtype) {
    static struct fixture_request alone[ROW_CALLS], together[ROW_CALLS];
    static struct xop_call calls[ROW_CALLS];
    static const struct xop_plan *plans[ROW_CALLS];
    const struct xop_op *op = fixture_op(fixture, row_names[kind]);
    const struct row_attrs attrs = row_attrs_of(kind, -1, 1e-3);
    struct tally tally = tally_begin("%s in groups %s", row_names[kind], xop_dtype_name(dtype));

    for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
        fixture_reset(fixture);
        for (int64_t i = 0; i < ROW_CALLS; i++) {
            const struct row_case one = {2,
                                         {i % 37, i % 50 == 49   ? 17000
                                                  : i % 11 == 10 ? 4100
                                                                 : i * 5 + 1},
                                         -1,
                                         false};
            row_make(fixture, &alone[i], kind, dtype, &one, i % 3 > 0, 0);
            alone[i].attrs = attrs.list;
            alone[i].out[0] = alone[i].in[0];
            if (pass == XOP_BACKWARD)
                row_turn(fixture, &alone[i], kind, 0);
            together[i] = alone[i];
            operators_run_one(fixture, &tally, op, (enum xop_pass)pass, &alone[i], 7, 0);
            calls[i] = fixture_prepare(fixture, op, (enum xop_pass)pass, &together[i], 7, 0);
            plans[i] = &together[i].plan;
        }
        company_run(fixture, &tally, op, (enum xop_pass)pass, calls, plans, ROW_CALLS);
        for (uint32_t i = 0; i < ROW_CALLS; i++)
            for (uint32_t k = 0; k < op->pass[pass].nout; k++) {
                tally_check(&tally, company_same(&alone[i].out[k], &together[i].out[k]),
                            "pass %d: output %u of call %u differs", pass, k, i);
                tally_check(&tally, fixture_guarded(&together[i].out[k]),
                            "pass %d: wrote outside output %u of call %u", pass, k, i);
            }
    }
    tally_end(&tally);
}

static void row_all(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    for (int kind = ROW_TEST_SOFTMAX; kind <= ROW_TEST_RMS_NORM; kind++) {
        row_operator(fixture, (enum row_kind)kind, dtype, reduced);
        if (!reduced || dtype == XOP_F32)
            row_groups(fixture, (enum row_kind)kind, dtype);
    }
    row_edges(fixture, dtype);
}

/* The results of all operators on all cases, one after the other; the caller frees data. */
static struct company_bits row_all_bits(struct fixture *fixture, bool reduced) {
    struct tally ignored = tally_begin("bits");
    struct company_bits all = {NULL, 0};

    for (int kind = ROW_TEST_SOFTMAX; kind <= ROW_TEST_RMS_NORM; kind++)
        for (const struct row_case &one : row_cases) {
            const struct xop_op *op = fixture_op(fixture, row_names[kind]);
            const struct row_attrs attrs = row_attrs_of((enum row_kind)kind, one.dim, 1e-3);
            struct fixture_request run;
            if (!row_takes((enum row_kind)kind, &one) || (reduced && one.large))
                continue;
            fixture_reset(fixture);
            row_make(fixture, &run, (enum row_kind)kind, XOP_F32, &one, true, 0);
            run.attrs = attrs.list;
            for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
                if (pass == XOP_BACKWARD)
                    row_turn(fixture, &run, (enum row_kind)kind, 0);
                operators_run_one(fixture, &ignored, op, (enum xop_pass)pass, &run, 7, 0);
                for (uint32_t k = 0; k < op->pass[pass].nout; k++) {
                    uint64_t bytes = 0;
                    xop_tensor_bytes(&run.out[k], &bytes);
                    all.data = (unsigned char *)realloc(all.data, all.bytes + bytes + 1);
                    if (!all.data)
                        FIXTURE_DIE("no memory");
                    memcpy(all.data + all.bytes, run.out[k].data, bytes);
                    all.bytes += bytes;
                }
            }
        }
    return all;
}

#endif
