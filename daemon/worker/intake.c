#include "intake.h"

#include "attributes.h"
#include "memories.h"
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
    to->dtype = XOP_DTYPE_NONE;
    to->rank = 0;
    to->data = NULL;
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

/* Where a tensor in an adopted memory lies; NULL where that cannot be. */
static void *in_memory(const struct worker *worker, const struct seam_tensor *from,
                       const struct xop_tensor *tensor, uint64_t bytes, bool write,
                       struct xop_error *error) {
    const char *why;
    void *at = memories_find(worker, from->memory, from->offset, bytes, write, &why);
    if (at && (uintptr_t)at % xop_dtype_size(tensor->dtype) != 0) {
        why = "a tensor whose elements are not aligned";
        at = NULL;
    }
    if (!at)
        nonsense(error, why);
    return at;
}

/* Where a copy of the operand has to be, at index `at` of the backend's order. */
static enum xop_status read_keep(const struct worker *worker, struct task *task, uint32_t at,
                                 const struct seam_tensor *from, const struct xop_tensor *tensor,
                                 struct xop_error *error) {
    uint64_t bytes;
    const char *why;
    if (from->keep_memory == 0)
        return XOP_OK;
    if (!xop_tensor_bytes(tensor, &bytes))
        return nonsense(error, "a kept tensor of impossible size");
    task->keeps[at] =
        memories_find(worker, from->keep_memory, from->keep_offset, bytes, true, &why);
    task->has_keeps = true;
    return task->keeps[at] ? XOP_OK : nonsense(error, why);
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
    if (from->place == SEAM_MEMORY) {
        if (!(task->in[i].data = in_memory(worker, from, &task->in[i], bytes, false, error)))
            return error->status;
    } else if (from->place == SEAM_INBOX) {
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
    return read_keep(worker, task, i, from, &task->in[i], error);
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
        if (read_input(worker, task, i, i < nin ? &from[i] : &absent, error) != XOP_OK)
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
static enum xop_status check_shape(const struct task *task, uint32_t i,
                                   const struct seam_tensor *from, struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    struct xop_tensor wanted;
    uint64_t bytes;
    char will[128], asked[128];
    if (read_tensor(from, &wanted, &bytes, error) != XOP_OK)
        return error->status;
    if (wanted.dtype == XOP_DTYPE_NONE || same_tensor(&wanted, &task->out[i]))
        return XOP_OK;
    message_tensor_text(will, sizeof will, &task->out[i]);
    message_tensor_text(asked, sizeof asked, &wanted);
    return xop_fail(error, XOP_INVALID_ARGUMENT, "output %s of %s is %s, but %s was asked for",
                    signature->out[i].name, task->op->name, will, asked);
}

static enum xop_status read_output(const struct worker *worker, struct task *task, uint32_t i,
                                   const struct seam_tensor *from, struct xop_error *error) {
    struct xop_tensor *out = &task->out[i];
    uint32_t keep = task_signature(task)->nin + i;
    uint64_t bytes;
    if (!xop_tensor_bytes(out, &bytes))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "output %s of %s is larger than memory",
                        task_signature(task)->out[i].name, task->op->name);
    task->wanted[i] = from->place != SEAM_NOWHERE;
    task->in_block[i] = from->place == SEAM_OUTBOX;
    if (from->place > SEAM_MEMORY || from->place == SEAM_INBOX)
        return nonsense(error, "an output with an impossible place");
    if ((task->wanted[i] && check_shape(task, i, from, error) != XOP_OK) ||
        read_keep(worker, task, keep, from, out, error) != XOP_OK)
        return error->status;
    if (from->place == SEAM_MEMORY)
        out->data = in_memory(worker, from, out, bytes, true, error);
    else if (from->place == SEAM_NOWHERE)
        out->data = task->keeps[keep]; /* only kept, where it is kept */
    return from->place == SEAM_MEMORY && !out->data ? error->status : XOP_OK;
}

static bool overlap(const struct xop_tensor *a, const struct xop_tensor *b, uint64_t a_bytes) {
    uint64_t b_bytes = 0;
    xop_tensor_bytes(b, &b_bytes); /* both were counted before */
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return x && y && a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/* An output that lies already somewhere has that place to itself, but for the input of the same
 * index where the operator allows that. */
static enum xop_status check_overlap(const struct task *task, uint32_t i, struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    const struct xop_tensor *out = &task->out[i];
    uint64_t bytes = 0, same = 0;
    xop_tensor_bytes(out, &bytes);
    for (uint32_t k = 0; k < signature->nin; k++) {
        const struct xop_tensor *in = &task->in[k];
        if (!overlap(out, in, bytes))
            continue;
        xop_tensor_bytes(in, &same);
        bool allowed = k == i && signature->out[i].flags & XOP_OPERAND_IN_PLACE;
        if (!allowed)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "output %s of %s would overlap its input %s, which it does not allow",
                            signature->out[i].name, task->op->name, signature->in[k].name);
        if (in->data != out->data || same != bytes)
            return xop_fail(error, XOP_INVALID_ARGUMENT,
                            "output %s of %s would overlap its input %s: it can take its place, "
                            "all of it, or none",
                            signature->out[i].name, task->op->name, signature->in[k].name);
    }
    for (uint32_t k = 0; k < i; k++)
        if (overlap(out, &task->out[k], bytes))
            return xop_fail(error, XOP_INVALID_ARGUMENT, "outputs %s and %s of %s would overlap",
                            signature->out[k].name, signature->out[i].name, task->op->name);
    return XOP_OK;
}

static enum xop_status read_outputs(struct worker *worker, struct task *task,
                                    const struct seam_tensor *from, uint32_t nout,
                                    struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    if (nout != 0 && nout != signature->nout)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s of %s has %u outputs, %u were asked for",
                        task->pass == XOP_FORWARD ? "forward" : "backward", task->op->name,
                        signature->nout, nout);
    for (uint32_t i = 0; i < signature->nout; i++) {
        static const struct seam_tensor saved, sent = {.place = SEAM_OUTBOX};
        const struct seam_tensor *tensor = &from[i];
        task->out[i] = task->plan.out[i];
        task->out[i].data = NULL;
        if (task->out[i].rank > XOP_MAX_RANK || !xop_dtype_size(task->out[i].dtype))
            return xop_fail(error, XOP_INTERNAL, "operator %s does not say what its output %s is",
                            task->op->name, signature->out[i].name);
        if (nout == 0)
            tensor = signature->out[i].flags & XOP_OPERAND_SAVED ? &saved : &sent;
        if (read_output(worker, task, i, tensor, error) != XOP_OK ||
            (task->out[i].data && check_overlap(task, i, error) != XOP_OK))
            return error->status;
    }
    /* What is only asked for its shapes need not fit. */
    return task->shapes ? XOP_OK : outbox_check(&worker->outbox, task, error);
}

