/*
 * Tests of operators by the cases, settings and formulas of their references in client/reference:
 * every output, alone and beside others, in groups, at addresses that are hardly aligned. Part of
 * test_cuda_backend. The references share no code with kernels/.
 */
#ifndef TESTS_GPU_JUDGED_CUH
#define TESTS_GPU_JUDGED_CUH

#include "client/reference/reference.h"
#include "tests/gpu/company.cuh"
#include "tests/gpu/operators.cuh"

#define JUDGED_MOST 64 /* cases of a reference */

/* An operator, asked in one way. */
struct judged {
    struct fixture *fixture;
    const struct xop_op *op;
    const struct reference *reference;
    const struct reference_setting *setting; /* NULL: defaults alone */
    enum xop_dtype dtype;
    struct xop_attr attrs[XOP_MAX_ATTRS];
};

static void judged_setting(struct judged *judged, const struct reference_setting *setting) {
    judged->setting = setting;
    fixture_defaults(judged->op, judged->attrs);
    for (uint32_t i = 0; i < judged->op->nattrs; i++)
        for (uint32_t k = 0; setting && k < setting->nattrs; k++)
            if (strcmp(judged->attrs[i].name, setting->attr[k].name) == 0)
                judged->attrs[i] = setting->attr[k];
}

static void judged_shape(const char *text, uint32_t *rank, int64_t *shape) {
    for (*rank = 0; *text; text += *text == ',') {
        char *end = NULL;
        shape[(*rank)++] = strtoll(text, &end, 10);
        text = end;
    }
}

/* False where the case does not go with the setting. */
static bool judged_takes(const struct judged *judged, const struct reference_case *one) {
    struct reference_tensor in[XOP_MAX_INPUTS] = {};
    for (uint32_t i = 0; i < judged->reference->nin; i++) {
        in[i].absent = !one->in[i];
        if (one->in[i])
            judged_shape(one->in[i], &in[i].rank, in[i].shape);
    }
    return !judged->reference->takes || judged->reference->takes(judged->setting, in);
}

static void judged_forward(const struct judged *judged, const struct reference_case *one,
                           size_t skew, struct fixture_request *request) {
    memset(request, 0, sizeof *request);
    request->attrs = judged->attrs;
    for (uint32_t i = 0; i < judged->reference->nin; i++) {
        int64_t shape[XOP_MAX_RANK];
        uint32_t rank;
        if (!one->in[i])
            continue;
        judged_shape(one->in[i], &rank, shape);
        request->in[i] = operators_input(judged->fixture, judged->dtype, rank, shape, 11 + i, skew);
    }
}

/* The backward of a forward that was run with all its outputs. */
static void judged_backward(const struct judged *judged, const struct fixture_request *forward,
                            size_t skew, struct fixture_request *request) {
    const struct reference *r = judged->reference;
    uint32_t n = 0;
    memset(request, 0, sizeof *request);
    request->attrs = judged->attrs;
    for (uint32_t i = 0; i < r->nin; i++)
        if (r->saved_in >> i & 1)
            request->in[n++] = forward->in[i];
    for (uint32_t i = 0; i < r->nout; i++)
        if (r->saved_out >> i & 1)
            request->in[n++] = forward->out[i];
    for (uint32_t i = 0; i < r->nout; i++)
        if (!(r->ungraded >> i & 1))
            request->in[n++] = operators_input(judged->fixture, judged->dtype, forward->out[i].rank,
                                               forward->out[i].shape, 31 + i, skew);
}

/* ---- Judging ---- */

static void judged_tensor(const struct xop_tensor *tensor, bool output,
                          struct reference_tensor *out) {
    int64_t n = 0;
    memset(out, 0, sizeof *out);
    out->absent = tensor->dtype == XOP_DTYPE_NONE;
    if (out->absent)
        return;
    xop_tensor_elements(tensor, &n);
    out->rank = tensor->rank;
    memcpy(out->shape, tensor->shape, sizeof out->shape);
    out->n = n;
    out->terms = 1;
    out->data = (double *)calloc((size_t)n + 1, sizeof(double));
    out->scale = output ? (double *)calloc((size_t)n + 1, sizeof(double)) : NULL;
    if (!out->data || (output && !out->scale))
        FIXTURE_DIE("no memory");
    for (int64_t i = 0; !output && i < n; i++)
        out->data[i] = reference_get(tensor->dtype, tensor->data, i);
}

