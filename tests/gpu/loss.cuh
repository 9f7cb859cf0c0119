/*
 * Tests of the losses: numbers of classes around vectors, what a thread, a warp and a block do of a
 * row, rows that lie together and apart, and indices out of range; and of where. Part
 * of test_cuda_backend; verify tries more of what they compute.
 */
#ifndef TESTS_GPU_LOSS_CUH
#define TESTS_GPU_LOSS_CUH

#include "tests/gpu/company.cuh"
#include "tests/gpu/operators.cuh"
#include "tests/gpu/row.cuh"

struct loss_attrs {
    struct xop_attr list[3];
};
static struct loss_attrs loss_attrs_of(const char *reduction, double smoothing) {
    struct loss_attrs attrs = {};
    attrs.list[0].type = XOP_ATTR_STRING;
    attrs.list[0].count = (uint32_t)strlen(reduction);
    attrs.list[0].value.string = reduction;
    attrs.list[1].type = XOP_ATTR_INT;
    attrs.list[1].value.i = 0; /* a class that occurs */
    attrs.list[2].type = XOP_ATTR_FLOAT;
    attrs.list[2].value.f = smoothing;
    attrs.list[0].name = "reduction";
    attrs.list[1].name = "ignore_index";
    attrs.list[2].name = "label_smoothing";
    return attrs;
}

struct loss_case {
    int64_t outer, n, inner;
};
static const struct loss_case loss_cases[] = {
    {1, 1, 1},    {7, 3, 1},    {300, 10, 1}, {259, 31, 1},  {130, 32, 1},  {33, 100, 1},
    {19, 520, 1}, {9, 1023, 1}, {5, 4096, 1}, {3, 4104, 1},  {2, 50257, 1}, {20011, 3, 1},
    {2, 3, 5},    {3, 21, 33},  {1, 1000, 7}, {2, 19, 1147}, {5, 2, 100},
};

/* ---- Classes ---- */

static int64_t loss_index(const struct xop_tensor *target, int64_t row) {
    return (int64_t)reference_get(XOP_I32, target->data, row);
}

/* x, indices as i32, and a weight for each class. */
static void loss_make(struct fixture *fixture, struct fixture_request *request,
                      enum xop_dtype dtype, const struct loss_case *one, size_t skew) {
    const int64_t x[] = {one->outer, one->n, one->inner}, rows[] = {one->outer, one->inner};
    const uint32_t apart = one->inner > 1;

    memset(request, 0, sizeof *request);
    request->in[0] = operators_input(fixture, dtype, 2 + apart, x, 1, skew);
    request->in[1] = operators_input(fixture, XOP_I32, 1 + apart, rows, 2, 0);
    request->in[2] = operators_input(fixture, dtype, 1, &one->n, 3, skew);
    uint32_t seed = 5;
    for (int64_t i = 0; i < one->outer * one->inner; i++)
        reference_set(XOP_I32, fixture_writable(fixture, request->in[1].data), i,
                      (double)(operators_random(&seed) % (uint32_t)one->n));
    for (int64_t i = 0; i < one->n; i++)
        reference_set(dtype, fixture_writable(fixture, request->in[2].data), i,
                      0.5 + (double)(i % 7) / 8);
}

static void loss_turn(struct fixture *fixture, struct fixture_request *request, size_t skew) {
    const struct xop_tensor y = request->out[0];
    request->in[3] = operators_input(fixture, y.dtype, y.rank, y.shape, 7, skew);
}

struct loss_row {
    long double most, log_sum, weights;
};
static struct loss_row loss_row_of(const struct fixture_request *run, const struct loss_case *one,
                                   int64_t at) {
    struct loss_row row = {-INFINITY, 0, 0};
    const enum xop_dtype dtype = run->in[0].dtype;
    for (int64_t c = 0; c < one->n; c++)
        row.most = fmaxl(row.most, reference_get(dtype, run->in[0].data, at + c * one->inner));
    for (int64_t c = 0; c < one->n; c++) {
        row.log_sum += expl(reference_get(dtype, run->in[0].data, at + c * one->inner) - row.most);
        row.weights += reference_get(dtype, run->in[2].data, c);
    }
    row.log_sum = logl(row.log_sum);
    return row;
}

