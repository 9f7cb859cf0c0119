/*
 * Tests of the reductions: every summary, dimensions first, last, between and around, lengths
 * around vectors, blocks and pieces, addresses that are hardly aligned, groups, edge values. Part
 * of test_cuda_backend. Judged as rows are: see row.cuh.
 */
#ifndef TESTS_GPU_FOLD_CUH
#define TESTS_GPU_FOLD_CUH

#include "kernels/fold.h"
#include "tests/gpu/row.cuh"

static const char *const fold_names[FOLD_KINDS] = {"sum",  "mean",      "max", "min",
                                                   "prod", "logsumexp", "var"};

struct fold_case {
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
    uint32_t ndims;
    int64_t dims[XOP_MAX_RANK]; /* from 0 on */
    bool large;
};
static const struct fold_case fold_cases[] = {
    {0, {0}, 0, {0}, false},
    {1, {1}, 0, {0}, false},
    {2, {0, 4}, 1, {1}, false},
    {2, {4, 3}, 1, {1}, false},
    {2, {1000, 3}, 1, {1}, false},
    {2, {77, 8}, 1, {1}, false},
    {2, {33, 31}, 1, {1}, false},
    {2, {9, 1023}, 1, {1}, false},
    {2, {5, 4096}, 1, {1}, false},
    {2, {3, 50257}, 1, {1}, false},
    {1, {70001}, 0, {0}, false},
    {1, {1 << 20}, 0, {0}, true},
    {2, {31, 7}, 1, {0}, false},
    {2, {65, 129}, 1, {0}, false},
    {2, {5000, 2}, 1, {0}, false},
    {2, {3001, 40}, 1, {0}, false},
    {2, {700, 1024}, 1, {0}, true},
    {3, {5, 67, 3}, 1, {1}, false},
    {3, {3, 257, 32}, 1, {1}, false},
    {3, {6, 50, 30}, 2, {0, 2}, false},
    {3, {40, 3, 70}, 2, {2, 0}, false},
    {4, {3, 5, 7, 11}, 2, {0, 2}, false},
    {4, {3, 5, 7, 11}, 2, {1, 3}, false},
    {4, {3, 90, 5, 64}, 2, {1, 3}, true},
    {8, {2, 1, 3, 1, 2, 5, 2, 3}, 3, {0, 4, 6}, false},
};

/* ---- Judging ---- */

struct fold_test_sums {
    long double total, size, product, most, least, squares, exponentials, off;
    int64_t ties;
};

static bool fold_reduces(const struct fold_case *one, uint32_t d) {
    for (uint32_t i = 0; i < one->ndims; i++)
        if (one->dims[i] == d)
            return true;
    return one->ndims == 0;
}
static int64_t fold_output(const struct fold_case *one, int64_t at) {
    int64_t output = 0, step = 1;
    for (uint32_t d = one->rank; d-- > 0; at /= one->shape[d])
        if (!fold_reduces(one, d)) {
            output += at % one->shape[d] * step;
            step *= one->shape[d];
        }
    return output;
}
static int64_t fold_terms(const struct fold_case *one) {
    int64_t terms = 1;
    for (uint32_t d = 0; d < one->rank; d++)
        terms *= fold_reduces(one, d) ? one->shape[d] : 1;
    return terms;
}

/* The caller frees them. */
static struct fold_test_sums *fold_sums(const struct fold_case *one, const struct xop_tensor *x,
                                        const struct xop_tensor *y, enum fold_kind kind) {
    int64_t outputs = 0, n = 0;
    xop_tensor_elements(y, &outputs);
    xop_tensor_elements(x, &n);
    struct fold_test_sums *all =
        (struct fold_test_sums *)calloc((size_t)outputs + 1, sizeof(struct fold_test_sums));
    if (!all)
        FIXTURE_DIE("no memory");
    for (int64_t k = 0; k < outputs; k++) {
        all[k].product = 1;
        all[k].most = -INFINITY;
        all[k].least = INFINITY;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t k = fold_output(one, i);
        double value = reference_get(x->dtype, x->data, i);
        all[k].total += value;
        all[k].size += fabs(value);
        all[k].product *= value;
        all[k].most = fmaxl(all[k].most, value);
        all[k].least = fminl(all[k].least, value);
        all[k].ties += value == reference_get(y->dtype, y->data, k);
    }
    for (int64_t i = 0; i < n && (kind == FOLD_VAR || kind == FOLD_LOGSUMEXP); i++) {
        struct fold_test_sums *s = &all[fold_output(one, i)];
        long double value = reference_get(x->dtype, x->data, i);
        long double d = value - s->total / fold_terms(one), below = s->most - value;
        s->squares += d * d;
        s->exponentials += expl(-below);
        s->off += expl(-below) * below;
    }
    return all;
}

