/*
 * Tests of every operator of one input that the library and client/reference both have, with every
 * setting of attributes that the reference lists: values beside the reference's, and the same bits
 * alone, in a group, unaligned and over its input. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_ELEMENTWISE_CUH
#define TESTS_GPU_ELEMENTWISE_CUH

#include "tests/gpu/company.cuh"

extern "C" {
#include "client/reference/reference.h"
}

#define ELEMENTWISE_GROWTH 4 /* roundoffs of the arithmetic, of what an element is made of */
#define ELEMENTWISE_MOST 300 /* calls of a group */

/* What is tested: an operator's pass with a setting of attributes, for one dtype. */
struct elementwise_subject {
    const struct xop_op *op;
    const struct reference *reference;
    struct reference_arithmetic arithmetic;
    struct xop_attr attrs[XOP_MAX_ATTRS];
    enum xop_pass pass;
    enum xop_dtype dtype;
};

typedef void (*elementwise_test)(struct fixture *fixture, struct tally *tally,
                                 const struct elementwise_subject *subject, bool reduced);

static inline double elementwise_smallest(enum xop_dtype dtype) { return reference_ulp(dtype, 0); }

static inline void elementwise_set(struct elementwise_subject *subject,
                                   const struct reference_setting *setting) {
    enum xop_dtype computed = subject->dtype == XOP_F64 ? XOP_F64 : XOP_F32;
    subject->arithmetic.max = reference_largest(computed);
    subject->arithmetic.least_normal = computed == XOP_F64 ? 0x1p-1022 : 0x1p-126;
    subject->arithmetic.smallest = elementwise_smallest(computed);
    subject->arithmetic.setting = setting;
    fixture_defaults(subject->op, subject->attrs);
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        for (uint32_t k = 0; k < subject->op->nattrs; k++)
            if (strcmp(subject->attrs[k].name, setting->attr[i].name) == 0)
                subject->attrs[k] = setting->attr[i];
}

/* ---- Inputs and what is expected of them ---- */

static struct xop_tensor elementwise_input(struct fixture *fixture, enum xop_dtype dtype,
                                           const double *values, int64_t n, size_t skew) {
    struct xop_tensor tensor = operators_input(fixture, dtype, 1, &n, 1, skew);
    void *data = fixture_writable(fixture, tensor.data);
    for (int64_t i = 0; i < n; i++)
        reference_set(dtype, data, i, values[i]);
    return tensor;
}

/* Random arguments, or every edge value beside every other. */
static int64_t elementwise_values(const struct elementwise_subject *subject, int64_t n, double *x,
                                  double *g) {
    const double largest = reference_largest(subject->dtype),
                 smallest = elementwise_smallest(subject->dtype);
    const double edges[] = {0.0,      -0.0,      NAN,   INFINITY, -INFINITY, largest, -largest,
                            smallest, -smallest, 1,     -1,       3,         -3,      20.5,
                            -20.5,    88.5,      -88.5, 103.5,    -104,      720,     -746,
                            1e-4,     -1e-4,     6e4,   -6e4,     0.5,       -0.5};
    const int64_t count = sizeof edges / sizeof *edges;
    uint32_t seed = (uint32_t)n + 1;
    if (n == 0) {
        for (int64_t i = 0; i < count * count; i++) {
            x[i] = edges[i / count];
            g[i] = edges[i % count];
        }
        return count * count;
    }
    for (int64_t i = 0; i < n; i++) {
        double part = (double)operators_random(&seed) / (1 << 24);
        x[i] =
            subject->reference->low + (subject->reference->high - subject->reference->low) * part;
        g[i] = (double)operators_random(&seed) / (1 << 22) - 2;
    }
    return n;
}

/* Backward's inputs are what the reference says; a saved result is tried as it comes. */
static void elementwise_inputs(struct fixture *fixture, const struct elementwise_subject *subject,
                               const double *x, const double *g, int64_t n, size_t skew,
                               struct fixture_request *request) {
    bool saves = subject->reference->saved_in || subject->reference->saved_out;
    memset(request, 0, sizeof *request);
    request->attrs = subject->attrs;
    if (subject->pass == XOP_FORWARD || saves)
        request->in[0] = elementwise_input(fixture, subject->dtype, x, n, skew);
    if (subject->pass == XOP_BACKWARD)
        request->in[saves] = elementwise_input(fixture, subject->dtype, g, n, 3 * skew);
}

static void elementwise_check(struct tally *tally, const struct elementwise_subject *subject,
                              const struct fixture_request *request, int64_t n) {
    const double unit = subject->dtype == XOP_F64 ? 0x1p-53 : 0x1p-24;
    struct reference_tensor in[2] = {}, out = {};
    double *memory = (double *)calloc(4 * (size_t)n + 1, sizeof *memory);
    if (!memory)
        FIXTURE_DIE("no memory");
    for (int k = 0; k < 2; k++) {
        in[k].rank = 1;
        in[k].shape[0] = in[k].n = n;
        in[k].data = memory + k * n;
        for (int64_t i = 0; i < n && request->in[k].data; i++)
            in[k].data[i] = reference_get(subject->dtype, request->in[k].data, i);
    }
    out.rank = 1;
    out.shape[0] = out.n = n;
    out.data = memory + 2 * n;
    out.scale = memory + 3 * n;
    (subject->pass == XOP_FORWARD ? subject->reference->forward
                                  : subject->reference->backward)(&subject->arithmetic, in, &out);
    for (int64_t i = 0; i < n; i++) {
        double got = reference_get(subject->dtype, request->out[0].data, i), want = out.data[i];
        double scale = isfinite(out.scale[i]) ? out.scale[i] : fabs(want);
        double excuse =
            ELEMENTWISE_GROWTH * unit * scale + elementwise_smallest(subject->dtype) / 2;
        tally_error(tally, reference_error(subject->dtype, got, want, excuse), EXACT,
                    "at %.17g and %.17g it is %.17g, not %.17g", in[0].data[i], in[1].data[i], got,
                    want);
    }
    free(memory);
}

