#include "kernels/cuda/stage.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/copy.h"
#include "kernels/cuda/launch.h"

#define ALIGNMENT 256u

/* ---- Space for the host's side ---- */

static bool grow(void *pointer, size_t n, size_t size) {
    void *grown = realloc(*(void **)pointer, n * size);
    if (grown)
        *(void **)pointer = grown;
    return grown != NULL;
}

enum xop_status stage_reserve(struct stage *stage, const struct xop_group *group,
                              struct xop_error *error) {
    const struct xop_signature *signature = &group->op->pass[group->pass];
    uint32_t calls = group->ncalls, operands = calls * (signature->nin + signature->nout);
    bool grown = true;

    stage->indices = signature->index_operand >= 0;
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

/* An operand of a call, while it is decided how it is reached. */
struct operand {
    struct xop_tensor *tensor; /* the launch's; its data is still where the operand lies */
    char *keep;                /* where a copy has to be, or NULL */
    bool output, once;         /* once: read or written once and in order */
    const char *op, *name;     /* for messages */
};

static enum xop_status fail_place(const struct operand *operand, const char *whose, const char *why,
                                  struct xop_error *error) {
    return xop_fail(error, XOP_INTERNAL, "%s%s %s of %s lies in memory that is not %s", whose,
                    operand->output ? "output" : "input", operand->name, operand->op, why);
}

/* The device's address of what lies at `at`, inside the range; NULL where it has none. */
static char *direct_of(const struct range *range, const char *at) {
    return range->device ? range->device + (at - range->at) : NULL;
}

static struct stage_copy *add_copy(struct stage *stage, const struct operand *operand, char *here,
                                   char *direct, uint64_t bytes) {
    struct stage_copy *copy =
        operand->output ? &stage->out[stage->nout++] : &stage->in[stage->nin++];
    *copy = (struct stage_copy){NULL, here, direct, NULL, bytes, 0};
    return copy;
}

/* Where the launch finds an operand of the host's that is not kept. */
static enum xop_status reach_host(struct stage *stage, const struct operand *operand, char *at,
                                  char *direct, uint64_t bytes, struct xop_error *error) {
    struct stage_copy *copy;

    if (stage->engines && bytes > COPY_SMALL) {
        operand->tensor->data = at;
        return XOP_OK;
    }
    if (operand->once && direct) {
        operand->tensor->data = direct;
        stage->direct = true;
        stage->call_reads += !operand->output;
        return XOP_OK;
    }
    copy = add_copy(stage, operand, at, direct, bytes);
    copy->tensor = operand->tensor;
    if (!take(stage, bytes, &copy->offset))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%s %s of %s is too large for the device",
                        operand->output ? "output" : "input", operand->name, operand->op);
    return XOP_OK;
}

static enum xop_status reach(struct stage *stage, const struct ranges *ranges,
                             const struct operand *operand, struct xop_error *error) {
    struct xop_tensor *tensor = operand->tensor;
    char *at = tensor->data, *keep = operand->keep, *direct;
    const struct range *range, *kept;
    uint64_t bytes = 0;

    tensor->data = NULL;
    if (!xop_tensor_bytes(tensor, &bytes) || bytes == 0)
        return XOP_OK;
    range = ranges_find(ranges, at, bytes);
    if (!range || (operand->output && range->read_only))
        return fail_place(operand, "", range ? "registered for writing" : "registered", error);
    direct = direct_of(range, at);
    if (!keep && !range->on_device)
        return reach_host(stage, operand, at, direct, bytes, error);
    if (keep) {
        kept = ranges_find(ranges, keep, bytes);
        if (!kept || !kept->on_device)
            return fail_place(operand, "what is kept of ", "the device's", error);
        /* An output comes from where it is computed: at its place on the device, else in the keep.
         */
        if (keep != at && operand->output && range->on_device)
            add_copy(stage, operand, keep, direct_of(kept, keep), bytes)->there = at;
        else if (keep != at)
            add_copy(stage, operand, at, direct, bytes)->there = keep;
    }
    tensor->data = range->on_device ? at : keep;
    return XOP_OK;
}

