/* The verb run: tensors from files through an operator to files. */
#include "run.h"

#include "file.h"
#include "lookup.h"
#include "print.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

bool run_fail(struct job *job, int exit_status, enum xop_status status, const char *message) {
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
    enum { IN = 1, GRAD, OUT, ATTR, DTYPE, DEADLINE, BACKWARD, CHECK, NO_SHM, JSON };
    static const struct option options[] = {{"in", required_argument, NULL, IN},
                                            {"grad", required_argument, NULL, GRAD},
                                            {"out", required_argument, NULL, OUT},
                                            {"attr", required_argument, NULL, ATTR},
                                            {"dtype", required_argument, NULL, DTYPE},
                                            {"deadline", required_argument, NULL, DEADLINE},
                                            {"backward", no_argument, NULL, BACKWARD},
                                            {"check", no_argument, NULL, CHECK},
                                            {"no-shm", no_argument, NULL, NO_SHM},
                                            {"json", no_argument, NULL, JSON},
                                            {NULL, 0, NULL, 0}};
    int c;
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
        case NO_SHM: a->no_shm = true; break;
        case JSON: session->json = true; break;
        case DTYPE:
            if (strcmp(optarg, "bf16") != 0)
                return session_usage(&verb_run, "--dtype takes bf16 alone: other types are in the "
                                                "file");
            a->bf16 = true;
            break;
        case DEADLINE:
            if (!session_count(optarg, 1, UINT64_MAX, &a->deadline_ms))
                return session_usage(&verb_run, "--deadline takes milliseconds, 1 at least");
            break;
        default: return session_usage(&verb_run, "wrong usage");
        }
    }
    if (argc - optind != 1)
        return session_usage(&verb_run,
                             optind == argc
                                 ? "which operator?"
                                 : "one operator at a time; inputs are given with --in TENSOR");
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
            return run_fail(job, exit_status, error.status, error.message);
    return true;
}

/* ---- The request ---- */

static const char *pass_name(enum xop_pass pass) {
    return pass == XOP_BACKWARD ? "backward" : "forward";
}

static bool run_request(struct job *job, enum xop_pass pass, struct xop_result **result) {
    struct xop_request request = {.op = job->arguments->op,
                                  .pass = pass,
                                  .in = job->in,
                                  .nin = job->nin,
                                  .attrs = job->attrs.list,
                                  .nattrs = job->attrs.n,
                                  .deadline_ms = job->arguments->deadline_ms,
                                  .check = job->arguments->check};
    struct xop_client *client = job->session->client;
    struct share *share = &job->shares[pass == XOP_BACKWARD];
    if (!job->arguments->no_shm && session_shares_memory(xop_client_address(client)))
        share_open(share, client, json_object_get(job->op, pass_name(pass)), &request);
    job->shared = share->memory != NULL;
    xop_run(client, &request, result);
    if (*result && (*result)->error.status == XOP_INVALID_ARGUMENT && request.nout > 0) {
        /* Where an output has not the shape that was to be expected, it comes as it is. */
        request.out = NULL;
        request.nout = 0;
        xop_result_free(*result);
        xop_run(client, &request, result);
    }
    if (*result && (*result)->error.status == XOP_OK)
        return true;
    if (!*result)
        return run_fail(job, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    return run_fail(job, session_exit((*result)->error.status), (*result)->error.status,
                    (*result)->error.message);
}

/* ---- Results ---- */

static json_t *describe_output(const struct value *value, const char *name, const char *file) {
    json_t *shape = json_array();
    for (uint32_t i = 0; i < value->tensor.rank; i++)
        json_array_append_new(shape, json_integer(value->tensor.shape[i]));
    json_t *output = json_pack("{s:s, s:s, s:o}", "name", name, "dtype",
                               xop_dtype_name(value->tensor.dtype), "shape", shape);
    if (file)
        json_object_set_new(output, "file", json_string(file));
    else
        json_object_set_new(output, "data", print_json(value));
    return output;
}

static bool print_output(struct job *job, const struct value *value, const char *name, bool alone) {
    char *printed = print_value(value);
    if (!printed)
        return run_fail(job, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
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
            ok = run_fail(job, exit_status, error.status, error.message);
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
        json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:I}", "op", a->op, "pass",
                  a->backward ? "backward" : "forward", "path", job->shared ? "shm" : "inline",
                  "outputs", outputs, "queue_us", (double)result->queue_ns / 1e3, "copy_us",
                  (double)result->copy_ns / 1e3, "run_us", (double)result->run_ns / 1e3, "batch",
                  (json_int_t)result->batch));
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
    job->pass =
        json_object_get(job->op, pass_name(job->arguments->backward ? XOP_BACKWARD : XOP_FORWARD));
    if (json_is_object(job->pass))
        return true;
    snprintf(message, sizeof message, "%s has no backward", job->arguments->op);
    return run_fail(job, EX_USAGE, XOP_UNIMPLEMENTED, message);
}

static bool parse_attrs(struct job *job) {
    struct xop_error error;
    return attrs_parse(&job->attrs, job->op, job->arguments->attrs, job->arguments->nattrs,
                       &error) == XOP_OK ||
           run_fail(job, EX_USAGE, error.status, error.message);
}

static bool check_outs(struct job *job) {
    char message[200];
    size_t n = json_array_size(json_object_get(job->pass, "outputs"));
    if (job->arguments->nout <= n)
        return true;
    snprintf(message, sizeof message, "%s has %zu outputs, --out is given %u times",
             job->arguments->op, n, job->arguments->nout);
    return run_fail(job, EX_USAGE, XOP_INVALID_ARGUMENT, message);
}

static bool place(struct job *job) {
    if (!job->arguments->backward)
        return run_place_forward(job);
    if (run_needs_forward(job) &&
        (!run_place_forward(job) || !run_request(job, XOP_FORWARD, &job->forward)))
        return false;
    return run_place_backward(job);
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
        find_op(&job) && check_outs(&job) && parse_attrs(&job) && place(&job) &&
        run_request(&job, arguments.backward ? XOP_BACKWARD : XOP_FORWARD, &result))
        deliver(&job, result);
    xop_result_free(result);
    xop_result_free(job.forward);
    share_close(&job.shares[0]);
    share_close(&job.shares[1]);
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
             "           [--out FILE]... [--dtype bf16] [--check] [--deadline MS]\n"
             "           [--no-shm] [--json]",
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
        "  --no-shm          send tensors through the socket; else those of 64 KiB and more in "
        "total\n"
        "                    lie in memory shared with the daemon, on a Unix socket\n"
        "  --json            {op, pass, path, outputs: [{name, dtype, shape, data or file}],\n"
        "                    queue_us, copy_us, run_us, batch}\n",
    .run = run,
};
