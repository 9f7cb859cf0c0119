/*
 * What verify asks of a reference, answered by a library: its declaration says which tensors there
 * are, its infer which shapes go together and what comes out, and its references the values. Verify
 * judges one operator after the other, so there is one at a time here.
 */
#include "op.h"

#include <math.h>
#include <string.h>

static const struct xop_library *used;
static const struct xop_references *used_references;

static struct {
    const struct xop_op *op;
    const struct xop_reference *reference; /* NULL: none */
    enum xop_dtype dtype;
    struct xop_attr attrs[XOP_MAX_ATTRS];
    struct reference made;
} own;

static int32_t find_operand(const struct xop_operand *operands, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(operands[i].name, name) == 0)
            return (int32_t)i;
    return -1;
}

static bool is_gradient_of(const char *name, const char *of) {
    return strncmp(name, "grad_", 5) == 0 && strcmp(name + 5, of) == 0;
}

/* ---- Whether there are cases for it ---- */

static const char *check_backward(const struct xop_op *op) {
    const struct xop_signature *f = &op->pass[XOP_FORWARD], *b = &op->pass[XOP_BACKWARD];
    int32_t last = -1;
    uint32_t i = 0;
    for (; i < b->nin; i++) {
        int32_t in = find_operand(f->in, f->nin, b->in[i].name);
        int32_t out = find_operand(f->out, f->nout, b->in[i].name);
        int32_t place = in >= 0 ? in : out >= 0 ? (int32_t)f->nin + out : -1;
        if (place <= last)
            break;
        last = place;
    }
    for (uint32_t k = 0; k < f->nout; k++, i++)
        if (i >= b->nin || !is_gradient_of(b->in[i].name, f->out[k].name))
            return "its backward has to take some of forward's inputs, some of its outputs, and "
                   "the "
                   "gradients of all outputs, in this order";
    if (i != b->nin || b->nout > f->nin)
        return "its backward takes or gives more than forward has";
    for (uint32_t k = 0; k < b->nout; k++)
        if (!is_gradient_of(b->out[k].name, f->in[k].name))
            return "its backward has to give the gradients of forward's first inputs, in order";
    return NULL;
}

static const char *check_cases(const struct xop_op *op) {
    const struct xop_signature *f = &op->pass[XOP_FORWARD];
    if (!(op->dtypes & XOP_FLOATS))
        return "it takes no floating dtype";
    for (uint32_t i = 0; i < f->nin; i++)
        if (f->in[i].flags & XOP_OPERAND_OWN_DTYPE)
            return "an input has a dtype of its own, as indices have";
    for (uint32_t i = 0; i < op->nattrs; i++)
        if (op->attrs[i].required)
            return "an attribute is required, and has no default to be tried";
    return op->pass[XOP_BACKWARD].launch ? check_backward(op) : NULL;
}

enum xop_status op_reference_use(const struct xop_library *library,
                                 const struct xop_references *references, struct xop_error *error) {
    for (uint32_t i = 0; i < library->nops; i++) {
        const char *wrong = check_cases(library->ops[i]);
        if (wrong)
            return xop_fail(error, XOP_FAILED_PRECONDITION, "check has no cases for %s: %s",
                            library->ops[i]->name, wrong);
    }
    used = library;
    used_references = references;
    return XOP_OK;
}

/* ---- Answering ---- */

static bool infer(enum xop_pass pass, const struct reference_tensor *in, struct xop_plan *plan) {
    const struct xop_signature *signature = &own.op->pass[pass];
    struct xop_tensor tensors[XOP_MAX_INPUTS];
    struct xop_call call = {.in = tensors, .attrs = own.attrs};
    struct xop_error ignored;
    memset(tensors, 0, sizeof tensors);
    memset(plan, 0, sizeof *plan);
    for (uint32_t i = 0; i < signature->nin; i++) {
        if (in[i].absent)
            continue;
        tensors[i].dtype = own.dtype;
        tensors[i].rank = in[i].rank;
        memcpy(tensors[i].shape, in[i].shape, sizeof tensors[i].shape);
    }
    return signature->infer(&call, plan, &ignored) == XOP_OK;
}

static bool shape(enum xop_pass pass, const struct reference_tensor *in,
                  struct reference_tensor *out) {
    struct xop_plan plan;
    if (!infer(pass, in, &plan))
        return false;
    for (uint32_t i = 0; i < own.op->pass[pass].nout; i++) {
        if (plan.out[i].rank > XOP_MAX_RANK)
            return false;
        out[i].rank = plan.out[i].rank;
        memcpy(out[i].shape, plan.out[i].shape, sizeof out[i].shape);
    }
    return true;
}

static bool takes(const struct reference_setting *setting, const struct reference_tensor *in) {
    struct xop_plan plan;
    (void)setting;
    return infer(XOP_FORWARD, in, &plan);
}

static void begin(enum xop_dtype dtype) { own.dtype = dtype; }

