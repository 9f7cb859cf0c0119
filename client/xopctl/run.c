/* The verb run: tensors from files through an operator to files. */
#include "attrs.h"
#include "file.h"
#include "lookup.h"
#include "print.h"
#include "session.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

/* A tensor that was given, by name or by position. */
struct given {
    const char *name; /* NULL: by position */
    size_t name_bytes;
    const char *file;
    struct value value;
    bool used;
};

struct arguments {
    const char *op;
    bool backward, check, bf16;
    uint64_t deadline_ms;
    struct given in[XOP_MAX_INPUTS], grad[XOP_MAX_OUTPUTS];
    uint32_t nin, ngrad, nattrs, nout;
    const char *attrs[XOP_MAX_ATTRS];
    const char *out[XOP_MAX_OUTPUTS];
};

/* What is made of them. */
struct job {
    struct session *session;
    struct arguments *arguments;
    json_t *document, *op, *pass; /* pass: the one that is run */
    struct attrs attrs;
    struct xop_result *forward; /* run first, where backward needs its outputs */
    struct xop_tensor in[XOP_MAX_INPUTS];
    uint32_t nin;
    int exit_status;
};

static bool fail(struct job *job, int exit_status, enum xop_status status, const char *message) {
    job->exit_status = session_fail(job->session, exit_status, status, "%s", message);
    return false;
}

/* ---- Options ---- */

/* NAME=FILE where what stands before = could be a name, else FILE. */
static void split_name(const char *argument, struct given *given) {
    size_t n = strspn(argument, "abcdefghijklmnopqrstuvwxyz0123456789_");
    *given = (struct given){.file = argument};
    if (n > 0 && argument[n] == '=') {
        given->name = argument;
        given->name_bytes = n;
        given->file = argument + n + 1;
    }
}

static int parse(int argc, char **argv, struct session *session, struct arguments *a) {
    enum { IN = 1, GRAD, OUT, ATTR, DTYPE, DEADLINE, BACKWARD, CHECK, JSON };
    static const struct option options[] = {
        {"in", required_argument, NULL, IN},       {"grad", required_argument, NULL, GRAD},
        {"out", required_argument, NULL, OUT},     {"attr", required_argument, NULL, ATTR},
        {"dtype", required_argument, NULL, DTYPE}, {"deadline", required_argument, NULL, DEADLINE},
        {"backward", no_argument, NULL, BACKWARD}, {"check", no_argument, NULL, CHECK},
        {"json", no_argument, NULL, JSON},         {NULL, 0, NULL, 0}};
    int c;
    char *end;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        bool full =
            (c == IN && a->nin == XOP_MAX_INPUTS) || (c == GRAD && a->ngrad == XOP_MAX_OUTPUTS) ||
            (c == OUT && a->nout == XOP_MAX_OUTPUTS) || (c == ATTR && a->nattrs == XOP_MAX_ATTRS);
        if (full)
            return session_usage(&verb_run, "too many of one option");
        switch (c) {
        case IN: split_name(optarg, &a->in[a->nin++]); break;
        case GRAD: split_name(optarg, &a->grad[a->ngrad++]); break;
        case OUT: a->out[a->nout++] = optarg; break;
        case ATTR: a->attrs[a->nattrs++] = optarg; break;
        case BACKWARD: a->backward = true; break;
        case CHECK: a->check = true; break;
        case JSON: session->json = true; break;
        case DTYPE:
            if (strcmp(optarg, "bf16") != 0)
                return session_usage(&verb_run, "--dtype takes bf16 alone: other types are in the "
                                                "file");
            a->bf16 = true;
            break;
        case DEADLINE:
            a->deadline_ms = strtoull(optarg, &end, 10);
            if (end == optarg || *end || a->deadline_ms == 0)
                return session_usage(&verb_run, "--deadline takes milliseconds, 1 at least");
            break;
        default: return session_usage(&verb_run, "wrong usage");
        }
    }
    if (argc - optind != 1)
        return session_usage(&verb_run,
                             optind == argc ? "which operator?" : "one operator at a time");
    a->op = argv[optind];
    if (a->ngrad > 0 && !a->backward)
        return session_usage(&verb_run, "--grad belongs to --backward");
    return 0;
}

static bool load(struct job *job, struct given *list, uint32_t n) {
    struct xop_error error;
    int exit_status;
    for (uint32_t i = 0; i < n; i++)
        if (file_read(list[i].file, job->arguments->bf16, &list[i].value, &exit_status, &error) !=
            XOP_OK)
            return fail(job, exit_status, error.status, error.message);
    return true;
}

