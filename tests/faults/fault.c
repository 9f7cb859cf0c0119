#include "tests/faults/fault.h"

static void run(const struct xop_call *call) {
    volatile const int forever = 1;
    volatile const uintptr_t nowhere = 64;
    uint64_t bytes = 0;
    if (fault_of(call) == FAULT_ADDRESS) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer has nothing to say about what is meant */
        *(volatile int *)nowhere = 1;
    }
    while (fault_of(call) == FAULT_ENDLESS && forever)
        ;
    xop_tensor_bytes(&call->in[0], &bytes);
    if (call->out[0].data && bytes > 0)
        memcpy(call->out[0].data, call->in[0].data, bytes);
}

static enum xop_status launch(const struct xop_launch *launch, struct xop_error *error) {
    for (uint32_t i = 0; i < launch->ncalls; i++) {
        if (fault_on_host(&launch->calls[i], error) != XOP_OK)
            return error->status;
        run(&launch->calls[i]);
    }
    return XOP_OK;
}

FAULT_LIBRARY("cpu", launch);
