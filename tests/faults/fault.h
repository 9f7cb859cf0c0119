/*
 * An operator that is told to fail: y = x, after what the attribute `how` says (`kinds` below).
 * "address" and "endless" are the device's to do, the others are of host code on any backend; ""
 * is nothing but the copy. For tests of what a fault leaves behind; a library of one operator,
 * loaded as users' operators are.
 */
#ifndef FAULTS_FAULT_H
#define FAULTS_FAULT_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xop/op.h>

enum fault {
    FAULT_NONE,
    FAULT_ADDRESS, /* writes where nothing is */
    FAULT_ENDLESS, /* never ends */
    FAULT_ABORT,
    FAULT_EXIT,   /* with status 0, as if all were well */
    FAULT_HANG,   /* the launch does not return, and takes no processor */
    FAULT_HOG,    /* takes memory until there is none for it, and says so */
    FAULT_REFUSE, /* the launch fails */
    FAULT_SIZE,   /* says that its output has more dimensions than there may be */
    FAULT_HUGE    /* says that its output is larger than any memory */
};

static inline enum fault fault_of(const struct xop_call *call) {
    static const char *const kinds[] = {"",     "address", "endless", "abort", "exit",
                                        "hang", "hog",     "refuse",  "size",  "huge"};
    for (size_t i = 1; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(call->attrs[0].value.string, kinds[i]) == 0)
            return (enum fault)i;
    return FAULT_NONE;
}

#define FAULT_HOGGED (UINT64_C(256) << 20)

/* What host code does before anything is launched. */
static enum xop_status fault_on_host(const struct xop_call *call, struct xop_error *error) {
    switch (fault_of(call)) {
    case FAULT_ABORT:
        signal(SIGABRT, SIG_DFL); /* a sanitizer has nothing to say about what is meant */
        abort();
    case FAULT_EXIT: _exit(0);
    case FAULT_HANG:
        for (;;)
            pause();
    case FAULT_HOG: {
        void *volatile hogged = malloc(FAULT_HOGGED);
        if (hogged)
            memset(hogged, 1, FAULT_HOGGED);
        free(hogged);
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "fault: there is no more memory");
    }
    case FAULT_REFUSE: return xop_fail(error, XOP_INTERNAL, "fault: it does not want to");
    default: return XOP_OK;
    }
}

static enum xop_status fault_infer(const struct xop_call *call, struct xop_plan *plan,
                                   struct xop_error *error) {
    uint64_t bytes = 0;
    (void)error;
    plan->out[0] = call->in[0];
    plan->out[0].data = NULL;
    xop_tensor_bytes(&call->in[0], &bytes);
    plan->bytes = 2 * bytes;
    if (fault_of(call) == FAULT_SIZE)
        plan->out[0].rank = XOP_MAX_RANK + 1;
    if (fault_of(call) == FAULT_HUGE) {
        plan->out[0].rank = 1;
        plan->out[0].shape[0] = INT64_C(1) << 50;
    }
    return XOP_OK;
}

#define FAULT_LIBRARY(backend, launch)                                                             \
    static const struct xop_operand fault_in[] = {{"x", "what is copied", 0, 0}};                  \
    static const struct xop_operand fault_out[] = {{"y", "x", 0, 0}};                              \
    static const struct xop_attr_spec fault_attrs[] = {                                            \
        {"how",                                                                                    \
         "what goes wrong",                                                                        \
         XOP_ATTR_STRING,                                                                          \
         false,                                                                                    \
         {"how", XOP_ATTR_STRING, 0, {.string = ""}}}};                                            \
    static const struct xop_op fault_op = {                                                        \
        XOP_OP_ABI,                                                                                \
        "fault",                                                                                   \
        "fails as told\n",                                                                         \
        XOP_DTYPE_BIT(XOP_F32),                                                                    \
        fault_attrs,                                                                               \
        1,                                                                                         \
        {{fault_in, fault_out, 1, 1, fault_infer, launch, 4, -1},                                  \
         {NULL, NULL, 0, 0, NULL, NULL, 0, -1}}};                                                  \
    XOP_LIBRARY(backend, &fault_op)

#endif