static void fold_check(struct tally *tally, enum fold_kind kind, const struct fold_case *one,
                       const struct xop_tensor *x, const struct xop_tensor *y) {
    const int64_t n = fold_terms(one);
    struct fold_test_sums *all = fold_sums(one, x, y, kind);
    int64_t outputs = 0;
    xop_tensor_elements(y, &outputs);
    for (int64_t k = 0; k < outputs; k++) {
        const struct fold_test_sums *s = &all[k];
        long double want = 0, scale = 0;
        switch (kind) {
        case FOLD_SUM: want = s->total, scale = s->size; break;
        case FOLD_MEAN: want = s->total / n, scale = s->size / n; break;
        case FOLD_MAX: want = s->most; break;
        case FOLD_MIN: want = s->least; break;
        case FOLD_PROD: want = s->product, scale = fabsl(want) * n; break;
        case FOLD_LOGSUMEXP:
            want = s->most + logl(s->exponentials);
            scale = fabsl(s->most) + logl(s->exponentials) + 1 + s->off / s->exponentials;
            break;
        case FOLD_VAR:
            want = n > 1 ? s->squares / (n - 1) : NAN;
            scale = n > 1 ? 2 * (s->squares + s->size * s->size / n) / (n - 1) : 0;
            break;
        default: break;
        }
        row_judge(tally, y, "y", k, want, scale, n);
    }
    free(all);
}

static void fold_check_gradient(struct tally *tally, enum fold_kind kind,
                                const struct fold_case *one, const struct xop_tensor *x,
                                const struct xop_tensor *y, const struct xop_tensor *grad_y,
                                const struct xop_tensor *grad_x) {
    const int64_t n = fold_terms(one);
    struct fold_test_sums *all = fold_sums(one, x, y, kind);
    int64_t elements = 0;
    xop_tensor_elements(x, &elements);
    for (int64_t i = 0; i < elements; i++) {
        const int64_t k = fold_output(one, i);
        const struct fold_test_sums *s = &all[k];
        long double value = reference_get(x->dtype, x->data, i), want = 0, scale = 0;
        long double result = reference_get(y->dtype, y->data, k);
        long double g = reference_get(grad_y->dtype, grad_y->data, k);
        switch (kind) {
        case FOLD_SUM: want = g; break;
        case FOLD_MEAN: want = g / n, scale = fabsl(want); break;
        case FOLD_MAX:
        case FOLD_MIN:
            want = value == result ? g / s->ties : 0;
            scale = fabsl(want);
            break;
        case FOLD_PROD:
            want = value != 0 ? g * s->product / value : NAN;
            scale = fabsl(want) * n;
            break;
        case FOLD_LOGSUMEXP:
            want = g * expl(value - result);
            scale = fabsl(want) * (1 + fabsl(value - result));
            break;
        case FOLD_VAR:
            want = n > 1 ? 2 * g / (n - 1) * (value - s->total / n) : NAN;
            scale = n > 1 ? 2 * fabsl(g) / (n - 1) * (fabsl(value) + s->size / n) : 0;
            break;
        default: break;
        }
        if (kind != FOLD_PROD || value != 0)
            row_judge(tally, grad_x, "grad_x", i, want, scale, n);
    }
    free(all);
}

/* ---- Running ---- */

struct fold_attrs {
    struct xop_attr list[3];
};
static struct fold_attrs fold_attrs_of(const struct fold_case *one, bool keepdim) {
    struct fold_attrs attrs = {};
    attrs.list[0].type = XOP_ATTR_INTS;
    attrs.list[0].count = one->ndims;
    attrs.list[0].value.ints = one->dims;
    attrs.list[1].type = XOP_ATTR_BOOL;
    attrs.list[1].value.i = keepdim;
    attrs.list[2].type = XOP_ATTR_INT;
    attrs.list[2].value.i = 1;
    return attrs;
}