static double judged_growth(const struct reference *r, enum xop_dtype dtype, int64_t terms) {
    if (!r->any_order)
        return 2 + 2 * log2((double)terms + 1);
    return (xop_dtype_size(dtype) == 2 ? 2.0 : 1.0) * (double)terms;
}

static void judged_compare(const struct judged *judged, struct tally *tally, uint32_t which,
                           const struct xop_tensor *got, const struct reference_tensor *want) {
    const double u = got->dtype == XOP_F64 ? 0x1p-53 : 0x1p-24;
    const double growth = judged_growth(judged->reference, got->dtype, want->terms);
    for (int64_t i = 0; i < want->n; i++) {
        double value = reference_get(got->dtype, got->data, i), scale = want->scale[i];
        double excuse = u * growth * (isfinite(scale) ? scale : fabs(want->data[i]));
        tally_error(tally, reference_error(got->dtype, value, want->data[i], excuse), EXACT,
                    "output %u[%lld] of %lld is %.17g, not %.17g", which, (long long)i,
                    (long long)want->n, value, want->data[i]);
    }
}

static void judged_check(const struct judged *judged, struct tally *tally, enum xop_pass pass,
                         const struct fixture_request *request) {
    const struct xop_signature *signature = &judged->op->pass[pass];
    struct reference_arithmetic arithmetic = {
        judged->dtype == XOP_F64 ? reference_largest(XOP_F64) : reference_largest(XOP_F32),
        judged->dtype == XOP_F64 ? 0x1p-1022 : 0x1p-126,
        judged->dtype == XOP_F64 ? 0x1p-1074 : 0x1p-149, judged->setting};
    struct reference_tensor in[XOP_MAX_INPUTS], out[XOP_MAX_OUTPUTS];

    for (uint32_t i = 0; i < signature->nin; i++)
        judged_tensor(&request->in[i], false, &in[i]);
    for (uint32_t i = 0; i < signature->nout; i++)
        judged_tensor(&request->out[i], true, &out[i]);
    (pass == XOP_FORWARD ? judged->reference->forward : judged->reference->backward)(&arithmetic,
                                                                                     in, out);
    for (uint32_t i = 0; i < signature->nout; i++)
        judged_compare(judged, tally, i, &request->out[i], &out[i]);
    for (uint32_t i = 0; i < signature->nin; i++)
        free(in[i].data);
    for (uint32_t i = 0; i < signature->nout; i++) {
        free(out[i].data);
        free(out[i].scale);
    }
}

/* ---- Running ---- */

static uint32_t judged_every(const struct judged *judged, enum xop_pass pass) {
    return (1u << judged->op->pass[pass].nout) - 1;
}

/* The same bits from operands that are hardly aligned, and of an output that is wanted alone. */
static void judged_alike(const struct judged *judged, struct tally *tally, enum xop_pass pass,
                         const struct fixture_request *run, struct fixture_request *skewed) {
    const uint32_t nout = judged->op->pass[pass].nout;
    operators_run_one(judged->fixture, tally, judged->op, pass, skewed, judged_every(judged, pass),
                      xop_dtype_size(judged->dtype));
    for (uint32_t k = 0; k < nout; k++) {
        struct fixture_request some = *run;
        tally_check(tally, company_same(&run->out[k], &skewed->out[k]),
                    "output %u differs where operands are hardly aligned", k);
        if (nout == 1)
            continue;
        operators_run_one(judged->fixture, tally, judged->op, pass, &some, 1u << k, 0);
        tally_check(tally, company_same(&run->out[k], &some.out[k]),
                    "output %u differs when it is wanted alone", k);
    }
}