static enum xop_status plan_call(struct stage *stage, const struct ranges *ranges,
                                 const struct xop_group *group, uint32_t i,
                                 struct xop_error *error) {
    const struct xop_signature *signature = &group->op->pass[group->pass];
    const struct xop_call *from = &group->calls[i];
    const struct xop_plan *plan = group->plans[i];
    void *const *keeps = group->keeps ? group->keeps[i] : NULL;
    struct xop_tensor *in = stage->tensors + (size_t)i * (signature->nin + signature->nout);
    struct xop_tensor *out = in + signature->nin;
    enum xop_status status = XOP_OK;

    stage->call_reads = 0;
    stage->calls[i] = *from;
    stage->calls[i].in = in;
    stage->calls[i].out = out;
    stage->calls[i].bad_index = NULL;
    for (uint32_t k = 0; k < signature->nin && status == XOP_OK; k++) {
        struct operand operand = {&in[k],          keeps ? keeps[k] : NULL,
                                  false,           plan->read_once >> k & 1,
                                  group->op->name, signature->in[k].name};
        bool needed = !(signature->in[k].flags & XOP_OPERAND_SHAPE_ONLY);
        in[k] = from->in[k];
        if (needed || (operand.keep && in[k].data))
            status = reach(stage, ranges, &operand, error);
        if (!needed)
            in[k].data = NULL;
    }
    stage->reads = stage->call_reads > stage->reads ? stage->call_reads : stage->reads;
    for (uint32_t k = 0; k < signature->nout && status == XOP_OK; k++) {
        struct operand operand = {&out[k],
                                  keeps ? keeps[signature->nin + k] : NULL,
                                  true,
                                  plan->write_once >> k & 1,
                                  group->op->name,
                                  signature->out[k].name};
        out[k] = from->out[k];
        if (out[k].data)
            status = reach(stage, ranges, &operand, error);
    }
    return status;
}

/* Where the group's indices are reported and its workspaces lie: first of all. */
static enum xop_status plan_workspace(struct stage *stage, const struct xop_group *group,
                                      struct xop_error *error) {
    uint64_t offset;
    bool fits = true;

    if (stage->indices)
        take(stage, group->ncalls * sizeof(struct xop_bad_index), &offset);
    for (uint32_t i = 0; i < group->ncalls && fits; i++)
        fits = take(stage, group->plans[i]->workspace_bytes, &offset);
    return fits ? XOP_OK
                : xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                           "the workspace of %s is too large for the device", group->op->name);
}

enum xop_status stage_plan(struct stage *stage, const struct ranges *ranges,
                           const struct xop_group *group, struct xop_error *error) {
    enum xop_status status;

    stage->nin = stage->nout = 0;
    stage->bytes = 0;
    stage->direct = false;
    stage->reads = 0;
    stage->engines = group->op->pass[group->pass].launch == copy_cuda_forward;
    status = plan_workspace(stage, group, error);
    for (uint32_t i = 0; i < group->ncalls && status == XOP_OK; i++)
        status = plan_call(stage, ranges, group, i, error);
    return status;
}

static void place_copies(struct stage_copy *copies, uint32_t n, char *base) {
    for (uint32_t i = 0; i < n; i++)
        if (copies[i].tensor)
            copies[i].tensor->data = copies[i].there = base + copies[i].offset;
}

void stage_place(struct stage *stage, const struct xop_group *group, void *base) {
    struct stage again = {0};
    uint64_t offset;

    stage->base = base;
    if (stage->indices)
        take(&again, group->ncalls * sizeof(struct xop_bad_index), &offset);
    for (uint32_t i = 0; i < group->ncalls; i++) {
        uint64_t bytes = group->plans[i]->workspace_bytes;
        take(&again, bytes, &offset);
        stage->calls[i].workspace = bytes ? stage->base + offset : NULL;
        if (stage->indices)
            stage->calls[i].bad_index = (struct xop_bad_index *)base + i;
    }
    place_copies(stage->in, stage->nin, stage->base);
    place_copies(stage->out, stage->nout, stage->base);
}

/* ---- Copying ---- */

/* Large ones by the copy engines, small ones together by a kernel. Pageable memory, which the
 * device cannot reach, goes through the engines in any case. */
