/*
 * An operator that is told to fail: y = x, after what the attribute `how` says. "address": it
 * writes where nothing is. "endless": it never ends. "": nothing but the copy. For tests of what a
 * fault leaves behind; a library of one operator, loaded as users' operators are.
 */
#ifndef FAULTS_FAULT_H
#define FAULTS_FAULT_H

#include <string.h>

#include <xop/op.h>

enum fault { FAULT_NONE, FAULT_ADDRESS, FAULT_ENDLESS };

static inline enum fault fault_of(const struct xop_call *call) {
    const char *how = call->attrs[0].value.string;
    if (strcmp(how, "address") == 0)
        return FAULT_ADDRESS;
    return strcmp(how, "endless") == 0 ? FAULT_ENDLESS : FAULT_NONE;
}

static enum xop_status fault_infer(const struct xop_call *call, struct xop_plan *plan,
                                   struct xop_error *error) {
    uint64_t bytes = 0;
    (void)error;
    plan->out[0] = call->in[0];
    plan->out[0].data = NULL;
    xop_tensor_bytes(&call->in[0], &bytes);
    plan->bytes = 2 * bytes;
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