static int64_t loss_begin(const struct loss_case *one, int64_t row) {
    return row / one->inner * one->n * one->inner + row % one->inner;
}

/* What the logarithm of class c's probability is multiplied by, but for its sign. */
static long double loss_share(const struct fixture_request *run, const struct loss_case *one,
                              int64_t row, int64_t c, double smoothing) {
    long double own = loss_index(&run->in[1], row) == c ? 1 - smoothing : 0;
    return (own + smoothing / (long double)one->n) *
           reference_get(run->in[0].dtype, run->in[2].data, c);
}

/* cross_entropy with each row's loss, and its gradients. */
static void loss_check(struct tally *forward, struct tally *backward,
                       const struct fixture_request *run, const struct xop_tensor *y,
                       const struct loss_case *one, double smoothing) {
    const enum xop_dtype dtype = run->in[0].dtype;
    for (int64_t r = 0; r < one->outer * one->inner; r++) {
        const int64_t at = loss_begin(one, r);
        const struct loss_row row = loss_row_of(run, one, at);
        const bool counts = loss_index(&run->in[1], r) != 0;
        const long double g = counts ? reference_get(dtype, run->in[3].data, r) : 0;
        long double loss = 0, size = 0, all = 0;
        for (int64_t c = 0; c < one->n && counts; c++) {
            long double u = loss_share(run, one, r, c, smoothing);
            long double q =
                reference_get(dtype, run->in[0].data, at + c * one->inner) - row.most - row.log_sum;
            loss -= u * q;
            size += u * (2 * row.log_sum - q + 5); /* differences in x are below 4 */
            all += u;
        }
        row_judge(forward, y, "y", r, loss, size, one->n);
        for (int64_t c = 0; c < one->n; c++) {
            const int64_t i = at + c * one->inner;
            long double p = expl(reference_get(dtype, run->in[0].data, i) - row.most - row.log_sum);
            long double u = counts ? loss_share(run, one, r, c, smoothing) : 0;
            row_judge(backward, &run->out[0], "grad_x", i, g * (p * all - u),
                      fabsl(g) * (p * all * 9 + u), one->n);
        }
    }
}

static void loss_entropy(struct fixture *fixture, enum xop_dtype dtype) {
    struct tally forward = tally_begin("cross_entropy forward %s", xop_dtype_name(dtype));
    struct tally backward = tally_begin("cross_entropy backward %s", xop_dtype_name(dtype));
    const struct xop_op *op = fixture_op(fixture, "cross_entropy");
    const size_t size = xop_dtype_size(dtype);

    for (const struct loss_case &one : loss_cases)
        for (double smoothing : {0.0, 0.25}) {
            const struct loss_attrs attrs = loss_attrs_of("none", smoothing);
            struct fixture_request run, skewed;
            fixture_reset(fixture);
            loss_make(fixture, &run, dtype, &one, 0);
            loss_make(fixture, &skewed, dtype, &one, size);
            run.attrs = skewed.attrs = attrs.list;
            operators_run_one(fixture, &forward, op, XOP_FORWARD, &run, 1, 0);
            operators_run_one(fixture, &forward, op, XOP_FORWARD, &skewed, 1, size);
            const struct xop_tensor y = run.out[0];
            tally_check(&forward, company_same(&y, &skewed.out[0]),
                        "y differs where operands are hardly aligned");
            loss_turn(fixture, &run, 0);
            loss_turn(fixture, &skewed, size);
            operators_run_one(fixture, &backward, op, XOP_BACKWARD, &run, 1, 0);
            operators_run_one(fixture, &backward, op, XOP_BACKWARD, &skewed, 1, size);
            tally_check(&backward, company_same(&run.out[0], &skewed.out[0]),
                        "grad_x differs where operands are hardly aligned");
            loss_check(&forward, &backward, &run, &y, &one, smoothing);
        }
    tally_end(&forward);
    tally_end(&backward);
}

/* ---- Means of the same, against what "none" gives ---- */

