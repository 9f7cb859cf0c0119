/*
 * Tests that a request gives the same bits whatever its company, its addresses, the lane and the
 * grid. Part of test_cuda_backend.
 */
#ifndef TESTS_GPU_COMPANY_CUH
#define TESTS_GPU_COMPANY_CUH

#include "tests/gpu/operators.cuh"

#define COMPANY_MOST 300 /* calls */

static bool company_same(const struct xop_tensor *a, const struct xop_tensor *b) {
    uint64_t bytes = 0;
    if (!a->data || !b->data)
        return a->data == b->data;
    return xop_tensor_bytes(a, &bytes) && memcmp(a->data, b->data, bytes) == 0;
}

/* The inputs of call i: all forms that may share the group, and sizes up to some thousands. */
static void company_inputs(struct fixture *fixture, struct fixture_request *request, int i,
                           const struct xop_op *op, enum xop_pass pass, enum xop_dtype dtype,
                           int form) {
    const int64_t full[] = {i % 7 + 1, i % 5 == 4 ? 1024 : 300 * (i % 5) + 1};
    const int64_t row[] = {1, full[1]}, column[] = {full[0], 1}, one[] = {1, 1};
    const int64_t *b = form == 0 ? full : i % 4 < 2 ? row : i % 4 < 3 ? column : one;
    uint32_t seed = 10u * (uint32_t)i + 1;

    memset(request, 0, sizeof *request);
    if (op->pass[XOP_FORWARD].nin == 1) {
        for (uint32_t k = 0; k < 1u + (pass == XOP_BACKWARD); k++)
            request->in[k] = operators_input(fixture, dtype, 2, full, seed + k, 0);
        return;
    }
    request->in[0] = operators_input(fixture, dtype, 2, form == 2 ? b : full, seed, 0);
    request->in[1] = operators_input(fixture, dtype, 2, form == 2 ? full : b, seed + 1, 0);
    if (pass == XOP_BACKWARD)
        request->in[2] = operators_input(fixture, dtype, 2, full, seed + 2, 0);
}

/* Submits calls that share plan.group, as many at a time as the operator takes. */
static void company_run(struct fixture *fixture, struct tally *tally, const struct xop_op *op,
                        enum xop_pass pass, struct xop_call *calls,
                        const struct xop_plan *const *plans, uint32_t n) {
    for (uint32_t i = 0; i < n;) {
        struct xop_group group = {};
        struct xop_error error = {XOP_OK, ""};
        uint32_t some = 0;
        while (i + some < n && some < op->pass[pass].max_group &&
               plans[i + some]->group == plans[i]->group)
            some++;
        group.op = op;
        group.pass = pass;
        group.ncalls = some;
        group.calls = calls + i;
        group.plans = plans + i;
        enum xop_status status = fixture_run(fixture->api, fixture->backend, &group, &error);
        if (status == XOP_DEVICE_FAULT)
            FIXTURE_DIE("%s: %s", tally->name, error.message);
        tally_check(tally, status == XOP_OK, "%u calls: %s", some, error.message);
        i += some;
    }
}

/* form: 0 all operands full, 1 b broadcast, 2 x broadcast. */
static void company_group(struct fixture *fixture, struct tally *tally, const char *name,
                          enum xop_pass pass, enum xop_dtype dtype, int form, uint32_t n) {
    static struct fixture_request alone[COMPANY_MOST], together[COMPANY_MOST];
    static struct xop_call calls[COMPANY_MOST];
    static const struct xop_plan *plans[COMPANY_MOST];
    const struct xop_op *op = fixture_op(fixture, name);

    fixture_reset(fixture);
    for (uint32_t i = 0; i < n; i++) {
        company_inputs(fixture, &alone[i], (int)i, op, pass, dtype, form);
        together[i] = alone[i];
        operators_run_one(fixture, tally, op, pass, &alone[i], 3, 0);
        calls[i] = fixture_prepare(fixture, op, pass, &together[i], 3, 0);
        plans[i] = &together[i].plan;
    }
    company_run(fixture, tally, op, pass, calls, plans, n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < op->pass[pass].nout; k++) {
            tally_check(tally, company_same(&alone[i].out[k], &together[i].out[k]),
                        "%s, form %d: output %u of call %u of %u differs", name, form, k, i, n);
            tally_check(tally, fixture_guarded(&together[i].out[k]),
                        "%s, form %d: wrote outside output %u of call %u of %u", name, form, k, i,
                        n);
        }
}