static bool fold_takes_y(enum fold_kind kind) {
    return kind == FOLD_MAX || kind == FOLD_MIN || kind == FOLD_LOGSUMEXP;
}

/* Turns a forward that was run into its backward. */
static void fold_turn(struct fixture *fixture, struct fixture_request *request, enum fold_kind kind,
                      size_t skew) {
    const struct xop_tensor y = request->out[0];
    const uint32_t last = 1 + (uint32_t)fold_takes_y(kind);
    request->in[1] = y;
    request->in[last] = operators_input(fixture, y.dtype, y.rank, y.shape, 7, skew);
}

/* Long products leave the range on the way. */
static bool fold_takes(enum fold_kind kind, const struct fold_case *one, bool reduced) {
    return (!one->large || !reduced) && (kind != FOLD_PROD || fold_terms(one) <= 300);
}

static void fold_operator(struct fixture *fixture, enum fold_kind kind, enum xop_dtype dtype,
                          bool reduced) {
    struct tally forward = tally_begin("%s forward %s", fold_names[kind], xop_dtype_name(dtype));
    struct tally backward = tally_begin("%s backward %s", fold_names[kind], xop_dtype_name(dtype));
    const struct xop_op *op = fixture_op(fixture, fold_names[kind]);
    const size_t size = xop_dtype_size(dtype);

    for (const struct fold_case &one : fold_cases) {
        const struct fold_attrs attrs = fold_attrs_of(&one, one.rank % 2 == 0);
        struct fixture_request run = {}, skewed = {};
        if (!fold_takes(kind, &one, reduced))
            continue;
        fixture_reset(fixture);
        run.in[0] = operators_input(fixture, dtype, one.rank, one.shape, 1, 0);
        skewed.in[0] = operators_input(fixture, dtype, one.rank, one.shape, 1, size);
        run.attrs = skewed.attrs = attrs.list;
        operators_run_one(fixture, &forward, op, XOP_FORWARD, &run, 1, 0);
        operators_run_one(fixture, &forward, op, XOP_FORWARD, &skewed, 1, size);
        tally_check(&forward, company_same(&run.out[0], &skewed.out[0]),
                    "y differs where operands are hardly aligned");
        fold_check(&forward, kind, &one, &run.in[0], &run.out[0]);
        const struct xop_tensor y = run.out[0];
        fold_turn(fixture, &run, kind, 0);
        fold_turn(fixture, &skewed, kind, size);
        operators_run_one(fixture, &backward, op, XOP_BACKWARD, &run, 1, 0);
        operators_run_one(fixture, &backward, op, XOP_BACKWARD, &skewed, 1, size);
        tally_check(&backward, company_same(&run.out[0], &skewed.out[0]),
                    "grad_x differs where operands are hardly aligned");
        fold_check_gradient(&backward, kind, &one, &run.in[0], &y, &run.in[1 + fold_takes_y(kind)],
                            &run.out[0]);
    }
    tally_end(&forward);
    tally_end(&backward);
}

