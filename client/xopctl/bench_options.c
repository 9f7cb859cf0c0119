/* The command line of the verb bench. */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CLIENTS 1024
#define MAX_INFLIGHT 65536

static bool set_shape(struct bench_options *options, const char *at) {
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

static bool set_dtype(struct bench_options *options, const char *from) {
    options->dtype = value_dtype_named(from, strlen(from));
    return options->dtype != XOP_DTYPE_NONE;
}

static bool set_attr(struct bench_options *options, const char *from) {
    if (options->nattrs == XOP_MAX_ATTRS)
        return false;
    options->attrs[options->nattrs++] = from;
    return true;
}

static bool set_clients(struct bench_options *options, const char *from) {
    uint64_t n;
    bool good = session_count(from, 1, MAX_CLIENTS, &n);
    options->clients = (uint32_t)n;
    return good;
}

static bool set_inflight(struct bench_options *options, const char *from) {
    uint64_t n;
    bool good = session_count(from, 1, MAX_INFLIGHT, &n);
    options->inflight = (uint32_t)n;
    return good;
}

static bool set_flood(struct bench_options *options, const char *from) {
    uint64_t n;
    bool good = session_count(from, 1, MAX_INFLIGHT, &n);
    options->flood = (uint32_t)n;
    return good;
}

static bool set_path(struct bench_options *options, const char *from) {
    for (options->path = 0; options->path < BENCH_PATHS; ++options->path)
        if (strcmp(from, bench_path_name(options->path)) == 0)
            return true;
    return false;
}

static bool set_seconds(struct bench_options *options, const char *from) {
    char *end;
    options->seconds = strtod(from, &end);
    return end != from && !*end && options->seconds >= 0.01 && options->seconds <= 86400;
}

static bool set_spin(struct bench_options *options, const char *from) {
    uint64_t us;
    bool good = session_count(from, 0, 1000000, &us);
    options->spin_us = us > 0 ? (uint32_t)us : XOP_SPIN_NEVER;
    return good;
}

static bool set_report(struct bench_options *options, const char *from) {
    options->report = from;
    return *from != 0;
}

static bool set_backward(struct bench_options *options, const char *from) {
    (void)from;
    options->pass = XOP_BACKWARD;
    return true;
}

static bool set_no_shm(struct bench_options *options, const char *from) {
    (void)from;
    return options->no_shm = true;
}

static bool set_compare(struct bench_options *options, const char *from) {
    (void)from;
    return options->compare = true;
}

static bool set_json(struct bench_options *options, const char *from) {
    (void)from;
    return options->json = true;
}

/* Each option, and what it takes: told where it was given something else. */
static const struct {
    const char *name;
    bool (*set)(struct bench_options *options, const char *from);
    const char *takes; /* NULL: no argument */
} known[] = {
    {"shape", set_shape, "sizes, as 1280,1280"},
    {"dtype", set_dtype, "one of f16, bf16, f32, f64, i32, i64, bool"},
    {"backward", set_backward, NULL},
    {"attr", set_attr, "NAME=VALUE, 24 times at most"},
    {"clients", set_clients, "a number from 1 to 1024"},
    {"inflight", set_inflight, "a number from 1 to 65536"},
    {"flood", set_flood, "a number from 1 to 65536"},
    {"path", set_path, "inline, shm or resident"},
    {"no-shm", set_no_shm, NULL},
    {"seconds", set_seconds, "a number from 0.01 to 86400"},
    {"spin-us", set_spin, "microseconds, 1000000 at most"},
    {"compare", set_compare, NULL},
    {"report", set_report, "a file's name"},
    {"json", set_json, NULL},
};
#define KNOWN (sizeof known / sizeof *known)

/* What does not go together. */
static int check(const struct bench_options *o) {
    if (o->no_shm && o->path == BENCH_SHM)
        return session_usage(&verb_bench, "--path shm and --no-shm exclude each other");
    if (o->compare && (strcmp(o->op, "square_bias") != 0 || o->pass != XOP_FORWARD ||
                       o->dtype != XOP_F32 || o->nshapes > 1))
        return session_usage(&verb_bench,
                             "--compare is for square_bias, forward, in f32, with one shape");
    return 0;
}

int bench_parse(struct bench_options *options, int argc, char **argv) {
    struct option longs[KNOWN + 1] = {0};
    int c;
    for (size_t i = 0; i < KNOWN; i++)
        longs[i] = (struct option){known[i].name, known[i].takes ? required_argument : no_argument,
                                   NULL, (int)i};
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == '?')
            return session_usage(&verb_bench, "wrong usage");
        if (!known[c].set(options, optarg))
            return session_usage(&verb_bench, "--%s takes %s", known[c].name, known[c].takes);
    }
    if (argc - optind > 1)
        return session_usage(&verb_bench, "one operator at a time");
    if (optind < argc)
        options->op = argv[optind];
    int status = check(options);
    if (options->nshapes == 0)
        set_shape(options, "1280,1280");
    return status;
}
