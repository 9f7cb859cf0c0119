/* The verb bench: what requests take, beside what the bare device takes. */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define MAX_CLIENTS 1024
#define MAX_INFLIGHT 65536
#define SHM_FROM_BYTES (1 << 20)

static const char *text(json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static int told(struct session *session, const struct xop_error *error) {
    return session_fail(session, session_exit(error->status), error->status, "%s", error->message);
}

/* ---- Options ---- */

static bool parse_shape(struct bench_options *options, const char *at) {
    struct bench_shape *shape = &options->shapes[options->nshapes];
    if (options->nshapes == XOP_MAX_INPUTS)
        return false;
    while (*at) {
        char *end;
        long long n = strtoll(at, &end, 10);
        if (end == at || n < 0 || n > (1LL << 40) || (*end && (*end != ',' || !end[1])) ||
            shape->rank == XOP_MAX_RANK)
            return false;
        shape->n[shape->rank++] = n;
        at = *end ? end + 1 : end;
    }
    options->nshapes++;
    return true;
}

static bool parse_count(const char *from, uint64_t least, uint64_t most, uint64_t *to) {
    char *end;
    errno = 0;
    *to = strtoull(from, &end, 10);
    return end != from && !*end && !errno && *from != '-' && *to >= least && *to <= most;
}

static bool parse_path(const char *name, enum bench_path *path) {
    for (*path = 0; *path < BENCH_SHM; ++*path)
        if (strcmp(name, bench_path_name(*path)) == 0)
            return true;
    return false;
}

static bool parse_seconds(const char *from, double *seconds) {
    char *end;
    *seconds = strtod(from, &end);
    return end != from && !*end && *seconds >= 0.01 && *seconds <= 86400;
}

static int parse(struct session *session, struct bench_options *o, int argc, char **argv) {
    enum { SHAPE = 1, DTYPE, BACKWARD, ATTR, CLIENTS, INFLIGHT, PATH, SECONDS, NO_SHM, SPIN, JSON };
    static const struct option options[] = {{"shape", required_argument, NULL, SHAPE},
                                            {"dtype", required_argument, NULL, DTYPE},
                                            {"backward", no_argument, NULL, BACKWARD},
                                            {"attr", required_argument, NULL, ATTR},
                                            {"clients", required_argument, NULL, CLIENTS},
                                            {"inflight", required_argument, NULL, INFLIGHT},
                                            {"path", required_argument, NULL, PATH},
                                            {"seconds", required_argument, NULL, SECONDS},
                                            {"no-shm", no_argument, NULL, NO_SHM},
                                            {"spin-us", required_argument, NULL, SPIN},
                                            {"json", no_argument, NULL, JSON},
                                            {NULL, 0, NULL, 0}};
    uint64_t n;
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        const char *wrong = NULL;
        switch (c) {
        case SHAPE:
            if (!parse_shape(o, optarg))
                wrong = "--shape takes sizes, as 1280,1280";
            break;
        case DTYPE:
            if ((o->dtype = value_dtype_named(optarg, strlen(optarg))) == XOP_DTYPE_NONE)
                wrong = "--dtype takes one of f16, bf16, f32, f64, i32, i64";
            break;
        case BACKWARD: o->pass = XOP_BACKWARD; break;
        case ATTR:
            if (o->nattrs == XOP_MAX_ATTRS)
                wrong = "too many of --attr";
            else
                o->attrs[o->nattrs++] = optarg;
            break;
        case CLIENTS:
            if (!parse_count(optarg, 1, MAX_CLIENTS, &n))
                wrong = "--clients takes a number from 1 to 1024";
            o->clients = (uint32_t)n;
            break;
        case INFLIGHT:
            if (!parse_count(optarg, 1, MAX_INFLIGHT, &n))
                wrong = "--inflight takes a number from 1 to 65536";
            o->inflight = (uint32_t)n;
            break;
        case PATH:
            if (!parse_path(optarg, &o->path))
                wrong = "--path takes inline";
            break;
        case SECONDS:
            if (!parse_seconds(optarg, &o->seconds))
                wrong = "--seconds takes a number from 0.01 to 86400";
            break;
        case SPIN:
            if (!parse_count(optarg, 0, 1000000, &o->spin_us))
                wrong = "--spin-us takes microseconds, 1000000 at most";
            break;
        case NO_SHM: o->no_shm = true; break;
        case JSON: session->json = true; break;
        default: wrong = "wrong usage";
        }
        if (wrong)
            return session_usage(&verb_bench, "%s", wrong);
    }
    if (argc - optind > 1)
        return session_usage(&verb_bench, "one operator at a time");
    if (optind < argc)
        o->op = argv[optind];
    if (o->no_shm && o->path == BENCH_SHM)
        return session_usage(&verb_bench, "--path shm and --no-shm exclude each other");
    if (o->nshapes == 0)
        parse_shape(o, "1280,1280");
    return 0;
}