/* What rows of x give, by PyTorch, short and long, along both dimensions. */
static void fold_edges(struct fixture *fixture, enum xop_dtype dtype) {
    static const struct {
        enum fold_kind kind;
        double x[4], y;
    } cases[] = {
        {FOLD_SUM, {1, INFINITY, 1, -INFINITY}, NAN},
        {FOLD_MEAN, {1, INFINITY, 1, 1}, INFINITY},
        {FOLD_MAX, {1, NAN, INFINITY, 1}, NAN},
        {FOLD_MAX, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, -INFINITY},
        {FOLD_MIN, {1, NAN, -INFINITY, 1}, NAN},
        {FOLD_PROD, {0, 1, INFINITY, 1}, NAN},
        {FOLD_LOGSUMEXP, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, -INFINITY},
        {FOLD_LOGSUMEXP, {1, INFINITY, INFINITY, -INFINITY}, INFINITY},
        {FOLD_LOGSUMEXP, {1, NAN, INFINITY, 0}, NAN},
        {FOLD_VAR, {3, 3, 3, 3}, 0},
        {FOLD_VAR, {1, INFINITY, 1, 1}, NAN},
    };
    struct tally tally = tally_begin("reductions of edge values %s", xop_dtype_name(dtype));
    for (const auto &one : cases)
        for (int64_t repeat : {1, 40, 9000})
            for (int64_t dim : {0, 1}) {
                const int64_t n = 4 * repeat;
                const struct fold_case shape = {2, {dim ? 2 : n, dim ? n : 2}, 1, {dim}, false};
                const struct fold_attrs attrs = fold_attrs_of(&shape, false);
                struct fixture_request run = {};
                fixture_reset(fixture);
                run.in[0] = operators_input(fixture, dtype, 2, shape.shape, 1, 0);
                run.attrs = attrs.list;
                for (int64_t i = 0; i < 2 * n; i++)
                    reference_set(dtype, fixture_writable(fixture, run.in[0].data), i,
                                  one.x[(dim ? i : i / 2) % 4]);
                operators_run_one(fixture, &tally, fixture_op(fixture, fold_names[one.kind]),
                                  XOP_FORWARD, &run, 1, 0);
                for (int64_t k = 0; k < 2; k++) {
                    double got = reference_get(dtype, run.out[0].data, k);
                    tally_check(&tally, isnan(one.y) ? isnan(got) : got == one.y,
                                "%s of %g %g %g %g, %lld times, along %lld gives %g",
                                fold_names[one.kind], one.x[0], one.x[1], one.x[2], one.x[3],
                                (long long)repeat, (long long)dim, got);
                }
            }
    tally_end(&tally);
}

#define FOLD_CALLS 200

/* Calls of all lengths in one group, cut into pieces and not. */
static void fold_groups(struct fixture *fixture, enum fold_kind kind, enum xop_dtype dtype) {
    static struct fixture_request alone[FOLD_CALLS], together[FOLD_CALLS];
    static struct xop_call calls[FOLD_CALLS];
    static const struct xop_plan *plans[FOLD_CALLS];
    const struct xop_op *op = fixture_op(fixture, fold_names[kind]);
    const struct fold_case along = {2, {0}, 1, {1}, false};
    const struct fold_attrs attrs = fold_attrs_of(&along, false);
    struct tally tally = tally_begin("%s in groups %s", fold_names[kind], xop_dtype_name(dtype));

    for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
        fixture_reset(fixture);
        for (int64_t i = 0; i < FOLD_CALLS; i++) {
            const int64_t shape[2] = {i % 37, i % 11 == 10 ? 4100 : i * 5 + 1};
            memset(&alone[i], 0, sizeof alone[i]);
            alone[i].in[0] = operators_input(fixture, dtype, 2, shape, 1, 0);
            alone[i].attrs = attrs.list;
            operators_run_one(fixture, &tally, op, XOP_FORWARD, &alone[i], 1, 0);
            if (pass == XOP_BACKWARD) {
                fold_turn(fixture, &alone[i], kind, 0);
                operators_run_one(fixture, &tally, op, XOP_BACKWARD, &alone[i], 1, 0);
            }
            together[i] = alone[i];
            calls[i] = fixture_prepare(fixture, op, (enum xop_pass)pass, &together[i], 1, 0);
            plans[i] = &together[i].plan;
        }
        company_run(fixture, &tally, op, (enum xop_pass)pass, calls, plans, FOLD_CALLS);
        for (uint32_t i = 0; i < FOLD_CALLS; i++) {
            tally_check(&tally, company_same(&alone[i].out[0], &together[i].out[0]),
                        "pass %d: call %u differs", pass, i);
            tally_check(&tally, fixture_guarded(&together[i].out[0]),
                        "pass %d: wrote outside call %u's output", pass, i);
        }
    }
    tally_end(&tally);
}

static void fold_all(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    for (int kind = 0; kind < FOLD_KINDS; kind++) {
        fold_operator(fixture, (enum fold_kind)kind, dtype, reduced);
        if (dtype == XOP_F32)
            fold_groups(fixture, (enum fold_kind)kind, dtype);
    }
    fold_edges(fixture, dtype);
}

#endif
