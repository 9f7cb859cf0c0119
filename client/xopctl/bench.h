/*
 * Measuring what requests take: the work (bench_work.c: an operator and its tensors), how a
 * connection carries tensors (bench_path.c), connections with requests in flight
 * (bench_load.c), what the bare device takes (bench_floor.c), the same work without a daemon
 * (bench_compare.c, bench_plain.c), beside a client that floods (bench_fairness.c), short runs of
 * many sizes (bench_sweep.c), what is told
 * (bench_print.c, bench_report.c, bench_charts.c) and the verb that drives them (bench.c,
 * bench_options.c). All of it is called from the main thread; bench_load.c starts threads and ends
 * them before it returns.
 */
#ifndef XOPCTL_BENCH_H
#define XOPCTL_BENCH_H

#include "attrs.h"
#include "histogram.h"
#include "outfile.h"
#include "session.h"
#include "value.h"

#include <signal.h>

/* How tensors come to the server and back. */
enum bench_path {
    BENCH_INLINE,   /* in the frames */
    BENCH_SHM,      /* in memory shared with the server */
    BENCH_RESIDENT, /* they stay in the server */
    BENCH_PATHS
};
#define BENCH_AUTO BENCH_PATHS
const char *bench_path_name(enum bench_path path);

struct bench_shape {
    uint32_t rank;
    int64_t n[XOP_MAX_RANK];
};

struct bench_options {
    const char *op;
    enum xop_pass pass;
    enum xop_dtype dtype;
    struct bench_shape shapes[XOP_MAX_INPUTS]; /* of forward's inputs */
    uint32_t nshapes;                          /* 1: all have that one, or what goes with it */
    const char *attrs[XOP_MAX_ATTRS];
    uint32_t nattrs;
    uint32_t clients, inflight;
    uint32_t flood; /* 0: no such measurement */
    enum bench_path path;
    double seconds;
    const char *report; /* a file's name, or NULL */
    bool compare, no_shm, json;
    uint32_t spin_us; /* as xop_client_options has it */
};

/* Set by an interrupt: what measures stops, and what was measured so far is told. */
extern volatile sig_atomic_t bench_interrupted;

uint64_t bench_now_ns(void);

/* ---- The work ---- */

/* One request: the inputs, and the outputs that it has to give, as its first run gave them in the
 * frames. Nothing of it changes while it is measured. */
struct bench_work {
    const char *op;
    enum xop_pass pass;
    const struct attrs *attrs;
    struct value inputs[XOP_MAX_INPUTS];  /* dtype NONE where one is optional */
    struct xop_tensor in[XOP_MAX_INPUTS]; /* the same, without data where the shape is enough */
    uint32_t nin;
    struct xop_result *expected;
    uint64_t bytes_in, bytes_out;
    int64_t elements; /* of the first input */
};

/* Makes tensors for an operator of the describe document and runs it once. attrs stays the
 * caller's while the work is used. On failure nothing is to be freed. */
enum xop_status bench_work_make(struct session *session, const struct bench_options *options,
                                json_t *op, const struct attrs *attrs, struct bench_work *work,
                                struct xop_error *error);
void bench_work_free(struct bench_work *work);

/* ---- Requests that run at the same time on one connection ---- */

/* One request that is sent again and again, and where its tensors are. */
struct bench_slot {
    struct xop_request request;
    uint64_t started_ns;
    struct bench_client *client;
};

/* A connection and what its thread counts. */
struct bench_client {
    struct xop_client *connection;
    const struct bench_work *work;
    const struct bench_race *race; /* bench_load.c: whether to go on, and whether it counts */
    enum bench_path path;
    struct bench_slot *slots;
    uint32_t nslots, flying;
    struct xop_tensor *tensors; /* of all slots: nin inputs and then the outputs of each */
    uint64_t *handles;          /* the same, on the path resident */
    unsigned char *outputs;     /* memory for the outputs of all slots, on the path inline */
    struct xop_memory *memory;  /* on the path shm */
    struct histogram latency, queue, run;
    double launches; /* the sum of 1/batch */
    uint64_t errors;
    struct xop_error error;    /* the first one's */
    _Atomic uint64_t answered; /* the main thread looks at these two */
    _Atomic bool is_over;      /* the connection is of no use any more */
};

/* Sets up every slot of a connection for its path, and runs the first one: its result must be the
 * expected one, bit for bit. What it allocates is freed by bench_path_close in any case. */
enum xop_status bench_path_open(struct bench_client *client, struct xop_error *error);
void bench_path_close(struct bench_client *client);

/* ---- What the bare device takes ---- */