/* ---- Which tensor is which input ---- */

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

static bool run_request(struct job *job, enum xop_pass pass, uint32_t nin,
                        struct xop_result **result) {
    struct xop_request request = {.op = job->arguments->op,
                                  .pass = pass,
                                  .in = job->in,
                                  .nin = nin,
                                  .attrs = job->attrs.list,
                                  .nattrs = job->attrs.n,
                                  .deadline_ms = job->arguments->deadline_ms,
                                  .check = job->arguments->check};
    if (xop_run(job->session->client, &request, result) == XOP_OK)
        return true;
    if (!*result)
        return fail(job, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    return fail(job, session_exit((*result)->error.status), (*result)->error.status,
                (*result)->error.message);
}

/* Inputs of forward, in order. A server tells better than we could what is missing or too much. */
static bool place_forward(struct job *job) {
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
            return fail(job, EX_USAGE, XOP_INVALID_ARGUMENT, message);
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
        return fail(job, EX_USAGE, XOP_INVALID_ARGUMENT, message);
    }
    if (json_is_true(json_object_get(input, "shape_only")))
        to->data = NULL;
    return true;
}

/* Whether backward takes an output of forward that was not given. */
static bool needs_forward(struct job *job) {
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

static bool place_backward(struct job *job) {
    json_t *inputs = json_object_get(job->pass, "inputs"), *input;
    struct xop_tensor placed[XOP_MAX_INPUTS];
    size_t i;
    if (needs_forward(job) &&
        (!place_forward(job) || !run_request(job, XOP_FORWARD, job->nin, &job->forward)))
        return false;
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
            return fail(job, EX_USAGE, XOP_INVALID_ARGUMENT,
                        "there are more --grad than outputs, or one of another name");
    return true;
}

/* ---- Results ---- */

static json_t *element_json(const struct value *value, int64_t i) {
    if (value_is_integer(value->tensor.dtype))
        return json_integer(value_get_integer(value, i));
    double x = value_get(value, i);
    if (isfinite(x))
        return json_real(x);
    return json_string(isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
}

static json_t *nested(const struct value *value, uint32_t d, int64_t at, int64_t count) {
    if (d == value->tensor.rank)
        return element_json(value, at);
    json_t *list = json_array();
    int64_t n = value->tensor.shape[d], inner = n ? count / n : 0;
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, nested(value, d + 1, at + i * inner, inner));
    return list;
}

static json_t *describe_output(const struct value *value, const char *name, const char *file) {
    json_t *shape = json_array();
    for (uint32_t i = 0; i < value->tensor.rank; i++)
        json_array_append_new(shape, json_integer(value->tensor.shape[i]));
    json_t *output = json_pack("{s:s, s:s, s:o}", "name", name, "dtype",
                               xop_dtype_name(value->tensor.dtype), "shape", shape);
    if (file)
        json_object_set_new(output, "file", json_string(file));
    else
        json_object_set_new(output, "data", nested(value, 0, 0, value->n));
    return output;
}

static bool print_output(struct job *job, const struct value *value, const char *name, bool alone) {
    char *printed = print_value(value);
    if (!printed)
        return fail(job, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    if (!alone)
        printf("%s =\n", name);
    puts(printed);
    free(printed);
    return true;
}

static bool deliver(struct job *job, const struct xop_result *result) {
    struct arguments *a = job->arguments;
    json_t *names = json_object_get(job->pass, "outputs"), *outputs = json_array();
    bool ok = true;
    for (uint32_t i = 0; ok && i < result->nout; i++) {
        struct value value = {.tensor = result->out[i]};
        const char *name = lookup_text(json_array_get(names, i), "name");
        const char *file = i < a->nout ? a->out[i] : NULL;
        struct xop_error error;
        int exit_status;
        if (value.tensor.dtype == XOP_DTYPE_NONE)
            continue;
        xop_tensor_elements(&value.tensor, &value.n);
        xop_tensor_bytes(&value.tensor, &value.bytes);
        if (file && file_write(file, name, &value, &exit_status, &error) != XOP_OK)
            ok = fail(job, exit_status, error.status, error.message);
        else if (job->session->json)
            json_array_append_new(outputs, describe_output(&value, name, file));
        else if (!file)
            ok = print_output(job, &value, name, result->nout == 1);
    }
    if (!ok || !job->session->json) {
        json_decref(outputs);
        return ok;
    }
    job->exit_status = session_print_json(
        json_pack("{s:s, s:s, s:o, s:f, s:f, s:f, s:I}", "op", a->op, "pass",
                  a->backward ? "backward" : "forward", "outputs", outputs, "queue_us",
                  (double)result->queue_ns / 1e3, "copy_us", (double)result->copy_ns / 1e3,
                  "run_us", (double)result->run_ns / 1e3, "batch", (json_int_t)result->batch));
    return job->exit_status == 0;
}

/* ---- The verb ---- */

static bool find_op(struct job *job) {
    struct xop_result *result;
    char message[200];
    xop_describe(job->session->client, job->arguments->op, &result);
    job->document = session_document(job->session, result, &job->exit_status);
    if (!job->document)
        return false;
    job->op = json_array_get(json_object_get(job->document, "operators"), 0);
    job->pass = json_object_get(job->op, job->arguments->backward ? "backward" : "forward");
    if (json_is_object(job->pass))
        return true;
    snprintf(message, sizeof message, "%s has no backward", job->arguments->op);
    return fail(job, EX_USAGE, XOP_UNIMPLEMENTED, message);
}

static bool parse_attrs(struct job *job) {
    struct xop_error error;
    return attrs_parse(&job->attrs, job->op, job->arguments->attrs, job->arguments->nattrs,
                       &error) == XOP_OK ||
           fail(job, EX_USAGE, error.status, error.message);
}

static bool check_outs(struct job *job) {
    char message[200];
    size_t n = json_array_size(json_object_get(job->pass, "outputs"));
    if (job->arguments->nout <= n)
        return true;
    snprintf(message, sizeof message, "%s has %zu outputs, --out is given %u times",
             job->arguments->op, n, job->arguments->nout);
    return fail(job, EX_USAGE, XOP_INVALID_ARGUMENT, message);
}

static int run(struct session *session, int argc, char **argv) {
    static struct arguments arguments;
    static struct job job;
    struct xop_result *result = NULL;
    job.session = session;
    job.arguments = &arguments;
    job.exit_status = parse(argc, argv, session, &arguments);
    if (job.exit_status == 0 && load(&job, arguments.in, arguments.nin) &&
        load(&job, arguments.grad, arguments.ngrad) && session_connect(session, &job.exit_status) &&
        find_op(&job) && check_outs(&job) && parse_attrs(&job) &&
        (arguments.backward ? place_backward(&job) : place_forward(&job)) &&
        run_request(&job, arguments.backward ? XOP_BACKWARD : XOP_FORWARD, job.nin, &result))
        deliver(&job, result);
    xop_result_free(result);
    xop_result_free(job.forward);
    json_decref(job.document);
    for (uint32_t i = 0; i < arguments.nin; i++)
        value_free(&arguments.in[i].value);
    for (uint32_t i = 0; i < arguments.ngrad; i++)
        value_free(&arguments.grad[i].value);
    return job.exit_status;
}

const struct verb verb_run = {
    .name = "run",
    .usage = "OP [--backward] --in TENSOR... [--grad TENSOR]... [--attr NAME=VALUE]...\n"
             "           [--out FILE]... [--dtype bf16] [--check] [--deadline MS] [--json]",
    .summary = "run an operator on tensors",
    .details =
        "  --in TENSOR       the next input, or NAME=TENSOR; a TENSOR is a .npy or .safetensors\n"
        "                    file (FILE.safetensors:NAME where it holds several), - for .npy from\n"
        "                    standard input, or a literal as f32:[[1,2],[3,4]] or f64:1.5\n"
        "  --backward        run the gradient: --in gives forward's inputs; what backward needs "
        "of\n"
        "                    forward's outputs is computed first\n"
        "  --grad TENSOR     the gradient of the next output, for --backward\n"
        "  --attr NAME=VALUE an attribute; lists are written 1,2,3\n"
        "  --out FILE        where the next output goes, - for .npy to standard output; what has "
        "no\n"
        "                    --out is printed as NumPy would\n"
        "  --dtype bf16      .npy files of 2-byte values without a name are bf16\n"
        "  --check           guard bytes around the outputs, which are poisoned first\n"
        "  --deadline MS     give up after so many milliseconds\n"
        "  --json            {op, pass, outputs: [{name, dtype, shape, data or file}], queue_us,\n"
        "                    copy_us, run_us, batch}\n",
    .run = run,
};