/* ---- What is to be measured ---- */

struct bench {
    struct session *session;
    struct bench_options options;
    json_t *ping, *description, *op;
    struct bench_work work;
    struct bench_load load;
    struct bench_figures figures;
};

static int find_op(struct bench *b) {
    const struct bench_options *o = &b->options;
    struct xop_result *result;
    int status = 0;
    size_t i;
    json_t *dtype;
    xop_describe(b->session->client, o->op, &result);
    b->description = session_document(b->session, result, &status);
    if (!b->description)
        return status;
    b->op = json_array_get(json_object_get(b->description, "operators"), 0);
    if (o->pass == XOP_BACKWARD && !json_is_object(json_object_get(b->op, "backward")))
        return session_fail(b->session, EX_USAGE, XOP_UNIMPLEMENTED, "%s has no backward", o->op);
    json_array_foreach(json_object_get(b->op, "dtypes"), i, dtype) {
        const char *name = json_string_value(dtype);
        if (name && strcmp(name, xop_dtype_name(o->dtype)) == 0)
            return 0;
    }
    return session_fail(b->session, EX_USAGE, XOP_INVALID_ARGUMENT, "%s does not take %s", o->op,
                        xop_dtype_name(o->dtype));
}

static int choose_path(struct bench *b) {
    struct bench_options *o = &b->options;
    const char *address = xop_client_address(b->session->client);
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    if (o->path == BENCH_SHM && !is_unix)
        return session_fail(b->session, EX_USAGE, XOP_FAILED_PRECONDITION,
                            "--path shm: memory is shared over Unix sockets alone, and this is %s",
                            address);
    if (o->path == BENCH_AUTO)
        o->path = is_unix && !o->no_shm && b->work.bytes_in + b->work.bytes_out >= SHM_FROM_BYTES
                      ? BENCH_INLINE
                      : BENCH_INLINE;
    b->load = (struct bench_load){.work = &b->work,
                                  .address = address,
                                  .path = o->path,
                                  .clients = o->clients,
                                  .inflight = o->inflight,
                                  .seconds = o->seconds,
                                  .spin_us = o->spin_us,
                                  .progress = b->session->progress ? o->op : NULL};
    return 0;
}

/* ---- Telling ---- */

static void print_header(const struct bench *b) {
    printf("bench on %s: %s (%s)\n", text(b->ping, "backend"), text(b->ping, "device"),
           text(b->ping, "runtime"));
    if (*text(b->ping, "fallback_reason"))
        printf("no GPU is used: %s\n", text(b->ping, "fallback_reason"));
}

static const char *pass_name(enum xop_pass pass) {
    return pass == XOP_FORWARD ? "forward" : "backward";
}

static void print_figures(const struct bench *b) {
    const struct bench_options *o = &b->options;
    const struct bench_figures *f = &b->figures;
    char shape[200];
    value_shape_text(shape, sizeof shape, o->shapes[0].rank, o->shapes[0].n);
    printf("%s %s %s %s, %s, %u client%s, %u in flight: %llu requests in %.2f s\n", o->op,
           pass_name(o->pass), xop_dtype_name(o->dtype), shape, bench_path_name(o->path),
           o->clients, o->clients == 1 ? "" : "s", o->inflight, (unsigned long long)f->requests,
           f->seconds);
    printf("latency  p50 %.1f us, p90 %.1f us, p99 %.1f us, p99.9 %.1f us\n",
           histogram_at(&f->latency, 0.5) / 1e3, histogram_at(&f->latency, 0.9) / 1e3,
           histogram_at(&f->latency, 0.99) / 1e3, histogram_at(&f->latency, 0.999) / 1e3);
    printf("rate     %.0f requests/s, %.3f GB/s, %.1f requests a batch\n", f->requests_per_s,
           f->bytes_per_s / 1e9, f->batch_mean);
    printf("server   queue %.1f us, run %.1f us (medians)\n", histogram_at(&f->queue, 0.5) / 1e3,
           histogram_at(&f->run, 0.5) / 1e3);
    if (f->errors)
        printf("errors   %llu, the first: %s\n", (unsigned long long)f->errors, f->error.message);
}