/* Nanoseconds; 0: not known, and then `why` says why. */
struct bench_floor {
    double direct_ns,
        device_ns; /* with host memory, as frames and shared memory are; with its own */
    char why[256];
};

/* Asks the server to time its device on so many bytes, and keeps the smaller times of several such
 * calls. */
void bench_floor_probe(struct session *session, const struct bench_work *work,
                       struct bench_floor *floor);
/* The one that a path is to be compared with. */
double bench_floor_of(const struct bench_floor *floor, enum bench_path path);

/* ---- Measuring ---- */

struct bench_load {
    const struct bench_work *work;
    const char *address;
    const struct session *session; /* for TLS */
    enum bench_path path;
    uint32_t clients, inflight;
    uint32_t flood; /* requests in flight of one connection more, which is not measured; 0: none */
    double seconds;
    uint32_t spin_us;
    const char *name; /* for the progress bar */
    bool progress;    /* whether there is one */
};

struct bench_figures {
    struct histogram latency, queue, run; /* nanoseconds */
    double seconds, requests_per_s, bytes_per_s, batch_mean;
    double flood_per_s; /* requests a second of the connection that floods */
    uint64_t requests, errors;
    struct xop_error error; /* the first of those errors */
};

/* Opens the connections, warms up and measures. Requests that fail while it measures are counted;
 * it fails where nothing could be measured. */
enum xop_status bench_measure(const struct bench_load *load, struct bench_figures *figures,
                              struct xop_error *error);

/* ---- The same work without a daemon ---- */

struct bench_row {
    char name[64], why[256]; /* why it has no time */
    double ns;               /* the median; 0: not known */
};

struct bench_comparison {
    struct bench_row rows[8];
    uint32_t n;
};

/* load: how to reach the daemon, and work that is square_bias, forward, f32 and of equal shapes.
 * DATA_LOSS where values differ. */
enum xop_status bench_compare(const struct bench_load *load, struct bench_comparison *comparison,
                              struct xop_error *error);
void bench_compare_print(const struct bench_comparison *comparison);
json_t *bench_compare_json(const struct bench_comparison *comparison);

/* ---- Beside a client that floods ---- */

struct bench_fairness {
    struct histogram alone, beside; /* latencies; alone.total is 0: not measured */
    double flood_per_s;             /* of the client that floods, the mean */
};

/* What load measures, in turns alone and beside a connection with `flood` requests in flight. */
enum xop_status bench_fairness(const struct bench_load *load, uint32_t flood,
                               struct bench_fairness *fairness, struct xop_error *error);
/* The p99 beside the flood over the one alone. */
double bench_fairness_ratio(const struct bench_fairness *fairness);

/* ---- By size and by number of clients, for the report ---- */

#define BENCH_SIZES 9
#define BENCH_CROWDS 5

struct bench_sample {
    double p50_ns, requests_per_s, bytes_per_s, batch_mean; /* all 0: not measured */
};

struct bench_sweep {
    struct {
        int64_t elements;
        uint64_t bytes; /* of a request's inputs and outputs */
        struct bench_floor floor;
        struct bench_sample paths[BENCH_PATHS];
    } sizes[BENCH_SIZES];
    struct {
        uint32_t clients;
        struct bench_sample sample;
    } crowds[BENCH_CROWDS];
    uint32_t nsizes, ncrowds;
    char why[320]; /* why something is missing: the first reason */
};

/* ---- A run of the verb ---- */

struct bench {
    struct session *session;
    struct bench_options options;
    int argc;
    char **argv;
    json_t *ping, *description, *op; /* op: in the description */
    struct attrs attrs;
    struct bench_work work;
    struct bench_load load;
    struct bench_floor floor; /* probed before and after */
    struct bench_figures figures;
    struct bench_comparison comparison; /* n is 0 where none was asked for */
    struct bench_fairness fairness;
    struct bench_sweep sweep;
};

/* Short runs with other sizes and numbers of clients than the options'. DATA_LOSS where values
 * differ; all else that cannot be measured is left out. */
enum xop_status bench_sweep(struct bench *bench, struct xop_error *error);

/* Fills options, which hold the defaults. Returns 0 or the exit status, having told why. */
int bench_parse(struct bench_options *options, int argc, char **argv);

const char *bench_pass_name(enum xop_pass pass);
void bench_print_header(const struct bench *bench);
void bench_print(const struct bench *bench);
json_t *bench_json(const struct bench *bench);

/* ---- The report ---- */

enum xop_status bench_report_write(struct outfile *file, const struct bench *bench,
                                   struct xop_error *error);
void bench_chart_latency(FILE *out, const struct bench *bench);
void bench_chart_sizes(FILE *out, const struct bench *bench);
void bench_chart_crowds(FILE *out, const struct bench *bench);

#endif