static void company_groups(struct fixture *fixture, const char *name, enum xop_dtype dtype,
                           bool reduced) {
    static const uint32_t counts[] = {1, 2, 8, 9, 77, 256, 300};
    const bool broadcasts = fixture_op(fixture, name)->pass[XOP_FORWARD].nin > 1;
    struct tally tally = tally_begin("%s alone or in a group %s", name, xop_dtype_name(dtype));

    for (int pass = 0; pass < 2; pass++)
        for (int form = 0; form < (broadcasts ? 3 : 1); form++)
            for (uint32_t n : counts)
                if (!reduced || n == 9 || (n == 300 && dtype == XOP_F32))
                    company_group(fixture, &tally, name, (enum xop_pass)pass, dtype, form, n);
    tally_end(&tally);
}

/* A group with more sums that are cut into pieces than fit into one launch that ends them. */
static void company_cut_sums(struct fixture *fixture) {
    enum { CALLS = 200 };
    const int64_t x[] = {130, 1, 2}, b[] = {1, 130, 2}, y[] = {130, 130, 2};
    static struct fixture_request alone, together[CALLS];
    static struct xop_call calls[CALLS];
    static const struct xop_plan *plans[CALLS];
    const struct xop_op *op = fixture_op(fixture, "square_bias");
    struct tally tally = tally_begin("many sums that are cut, in one group");

    fixture_reset(fixture);
    memset(&alone, 0, sizeof alone);
    memset(together, 0, sizeof together);
    for (uint32_t i = 0; i < CALLS; i++) {
        together[i].in[0] = operators_input(fixture, XOP_F32, 3, x, 3 * i, 0);
        together[i].in[1] = operators_input(fixture, XOP_F32, 3, b, 3 * i + 1, 0);
        together[i].in[2] = operators_input(fixture, XOP_F32, 3, y, 3 * i + 2, 0);
        calls[i] = fixture_prepare(fixture, op, XOP_BACKWARD, &together[i], 3, 0);
        plans[i] = &together[i].plan;
    }
    company_run(fixture, &tally, op, XOP_BACKWARD, calls, plans, CALLS);
    for (uint32_t i = 0; i < CALLS; i++) {
        alone = together[i];
        operators_run_one(fixture, &tally, op, XOP_BACKWARD, &alone, 3, 0);
        for (uint32_t k = 0; k < 2; k++)
            tally_check(&tally, company_same(&alone.out[k], &together[i].out[k]),
                        "gradient %u of call %u differs", k, i);
    }
    operators_check_backward(&tally, alone.in, alone.out);
    tally_end(&tally);
}

/* Operands at an element's alignment only. */
static void company_skewed(struct fixture *fixture, const struct xop_op *op, enum xop_dtype dtype,
                           bool reduced) {
    const size_t size = xop_dtype_size(dtype);
    struct tally tally =
        tally_begin("%s of unaligned operands %s", op->name, xop_dtype_name(dtype));

    for (const struct operators_pair &pair : operators_pairs)
        for (int pass = 0; pass < 2; pass++) {
            struct fixture_request straight, skewed;
            struct xop_plan shape = {};
            struct xop_call call = {};
            struct xop_error error;
            if (pair.large && (reduced || dtype == XOP_BF16))
                continue;
            fixture_reset(fixture);
            memset(&straight, 0, sizeof straight);
            straight.in[0] = operators_input(fixture, dtype, pair.x_rank, pair.x, 1, 0);
            straight.in[1] = operators_input(fixture, dtype, pair.b_rank, pair.b, 2, 0);
            call.in = straight.in;
            if (op->pass[0].infer(&call, &shape, &error) != XOP_OK)
                FIXTURE_DIE("%s", error.message);
            const struct xop_tensor *y = &shape.out[0];
            straight.in[2] = operators_input(fixture, dtype, y->rank, y->shape, 3, 0);
            skewed = straight;
            skewed.in[0] = operators_input(fixture, dtype, pair.x_rank, pair.x, 1, size);
            skewed.in[1] = operators_input(fixture, dtype, pair.b_rank, pair.b, 2, 3 * size);
            skewed.in[2] = operators_input(fixture, dtype, y->rank, y->shape, 3, size);
            operators_run_one(fixture, &tally, op, (enum xop_pass)pass, &straight, 3, 0);
            operators_run_one(fixture, &tally, op, (enum xop_pass)pass, &skewed, 3, size);
            for (uint32_t k = 0; k < op->pass[pass].nout; k++)
                tally_check(&tally, company_same(&straight.out[k], &skewed.out[k]),
                            "output %u of pass %d differs", k, pass);
        }
    tally_end(&tally);
}

