/* libxopclient's requests that name what stays in the server, and the outputs that come back. */
#include "client_model.h"

static void requests_name_residents_and_contexts(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_error error;
    struct xop_result *result;
    float values[3] = {1, 2, 3}, got[3] = {0};
    struct xop_tensor tensor = xop_tensor_1d(XOP_F32, 3, values);
    struct xop_tensor back = xop_tensor_1d(XOP_F32, 3, got);
    uint64_t a = xop_handle(client), b = xop_handle(client), context = xop_handle(client);
    (void)state;
    assert_true(a != 0 && a != b && b != context && a != context);
    must(xop_put(client, a, &tensor, &error), &error);
    struct xop_tensor in[] = {{.dtype = XOP_DTYPE_NONE}, tensor};
    const uint64_t in_resident[] = {a, 0}, out_resident[] = {b, 0};
    struct xop_request request = {.op = "echo",
                                  .in = in,
                                  .nin = 2,
                                  .nout = 2,
                                  .in_resident = in_resident,
                                  .out_resident = out_resident,
                                  .omit = 2,
                                  .keep = context};
    assert_int_equal(xop_run(client, &request, &result), XOP_OK);
    assert_int_equal(result->nout, 2);
    assert_int_equal(result->out[0].dtype, XOP_F32);
    assert_int_equal(result->out[0].shape[0], 3);
    assert_null(result->out[0].data);
    assert_int_equal(result->out[1].dtype, XOP_DTYPE_NONE);
    xop_result_free(result);
    must(xop_get(client, b, &back, &error), &error);
    assert_memory_equal(got, values, sizeof values);
    /* Back to the library's memory, with the dtype and shape that it must have. */
    in[0] = xop_tensor_1d(XOP_F32, 3, NULL);
    struct xop_request second_pass = {.op = "echo",
                                      .pass = XOP_BACKWARD,
                                      .in = in,
                                      .nin = 1,
                                      .in_resident = &b,
                                      .context = context};
    assert_int_equal(xop_run(client, &second_pass, &result), XOP_OK);
    assert_memory_equal(result->out[0].data, values, sizeof values);
    xop_result_free(result);
    model_stop(&model, client);
    const struct message *m = &model_note(&model, MESSAGE_FORWARD, 0)->message;
    assert_int_equal(m->in[0].place, PLACE_RESIDENT);
    assert_int_equal(m->in[0].id, a);
    assert_int_equal(m->in[0].dtype, XOP_DTYPE_NONE);
    assert_int_equal(m->in[1].place, PLACE_BODY);
    assert_int_equal(m->out[0].place, PLACE_RESIDENT);
    assert_int_equal(m->out[0].id, b);
    assert_int_equal(m->out[1].place, PLACE_OMIT);
    assert_int_equal(m->keep, context);
    m = &model_note(&model, MESSAGE_BACKWARD, 0)->message;
    assert_int_equal(m->context, context);
    assert_int_equal(m->in[0].dtype, XOP_F32);
    assert_int_equal(m->in[0].id, b);
}

static enum xop_status run_once(struct xop_client *client, const struct xop_request *request) {
    struct xop_result *result;
    enum xop_status status = xop_run(client, request, &result);
    xop_result_free(result);
    return status;
}

static void requests_that_contradict_themselves_are_refused(void **state) {
    struct xop_client *client = model_start(&model);
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    const uint64_t handle = 5;
    (void)state;
    request.context = 1;
    assert_int_equal(run_once(client, &request), XOP_INVALID_ARGUMENT);
    request = simple(&in);
    request.pass = XOP_BACKWARD;
    request.keep = 1;
    assert_int_equal(run_once(client, &request), XOP_INVALID_ARGUMENT);
    request = simple(&in);
    request.out_resident = &handle; /* of no output */
    assert_int_equal(run_once(client, &request), XOP_INVALID_ARGUMENT);
    request.nout = 1;
    request.omit = 1;
    assert_int_equal(run_once(client, &request), XOP_INVALID_ARGUMENT);
    model_stop(&model, client);
    assert_int_equal(model.nnotes, 0);
}

