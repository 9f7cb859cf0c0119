/* What decoding and encoding a header costs: nanoseconds a message, the best of several rounds, for
 * the headers that a busy server reads and writes. One line a header and direction. */
#include "proto/frame.h"
#include "proto/message.h"

#include <stdlib.h>
#include <time.h>

#define ROUNDS 100
#define CALLS 10000u

static struct message message, decoded;
static unsigned char bytes[FRAME_PREFIX + PROTO_MAX_HEADER];

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct message_tensor tensor(enum message_place place, uint32_t rank, int64_t first,
                                    uint64_t id, uint64_t offset) {
    struct message_tensor t = {.dtype = XOP_F32, .rank = rank, .place = place};
    t.shape[0] = first;
    t.shape[1] = rank > 1 ? 256 : 0;
    t.id = id;
    t.offset = offset;
    return t;
}

static void run(enum message_type type) {
    message.type = type;
    message.op = "square_bias";
    message.nin = 2;
}

static uint64_t body_forward(void) {
    run(MESSAGE_FORWARD);
    message.in[0] = tensor(PLACE_BODY, 2, 16, 0, 0);
    message.in[1] = tensor(PLACE_BODY, 1, 256, 0, 16384);
    return 16384 + 1024;
}

static uint64_t memory_forward(void) {
    run(MESSAGE_FORWARD);
    message.in[0] = tensor(PLACE_MEMORY, 2, 16, 3, 1 << 20);
    message.in[1] = tensor(PLACE_MEMORY, 1, 256, 3, 0);
    message.out[0] = tensor(PLACE_MEMORY, 2, 16, 3, 1 << 21);
    message.nout = 1;
    return 0;
}

static uint64_t backward(void) {
    run(MESSAGE_BACKWARD);
    message.in[0] = tensor(PLACE_MEMORY, 2, 16, 3, 1 << 20);
    message.in[1] = tensor(PLACE_RESIDENT, 2, 16, 9, 0);
    message.out[0] = tensor(PLACE_RESIDENT, 2, 16, 10, 0);
    message.nout = 1;
    message.context = 5;
    message.deadline_ms = 2000;
    message.attrs[0] = (struct xop_attr){"axis", XOP_ATTR_INT, 1, {.i = -1}};
    message.attrs[1] = (struct xop_attr){"epsilon", XOP_ATTR_FLOAT, 1, {.f = 1e-5}};
    message.nattrs = 2;
    return 0;
}

static uint64_t result(void) {
    message.type = MESSAGE_RESULT;
    message.out[0] = tensor(PLACE_BODY, 2, 16, 0, 0);
    message.nout = 1;
    message.queue_ns = 9000;
    message.copy_ns = 700;
    message.run_ns = 5200;
    message.batch = 12;
    return 16384;
}

static uint64_t put(void) {
    message.type = MESSAGE_PUT;
    message.handle = 77;
    message.in[0] = tensor(PLACE_NONE, 2, 16, 0, 0);
    message.nin = 1;
    message.offset = 4096;
    return 8192;
}

static const struct {
    const char *name;
    uint64_t (*fill)(void); /* returns the body's bytes */
} headers[] = {
    {"forward, inputs in the body", body_forward},
    {"forward, all in memory", memory_forward},
    {"backward with attributes", backward},
    {"result, output in the body", result},
    {"put, a piece", put},
};

static double encode(uint64_t body) {
    double began = now_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
        message.id = 1000000 + i;
        if (message_encode(&message, body, bytes, sizeof bytes) == 0)
            abort();
    }
    return (now_ns() - began) / CALLS;
}

static double decode(struct message_decoder *decoder, uint64_t body) {
    struct xop_error error;
    size_t n = message_encode(&message, body, bytes, sizeof bytes);
    double began = now_ns();
    for (uint32_t i = 0; i < CALLS; i++)
        if (message_decode(decoder, bytes + FRAME_PREFIX, n - FRAME_PREFIX, body, &decoded,
                           &error) != XOP_OK)
            abort();
    return (now_ns() - began) / CALLS;
}

int main(void) {
    struct message_decoder *decoder = message_decoder_new();
    if (!decoder)
        return 1;
    printf("%-30s %8s %10s %10s\n", "header", "bytes", "encode ns", "decode ns");
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        double best[2] = {1e9, 1e9};
        message = (struct message){.id = 1000000, .device = -1};
        uint64_t body = headers[i].fill();
        for (int round = 0; round < ROUNDS; round++) {
            double e = encode(body), d = decode(decoder, body);
            best[0] = e < best[0] ? e : best[0];
            best[1] = d < best[1] ? d : best[1];
        }
        printf("%-30s %8zu %10.1f %10.1f\n", headers[i].name,
               message_encode(&message, body, bytes, sizeof bytes) - FRAME_PREFIX, best[0],
               best[1]);
    }
    message_decoder_free(decoder);
    return 0;
}
