/*
 * For tests that run operators through the CPU backend: opens it, makes tensors between guard
 * bytes, submits a group and waits for it, as a worker does. Include after cmocka.h.
 */
#ifndef TESTS_CPU_FIXTURE_H
#define TESTS_CPU_FIXTURE_H

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/cpu/convert.h"

#define FIXTURE_GUARD 256
#define FIXTURE_FILL 0xa5
#define FIXTURE_OUTPUTS 5

static const struct xop_backend_api *api;

static inline struct xop_backend *fixture_open(uint32_t threads, uint32_t lanes) {
    struct xop_backend_config config = {.threads = threads, .lanes = lanes};
    struct xop_backend *backend = NULL;
    struct xop_error error;
    api = xop_backend_entry(XOP_BACKEND_ABI);
    assert_non_null(api);
    assert_int_equal(api->open(&config, &backend, &error), XOP_OK);
    return backend;
}

static inline const struct xop_op *fixture_op(const char *name) {
    const struct xop_library *library = api->library();
    for (uint32_t i = 0; i < library->nops; i++)
        if (strcmp(library->ops[i]->name, name) == 0)
            return library->ops[i];
    fail_msg("no operator %s", name);
    return NULL;
}

/* Memory for the tensor, filled and with guards on both sides. */
static inline void fixture_allocate(struct xop_tensor *tensor) {
    uint64_t bytes = 0;
    unsigned char *base;
    assert_true(xop_tensor_bytes(tensor, &bytes));
    base = malloc(bytes + 2 * FIXTURE_GUARD);
    assert_non_null(base);
    memset(base, FIXTURE_FILL, bytes + 2 * FIXTURE_GUARD);
    tensor->data = base + FIXTURE_GUARD;
}

static inline void fixture_check_guards(const struct xop_tensor *tensor) {
    const unsigned char *data = tensor->data;
    uint64_t bytes = 0;
    xop_tensor_bytes(tensor, &bytes);
    for (int i = 0; i < FIXTURE_GUARD; i++) {
        assert_int_equal(data[-1 - i], FIXTURE_FILL);
        assert_int_equal(data[bytes + (uint64_t)i], FIXTURE_FILL);
    }
}

static inline void fixture_free(struct xop_tensor *tensor) {
    if (tensor->data) {
        fixture_check_guards(tensor);
        free((unsigned char *)tensor->data - FIXTURE_GUARD);
    }
    tensor->data = NULL;
}

static inline double fixture_get(const struct xop_tensor *tensor, int64_t i) {
    switch (tensor->dtype) {
    case XOP_F16: return (double)convert_f16_to_f32(((const uint16_t *)tensor->data)[i]);
    case XOP_BF16: return (double)convert_bf16_to_f32(((const uint16_t *)tensor->data)[i]);
    case XOP_F32: return (double)((const float *)tensor->data)[i];
    default: return ((const double *)tensor->data)[i];
    }
}

static inline void fixture_set(struct xop_tensor *tensor, int64_t i, double value) {
    switch (tensor->dtype) {
    case XOP_F16: ((uint16_t *)tensor->data)[i] = convert_f32_to_f16((float)value); break;
    case XOP_BF16: ((uint16_t *)tensor->data)[i] = convert_f32_to_bf16((float)value); break;
    case XOP_F32: ((float *)tensor->data)[i] = (float)value; break;
    default: ((double *)tensor->data)[i] = value; break;
    }
}

/* A tensor of random elements in [-2, 2). */
static inline struct xop_tensor fixture_random(enum xop_dtype dtype, uint32_t rank,
                                               const int64_t *shape, uint32_t seed) {
    struct xop_tensor tensor = {.dtype = dtype, .rank = rank};
    int64_t n = 0;
    for (uint32_t i = 0; i < rank; i++)
        tensor.shape[i] = shape[i];
    fixture_allocate(&tensor);
    assert_true(xop_tensor_elements(&tensor, &n));
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        fixture_set(&tensor, i, (double)(seed >> 8) / (1 << 22) - 2);
    }
    return tensor;
}

/* A request with its plan and its memory. */
struct fixture_request {
    struct xop_plan plan;
    struct xop_tensor out[FIXTURE_OUTPUTS];
    void *workspace;
};

/* Of the calls that are prepared, in the declaration's order; NULL: none. */
static const struct xop_attr *fixture_attrs;

/* Infers, and allocates what the call needs; wanted is a mask of outputs. */
static inline struct xop_call fixture_prepare(struct fixture_request *request,
                                              const struct xop_op *op, enum xop_pass pass,
                                              const struct xop_tensor *in, uint32_t wanted) {
    struct xop_call call = {.in = in, .out = request->out, .attrs = fixture_attrs};
    struct xop_error error;
    memset(request, 0, sizeof *request);
    assert_int_equal(op->pass[pass].infer(&call, &request->plan, &error), XOP_OK);
    for (uint32_t i = 0; i < op->pass[pass].nout; i++) {
        request->out[i] = request->plan.out[i];
        if (wanted & 1u << i)
            fixture_allocate(&request->out[i]);
    }
    if (request->plan.workspace_bytes) {
        request->workspace = malloc(request->plan.workspace_bytes);
        assert_non_null(request->workspace);
        memset(request->workspace, 0xff, request->plan.workspace_bytes); /* NaN */
    }
    call.workspace = request->workspace;
    return call;
}

static inline void fixture_finish(struct fixture_request *request) {
    for (uint32_t i = 0; i < FIXTURE_OUTPUTS; i++)
        fixture_free(&request->out[i]);
    free(request->workspace);
}

/* Waits for one group, asleep. */
static inline struct xop_group *fixture_wait(struct xop_backend *backend) {
    struct pollfd wait = {.fd = api->descriptor(backend), .events = POLLIN};
    struct xop_group *group = NULL;
    struct xop_error error;
    uint32_t count = 0;
    while (count == 0) {
        assert_int_equal(poll(&wait, 1, -1), 1);
        assert_int_equal(api->poll(backend, &group, 1, &count, &error), XOP_OK);
    }
    return group;
}

/* Runs one group of calls and checks that it succeeded. */
static inline void fixture_run(struct xop_backend *backend, const struct xop_op *op,
                               enum xop_pass pass, struct xop_call *calls,
                               const struct xop_plan *const *plans, uint32_t ncalls) {
    struct xop_group group = {
        .op = op, .pass = pass, .ncalls = ncalls, .calls = calls, .plans = plans};
    struct xop_error error;
    assert_int_equal(api->submit(backend, &group, &error), XOP_OK);
    assert_ptr_equal(fixture_wait(backend), &group);
    assert_int_equal(group.status, XOP_OK);
}

/* Infers, allocates, runs. */
static inline void fixture_run_one(struct xop_backend *backend, struct fixture_request *request,
                                   const struct xop_op *op, enum xop_pass pass,
                                   const struct xop_tensor *in, uint32_t wanted) {
    struct xop_call call = fixture_prepare(request, op, pass, in, wanted);
    const struct xop_plan *plan = &request->plan;
    fixture_run(backend, op, pass, &call, &plan, 1);
    for (uint32_t i = 0; i < FIXTURE_OUTPUTS; i++)
        if (request->out[i].data)
            fixture_check_guards(&request->out[i]);
}

#endif