/* ---- The whole ---- */

/* What a launch moves, which decides what may share one: at least what lies in the shared memory,
 * whatever the operator says it costs. */
static uint64_t moved_bytes(const struct task *task) {
    const struct xop_signature *signature = task_signature(task);
    uint64_t sum = task->block_needed, bytes;
    for (uint32_t i = 0; i < signature->nin; i++)
        if (task->in[i].data && xop_tensor_bytes(&task->in[i], &bytes))
            sum += bytes; /* each lies in memory, so no sum overflows */
    for (uint32_t i = 0; i < signature->nout; i++)
        if (task->out[i].data && xop_tensor_bytes(&task->out[i], &bytes))
            sum += bytes;
    return task->plan.bytes > sum ? task->plan.bytes : sum;
}

static enum xop_status plan(struct task *task, struct xop_error *error) {
    struct xop_call call = {.in = task->in, .attrs = task->attrs};
    /* Outputs that the signature has not are nobody's: zeroing them takes longer than the rest. */
    memset(task->plan.out, 0, task_signature(task)->nout * sizeof *task->plan.out);
    memset((char *)&task->plan + sizeof task->plan.out, 0,
           sizeof task->plan - sizeof task->plan.out);
    error->status = XOP_OK;
    enum xop_status status = task_signature(task)->infer(&call, &task->plan, error);
    if (status != XOP_OK && error->status != status)
        return xop_fail(error, status, "operator %s refuses these inputs", task->op->name);
    return status;
}

enum xop_status intake_read(struct worker *worker, struct task *task, struct xop_error *error) {
    const struct seam_request *shared = &worker->lanes[task->lane].requests[task->index];
    struct seam_request head;
    unsigned char *arguments = task->arguments;
    memcpy(&head, shared, offsetof(struct seam_request, arguments));
    task->tag = head.tag;
    task->deadline_ns = head.deadline_ns;
    /* One from the future would wait for company until then. */
    task->accepted_ns = head.accepted_ns < worker->now ? head.accepted_ns : worker->now;
    task->launched_ns = 0;
    task->priority = head.priority;
    task->check = head.flags & SEAM_CHECK;
    task->alone = head.flags & SEAM_ALONE;
    task->shapes = head.flags & SEAM_SHAPES;
    task->kind = (enum seam_kind)head.kind;
    task->memory = head.memory;
    task->bytes_in = head.bytes_in;
    task->bytes_out = head.bytes_out;
    if (task->has_keeps)
        memset(task->keeps, 0, sizeof task->keeps);
    task->has_keeps = false;
    task->block_needed = task->block_bytes = 0;
    task->passed_by = 0;
    task->bad_index = (struct xop_bad_index){.at = UINT64_MAX};
    task->batch = 0;
    task->op = NULL;
    if (head.kind > SEAM_PROBE)
        return nonsense(error, "a kind that there is not");
    if (head.kind != SEAM_RUN && head.kind != SEAM_COPY)
        return XOP_OK;
    if (head.kind == SEAM_COPY)
        head.op = head.pass = 0;
    if (head.op >= worker->nops || head.pass >= XOP_PASS_COUNT || head.nin > XOP_MAX_INPUTS ||
        head.nout > XOP_MAX_OUTPUTS || head.nattrs > XOP_MAX_ATTRS || head.attr_bytes > (1u << 20))
        return nonsense(error, "a number out of range");
    size_t tensors = (size_t)(head.nin + head.nout) * sizeof(struct seam_tensor);
    if (copy_arguments(worker, task, shared, head.arguments_offset, tensors + head.attr_bytes,
                       &arguments, error) != XOP_OK)
        return error->status;
    task->op = head.kind == SEAM_COPY ? worker->api->copy() : worker->ops[head.op];
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
