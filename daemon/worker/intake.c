#include "intake.h"

#include "attributes.h"
#include "outbox.h"
#include "proto/message.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64u

static enum xop_status nonsense(struct xop_error *error, const char *what) {
    return xop_fail(error, XOP_INTERNAL, "the record of this request is not well-formed: %s", what);
}

/* ---- Copying ---- */

/* Copies tensors and attributes out of the record, or out of the inbox where they did not fit. */
static enum xop_status copy_arguments(struct worker *worker, struct task *task,
                                      const struct seam_request *from, uint64_t offset,
                                      size_t bytes, unsigned char **arguments,
                                      struct xop_error *error) {
    if (offset == UINT64_MAX) {
        if (bytes > sizeof task->arguments)
            return nonsense(error, "arguments that do not fit");
        memcpy(task->arguments, from->arguments, bytes);
        *arguments = task->arguments;
        return XOP_OK;
    }
    if (offset % 8 != 0 || offset > worker->setup.inbox_bytes ||
        bytes > worker->setup.inbox_bytes - offset)
        return nonsense(error, "arguments outside the inbox");
    if (bytes > task->long_capacity) {
        unsigned char *larger = realloc(task->long_arguments, bytes);
        if (!larger)
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the worker is out of memory");
        task->long_arguments = larger;
        task->long_capacity = bytes;
    }
    if (bytes == 0)
        return XOP_OK; /* *arguments stays the record's own, of which nothing is read */
    memcpy(task->long_arguments, worker->inbox + offset, bytes);
    *arguments = task->long_arguments;
    return XOP_OK;
}

/* ---- Operands ---- */

static enum xop_status read_tensor(const struct seam_tensor *from, struct xop_tensor *to,
                                   uint64_t *bytes, struct xop_error *error) {
    *bytes = 0;
    *to = (struct xop_tensor){.dtype = XOP_DTYPE_NONE};
    if (from->dtype >= XOP_DTYPE_COUNT || from->rank > XOP_MAX_RANK)
        return nonsense(error, "a tensor with an impossible dtype or rank");
    if (from->dtype == XOP_DTYPE_NONE)
        return XOP_OK;
    to->dtype = (enum xop_dtype)from->dtype;
    to->rank = from->rank;
    memcpy(to->shape, from->shape, from->rank * sizeof *to->shape);
    if (!xop_tensor_bytes(to, bytes))
        return nonsense(error, "a tensor of impossible size");
    return XOP_OK;
}

static enum xop_status read_input(const struct worker *worker, struct task *task, uint32_t i,
                                  const struct seam_tensor *from, struct xop_error *error) {
    const struct xop_operand *operand = &task_signature(task)->in[i];
    uint64_t bytes;
    if (read_tensor(from, &task->in[i], &bytes, error) != XOP_OK)
        return error->status;
    if (task->in[i].dtype == XOP_DTYPE_NONE) {
        if (!(operand->flags & XOP_OPERAND_OPTIONAL))
            return xop_fail(error, XOP_INVALID_ARGUMENT, "input %s of %s is missing", operand->name,
                            task->op->name);
        return XOP_OK;
    }
    if (from->place == SEAM_INBOX) {
        if (from->offset % ALIGNMENT != 0 || from->offset > worker->setup.inbox_bytes ||
            bytes > worker->setup.inbox_bytes - from->offset)
            return nonsense(error, "an input outside the inbox");
        /* Operators promise not to write their inputs, and the mapping does not let them. */
        task->in[i].data = (void *)(uintptr_t)(worker->inbox + from->offset);
    } else if (from->place != SEAM_NOWHERE) {
        return nonsense(error, "an input with an impossible place");
    } else if (!(operand->flags & XOP_OPERAND_SHAPE_ONLY) && bytes > 0) {
        return xop_fail(error, XOP_INVALID_ARGUMENT, "input %s of %s has no data", operand->name,
                        task->op->name);
    }
    return XOP_OK;
}

static void list_names(const struct xop_operand *operands, uint32_t n, char *out, size_t capacity) {
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < n && used < capacity; i++)
        used +=
            (size_t)snprintf(out + used, capacity - used, "%s%s", i ? ", " : "", operands[i].name);
}