static void loss_means(struct fixture *fixture, enum xop_dtype dtype) {
    struct tally tally = tally_begin("means of losses %s", xop_dtype_name(dtype));
    const struct loss_attrs none = loss_attrs_of("none", 0), mean = loss_attrs_of("mean", 0);

    for (const char *name : {"cross_entropy", "nll_loss"})
        for (const struct loss_case &one : loss_cases) {
            const struct xop_op *op = fixture_op(fixture, name);
            struct fixture_request each, all;
            long double sum = 0, size = 0, weights = 0;
            fixture_reset(fixture);
            loss_make(fixture, &each, dtype, &one, 0);
            all = each;
            each.attrs = none.list;
            all.attrs = mean.list;
            operators_run_one(fixture, &tally, op, XOP_FORWARD, &each, 1, 0);
            operators_run_one(fixture, &tally, op, XOP_FORWARD, &all, 1, 0);
            for (int64_t r = 0; r < one.outer * one.inner; r++) {
                int64_t index = loss_index(&each.in[1], r);
                sum += reference_get(dtype, each.out[0].data, r);
                size += fabs(reference_get(dtype, each.out[0].data, r));
                weights += index ? reference_get(dtype, each.in[2].data, index) : 0;
            }
            /* Losses of rows were rounded before they were added up here. */
            size *= dtype == XOP_BF16 ? 0x1p16 : dtype == XOP_F16 ? 0x1p13 : 1;
            row_judge(&tally, &all.out[0], name, 0, sum / weights, size / weights,
                      one.outer * one.inner);
            loss_turn(fixture, &all, 0);
            const long double g = reference_get(dtype, all.in[3].data, 0);
            operators_run_one(fixture, &tally, op, XOP_BACKWARD, &all, 1, 0);
            for (int64_t r = 0; strcmp(name, "nll_loss") == 0 && r < one.outer * one.inner; r++)
                for (int64_t c = 0; c < one.n; c++) {
                    bool own = c != 0 && loss_index(&all.in[1], r) == c;
                    long double w = own ? reference_get(dtype, all.in[2].data, c) / weights : 0;
                    row_judge(&tally, &all.out[0], "grad_x", loss_begin(&one, r) + c * one.inner,
                              -w * g, w * fabsl(g), one.outer * one.inner);
                }
        }
    tally_end(&tally);
}

/* ---- Single elements ---- */

static long double loss_of(bool bce, long double x, long double t, long double p) {
    return bce ? (1 - t) * x + (1 + (p - 1) * t) * (log1pl(expl(-fabsl(x))) + fmaxl(-x, 0))
               : (x - t) * (x - t);
}