/* ---- The tests ---- */

/* Sizes around vectors and tiles, aligned and not; 0 stands for the edge values. */
static void elementwise_judge(struct fixture *fixture, struct tally *tally,
                              const struct elementwise_subject *subject, bool reduced) {
    static const int64_t sizes[] = {0,    1,    2,    3,    7,    8,     9,     255,
                                    1023, 1025, 4095, 4097, 8192, 16385, 400003};
    static double x[400003], g[400003];

    for (int64_t size : sizes)
        for (size_t skew = 0; skew < 2; skew++) {
            struct fixture_request straight;
            if (reduced && size > 10000)
                continue;
            fixture_reset(fixture);
            int64_t n = elementwise_values(subject, size, x, g);
            elementwise_inputs(fixture, subject, x, g, n, skew * xop_dtype_size(subject->dtype),
                               &straight);
            operators_run_one(fixture, tally, subject->op, subject->pass, &straight, 1,
                              skew * xop_dtype_size(subject->dtype));
            elementwise_check(tally, subject, &straight, n);
        }
    fixture_reset(fixture);
    struct fixture_request empty;
    elementwise_inputs(fixture, subject, x, g, 0, 0, &empty);
    operators_run_one(fixture, tally, subject->op, subject->pass, &empty, 1, 0);
}

static void elementwise_in_place(struct fixture *fixture, struct tally *tally,
                                 const struct elementwise_subject *subject, bool reduced) {
    static double x[9001], g[9001];
    const int64_t n = elementwise_values(subject, reduced ? 1001 : 9001, x, g);
    struct fixture_request apart, there;
    uint64_t bytes = 0;

    fixture_reset(fixture);
    elementwise_inputs(fixture, subject, x, g, n, 0, &apart);
    operators_run_one(fixture, tally, subject->op, subject->pass, &apart, 1, 0);
    there = apart;
    fixture_place(&fixture->outbox, &there.in[0], 0);
    xop_tensor_bytes(&apart.in[0], &bytes);
    memcpy(there.in[0].data, apart.in[0].data, bytes);
    struct xop_call call = fixture_prepare(fixture, subject->op, subject->pass, &there, 0, 0);
    there.out[0].data = there.in[0].data;
    const struct xop_plan *plan = &there.plan;
    company_run(fixture, tally, subject->op, subject->pass, &call, &plan, 1);
    tally_check(tally, company_same(&apart.out[0], &there.out[0]), "over its input it differs");
}

/* More calls than a small table holds, and than a large one does. */
static void elementwise_groups(struct fixture *fixture, struct tally *tally,
                               const struct elementwise_subject *subject, bool reduced) {
    static struct fixture_request alone[ELEMENTWISE_MOST], together[ELEMENTWISE_MOST];
    static struct xop_call calls[ELEMENTWISE_MOST];
    static const struct xop_plan *plans[ELEMENTWISE_MOST];
    static double x[5000], g[5000];

    for (uint32_t count : {2u, 9u, (uint32_t)ELEMENTWISE_MOST}) {
        if (reduced && count != 9)
            continue;
        fixture_reset(fixture);
        for (uint32_t i = 0; i < count; i++) {
            int64_t n = elementwise_values(subject, 1 + i * 2309 % 5000, x, g);
            elementwise_inputs(fixture, subject, x, g, n, 0, &alone[i]);
            together[i] = alone[i];
            operators_run_one(fixture, tally, subject->op, subject->pass, &alone[i], 1, 0);
            calls[i] = fixture_prepare(fixture, subject->op, subject->pass, &together[i], 1, 0);
            plans[i] = &together[i].plan;
        }
        company_run(fixture, tally, subject->op, subject->pass, calls, plans, count);
        for (uint32_t i = 0; i < count; i++)
            tally_check(tally,
                        company_same(&alone[i].out[0], &together[i].out[0]) &&
                            fixture_guarded(&together[i].out[0]),
                        "call %u of %u differs, or wrote outside its output", i, count);
    }
}

static void elementwise_each(struct fixture *fixture, const struct xop_op *op,
                             const struct reference *reference, enum xop_dtype dtype,
                             bool reduced) {
    static const struct {
        const char *name;
        elementwise_test run;
    } tests[] = {{"beside its reference", elementwise_judge},
                 {"over its input", elementwise_in_place},
                 {"alone or in a group", elementwise_groups}};
    uint32_t settings = reference->settings ? reference->nsettings : 1;

    for (const auto &test : tests) {
        struct tally tally = tally_begin("%s %s %s", op->name, test.name, xop_dtype_name(dtype));
        for (uint32_t i = 0; i < settings; i++)
            for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
                struct elementwise_subject subject = {};
                subject.op = op;
                subject.reference = reference;
                subject.pass = (enum xop_pass)pass;
                subject.dtype = dtype;
                elementwise_set(&subject, reference->settings ? &reference->settings[i] : NULL);
                test.run(fixture, &tally, &subject, reduced);
            }
        tally_end(&tally);
    }
}

static inline void elementwise_all(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    const struct xop_library *library = fixture->api->library();
    for (uint32_t i = 0; i < library->nops; i++) {
        const struct reference *reference = reference_find(library->ops[i]->name);
        if (reference && fixture_elementwise(library->ops[i]))
            elementwise_each(fixture, library->ops[i], reference, dtype, reduced);
    }
}

#endif