static enum xop_status read_inputs(const struct worker *worker, struct task *task,
                                   const struct seam_tensor *from, uint32_t nin,
                                   struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    uint32_t needed = signature->nin;
    while (needed > 0 && signature->in[needed - 1].flags & XOP_OPERAND_OPTIONAL)
        needed--;
    if (nin < needed || nin > signature->nin) {
        char names[256];
        list_names(signature->in, signature->nin, names, sizeof names);
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s of %s takes %u inputs (%s), %u came",
                        task->pass == XOP_FORWARD ? "forward" : "backward", task->op->name,
                        signature->nin, names, nin);
    }
    for (uint32_t i = 0; i < signature->nin; i++) {
        static const struct seam_tensor absent;
        struct seam_tensor tensor = absent;
        if (i < nin)
            memcpy(&tensor, &from[i], sizeof tensor);
        if (read_input(worker, task, i, &tensor, error) != XOP_OK)
            return error->status;
    }
    return XOP_OK;
}

static void list_dtypes(uint32_t mask, char *out, size_t capacity) {
    size_t used = 0;
    out[0] = 0;
    for (unsigned d = 1; d < XOP_DTYPE_COUNT && used < capacity; d++)
        if (mask & XOP_DTYPE_BIT(d))
            used += (size_t)snprintf(out + used, capacity - used, "%s%s", used ? ", " : "",
                                     xop_dtype_name((enum xop_dtype)d));
}

/* Every input has a dtype that its operand takes, and those without one of their own agree. */
static enum xop_status check_dtypes(struct task *task, struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    const struct xop_operand *first = NULL;
    task->dtype = XOP_DTYPE_NONE;
    for (uint32_t i = 0; i < signature->nin; i++) {
        const struct xop_operand *operand = &signature->in[i];
        uint32_t mask = operand->dtypes ? operand->dtypes : task->op->dtypes;
        enum xop_dtype dtype = task->in[i].dtype;
        if (dtype == XOP_DTYPE_NONE)
            continue;
        if (!(mask & XOP_DTYPE_BIT(dtype))) {
            char allowed[64];
            list_dtypes(mask, allowed, sizeof allowed);
            return xop_fail(error, XOP_INVALID_ARGUMENT, "input %s of %s is %s: it can be %s",
                            operand->name, task->op->name, xop_dtype_name(dtype), allowed);
        }
        if (operand->flags & XOP_OPERAND_OWN_DTYPE)
            continue;
        if (first && dtype != task->dtype)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "input %s of %s is %s, but input %s is %s: they must be the same",
                            operand->name, task->op->name, xop_dtype_name(dtype), first->name,
                            xop_dtype_name(task->dtype));
        if (!first) {
            first = operand;
            task->dtype = dtype;
        }
    }
    return XOP_OK;
}

/* ---- Outputs ---- */

static bool same_tensor(const struct xop_tensor *a, const struct xop_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* What infer says an output will be, and what the client asked for, if anything. */
static enum xop_status read_output(struct task *task, uint32_t i, const struct seam_tensor *from,
                                   struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    struct xop_tensor wanted;
    uint64_t bytes;
    char will[128], asked[128];
    if (from->place == SEAM_NOWHERE) {
        task->wanted[i] = false;
        return XOP_OK;
    }
    if (from->place != SEAM_OUTBOX)
        return nonsense(error, "an output with an impossible place");
    if (read_tensor(from, &wanted, &bytes, error) != XOP_OK)
        return error->status;
    task->wanted[i] = true;
    if (wanted.dtype == XOP_DTYPE_NONE || same_tensor(&wanted, &task->out[i]))
        return XOP_OK;
    message_tensor_text(will, sizeof will, &task->out[i]);
    message_tensor_text(asked, sizeof asked, &wanted);
    return xop_fail(error, XOP_INVALID_ARGUMENT, "output %s of %s is %s, but %s was asked for",
                    signature->out[i].name, task->op->name, will, asked);
}

static enum xop_status read_outputs(struct worker *worker, struct task *task,
                                    const struct seam_tensor *from, uint32_t nout,
                                    struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    uint64_t bytes;
    if (nout != 0 && nout != signature->nout)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s of %s has %u outputs, %u were asked for",
                        task->pass == XOP_FORWARD ? "forward" : "backward", task->op->name,
                        signature->nout, nout);
    for (uint32_t i = 0; i < signature->nout; i++) {
        struct seam_tensor tensor = {.place = SEAM_OUTBOX};
        task->out[i] = task->plan.out[i];
        task->out[i].data = NULL;
        if (task->out[i].rank > XOP_MAX_RANK || !xop_dtype_size(task->out[i].dtype))
            return xop_fail(error, XOP_INTERNAL, "operator %s does not say what its output %s is",
                            task->op->name, signature->out[i].name);
        if (!xop_tensor_bytes(&task->out[i], &bytes))
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "output %s of %s is larger than memory",
                            signature->out[i].name, task->op->name);
        if (nout == 0 && signature->out[i].flags & XOP_OPERAND_SAVED)
            tensor.place = SEAM_NOWHERE;
        if (nout > 0)
            memcpy(&tensor, &from[i], sizeof tensor);
        if (read_output(task, i, &tensor, error) != XOP_OK)
            return error->status;
    }
    return outbox_check(&worker->outbox, task, error);
}

