/*
 * Tests of every operator of two inputs that broadcast, for which client/reference has a reference:
 * values and gradients beside the reference's in every form of broadcasting, gradients wanted one
 * at a time, and what company.cuh asks of operators. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_BINARY_CUH
#define TESTS_GPU_BINARY_CUH

#include "tests/gpu/elementwise.cuh"

#define BINARY_GROWTH 4 /* roundoffs of the arithmetic, of what a term is made of */

static struct reference_arithmetic binary_arithmetic(enum xop_dtype dtype) {
    enum xop_dtype computed = dtype == XOP_F64 ? XOP_F64 : XOP_F32;
    struct reference_arithmetic arithmetic = {};
    arithmetic.max = reference_largest(computed);
    arithmetic.least_normal = computed == XOP_F64 ? 0x1p-1022 : 0x1p-126;
    arithmetic.smallest = elementwise_smallest(computed);
    return arithmetic;
}

/* ---- Inputs ---- */

/* Random elements in the reference's range instead of those that are there. */
static void binary_fill(struct fixture *fixture, const struct reference *reference,
                        const struct xop_tensor *tensor, uint32_t seed) {
    void *data = fixture_writable(fixture, tensor->data);
    int64_t n = 0;
    xop_tensor_elements(tensor, &n);
    for (int64_t i = 0; i < n; i++) {
        double part = (double)operators_random(&seed) / (1 << 24);
        reference_set(tensor->dtype, data, i,
                      reference->low + (reference->high - reference->low) * part);
    }
}

static const double binary_edges[] = {0.0,  -0.0, NAN, INFINITY, -INFINITY, 1,    -1,
                                      2,    -2,   3,   -3,       0.5,       -0.5, 1e4,
                                      -1e4, 88,   -88, 1e-4,     -1e-4,     1.5,  -1.5};
#define BINARY_EDGES ((int64_t)(sizeof binary_edges / sizeof *binary_edges))

/* Every edge value beside every other. */
static void binary_fill_edges(struct fixture *fixture, const struct xop_tensor *tensor,
                              bool is_first) {
    void *data = fixture_writable(fixture, tensor->data);
    for (int64_t i = 0; i < BINARY_EDGES * BINARY_EDGES; i++)
        reference_set(tensor->dtype, data, i,
                      binary_edges[is_first ? i / BINARY_EDGES : i % BINARY_EDGES]);
}

/* ---- Beside the reference ---- */

static struct reference_tensor binary_reference(const struct xop_tensor *tensor, bool is_output) {
    struct reference_tensor result = {};
    size_t count;
    result.rank = tensor->rank;
    memcpy(result.shape, tensor->shape, sizeof result.shape);
    xop_tensor_elements(tensor, &result.n);
    count = (size_t)result.n + 1;
    result.data = (double *)calloc(count, sizeof(double));
    result.scale = is_output ? (double *)calloc(count, sizeof(double)) : NULL;
    if (!result.data || (is_output && !result.scale))
        FIXTURE_DIE("no memory");
    for (int64_t i = 0; i < result.n && !is_output; i++)
        result.data[i] = reference_get(tensor->dtype, tensor->data, i);
    return result;
}

static void binary_compare(struct tally *tally, const struct xop_tensor *got,
                           const struct reference_tensor *want, const char *name) {
    const double unit = got->dtype == XOP_F64 ? 0x1p-53 : 0x1p-24;
    for (int64_t i = 0; i < want->n; i++) {
        double value = reference_get(got->dtype, got->data, i);
        double scale = isfinite(want->scale[i]) ? want->scale[i] : fabs(want->data[i]);
        /* Sums are in f64, so that what f64 terms lose grows with their number. */
        double growth = BINARY_GROWTH + (got->dtype == XOP_F64 ? log2((double)want->terms + 1) : 0);
        double excuse = growth * unit * scale + elementwise_smallest(got->dtype) / 2;
        tally_error(tally, reference_error(got->dtype, value, want->data[i], excuse), EXACT,
                    "%s[%lld] is %.17g, not %.17g", name, (long long)i, value, want->data[i]);
    }
}