static void judged_one(const struct judged *judged, struct tally tallies[XOP_PASS_COUNT],
                       const struct reference_case *one) {
    const size_t skew = xop_dtype_size(judged->dtype);
    struct fixture_request run, skewed, backward;

    fixture_reset(judged->fixture);
    judged_forward(judged, one, 0, &run);
    judged_forward(judged, one, skew, &skewed);
    operators_run_one(judged->fixture, &tallies[0], judged->op, XOP_FORWARD, &run,
                      judged_every(judged, XOP_FORWARD), 0);
    judged_check(judged, &tallies[0], XOP_FORWARD, &run);
    judged_alike(judged, &tallies[0], XOP_FORWARD, &run, &skewed);
    judged_backward(judged, &run, 0, &backward);
    judged_backward(judged, &skewed, skew, &skewed);
    operators_run_one(judged->fixture, &tallies[1], judged->op, XOP_BACKWARD, &backward,
                      judged_every(judged, XOP_BACKWARD), 0);
    judged_check(judged, &tallies[1], XOP_BACKWARD, &backward);
    judged_alike(judged, &tallies[1], XOP_BACKWARD, &backward, &skewed);
}

/* All cases of a setting in one group. */
static void judged_group(const struct judged *judged, struct tally *tally) {
    static struct fixture_request run[XOP_PASS_COUNT][JUDGED_MOST], together[JUDGED_MOST];
    static struct xop_call calls[JUDGED_MOST];
    static const struct xop_plan *plans[JUDGED_MOST];
    const struct reference *r = judged->reference;
    uint32_t n = 0;

    fixture_reset(judged->fixture);
    for (uint32_t i = 0; i < r->ncases && n < JUDGED_MOST; i++)
        if (!r->cases[i].is_large && judged_takes(judged, &r->cases[i]))
            judged_forward(judged, &r->cases[i], 0, &run[0][n++]);
    for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
        const uint32_t every = judged_every(judged, (enum xop_pass)pass);
        for (uint32_t i = 0; i < n; i++) {
            if (pass == XOP_BACKWARD)
                judged_backward(judged, &run[0][i], 0, &run[1][i]);
            operators_run_one(judged->fixture, tally, judged->op, (enum xop_pass)pass,
                              &run[pass][i], every, 0);
            together[i] = run[pass][i];
            calls[i] = fixture_prepare(judged->fixture, judged->op, (enum xop_pass)pass,
                                       &together[i], every, 0);
            plans[i] = &together[i].plan;
        }
        company_run(judged->fixture, tally, judged->op, (enum xop_pass)pass, calls, plans, n);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < judged->op->pass[pass].nout; k++) {
                tally_check(tally, company_same(&run[pass][i].out[k], &together[i].out[k]),
                            "output %u of call %u of %u of pass %d differs in a group", k, i, n,
                            pass);
                tally_check(tally, fixture_guarded(&together[i].out[k]),
                            "wrote outside output %u of call %u of %u of pass %d", k, i, n, pass);
            }
    }
}

static void judged_operator(struct fixture *fixture, const char *name, enum xop_dtype dtype,
                            bool reduced) {
    struct judged judged = {fixture, fixture_op(fixture, name), reference_find(name), NULL, dtype};
    struct tally tallies[XOP_PASS_COUNT] = {
        tally_begin("%s forward %s", name, xop_dtype_name(dtype)),
        tally_begin("%s backward %s", name, xop_dtype_name(dtype))};
    struct tally groups = tally_begin("%s in groups %s", name, xop_dtype_name(dtype));
    const uint32_t settings = judged.reference->nsettings;

    for (uint32_t s = 0; s < (settings > 0 ? settings : 1); s++) {
        judged_setting(&judged, settings > 0 ? &judged.reference->settings[s] : NULL);
        for (uint32_t i = 0; i < judged.reference->ncases; i++)
            if (judged_takes(&judged, &judged.reference->cases[i]) &&
                !(reduced && judged.reference->cases[i].is_large))
                judged_one(&judged, tallies, &judged.reference->cases[i]);
        judged_group(&judged, &groups);
    }
    tally_end(&tallies[0]);
    tally_end(&tallies[1]);
    tally_end(&groups);
}

static void judged_all(struct fixture *fixture, enum xop_dtype dtype, bool reduced) {
    for (const char *name : {"group_norm", "batch_norm", "max_pool2d", "avg_pool2d", "upsample",
                             "rotary_embedding", "attention"})
        judged_operator(fixture, name, dtype, reduced);
}

#endif
