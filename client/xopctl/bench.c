/* The verb bench: what requests take, beside what the bare device takes. */
#include "bench.h"

#include <string.h>
#include <sysexits.h>

static int told(struct session *session, const struct xop_error *error) {
    return session_fail(session, session_exit(error->status), error->status, "%s", error->message);
}

/* ---- What is to be measured ---- */

static int find_op(struct bench *b) {
    const struct bench_options *o = &b->options;
    struct xop_result *result;
    struct xop_error error;
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
    if (attrs_parse(&b->attrs, b->op, o->attrs, o->nattrs, &error) != XOP_OK)
        return session_fail(b->session, EX_USAGE, error.status, "%s", error.message);
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
    bool shares = session_shares_memory(address);
    if (o->path == BENCH_SHM && !shares)
        return session_fail(b->session, EX_USAGE, XOP_FAILED_PRECONDITION,
                            "--path shm: memory is shared over Unix sockets alone, and this is %s",
                            address);
    if (o->path == BENCH_AUTO)
        o->path = shares && !o->no_shm && b->work.bytes_in + b->work.bytes_out >= SHARE_FROM_BYTES
                      ? BENCH_SHM
                      : BENCH_INLINE;
    b->load = (struct bench_load){.work = &b->work,
                                  .address = address,
                                  .session = b->session,
                                  .path = o->path,
                                  .clients = o->clients,
                                  .inflight = o->inflight,
                                  .seconds = o->seconds,
                                  .spin_us = o->spin_us,
                                  .name = o->op,
                                  .progress = b->session->progress};
    return 0;
}

/* ---- The verb ---- */

static void on_interrupt(int number) {
    (void)number;
    bench_interrupted = 1;
}

/* What is measured, one after the other. */
static enum xop_status measure_all(struct bench *b, struct xop_error *error) {
    bench_floor_probe(b->session, &b->work, &b->floor);
    enum xop_status status = bench_measure(&b->load, &b->figures, error);
    if (status == XOP_OK)
        bench_floor_probe(b->session, &b->work, &b->floor);
    if (status == XOP_OK && b->options.compare && !bench_interrupted)
        status = bench_compare(&b->load, &b->comparison, error);
    if (status == XOP_OK && b->options.flood > 0 && !bench_interrupted)
        status = bench_fairness(&b->load, b->options.flood, &b->fairness, error);
    if (status == XOP_OK && b->options.report && !bench_interrupted)
        status = bench_sweep(b, error);
    return status;
}

static int tell(struct bench *b, struct outfile *report) {
    struct xop_error error;
    int status = 0;
    if (b->session->json)
        status = session_print_json(bench_json(b));
    else
        bench_print(b);
    b->session->json = false; /* there is one object, and it was printed */
    if (b->options.report && bench_report_write(report, b, &error) != XOP_OK)
        return session_fail(b->session, EX_IOERR, error.status, "%s", error.message);
    if (status == 0 && b->figures.errors > 0)
        status = session_exit(b->figures.error.status);
    return status;
}

static int measure(struct bench *b, struct outfile *report) {
    struct xop_error error;
    int status = find_op(b);
    if (status)
        return status;
    if (!b->session->json)
        bench_print_header(b);
    if (bench_work_make(b->session, &b->options, b->op, &b->attrs, &b->work, &error) != XOP_OK)
        return told(b->session, &error);
    status = choose_path(b);
    if (status)
        return status;
    if (measure_all(b, &error) != XOP_OK)
        return told(b->session, &error);
    return tell(b, report);
}

static int run(struct session *session, int argc, char **argv) {
    static struct bench b;
    static struct outfile report;
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    struct xop_error error;
    b.session = session;
    b.argc = argc;
    b.argv = argv;
    b.options = (struct bench_options){.op = "square_bias",
                                       .dtype = XOP_F32,
                                       .clients = 1,
                                       .inflight = 1,
                                       .path = BENCH_AUTO,
                                       .seconds = 3};
    int status = bench_parse(&b.options, argc, argv);
    session->json = b.options.json;
    if (status)
        return status;
    if (b.options.report && outfile_open(&report, b.options.report, &error) != XOP_OK)
        return session_fail(session, EX_CANTCREAT, error.status, "%s", error.message);
    sigaction(SIGINT, &action, NULL); /* a second one ends the program */
    if (session_connect(session, &status) && (b.ping = session_ping(session, &status)))
        status = measure(&b, &report);
    outfile_close(&report);
    bench_work_free(&b.work);
    json_decref(b.description);
    json_decref(b.ping);
    return status;
}

const struct verb verb_bench = {
    .name = "bench",
    .usage = "[OP] [--shape N,M]... [--dtype D] [--backward] [--attr NAME=VALUE]...\n"
             "           [--clients N] [--inflight K] [--path inline|shm|resident] [--no-shm]\n"
             "           [--seconds S] [--spin-us U] [--flood K] [--compare]\n"
             "           [--report FILE.html] [--json]",
    .summary = "measure what requests take",
    .details = "Runs one operator again and again, square_bias unless another is named, and\n"
               "shows how long requests took from sending to having the result: the time under\n"
               "which half, 90 %, 99 % and 99.9 % of them stayed.\n"
               "\n"
               "  --shape N,M        the shape of all inputs (default 1280,1280); where the\n"
               "                     operator does not take that, those behind the first have\n"
               "                     its last dimension alone, or all but the last. Given\n"
               "                     several times: one for each input\n"
               "  --dtype D          (default f32)\n"
               "  --backward         measure the gradient\n"
               "  --attr NAME=VALUE  an attribute; lists are written 1,2,3\n"
               "  --clients N        so many connections, with a thread each (default 1)\n"
               "  --inflight K       so many requests of each connection at once (default 1)\n"
               "  --path PATH        how tensors get there and back: inline, in the frames;\n"
               "                     shm, in memory shared with the daemon; resident, they stay\n"
               "                     there. Without it: shm on a Unix socket from 64 KiB a\n"
               "                     request on, else inline\n"
               "  --no-shm           inline whatever the size\n"
               "  --seconds S        measure for so long, after a warm-up (default 3)\n"
               "  --spin-us U        look for results so long without sleeping (default 50 where\n"
               "                     there are 8 processors or more, else 0)\n"
               "  --compare          measure x*x + b as a loop of this program's too, plain,\n"
               "                     with vectors and with all processors, beside the daemon by\n"
               "                     each path\n"
               "  --flood K          measure beside one more connection with K requests in\n"
               "                     flight too, in turns with without, and show the ratio of\n"
               "                     the two p99\n"
               "  --report FILE.html write a page with plots: latencies, throughput by size and\n"
               "                     by number of clients\n"
               "  --json             {op, pass, shape, dtype, path, clients, inflight, seconds,\n"
               "                     requests, errors, interrupted, p50_us, p90_us, p99_us,\n"
               "                     p999_us, requests_per_s, bytes_per_s, batch_mean, queue_us,\n"
               "                     run_us, floor_us, ratio, backend, device, fallback_reason,\n"
               "                     compare: [{name, time_us, speedup, reason}],\n"
               "                     flood: {inflight, requests_per_s, alone_p50_us,\n"
               "                     alone_p99_us, beside_p50_us, beside_p99_us, ratio}}\n"
               "\n"
               "Beside it stands the floor: what the device takes for the same bytes with\n"
               "nothing around it, timed by the daemon right before and after, and the ratio of\n"
               "p50 to it.\n"
               "\n"
               "An interrupt stops it and shows what was measured so far.\n",
    .run = run,
};
