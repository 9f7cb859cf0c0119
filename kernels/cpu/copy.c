#include "kernels/cpu/copy.h"

#include <string.h>

#include "kernels/copy.h"
#include "kernels/cpu/launch.h"

#define GRAIN (INT64_C(256) << 10) /* bytes that are worth handing to another thread */

struct job {
    char *to;
    const char *from;
};

static void copy_piece(void *arg, int64_t begin, int64_t end) {
    const struct job *job = arg;
    memcpy(job->to + begin, job->from + begin, (size_t)(end - begin));
}

void copy_parallel(const struct xop_host *host, void *to, const void *from, uint64_t bytes) {
    struct job job = {to, from};
    if (bytes <= (uint64_t)GRAIN)
        memcpy(to, from, bytes);
    else
        host->parallel(host, (int64_t)bytes, GRAIN, copy_piece, &job);
}

/* ---- What a group keeps ---- */

/* The bytes of an operand that have to be copied to its keep: none where it lies there already. */
static uint64_t kept(const struct xop_tensor *tensor, const void *keep) {
    uint64_t bytes = 0;
    bool needed = keep && tensor->data && tensor->data != keep;
    return needed && xop_tensor_bytes(tensor, &bytes) ? bytes : 0;
}

static void keep_operands(const struct xop_group *group, const struct xop_host *host,
                          bool outputs) {
    const struct xop_signature *signature = &group->op->pass[group->pass];
    uint32_t n = outputs ? signature->nout : signature->nin;

    for (uint32_t i = 0; group->keeps && i < group->ncalls; i++) {
        const struct xop_call *call = &group->calls[i];
        const struct xop_tensor *tensors = outputs ? call->out : call->in;
        for (uint32_t k = 0; group->keeps[i] && k < n; k++) {
            void *keep = group->keeps[i][outputs ? signature->nin + k : k];
            uint64_t bytes = kept(&tensors[k], keep);
            if (bytes > 0)
                copy_parallel(host, keep, tensors[k].data, bytes);
        }
    }
}

void copy_keep_inputs(const struct xop_group *group, const struct xop_host *host) {
    keep_operands(group, host, false);
}

void copy_keep_outputs(const struct xop_group *group, const struct xop_host *host) {
    keep_operands(group, host, true);
}

uint64_t copy_kept_bytes(const struct xop_group *group, uint32_t call) {
    const struct xop_signature *signature = &group->op->pass[group->pass];
    void *const *keeps = group->keeps ? group->keeps[call] : NULL;
    uint64_t bytes = 0;

    for (uint32_t k = 0; keeps && k < signature->nin; k++)
        bytes += kept(&group->calls[call].in[k], keeps[k]);
    for (uint32_t k = 0; keeps && k < signature->nout; k++)
        bytes += kept(&group->calls[call].out[k], keeps[signature->nin + k]);
    return bytes;
}

/* ---- The operator ---- */

static void copy_one(const struct xop_host *host, const struct xop_call *call) {
    uint64_t bytes = 0;
    if (copy_bytes(call, &bytes, NULL) == XOP_OK && bytes > 0)
        copy_parallel(host, call->out[0].data, call->in[0].data, bytes);
}

enum xop_status copy_cpu_forward(const struct xop_launch *launch, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    uint64_t bytes;

    for (uint32_t i = 0; i < launch->ncalls && status == XOP_OK; i++)
        status = copy_bytes(&launch->calls[i], &bytes, error);
    if (status == XOP_OK)
        launch_each(launch, copy_one);
    return status;
}
