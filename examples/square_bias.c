/* Runs y = x*x + b on an xopd:  cc square_bias.c $(pkg-config --cflags --libs xopclient) */
#include <stdio.h>
#include <xop/client.h>

int main(void) {
    float x[3] = {1, 2, 3}, b[1] = {10};
    struct xop_tensor in[] = {xop_tensor_1d(XOP_F32, 3, x), xop_tensor_1d(XOP_F32, 1, b)};
    struct xop_request request = {.op = "square_bias", .in = in, .nin = 2};
    struct xop_error error;
    struct xop_client *client;
    struct xop_result *result = NULL;
    if (xop_client_open(NULL, NULL, &client, &error) != XOP_OK)
        return fprintf(stderr, "%s\n", error.message), 1;
    if (xop_run(client, &request, &result) == XOP_OK)
        for (int i = 0; i < 3; i++)
            printf("%g\n", ((float *)result->out[0].data)[i]);
    else if (result)
        fprintf(stderr, "%s\n", result->error.message);
    int failed = !result || result->error.status != XOP_OK;
    xop_result_free(result);
    xop_client_close(client);
    return failed;
}