static void copy_in(struct xop_reference_tensor *to, const struct reference_tensor *from) {
    to->rank = from->rank;
    memcpy(to->shape, from->shape, sizeof to->shape);
    to->n = from->n;
    to->data = from->data;
    to->scale = from->scale;
    to->terms = 1;
    for (int64_t i = 0; to->scale && i < to->n; i++)
        to->scale[i] = to->data[i] = NAN;
}

static void run_pass(enum xop_pass pass, const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    const struct xop_signature *signature = &own.op->pass[pass];
    struct xop_reference_tensor from[XOP_MAX_INPUTS], to[XOP_MAX_OUTPUTS];
    struct xop_reference_call call = {from, to, own.attrs, arithmetic->max};
    memset(from, 0, sizeof from);
    memset(to, 0, sizeof to);
    for (uint32_t i = 0; i < signature->nin; i++) {
        copy_in(&from[i], &in[i]);
        if (signature->in[i].flags & XOP_OPERAND_SHAPE_ONLY)
            from[i].data = NULL;
    }
    for (uint32_t i = 0; i < signature->nout; i++)
        copy_in(&to[i], &out[i]);
    own.reference->pass[pass](&call);
    for (uint32_t i = 0; i < signature->nout; i++) {
        out[i].terms = to[i].terms;
        for (int64_t k = 0; k < out[i].n; k++)
            if (isnan(out[i].scale[k]))
                out[i].scale[k] = fabs(out[i].data[k]);
    }
}

static void forward(const struct reference_arithmetic *arithmetic,
                    const struct reference_tensor *in, struct reference_tensor *out) {
    run_pass(XOP_FORWARD, arithmetic, in, out);
}

static void backward(const struct reference_arithmetic *arithmetic,
                     const struct reference_tensor *in, struct reference_tensor *out) {
    run_pass(XOP_BACKWARD, arithmetic, in, out);
}

/* ---- Making ---- */

static bool broadcasts(const struct xop_op *op) {
    struct reference_tensor in[XOP_MAX_INPUTS];
    struct xop_plan plan;
    memset(in, 0, sizeof in);
    for (uint32_t i = 0; i < op->pass[XOP_FORWARD].nin; i++) {
        in[i].rank = i == 0 ? 2 : 1;
        in[i].shape[0] = i == 0 ? 3 : 4;
        in[i].shape[1] = 4;
    }
    for (own.dtype = XOP_F16; !(op->dtypes & XOP_DTYPE_BIT(own.dtype)); own.dtype++)
        ;
    return op->pass[XOP_FORWARD].nin > 1 && infer(XOP_FORWARD, in, &plan);
}

static void save_backward(struct reference *made, const struct xop_op *op) {
    const struct xop_signature *f = &op->pass[XOP_FORWARD], *b = &op->pass[XOP_BACKWARD];
    made->ngrad = b->nout;
    for (uint32_t i = 0; i < b->nin; i++) {
        int32_t in = find_operand(f->in, f->nin, b->in[i].name);
        int32_t out = find_operand(f->out, f->nout, b->in[i].name);
        if (in >= 0)
            made->saved_in |= 1u << in;
        else if (out >= 0)
            made->saved_out |= 1u << out;
        if (b->in[i].flags & XOP_OPERAND_SHAPE_ONLY)
            made->shape_only |= 1u << i;
    }
}

static void find_reference(const char *name) {
    own.reference = NULL;
    for (uint32_t i = 0; used_references && i < used_references->n; i++)
        if (strcmp(used_references->list[i].op, name) == 0)
            own.reference = &used_references->list[i];
}

const struct reference *op_reference_find(const char *name) {
    const struct xop_op *op = NULL;
    for (uint32_t i = 0; used && i < used->nops; i++)
        if (strcmp(used->ops[i]->name, name) == 0)
            op = used->ops[i];
    if (!op)
        return NULL;
    memset(&own, 0, sizeof own);
    own.op = op;
    for (uint32_t i = 0; i < op->nattrs; i++)
        own.attrs[i] = op->attrs[i].fallback;
    find_reference(name);
    const struct xop_reference *brought = own.reference;
    /* Without a reference numbers are drawn where most functions have a value. */
    double low = brought ? -2 : 0.25, high = brought ? 3 : 1;
    if (brought && brought->low < brought->high) {
        low = brought->low;
        high = brought->high;
    }
    own.made = (struct reference){.name = op->name,
                                  .nin = op->pass[XOP_FORWARD].nin,
                                  .nout = op->pass[XOP_FORWARD].nout,
                                  .broadcasts = broadcasts(op),
                                  .no_edges = !brought || brought->flags & XOP_REFERENCE_NO_EDGES,
                                  .takes = takes,
                                  .low = low,
                                  .high = high,
                                  .shape = shape,
                                  .begin = begin};
    own.made.smooth_low = low;
    own.made.smooth_high = high;
    if (op->pass[XOP_BACKWARD].launch)
        save_backward(&own.made, op);
    if (brought) {
        own.made.forward = forward;
        own.made.backward = brought->pass[XOP_BACKWARD] ? backward : NULL;
    }
    return &own.made;
}
