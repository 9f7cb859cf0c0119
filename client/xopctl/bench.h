/*
 * Measuring what requests take: the work (bench_work.c: an operator and its tensors), how a
 * connection carries tensors (bench_path.c), connections with requests in flight
 * (bench_load.c), what the bare device takes (bench_floor.c), the same work without a daemon
 * (bench_compare.c, bench_plain.c), the page (bench_report.c) and the verb that drives them
 * (bench.c). All of it is called from the main thread; bench_load.c starts threads and ends them
 * before it returns.
 */
#ifndef XOPCTL_BENCH_H
#define XOPCTL_BENCH_H

#include "attrs.h"
#include "histogram.h"
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
    enum bench_path path;
    double seconds;
    const char *report; /* a file's name, or NULL */
    bool compare, no_shm;
    uint64_t spin_us;
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
    struct attrs attrs;
    struct value inputs[XOP_MAX_INPUTS];  /* dtype NONE where one is optional */
    struct xop_tensor in[XOP_MAX_INPUTS]; /* the same, without data where the shape is enough */
    uint32_t nin;
    struct xop_result *expected;
    uint64_t bytes_in, bytes_out;
    int64_t elements; /* of the first input */
};

/* Makes tensors for an operator of the describe document and runs it once. NULL-free on failure:
 * nothing is to be freed then. */
enum xop_status bench_work_make(struct session *session, const struct bench_options *options,
                                json_t *op, struct bench_work *work, struct xop_error *error);
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
    double launches;   /* the sum of 1/batch */
    uint64_t finished; /* in the warm-up too */
    uint64_t errors;
    struct xop_error error;    /* the first one's */
    _Atomic uint64_t answered; /* the main thread looks at these two */
    _Atomic bool is_over;      /* the connection is of no use any more */
};

/* Sets up every slot of a connection for its path, and runs the first one: its result must be the
 * expected one, bit for bit. What it allocates is freed by bench_path_close in any case. */
enum xop_status bench_path_open(struct bench_client *client, struct xop_error *error);
void bench_path_close(struct bench_client *client);

/* ---- Measuring ---- */

struct bench_load {
    const struct bench_work *work;
    const char *address;
    enum bench_path path;
    uint32_t clients, inflight;
    double seconds;
    uint64_t spin_us;
    const char *progress; /* what the progress bar is called; NULL: there is none */
};

struct bench_figures {
    struct histogram latency, queue, run; /* nanoseconds */
    double seconds, requests_per_s, bytes_per_s, batch_mean;
    uint64_t requests, errors;
    struct xop_error error; /* the first of those errors */
};

/* Opens the connections, warms up and measures. Requests that fail while it measures are counted;
 * it fails where nothing could be measured. */
enum xop_status bench_measure(const struct bench_load *load, struct bench_figures *figures,
                              struct xop_error *error);

#endif
