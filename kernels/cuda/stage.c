#include "kernels/cuda/stage.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/copy.h"

#define ALIGNMENT 256u

/* ---- Space for the host's side ---- */

static bool grow(void *pointer, size_t n, size_t size) {
    void *grown = realloc(*(void **)pointer, n * size);
    if (grown)
        *(void **)pointer = grown;
    return grown != NULL;
}

static enum xop_status reserve(struct stage *stage, const struct xop_group *group,
                               const struct xop_signature *signature, struct xop_error *error) {
    uint32_t calls = group->ncalls, operands = calls * (signature->nin + signature->nout);
    bool grown = true;

    if (calls > stage->calls_capacity) {
        grown = grow(&stage->calls, calls, sizeof *stage->calls);
        stage->calls_capacity = grown ? calls : stage->calls_capacity;
    }
    if (grown && operands > stage->operands_capacity) {
        grown = grow(&stage->tensors, operands, sizeof *stage->tensors) &&
                grow(&stage->in, operands, sizeof *stage->in) &&
                grow(&stage->out, operands, sizeof *stage->out) &&
                grow(&stage->small, operands, sizeof *stage->small);
        stage->operands_capacity = grown ? operands : stage->operands_capacity;
    }
    if (!grown)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory for a group of %u calls", calls);
    if (!stage->indices || calls <= stage->bad_capacity)
        return XOP_OK;
    if (stage->bad_index)
        cudaFreeHost(stage->bad_index);
    stage->bad_index = NULL;
    stage->bad_capacity = 0;
    if (CHECK_CUDA(error, cudaMallocHost((void **)&stage->bad_index,
                                         calls * sizeof *stage->bad_index)) != XOP_OK) {
        cudaGetLastError();
        return error ? error->status : XOP_RESOURCE_EXHAUSTED;
    }
    stage->bad_capacity = calls;
    return XOP_OK;
}

/* ---- Deciding ---- */

/* Takes the next `bytes` of device memory; false where that is more than there can be. */
static bool take(struct stage *stage, uint64_t bytes, uint64_t *offset) {
    *offset = stage->bytes;
    return !__builtin_add_overflow(stage->bytes, bytes, &stage->bytes) &&
           !__builtin_add_overflow(stage->bytes, ALIGNMENT - 1, &stage->bytes) &&
           (stage->bytes &= ~(uint64_t)(ALIGNMENT - 1), true);
}

/* Decides how a tensor is reached, for `what` in messages. */
static enum xop_status reach(struct stage *stage, const struct pinned *pinned,
                             struct xop_tensor *tensor, bool output, bool once, const char *op,
                             const char *name, struct xop_error *error) {
    const char *what = output ? "output" : "input";
    const struct pinned_range *range;
    struct stage_copy *copy;
    uint64_t bytes = 0;
    char *host = tensor->data;

    tensor->data = NULL;
    if (!xop_tensor_bytes(tensor, &bytes) || bytes == 0)
        return XOP_OK;
    range = pinned_find(pinned, host, bytes);
    if (!range || (output && range->read_only))
        return xop_fail(error, XOP_INTERNAL, "%s %s of %s lies in memory that is not registered%s",
                        what, name, op, range ? " for writing" : "");
    if (once && range->device) {
        tensor->data = range->device + (host - range->host);
        stage->direct = true;
        return XOP_OK;
    }
    copy = output ? &stage->out[stage->nout++] : &stage->in[stage->nin++];
    copy->tensor = tensor;
    copy->host = host;
    copy->direct = range->device ? range->device + (host - range->host) : NULL;
    copy->bytes = bytes;
    if (!take(stage, bytes, &copy->offset))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%s %s of %s is too large for the device",
                        what, name, op);
    return XOP_OK;
}

static enum xop_status plan_call(struct stage *stage, const struct pinned *pinned,
                                 const struct xop_group *group, uint32_t i,
                                 struct xop_error *error) {
    const struct xop_signature *signature = &group->op->pass[group->pass];
    const struct xop_call *from = &group->calls[i];
    const struct xop_plan *plan = group->plans[i];
    struct xop_tensor *in = stage->tensors + (size_t)i * (signature->nin + signature->nout);
    struct xop_tensor *out = in + signature->nin;
    enum xop_status status = XOP_OK;

    stage->calls[i] = *from;
    stage->calls[i].in = in;
    stage->calls[i].out = out;
    stage->calls[i].bad_index = NULL;
    for (uint32_t k = 0; k < signature->nin && status == XOP_OK; k++) {
        in[k] = from->in[k];
        if (signature->in[k].flags & XOP_OPERAND_SHAPE_ONLY)
            in[k].data = NULL;
        else
            status = reach(stage, pinned, &in[k], false, plan->read_once >> k & 1, group->op->name,
                           signature->in[k].name, error);
    }
    for (uint32_t k = 0; k < signature->nout && status == XOP_OK; k++) {
        out[k] = from->out[k];
        if (out[k].data)
            status = reach(stage, pinned, &out[k], true, plan->write_once >> k & 1, group->op->name,
                           signature->out[k].name, error);
    }
    return status;
}

