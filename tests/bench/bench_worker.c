/*
 * What the worker's loop takes for a request, in nanoseconds, without a device and without a front
 * beside it: records are filled once and handed over again and again, and a backend that computes
 * nothing is done at once.
 *
 *     bench_worker [SECONDS]
 */
#define FIXTURE_SCALE 32
#include "tests/unit/worker_fixture.h"

#include <stdio.h>

static enum xop_status launch_nothing(const struct xop_launch *l, struct xop_error *error) {
    (void)l, (void)error;
    return XOP_OK;
}

static const struct xop_op nothing = {.abi = XOP_OP_ABI,
                                      .name = "nothing",
                                      .doc = "",
                                      .dtypes = XOP_DTYPE_BIT(XOP_F32),
                                      .pass = {{&x, &y, 1, 1, infer, launch_nothing, 256, -1}}};
static const struct xop_op *const nothings[] = {&nothing};
static const struct xop_library library = {XOP_OP_ABI, "fake", nothings, 1};

/* Requests of 1024 floats from the inbox to the outbox, so many at a time. */
static double measure(double seconds, uint32_t live) {
    struct worker *w = &front.worker;
    bool fault;
    struct xop_error error;
    uint64_t begin, now, entry, n = 0;
    for (uint32_t i = 0; i < live; i++)
        fill(i, 0, 1024);
    begin = now = worker_now();
    while (now - begin < (uint64_t)(seconds * 1e9)) {
        uint32_t left = live;
        for (uint32_t i = 0; i < live; i++)
            ring_push(&front.lane.submit, i);
        while (left > 0) {
            loop_turn(w, &fault, &error);
            while (ring_pop(&front.lane.complete, &entry) == RING_OK) {
                ring_push(&front.lane.release, front.lane.results[entry].block_offset);
                left--;
                n++;
            }
        }
        now = worker_now();
    }
    return (double)(now - begin) / (double)n;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    if (open_with(&library, 0) != 0)
        return 1;
    for (uint32_t live = 32; live <= 1024; live *= 32)
        printf("%.0f ns a request, %u at a time, with an operator that does nothing\n",
               measure(seconds, live), live);
    return 0;
}