static void binary_check(struct tally *tally, const struct reference *reference, enum xop_pass pass,
                         const struct fixture_request *request) {
    static const char *const names[XOP_PASS_COUNT][2] = {{"y", ""}, {"grad_x", "grad_b"}};
    const struct reference_arithmetic arithmetic = binary_arithmetic(request->in[0].dtype);
    const uint32_t nin = pass == XOP_FORWARD ? 2 : 3, nout = pass == XOP_FORWARD ? 1 : 2;
    struct reference_tensor in[3] = {}, out[2] = {};

    for (uint32_t i = 0; i < nin; i++)
        in[i] = binary_reference(&request->in[i], false);
    for (uint32_t i = 0; i < nout; i++)
        out[i] = binary_reference(&request->out[i], true);
    (pass == XOP_FORWARD ? reference->forward : reference->backward)(&arithmetic, in, out);
    for (uint32_t i = 0; i < nout; i++)
        binary_compare(tally, &request->out[i], &out[i], names[pass][i]);
    for (uint32_t i = 0; i < nin; i++)
        free(in[i].data);
    for (uint32_t i = 0; i < nout; i++) {
        free(out[i].data);
        free(out[i].scale);
    }
}

/* One gradient alone, and shapes without elements where those do: the same bits. */
static void binary_alone(struct fixture *fixture, struct tally *tally, const struct xop_op *op,
                         const struct fixture_request *both) {
    for (uint32_t wanted = 0; wanted < 3; wanted++) {
        struct fixture_request some = *both;
        for (uint32_t i = 0; i < 2; i++)
            if (op->pass[XOP_BACKWARD].in[i].flags & XOP_OPERAND_SHAPE_ONLY)
                some.in[i].data = NULL;
        operators_run_one(fixture, tally, op, XOP_BACKWARD, &some, wanted, 0);
        for (uint32_t i = 0; i < 2; i++)
            if (some.out[i].data)
                tally_check(tally, company_same(&some.out[i], &both->out[i]),
                            "gradient %u differs when it is wanted alone", i);
    }
}

static void binary_judge(struct fixture *fixture, const struct xop_op *op,
                         const struct reference *reference, enum xop_dtype dtype, bool reduced) {
    const struct operators_pair edges = {
        1, 1, {BINARY_EDGES * BINARY_EDGES}, {BINARY_EDGES * BINARY_EDGES}, false};
    const size_t npairs = sizeof operators_pairs / sizeof *operators_pairs;
    struct tally tally = tally_begin("%s beside its reference %s", op->name, xop_dtype_name(dtype));

    for (size_t i = 0; i <= npairs; i++) {
        const struct operators_pair &pair = i < npairs ? operators_pairs[i] : edges;
        struct fixture_request run;
        if (pair.large && (reduced || dtype != XOP_F32))
            continue;
        fixture_reset(fixture);
        memset(&run, 0, sizeof run);
        run.in[0] = operators_input(fixture, dtype, pair.x_rank, pair.x, 1, 0);
        run.in[1] = operators_input(fixture, dtype, pair.b_rank, pair.b, 2, 0);
        for (uint32_t k = 0; k < 2; k++)
            if (i < npairs)
                binary_fill(fixture, reference, &run.in[k], k + 1);
            else
                binary_fill_edges(fixture, &run.in[k], k == 0);
        operators_run_one(fixture, &tally, op, XOP_FORWARD, &run, 1, 0);
        binary_check(&tally, reference, XOP_FORWARD, &run);
        run.in[2] = operators_input(fixture, dtype, run.out[0].rank, run.out[0].shape, 3, 0);
        operators_run_one(fixture, &tally, op, XOP_BACKWARD, &run, 3, 0);
        binary_check(&tally, reference, XOP_BACKWARD, &run);
        binary_alone(fixture, &tally, op, &run);
    }
    tally_end(&tally);
}

static inline void binary_all(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    const struct xop_library *library = fixture->api->library();
    for (uint32_t i = 0; i < library->nops; i++) {
        const struct xop_op *op = library->ops[i];
        const struct reference *reference = reference_find(op->name);
        if (!reference || !reference->broadcasts)
            continue;
        binary_judge(fixture, op, reference, dtype, reduced);
        company_groups(fixture, op->name, dtype, reduced);
        company_skewed(fixture, op, dtype, reduced);
        company_in_place(fixture, op, dtype, reduced);
    }
}

#endif