static void loss_pointwise(struct fixture *fixture, enum xop_dtype dtype) {
    struct tally tally = tally_begin("losses of elements %s", xop_dtype_name(dtype));
    for (int kind = 0; kind < 2; kind++)
        for (int64_t rows : {1, 3, 1025, 4096, 50021}) {
            const struct xop_op *op =
                fixture_op(fixture, kind ? "binary_cross_entropy_with_logits" : "mse_loss");
            const uint32_t grad = kind ? 4 : 2;
            const int64_t shape[] = {rows, 3};
            const char *const reductions[] = {"none", "sum"};
            long double sum = 0, size = 0;
            for (int reduced = 0; reduced < 2; reduced++) {
                const struct loss_attrs attrs = loss_attrs_of(reductions[reduced], 0);
                struct fixture_request run = {};
                fixture_reset(fixture);
                run.attrs = attrs.list;
                run.in[0] = operators_input(fixture, dtype, 2, shape, 1, 0);
                run.in[1] = operators_input(fixture, dtype, 2, shape, 2, 0);
                if (kind)
                    run.in[3] = operators_input(fixture, dtype, 1, shape + 1, 3, 0);
                operators_run_one(fixture, &tally, op, XOP_FORWARD, &run, 1, 0);
                const struct xop_tensor y = run.out[0];
                for (int64_t i = 0; i < 3 * rows; i++) {
                    long double x = reference_get(dtype, run.in[0].data, i);
                    long double t = reference_get(dtype, run.in[1].data, i);
                    long double p = kind ? reference_get(dtype, run.in[3].data, i % 3) : 1;
                    long double loss = loss_of(kind, x, t, p);
                    long double scale = kind ? 40 : loss; /* of numbers from -2 to 2 */
                    if (!reduced)
                        row_judge(&tally, &y, "y", i, loss, scale, 1);
                    sum += reduced ? loss : 0;
                    size += reduced ? scale : 0;
                }
                if (reduced)
                    row_judge(&tally, &y, "the sum", 0, sum, size, 3 * rows);
                run.in[grad] = operators_input(fixture, dtype, y.rank, y.shape, 7, 0);
                operators_run_one(fixture, &tally, op, XOP_BACKWARD, &run, 3, 0);
                for (int64_t i = 0; i < 3 * rows; i++) {
                    long double x = reference_get(dtype, run.in[0].data, i);
                    long double t = reference_get(dtype, run.in[1].data, i);
                    long double g = reference_get(dtype, run.in[grad].data, reduced ? 0 : i);
                    long double p = kind ? reference_get(dtype, run.in[3].data, i % 3) : 1;
                    long double softplus = log1pl(expl(-fabsl(x))) + fmaxl(-x, 0);
                    row_judge(&tally, &run.out[0], "grad_x", i,
                              kind ? g * ((1 + (p - 1) * t) / (1 + expl(-x)) - p * t)
                                   : 2 * (x - t) * g,
                              fabsl(g) * (kind ? 20 : 8), 1);
                    row_judge(&tally, &run.out[1], "grad_target", i,
                              kind ? g * ((p - 1) * softplus - x) : -2 * (x - t) * g,
                              fabsl(g) * (kind ? 20 : 8), 1);
                }
            }
        }
    tally_end(&tally);
}

/* ---- Groups, and indices that are out of range ---- */

#define LOSS_CALLS 100

/* Calls of all sizes in one group give what they give alone, and every third has a bad index. */
static void loss_groups(struct fixture *fixture, const char *name) {
    static struct fixture_request alone[LOSS_CALLS], together[LOSS_CALLS];
    static struct xop_bad_index bad[LOSS_CALLS];
    static struct xop_call calls[LOSS_CALLS];
    static const struct xop_plan *plans[LOSS_CALLS];
    const struct xop_op *op = fixture_op(fixture, name);
    const struct loss_attrs attrs = loss_attrs_of("mean", 0);
    struct tally tally = tally_begin("%s in groups, with bad indices", name);

    for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
        fixture_reset(fixture);
        for (int64_t i = 0; i < LOSS_CALLS; i++) {
            const struct loss_case one = {3 + i % 37, i % 50 == 49 ? 17000 : i * 5 + 2,
                                          i % 7 ? 1 : 1 + i % 40};
            loss_make(fixture, &alone[i], XOP_F32, &one, 0);
            alone[i].attrs = attrs.list;
            alone[i].out[0] = alone[i].in[0];
            if (pass == XOP_BACKWARD) {
                alone[i].out[0].rank = 0;
                loss_turn(fixture, &alone[i], 0);
            }
            together[i] = alone[i];
            operators_run_one(fixture, &tally, op, (enum xop_pass)pass, &alone[i], 1, 0);
        }
        for (int64_t i = 0; i < LOSS_CALLS; i++) {
            if (i % 3 == 0) {
                int32_t *index = (int32_t *)fixture_writable(fixture, together[i].in[1].data);
                index[1] = index[2] = i % 2 ? -1 : INT32_MAX;
            }
            calls[i] = fixture_prepare(fixture, op, (enum xop_pass)pass, &together[i], 1, 0);
            calls[i].bad_index = &bad[i];
            bad[i].at = 0;
            plans[i] = &together[i].plan;
        }
        company_run(fixture, &tally, op, (enum xop_pass)pass, calls, plans, LOSS_CALLS);
        for (int64_t i = 0; i < LOSS_CALLS; i++) {
            bool is_bad = i % 3 == 0;
            tally_check(&tally, is_bad || company_same(&alone[i].out[0], &together[i].out[0]),
                        "pass %d: call %d differs", pass, (int)i);
            tally_check(&tally, fixture_guarded(&together[i].out[0]),
                        "pass %d: wrote outside the output of call %d", pass, (int)i);
            tally_check(&tally,
                        bad[i].at == (is_bad ? 1 : UINT64_MAX) &&
                            (!is_bad || bad[i].value == (i % 2 ? -1 : INT32_MAX)),
                        "pass %d: call %d says %lld at %lld", pass, (int)i, (long long)bad[i].value,
                        (long long)bad[i].at);
        }
    }
    tally_end(&tally);
}

