/* A thousand requests at once from a libevent loop:
 * cc async_libevent.c $(pkg-config --cflags --libs xopclient libevent_core) */
#include <stdio.h>
#include <xop/adapter_libevent.h>

enum { REQUESTS = 1000, N = 256 };

struct counting {
    struct event_base *base;
    int answered, wrong;
};

static void done(void *arg, struct xop_result *result) {
    struct counting *counting = arg;
    if (result->error.status != XOP_OK || ((float *)result->out[0].data)[3] != 9 + 1)
        counting->wrong++;
    xop_result_free(result);
    if (++counting->answered == REQUESTS)
        event_base_loopbreak(counting->base);
}

int main(void) {
    struct counting counting = {.base = event_base_new()};
    struct xop_libevent adapter;
    struct xop_client *client;
    struct xop_error error;
    static float x[N];
    float b = 1;
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    struct xop_tensor in[] = {xop_tensor_1d(XOP_F32, N, x), {XOP_F32, 0, {0}, &b}};
    struct xop_request request = {.op = "square_bias", .in = in, .nin = 2};
    if (!counting.base || xop_client_open(NULL, NULL, &client, &error) != XOP_OK)
        return fprintf(stderr, "%s\n", counting.base ? error.message : "out of memory"), 1;
    if (!xop_libevent_attach(&adapter, counting.base, client))
        return fprintf(stderr, "out of memory\n"), 1;
    for (int i = 0; i < REQUESTS; i++)
        if (xop_submit(client, &request, done, &counting, NULL, &error) != XOP_OK)
            return fprintf(stderr, "%s\n", error.message), 1;
    xop_libevent_update(&adapter);
    event_base_dispatch(counting.base);
    printf("%d answered, %d wrong\n", counting.answered, counting.wrong);
    xop_libevent_detach(&adapter);
    xop_client_close(client);
    event_base_free(counting.base);
    return counting.answered == REQUESTS && counting.wrong == 0 ? 0 : 1;
}