/* An output that comes in another place than the request gave it ends the call, not the client. */
static void serve_elsewhere(struct server *s) {
    for (uint32_t n = 0; next(s);) {
        struct message m = {.type = MESSAGE_RESULT, .id = s->message.id, .device = -1, .nout = 1};
        if (s->message.type == MESSAGE_HELLO) {
            say_hello(s, 100);
            continue;
        }
        m.out[0] = (struct message_tensor){XOP_F32, 1, {3}, PLACE_RESIDENT, ACCESS_DEFAULT, 9, 0};
        if (++n == 2)
            m.out[0].place = PLACE_MEMORY;
        if (n == 3)
            m.out[0].place = PLACE_BODY, m.out[0].offset = 0;
        say(s, &m, s->body, n == 3 ? 12 : 0);
    }
}

static void an_output_that_comes_elsewhere_is_a_fault(void **state) {
    struct xop_tensor in;
    struct xop_request request = simple(&in);
    const uint64_t handle = 9;
    (void)state;
    start(&server, serve_elsewhere);
    struct xop_client *client = open_client();
    assert_int_equal(run_once(client, &request), XOP_INTERNAL);
    assert_int_equal(run_once(client, &request), XOP_INTERNAL);
    request.out_resident = &handle;
    request.nout = 1;
    assert_int_equal(run_once(client, &request), XOP_INTERNAL);
    assert_int_equal(run_once(client, &request), XOP_OK);
    xop_client_close(client);
    stop(&server);
}

/* More outputs than a result has room for by itself, some small and some large. */
static void serve_many_outputs(struct server *s) {
    while (next(s)) {
        struct message m = {.type = MESSAGE_RESULT, .id = s->message.id, .device = -1};
        uint64_t end = 0;
        if (s->message.type == MESSAGE_HELLO) {
            say_hello(s, 100);
            continue;
        }
        uint32_t large = s->message.nattrs > 0;
        m.nout = s->message.nin;
        for (uint32_t i = 0; i < m.nout; i++) {
            /* The last output is first in the body. */
            struct message_tensor *out = &m.out[m.nout - 1 - i];
            *out = (struct message_tensor){
                XOP_F32, 1, {i % 3 == 0 ? 0 : large ? 900 : i}, PLACE_BODY, ACCESS_DEFAULT, 0, 0};
            message_align(end, &out->offset);
            if (out->shape[0] == 0) {
                out->offset = end / 64 * 64;
                continue;
            }
            end = out->offset + (uint64_t)out->shape[0] * 4;
            for (int64_t k = 0; k < out->shape[0]; k++)
                ((float *)(void *)(s->body + out->offset))[k] = (float)(i * 1000 + k);
        }
        say(s, &m, s->body, end);
    }
}

static void any_number_of_outputs_has_room(void **state) {
    const struct xop_attr large = {.name = "large", .type = XOP_ATTR_BOOL, .value.i = 1};
    struct xop_tensor in[XOP_MAX_INPUTS];
    (void)state;
    start(&server, serve_many_outputs);
    struct xop_client *client = open_client();
    for (uint32_t n = 1; n <= 2 * XOP_MAX_INPUTS; n++) {
        uint32_t nin = n <= XOP_MAX_INPUTS ? n : n - XOP_MAX_INPUTS;
        struct xop_request request = {.op = "many", .in = in, .nin = nin, .attrs = &large};
        struct xop_result *result;
        request.nattrs = n > XOP_MAX_INPUTS;
        for (uint32_t i = 0; i < nin; i++)
            in[i] = xop_tensor_1d(XOP_F32, 1, input);
        if (xop_run(client, &request, &result) != XOP_OK)
            fail_msg("%s", result->error.message);
        assert_int_equal(result->nout, nin);
        for (uint32_t i = 0; i < nin; i++) {
            const struct xop_tensor *out = &result->out[nin - 1 - i];
            const float *values = out->data;
            assert_int_equal((uintptr_t)out->data % 64, 0);
            assert_int_equal(out->shape[0], i % 3 == 0 ? 0 : request.nattrs ? 900 : i);
            for (int64_t k = 0; k < out->shape[0]; k++)
                assert_true(values[k] == (float)(i * 1000 + k));
        }
        xop_result_free(result);
    }
    xop_client_close(client);
    stop(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_name_residents_and_contexts),
        cmocka_unit_test(requests_that_contradict_themselves_are_refused),
        cmocka_unit_test(an_output_that_comes_elsewhere_is_a_fault),
        cmocka_unit_test(any_number_of_outputs_has_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
