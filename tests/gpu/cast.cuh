/*
 * Tests of cast: every dtype to every other, the bits that conversions on the host give, aligned
 * and not, alone and in groups. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_CAST_CUH
#define TESTS_GPU_CAST_CUH

#include "tests/gpu/company.cuh"

#define CAST_CALLS 300

static struct xop_attr cast_to(enum xop_dtype dtype) {
    struct xop_attr attr = {};
    attr.name = "dtype";
    attr.type = XOP_ATTR_STRING;
    attr.value.string = xop_dtype_name(dtype);
    attr.count = (uint32_t)strlen(attr.value.string);
    return attr;
}

/* Forward converts to what the attribute says; backward converts back from it. */
static void cast_inputs(struct fixture *fixture, struct fixture_request *request,
                        enum xop_pass pass, enum xop_dtype x, enum xop_dtype y,
                        const struct xop_attr *attr, int64_t n, size_t skew) {
    static const double edges[] = {0.0,     -0.0,    NAN,           INFINITY,      -INFINITY,
                                   65504,   65519,   65520,         -65520,        1e-7,
                                   2.98e-8, 2.99e-8, 6e-8,          1e-40,         1e38,
                                   3.4e38,  -3.5e38, 1.00048828125, 1.00146484375, 1e300};
    enum xop_dtype from = pass == XOP_FORWARD ? x : y;
    memset(request, 0, sizeof *request);
    request->attrs = attr;
    struct xop_tensor source = operators_input(fixture, from, 1, &n, (uint32_t)n, skew);
    void *data = fixture_writable(fixture, source.data);
    for (int64_t i = 0; i < n && i < (int64_t)(sizeof edges / sizeof *edges); i++)
        reference_set(from, data, n - 1 - i, edges[i]);
    request->in[pass] = source;
    if (pass == XOP_BACKWARD) {
        request->in[0] = source;
        request->in[0].dtype = x;
        request->in[0].data = NULL;
    }
}

static void cast_check(struct tally *tally, const struct xop_tensor *from,
                       const struct xop_tensor *to) {
    int64_t n = 0;
    uint64_t want = 0, got = 0;
    size_t size = xop_dtype_size(to->dtype);
    xop_tensor_elements(from, &n);
    for (int64_t i = 0; i < n; i++) {
        double value = reference_get(from->dtype, from->data, i);
        reference_set(to->dtype, &want, 0, value);
        memcpy(&got, (const char *)to->data + (size_t)i * size, size);
        bool same = memcmp(&want, &got, size) == 0 ||
                    (isnan(value) && isnan(reference_get(to->dtype, to->data, i)));
        tally_check(tally, same, "%.17g becomes %.17g", value,
                    reference_get(to->dtype, to->data, i));
    }
}

static void cast_pair(struct fixture *fixture, struct tally *tally, enum xop_dtype x,
                      enum xop_dtype y, bool reduced) {
    static const int64_t sizes[] = {0, 1, 3, 4, 5, 255, 1023, 4095, 4096, 4097, 200001};
    static struct fixture_request alone, together[CAST_CALLS];
    static struct xop_call calls[CAST_CALLS];
    static const struct xop_plan *plans[CAST_CALLS];
    const struct xop_op *op = fixture_op(fixture, "cast");
    const struct xop_attr attr = cast_to(y);

    for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
        size_t from = xop_dtype_size(pass == XOP_FORWARD ? x : y),
               to = xop_dtype_size(pass == XOP_FORWARD ? y : x);
        for (int64_t size : sizes)
            for (size_t skew = 0; skew < 2; skew++) {
                if (reduced && size > 10000)
                    continue;
                fixture_reset(fixture);
                cast_inputs(fixture, &alone, (enum xop_pass)pass, x, y, &attr, size, skew * from);
                operators_run_one(fixture, tally, op, (enum xop_pass)pass, &alone, 1, skew * to);
                cast_check(tally, &alone.in[pass], &alone.out[0]);
            }
        const uint32_t count = reduced ? 9 : CAST_CALLS;
        fixture_reset(fixture);
        for (uint32_t i = 0; i < count; i++) {
            cast_inputs(fixture, &together[i], (enum xop_pass)pass, x, y, &attr,
                        1 + i * 2309 % 5000, 0);
            calls[i] = fixture_prepare(fixture, op, (enum xop_pass)pass, &together[i], 1, 0);
            plans[i] = &together[i].plan;
        }
        company_run(fixture, tally, op, (enum xop_pass)pass, calls, plans, count);
        for (uint32_t i = 0; i < count; i++) {
            cast_check(tally, &together[i].in[pass], &together[i].out[0]);
            tally_check(tally, fixture_guarded(&together[i].out[0]), "wrote outside output %u", i);
        }
    }
}

static inline void cast_all(struct fixture *fixture, enum xop_dtype x, bool reduced) {
    struct tally tally = tally_begin("cast of %s to every dtype and back", xop_dtype_name(x));
    for (enum xop_dtype y : {XOP_F16, XOP_BF16, XOP_F32, XOP_F64})
        cast_pair(fixture, &tally, x, y, reduced);
    tally_end(&tally);
}

#endif