/* ---- The whole ---- */

/* What a launch moves, which decides what may share one: at least what lies in the shared memory,
 * whatever the operator says it costs. */
static uint64_t moved_bytes(const struct task *task) {
    const struct xop_signature *signature = task_signature(task);
    uint64_t sum = task->block_needed, bytes;
    for (uint32_t i = 0; i < signature->nin; i++)
        if (task->in[i].data && xop_tensor_bytes(&task->in[i], &bytes))
            sum += bytes; /* each at most the inbox, so no sum overflows */
    return task->plan.bytes > sum ? task->plan.bytes : sum;
}

static enum xop_status plan(struct task *task, struct xop_error *error) {
    struct xop_call call = {.in = task->in, .attrs = task->attrs};
    memset(&task->plan, 0, sizeof task->plan);
    error->status = XOP_OK;
    enum xop_status status = task_signature(task)->infer(&call, &task->plan, error);
    if (status != XOP_OK && error->status != status)
        return xop_fail(error, status, "operator %s refuses these inputs", task->op->name);
    return status;
}

enum xop_status intake_read(struct worker *worker, struct task *task, struct xop_error *error) {
    const struct seam_request *shared = &worker->lanes[task->lane].requests[task->index];
    struct seam_request head;
    uint64_t now = worker_now();
    unsigned char *arguments = task->arguments;
    memcpy(&head, shared, offsetof(struct seam_request, arguments));
    task->tag = head.tag;
    task->deadline_ns = head.deadline_ns;
    /* One from the future would wait for company until then. */
    task->accepted_ns = head.accepted_ns < now ? head.accepted_ns : now;
    task->launched_ns = 0;
    task->priority = head.priority;
    task->check = head.flags & SEAM_CHECK;
    task->alone = head.flags & SEAM_ALONE;
    task->block_needed = task->block_bytes = 0;
    task->passed_by = 0;
    task->bad_index = UINT64_MAX;
    task->batch = 0;
    task->op = NULL;
    if (head.op >= worker->nops || head.pass >= XOP_PASS_COUNT || head.nin > XOP_MAX_INPUTS ||
        head.nout > XOP_MAX_OUTPUTS || head.nattrs > XOP_MAX_ATTRS || head.attr_bytes > (1u << 20))
        return nonsense(error, "a number out of range");
    size_t tensors = (size_t)(head.nin + head.nout) * sizeof(struct seam_tensor);
    if (copy_arguments(worker, task, shared, head.arguments_offset, tensors + head.attr_bytes,
                       &arguments, error) != XOP_OK)
        return error->status;
    task->op = worker->ops[head.op];
    task->pass = (enum xop_pass)head.pass;
    const struct seam_tensor *list = (const struct seam_tensor *)(const void *)arguments;
    if (!task_signature(task)->launch)
        return xop_fail(error, XOP_UNIMPLEMENTED, "operator %s has no %s", task->op->name,
                        task->pass == XOP_FORWARD ? "forward" : "backward");
    if (read_inputs(worker, task, list, head.nin, error) != XOP_OK ||
        check_dtypes(task, error) != XOP_OK ||
        attributes_read(task, arguments + tensors, head.attr_bytes, head.nattrs, error) != XOP_OK ||
        plan(task, error) != XOP_OK)
        return error->status;
    if (read_outputs(worker, task, list + head.nin, head.nout, error) != XOP_OK)
        return error->status;
    task->bytes = moved_bytes(task);
    return XOP_OK;
}