/* grad_x in x's place, elementwise and as a sum; y in x's. The input has to be writable then. */
static void company_in_place(struct fixture *fixture, const struct xop_op *op, enum xop_dtype dtype,
                             bool reduced) {
    struct tally tally = tally_begin("%s in its input's place %s", op->name, xop_dtype_name(dtype));

    for (const struct operators_pair &pair : operators_pairs) {
        struct fixture_request apart, there;
        struct xop_plan shape = {};
        struct xop_call call = {};
        struct xop_error error;
        uint64_t bytes = 0;
        if (pair.large && (reduced || dtype != XOP_F32))
            continue;
        fixture_reset(fixture);
        memset(&apart, 0, sizeof apart);
        apart.in[0] = operators_input(fixture, dtype, pair.x_rank, pair.x, 1, 0);
        apart.in[1] = operators_input(fixture, dtype, pair.b_rank, pair.b, 2, 0);
        call.in = apart.in;
        if (op->pass[0].infer(&call, &shape, &error) != XOP_OK)
            FIXTURE_DIE("%s", error.message);
        apart.in[2] = operators_input(fixture, dtype, shape.out[0].rank, shape.out[0].shape, 3, 0);
        if (!xop_tensor_bytes(&apart.in[0], &bytes) || bytes == 0)
            continue;
        for (int pass = 0; pass < 2; pass++) {
            uint64_t out_bytes = 0;
            there = apart;
            operators_run_one(fixture, &tally, op, (enum xop_pass)pass, &apart, 1, 0);
            if (!xop_tensor_bytes(&apart.out[0], &out_bytes) || out_bytes != bytes)
                continue;
            fixture_place(&fixture->outbox, &there.in[0], 0);
            memcpy(there.in[0].data, apart.in[0].data, bytes);
            call = fixture_prepare(fixture, op, (enum xop_pass)pass, &there, 0, 0);
            there.out[0].data = there.in[0].data;
            const struct xop_plan *plan = &there.plan;
            company_run(fixture, &tally, op, (enum xop_pass)pass, &call, &plan, 1);
            tally_check(&tally, company_same(&apart.out[0], &there.out[0]), "pass %d differs",
                        pass);
        }
    }
    tally_end(&tally);
}

/* The results of all forms of an operator of two inputs, one after the other; the caller frees
 * data. */
struct company_bits {
    unsigned char *data;
    size_t bytes;
};
static struct company_bits company_op_bits(struct fixture *fixture, const char *name,
                                           bool reduced) {
    const struct xop_op *op = fixture_op(fixture, name);
    struct tally ignored = tally_begin("bits");
    struct company_bits all = {NULL, 0};

    for (enum xop_dtype dtype : {XOP_F16, XOP_F32})
        for (const struct operators_pair &pair : operators_pairs) {
            struct fixture_request run;
            const struct xop_tensor *results[3];
            if (reduced && pair.large)
                continue;
            fixture_reset(fixture);
            memset(&run, 0, sizeof run);
            run.in[0] = operators_input(fixture, dtype, pair.x_rank, pair.x, 1, 0);
            run.in[1] = operators_input(fixture, dtype, pair.b_rank, pair.b, 2, 0);
            operators_run_one(fixture, &ignored, op, XOP_FORWARD, &run, 1, 0);
            struct xop_tensor y = run.out[0];
            run.in[2] = operators_input(fixture, dtype, y.rank, y.shape, 3, 0);
            operators_run_one(fixture, &ignored, op, XOP_BACKWARD, &run, 3, 0);
            results[0] = &y;
            results[1] = &run.out[0];
            results[2] = &run.out[1];
            for (const struct xop_tensor *result : results) {
                uint64_t bytes = 0;
                xop_tensor_bytes(result, &bytes);
                all.data = (unsigned char *)realloc(all.data, all.bytes + bytes + 1);
                if (!all.data)
                    FIXTURE_DIE("no memory");
                memcpy(all.data + all.bytes, result->data, bytes);
                all.bytes += bytes;
            }
        }
    return all;
}

static struct company_bits company_all_bits(struct fixture *fixture, bool reduced) {
    return company_op_bits(fixture, "square_bias", reduced);
}

static struct company_bits company_product_bits(struct fixture *fixture, bool reduced) {
    return company_op_bits(fixture, "mul", reduced);
}

#endif