static json_t *figures_json(const struct bench *b) {
    const struct bench_options *o = &b->options;
    const struct bench_figures *f = &b->figures;
    json_t *shape = json_array();
    for (uint32_t i = 0; i < o->shapes[0].rank; i++)
        json_array_append_new(shape, json_integer(o->shapes[0].n[i]));
    json_t *document = json_pack(
        "{s:s, s:s, s:o, s:s, s:s, s:I, s:I, s:f, s:I, s:I, s:b}", "op", o->op, "pass",
        pass_name(o->pass), "shape", shape, "dtype", xop_dtype_name(o->dtype), "path",
        bench_path_name(o->path), "clients", (json_int_t)o->clients, "inflight",
        (json_int_t)o->inflight, "seconds", f->seconds, "requests", (json_int_t)f->requests,
        "errors", (json_int_t)f->errors, "interrupted", bench_interrupted != 0);
    json_t *figures = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:O, s:O, s:O}", "p50_us",
        histogram_at(&f->latency, 0.5) / 1e3, "p90_us", histogram_at(&f->latency, 0.9) / 1e3,
        "p99_us", histogram_at(&f->latency, 0.99) / 1e3, "p999_us",
        histogram_at(&f->latency, 0.999) / 1e3, "requests_per_s", f->requests_per_s, "bytes_per_s",
        f->bytes_per_s, "batch_mean", f->batch_mean, "queue_us", histogram_at(&f->queue, 0.5) / 1e3,
        "run_us", histogram_at(&f->run, 0.5) / 1e3, "backend", json_object_get(b->ping, "backend"),
        "device", json_object_get(b->ping, "device"), "fallback_reason",
        json_object_get(b->ping, "fallback_reason"));
    json_object_update(document, figures);
    json_decref(figures);
    return document;
}

/* ---- The verb ---- */

static void on_interrupt(int number) {
    (void)number;
    bench_interrupted = 1;
}

static int measure(struct bench *b) {
    struct xop_error error;
    int status = find_op(b);
    if (status)
        return status;
    if (!b->session->json)
        print_header(b);
    if (bench_work_make(b->session, &b->options, b->op, &b->work, &error) != XOP_OK)
        return told(b->session, &error);
    status = choose_path(b);
    if (status)
        return status;
    if (bench_measure(&b->load, &b->figures, &error) != XOP_OK)
        return told(b->session, &error);
    if (b->session->json)
        status = session_print_json(figures_json(b));
    else
        print_figures(b);
    return status ? status : b->figures.errors ? session_exit(b->figures.error.status) : 0;
}

static int run(struct session *session, int argc, char **argv) {
    static struct bench b;
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    b.session = session;
    b.options = (struct bench_options){.op = "square_bias",
                                       .dtype = XOP_F32,
                                       .clients = 1,
                                       .inflight = 1,
                                       .path = BENCH_AUTO,
                                       .seconds = 3};
    int status = parse(session, &b.options, argc, argv);
    if (status || !session_connect(session, &status))
        return status;
    sigaction(SIGINT, &action, NULL); /* a second one ends the program */
    b.ping = session_ping(session, &status);
    if (b.ping)
        status = measure(&b);
    bench_work_free(&b.work);
    json_decref(b.description);
    json_decref(b.ping);
    return status;
}

const struct verb verb_bench = {
    .name = "bench",
    .usage = "[OP] [--shape N,M]... [--dtype D] [--backward] [--attr NAME=VALUE]...\n"
             "           [--clients N] [--inflight K] [--path inline]\n"
             "           [--seconds S] [--spin-us U] [--json]",
    .summary = "measure what requests take",
    .details =
        "Runs one operator again and again, square_bias unless another is named, and shows how\n"
        "long requests took from sending to having the result: the time under which half, 90 %,\n"
        "99 % and 99.9 % of them stayed.\n\n"
        "  --shape N,M        the shape of all inputs (default 1280,1280); where the operator "
        "does\n"
        "                     not take that, those behind the first have its last dimension "
        "alone,\n"
        "                     or all but the last. Given several times: one for each input\n"
        "  --dtype D          (default f32)\n"
        "  --backward         measure the gradient\n"
        "  --attr NAME=VALUE  an attribute; lists are written 1,2,3\n"
        "  --clients N        so many connections, with a thread each (default 1)\n"
        "  --inflight K       so many requests of each connection at once (default 1)\n"
        "  --path inline      tensors are in the frames\n"
        "  --seconds S        measure for so long, after a warm-up (default 3)\n"
        "  --spin-us U        look for results so long without sleeping\n"
        "  --json             {op, pass, shape, dtype, path, clients, inflight, seconds, "
        "requests,\n"
        "                     errors, interrupted, p50_us, p90_us, p99_us, p999_us,\n"
        "                     requests_per_s, bytes_per_s, batch_mean, queue_us, run_us, backend,\n"
        "                     device, fallback_reason}\n\n"
        "An interrupt stops it and shows what was measured so far.\n",
    .run = run,
};