static enum xop_status copy_all(struct stage *stage, const struct stage_copy *copies, uint32_t n,
                                bool in, uint32_t max_blocks, cudaStream_t stream,
                                struct xop_error *error) {
    enum xop_status status = XOP_OK;
    uint32_t nsmall = 0;

    for (uint32_t i = 0; i < n && status == XOP_OK; i++) {
        const struct stage_copy *copy = &copies[i];
        bool small = copy->direct && copy->bytes <= COPY_SMALL;
        void *here = small ? (void *)copy->direct : copy->here;
        void *to = in ? (void *)copy->there : here, *from = in ? here : (void *)copy->there;
        if (small)
            stage->small[nsmall++] = (struct copy_range){from, to, copy->bytes};
        else
            status = copy_large(to, from, copy->bytes, stream, error);
    }
    if (status == XOP_OK && nsmall > 0)
        status = copy_enqueue(stage->small, nsmall, max_blocks, stream, error);
    return status;
}

enum xop_status stage_copy_in(struct stage *stage, uint32_t ncalls, uint32_t max_blocks,
                              cudaStream_t stream, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    if (stage->indices)
        status = CHECK_CUDA(error, cudaMemsetAsync(stage->base, 0xff,
                                                   ncalls * sizeof(struct xop_bad_index), stream));
    if (status == XOP_OK)
        status = copy_all(stage, stage->in, stage->nin, true, max_blocks, stream, error);
    return status;
}

enum xop_status stage_copy_out(struct stage *stage, uint32_t ncalls, uint32_t max_blocks,
                               cudaStream_t stream, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    if (stage->indices)
        status = CHECK_CUDA(error, cudaMemcpyAsync(stage->bad_index, stage->base,
                                                   ncalls * sizeof(struct xop_bad_index),
                                                   cudaMemcpyDeviceToHost, stream));
    if (status == XOP_OK)
        status = copy_all(stage, stage->out, stage->nout, false, max_blocks, stream, error);
    return status;
}

/* The value at a bad position, from where the launch found it, which is the device's memory or the
 * host's. */
static enum xop_status fetch_bad(const struct xop_tensor *index, struct xop_bad_index *bad,
                                 cudaStream_t stream, struct xop_error *error) {
    const size_t size = xop_dtype_size(index->dtype);
    int64_t n, wide = 0;
    int32_t narrow = 0;
    void *to = index->dtype == XOP_I32 ? (void *)&narrow : (void *)&wide;
    enum xop_status status;

    if (!(XOP_INTEGERS & XOP_DTYPE_BIT(index->dtype)) || !index->data ||
        !xop_tensor_elements(index, &n) || bad->at >= (uint64_t)n)
        return xop_fail(error, XOP_INTERNAL, "a launch says that index %llu is bad: there is none",
                        (unsigned long long)bad->at);
    status = CHECK_CUDA(error, cudaMemcpyAsync(to, (const char *)index->data + bad->at * size, size,
                                               cudaMemcpyDefault, stream));
    if (status == XOP_OK)
        status = CHECK_CUDA(error, cudaStreamSynchronize(stream));
    bad->value = index->dtype == XOP_I32 ? narrow : wide;
    return status;
}

enum xop_status stage_finish(const struct stage *stage, const struct xop_group *group,
                             cudaStream_t stream, struct xop_error *error) {
    const int32_t operand = group->op->pass[group->pass].index_operand;
    enum xop_status status = XOP_OK;

    for (uint32_t i = 0; stage->indices && i < group->ncalls && status == XOP_OK; i++) {
        struct xop_bad_index *bad = group->calls[i].bad_index;
        if (!bad)
            continue;
        *bad = stage->bad_index[i];
        if (bad->at != UINT64_MAX)
            status = fetch_bad(&stage->calls[i].in[operand], bad, stream, error);
    }
    return status;
}

void stage_close(struct stage *stage, bool usable) {
    if (usable && stage->bad_index)
        cudaFreeHost(stage->bad_index);
    free(stage->calls);
    free(stage->tensors);
    free(stage->in);
    free(stage->out);
    free(stage->small);
    memset(stage, 0, sizeof *stage);
}