/* ---- where ---- */

static void loss_where(struct fixture *fixture, enum xop_dtype dtype) {
    static const struct {
        uint32_t rank[3];
        int64_t shape[3][3];
    } cases[] = {
        {{1, 1, 1}, {{5}, {5}, {5}}},
        {{1, 0, 1}, {{50021}, {0}, {50021}}},
        {{2, 2, 1}, {{70, 1}, {70, 129}, {129}}},
        {{3, 3, 3}, {{5, 1, 1}, {1, 6, 1}, {1, 1, 7}}},
        {{2, 1, 2}, {{0, 4}, {4}, {1, 1}}},
        {{0, 2, 2}, {{0}, {65, 33}, {65, 1}}},
    };
    struct tally tally = tally_begin("where %s", xop_dtype_name(dtype));
    const struct xop_op *op = fixture_op(fixture, "where");

    for (const auto &one : cases) {
        struct fixture_request run = {};
        int64_t n = 0;
        fixture_reset(fixture);
        run.in[0] = operators_input(fixture, XOP_BOOL, one.rank[0], one.shape[0], 1, 0);
        uint32_t seed = 9;
        xop_tensor_elements(&run.in[0], &n);
        for (int64_t i = 0; i < n; i++) /* any byte but 0 is true */
            reference_set(XOP_BOOL, fixture_writable(fixture, run.in[0].data), i,
                          operators_random(&seed) % 2 * 128);
        for (uint32_t k = 1; k < 3; k++)
            run.in[k] = operators_input(fixture, dtype, one.rank[k], one.shape[k], 1 + k, 0);
        operators_run_one(fixture, &tally, op, XOP_FORWARD, &run, 1, 0);
        const struct xop_tensor y = run.out[0];
        run.in[3] = operators_input(fixture, dtype, y.rank, y.shape, 7, 0);
        operators_run_one(fixture, &tally, op, XOP_BACKWARD, &run, 3, 0);
        xop_tensor_elements(&y, &n);
        for (int k = 0; k < 2; k++) {
            int64_t outputs = 0;
            xop_tensor_elements(&run.out[k], &outputs);
            long double *sum = (long double *)calloc((size_t)(2 * outputs + 1), sizeof *sum);
            if (!sum)
                FIXTURE_DIE("no memory");
            for (int64_t i = 0; i < n; i++) {
                bool holds =
                    reference_get(XOP_BOOL, run.in[0].data, reference_source(&run.in[0], &y, i));
                int64_t at = reference_source(&run.in[1 + k], &y, i);
                if (holds != (k == 0))
                    continue;
                double g = reference_get(dtype, run.in[3].data, i);
                sum[at] += g;
                sum[outputs + at] += fabs(g);
                tally_check(&tally,
                            reference_get(dtype, y.data, i) ==
                                reference_get(dtype, run.in[1 + k].data, at),
                            "y[%lld] is another", (long long)i);
            }
            for (int64_t i = 0; i < outputs; i++)
                row_judge(&tally, &run.out[k], k ? "grad_b" : "grad_x", i, sum[i], sum[outputs + i],
                          n / outputs);
            free(sum);
        }
    }
    tally_end(&tally);
}

static void loss_all(struct fixture *fixture, enum xop_dtype dtype) {
    loss_entropy(fixture, dtype);
    loss_means(fixture, dtype);
    loss_pointwise(fixture, dtype);
    loss_where(fixture, dtype);
    if (dtype != XOP_F32)
        return;
    loss_groups(fixture, "cross_entropy");
    loss_groups(fixture, "nll_loss");
}

#endif