/* Where the group's indices are reported and its workspaces lie: first of all. */
static enum xop_status plan_workspace(struct stage *stage, const struct xop_group *group,
                                      struct xop_error *error) {
    uint64_t offset;
    bool fits = true;

    if (stage->indices)
        take(stage, group->ncalls * sizeof(uint64_t), &offset);
    for (uint32_t i = 0; i < group->ncalls && fits; i++)
        fits = take(stage, group->plans[i]->workspace_bytes, &offset);
    return fits ? XOP_OK
                : xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                           "the workspace of %s is too large for the device", group->op->name);
}

enum xop_status stage_plan(struct stage *stage, const struct pinned *pinned,
                           const struct xop_group *group, struct xop_error *error) {
    const struct xop_signature *signature = &group->op->pass[group->pass];
    enum xop_status status;

    stage->nin = stage->nout = 0;
    stage->bytes = 0;
    stage->direct = false;
    stage->indices = signature->index_operand >= 0;
    status = reserve(stage, group, signature, error);
    if (status == XOP_OK)
        status = plan_workspace(stage, group, error);
    for (uint32_t i = 0; i < group->ncalls && status == XOP_OK; i++)
        status = plan_call(stage, pinned, group, i, error);
    return status;
}

void stage_place(struct stage *stage, const struct xop_group *group, void *base) {
    struct stage again = {0};
    uint64_t offset;

    stage->base = base;
    if (stage->indices)
        take(&again, group->ncalls * sizeof(uint64_t), &offset);
    for (uint32_t i = 0; i < group->ncalls; i++) {
        uint64_t bytes = group->plans[i]->workspace_bytes;
        take(&again, bytes, &offset);
        stage->calls[i].workspace = bytes ? stage->base + offset : NULL;
        if (stage->indices)
            stage->calls[i].bad_index = (uint64_t *)base + i;
    }
    for (uint32_t i = 0; i < stage->nin; i++)
        stage->in[i].tensor->data = stage->base + stage->in[i].offset;
    for (uint32_t i = 0; i < stage->nout; i++)
        stage->out[i].tensor->data = stage->base + stage->out[i].offset;
}

/* ---- Copying ---- */

/* Large ones by the copy engine, small ones together by a kernel. Pageable memory, which the device
 * cannot reach, goes through the engine in any case. */
static enum xop_status copy_all(struct stage *stage, const struct stage_copy *copies, uint32_t n,
                                bool in, uint32_t max_blocks, cudaStream_t stream,
                                struct xop_error *error) {
    enum xop_status status = XOP_OK;
    uint32_t nsmall = 0;

    for (uint32_t i = 0; i < n && status == XOP_OK; i++) {
        const struct stage_copy *copy = &copies[i];
        char *device = stage->base + copy->offset;
        if (copy->direct && copy->bytes <= COPY_SMALL)
            stage->small[nsmall++] = (struct copy_range){in ? copy->direct : device,
                                                         in ? device : copy->direct, copy->bytes};
        else if (in)
            status = CHECK_CUDA(error, cudaMemcpyAsync(device, copy->host, copy->bytes,
                                                       cudaMemcpyHostToDevice, stream));
        else
            status = CHECK_CUDA(error, cudaMemcpyAsync(copy->host, device, copy->bytes,
                                                       cudaMemcpyDeviceToHost, stream));
    }
    if (status == XOP_OK && nsmall > 0)
        status = copy_enqueue(stage->small, nsmall, max_blocks, stream, error);
    return status;
}

enum xop_status stage_copy_in(struct stage *stage, uint32_t ncalls, uint32_t max_blocks,
                              cudaStream_t stream, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    if (stage->indices)
        status = CHECK_CUDA(error,
                            cudaMemsetAsync(stage->base, 0xff, ncalls * sizeof(uint64_t), stream));
    if (status == XOP_OK)
        status = copy_all(stage, stage->in, stage->nin, true, max_blocks, stream, error);
    return status;
}

enum xop_status stage_copy_out(struct stage *stage, uint32_t ncalls, uint32_t max_blocks,
                               cudaStream_t stream, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    if (stage->indices)
        status = CHECK_CUDA(error, cudaMemcpyAsync(stage->bad_index, stage->base,
                                                   ncalls * sizeof(uint64_t),
                                                   cudaMemcpyDeviceToHost, stream));
    if (status == XOP_OK)
        status = copy_all(stage, stage->out, stage->nout, false, max_blocks, stream, error);
    return status;
}

void stage_finish(const struct stage *stage, const struct xop_group *group) {
    for (uint32_t i = 0; stage->indices && i < group->ncalls; i++)
        if (group->calls[i].bad_index)
            *group->calls[i].bad_index = stage->bad_index[i];
}

void stage_close(struct stage *stage, bool pinned) {
    if (pinned && stage->bad_index)
        cudaFreeHost(stage->bad_index);
    free(stage->calls);
    free(stage->tensors);
    free(stage->in);
    free(stage->out);
    free(stage->small);
    memset(stage, 0, sizeof *stage);
}
