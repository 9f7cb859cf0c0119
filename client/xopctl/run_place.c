/* Which of the tensors that were given is which input of an operator. */
#include "lookup.h"
#include "run.h"

#include <string.h>
#include <sysexits.h>

static struct given *named(struct given *list, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (list[i].name && strlen(name) == list[i].name_bytes &&
            memcmp(list[i].name, name, list[i].name_bytes) == 0)
            return &list[i];
    return NULL;
}

/* The nth of those that were given by position. */
static struct given *positional(struct given *list, uint32_t n, size_t index) {
    for (uint32_t i = 0; i < n; i++)
        if (!list[i].name && index-- == 0)
            return &list[i];
    return NULL;
}

/* Inputs of forward, in order. A server tells better than we could what is missing or too much. */
bool run_place_forward(struct job *job) {
    struct arguments *a = job->arguments;
    json_t *inputs = json_object_get(json_object_get(job->op, "forward"), "inputs");
    size_t position = 0;
    char message[200];
    job->nin = 0;
    for (uint32_t i = 0; i < a->nin; i++)
        if (a->in[i].name && !lookup_named(inputs, a->in[i].name, a->in[i].name_bytes) &&
            !a->backward) {
            snprintf(message, sizeof message, "--in %.80s: %s has no input of that name",
                     a->in[i].name, a->op);
            return run_fail(job, EX_USAGE, XOP_INVALID_ARGUMENT, message);
        }
    for (size_t i = 0; i < XOP_MAX_INPUTS; i++) {
        struct given *given =
            i < json_array_size(inputs)
                ? named(a->in, a->nin, lookup_text(json_array_get(inputs, i), "name"))
                : NULL;
        if (!given)
            given = positional(a->in, a->nin, position++);
        if (given)
            given->used = true;
        if (!given && i >= json_array_size(inputs))
            break;
        job->in[job->nin] =
            given ? given->value.tensor : (struct xop_tensor){.dtype = XOP_DTYPE_NONE};
        job->nin++;
    }
    while (job->nin > 0 && job->in[job->nin - 1].dtype == XOP_DTYPE_NONE)
        job->nin--;
    return true;
}

/* Where an input of backward comes from: given by name, forward's input or output, or a gradient.
 */
static bool place_backward_input(struct job *job, json_t *input, struct xop_tensor *to) {
    struct arguments *a = job->arguments;
    json_t *forward = json_object_get(job->op, "forward");
    const char *name = lookup_text(input, "name");
    char message[300];
    int gradient = strncmp(name, "grad_", 5) == 0
                       ? lookup_index(json_object_get(forward, "outputs"), name + 5)
                       : -1;
    int in = lookup_index(json_object_get(forward, "inputs"), name);
    int out = lookup_index(json_object_get(forward, "outputs"), name);
    struct given *given = named(a->in, a->nin, name);
    if (!given)
        given = named(a->grad, a->ngrad, name);
    if (!given && gradient >= 0) {
        given = named(a->grad, a->ngrad, name + 5);
        if (!given)
            given = positional(a->grad, a->ngrad, (size_t)gradient);
    } else if (!given && in >= 0) {
        given = positional(a->in, a->nin, (size_t)in);
    }
    if (given) {
        *to = given->value.tensor;
        given->used = true;
    } else if (out >= 0 && job->forward) {
        *to = job->forward->out[out];
    } else {
        snprintf(message, sizeof message, "backward of %s needs %s: give it with %s", a->op, name,
                 gradient >= 0 ? "--grad" : "--in");
        return run_fail(job, EX_USAGE, XOP_INVALID_ARGUMENT, message);
    }
    if (json_is_true(json_object_get(input, "shape_only")))
        to->data = NULL;
    return true;
}

/* Whether backward takes an output of forward that was not given. */
bool run_needs_forward(struct job *job) {
    json_t *outputs = json_object_get(json_object_get(job->op, "forward"), "outputs"), *input;
    size_t i;
    json_array_foreach(json_object_get(job->pass, "inputs"), i, input) {
        const char *name = lookup_text(input, "name");
        if (lookup_index(outputs, name) >= 0 &&
            !named(job->arguments->in, job->arguments->nin, name))
            return true;
    }
    return false;
}

bool run_place_backward(struct job *job) {
    json_t *inputs = json_object_get(job->pass, "inputs"), *input;
    struct xop_tensor placed[XOP_MAX_INPUTS] = {{XOP_DTYPE_NONE, 0, {0}, NULL}};
    size_t i;
    json_array_foreach(inputs, i, input) {
        if (i == XOP_MAX_INPUTS)
            break;
        if (!place_backward_input(job, input, &placed[i]))
            return false;
    }
    memcpy(job->in, placed, i * sizeof *placed);
    job->nin = (uint32_t)i;
    for (uint32_t k = 0; k < job->arguments->ngrad; k++)
        if (!job->arguments->grad[k].used)
            return run_fail(job, EX_USAGE, XOP_INVALID_ARGUMENT,
                            "there are more --grad than outputs, or one of another name");
    return true;
}
