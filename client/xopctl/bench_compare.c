/* The same work with and without a daemon: what the trip to one costs and gains. */
#include "bench.h"
#include "bench_plain.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_RUNS 5
#define MOST_RUNS 10000

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct bench_row *add_row(struct bench_comparison *comparison, const char *name) {
    struct bench_row *row = &comparison->rows[comparison->n++];
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

/* ---- Without a daemon ---- */

struct plain {
    struct bench_arrays arrays;
    struct bench_crew *crew; /* NULL but for all processors */
    void (*loop)(const struct bench_arrays *arrays);
};

static void run_plain(const struct plain *plain) {
    if (plain->crew)
        bench_crew_run(plain->crew, &plain->arrays);
    else
        plain->loop(&plain->arrays);
}

/* The median of many runs; the first, which brings memory in, does not count. */
static enum xop_status time_plain(const struct plain *plain, const struct bench_work *work,
                                  double seconds, struct bench_row *row, struct xop_error *error) {
    double *times = malloc(MOST_RUNS * sizeof *times);
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    uint32_t n = 0;
    if (!times)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    memset(plain->arrays.y, 0xff, (size_t)plain->arrays.n * sizeof(float));
    run_plain(plain);
    bool right = memcmp(plain->arrays.y, work->expected->out[0].data,
                        (size_t)plain->arrays.n * sizeof(float)) == 0;
    while (n < MOST_RUNS && !bench_interrupted && (n < LEAST_RUNS || bench_now_ns() < end)) {
        uint64_t start = bench_now_ns();
        run_plain(plain);
        times[n++] = (double)(bench_now_ns() - start);
    }
    qsort(times, n, sizeof *times, by_size);
    row->ns = n > 0 ? times[n / 2] : 0;
    free(times);
    return right ? XOP_OK
                 : xop_fail(error, XOP_DATA_LOSS, "%s: not the values that the daemon gave",
                            row->name);
}

static enum xop_status time_loops(const struct bench_work *work, double seconds, float *y,
                                  struct bench_crew *crew, struct bench_comparison *comparison,
                                  struct xop_error *error) {
    char all[64];
    snprintf(all, sizeof all, "vectorised, all threads (%u)", bench_crew_size(crew));
    const struct {
        const char *name;
        void (*loop)(const struct bench_arrays *arrays);
    } loops[] = {{"plain loop, one thread", bench_plain_scalar},
                 {"vectorised, one thread", bench_plain_vector},
                 {all, NULL}};
    enum xop_status status = XOP_OK;
    for (size_t i = 0; i < sizeof loops / sizeof *loops && status == XOP_OK; i++) {
        struct plain plain = {.arrays = {work->in[0].data, work->in[1].data, y, work->elements},
                              .crew = loops[i].loop ? NULL : crew,
                              .loop = loops[i].loop};
        status = time_plain(&plain, work, seconds, add_row(comparison, loops[i].name), error);
    }
    return status;
}

static enum xop_status time_plains(const struct bench_work *work, double seconds,
                                   struct bench_comparison *comparison, struct xop_error *error) {
    enum xop_status status;
    float *y = malloc((size_t)work->elements * sizeof(float) + 1);
    struct bench_crew *crew = bench_crew_open();
    if (crew && y)
        status = time_loops(work, seconds, y, crew, comparison, error);
    else
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for the plain loops");
    bench_crew_close(crew);
    free(y);
    return status;
}

/* ---- With one ---- */

static enum xop_status time_path(const struct bench_load *load, enum bench_path path,
                                 double seconds, struct bench_comparison *comparison,
                                 struct xop_error *error) {
    static struct bench_figures figures;
    struct bench_load one = *load;
    char name[64];
    snprintf(name, sizeof name, "xopd, %s", bench_path_name(path));
    struct bench_row *row = add_row(comparison, name);
    if (path == BENCH_SHM && !session_shares_memory(load->address)) {
        snprintf(row->why, sizeof row->why, "over Unix sockets alone");
        return XOP_OK;
    }
    one.path = path;
    one.clients = one.inflight = 1;
    one.seconds = seconds;
    one.name = row->name;
    if (bench_measure(&one, &figures, error) == XOP_OK) {
        row->ns = histogram_at(&figures.latency, 0.5);
        return XOP_OK;
    }
    if (error->status != XOP_UNIMPLEMENTED && error->status != XOP_CANCELLED)
        return error->status;
    snprintf(row->why, sizeof row->why, "%.250s", error->message);
    return XOP_OK;
}

enum xop_status bench_compare(const struct bench_load *load, struct bench_comparison *comparison,
                              struct xop_error *error) {
    double seconds = load->seconds / 3;
    enum xop_status status = time_plains(load->work, seconds, comparison, error);
    for (int path = 0; path < BENCH_PATHS && status == XOP_OK && !bench_interrupted; path++)
        status = time_path(load, (enum bench_path)path, seconds, comparison, error);
    return status;
}

void bench_compare_print(const struct bench_comparison *comparison) {
    printf("\n%-28s %12s %9s\n", "y = x*x + b", "time", "speed-up");
    for (uint32_t i = 0; i < comparison->n; i++) {
        const struct bench_row *row = &comparison->rows[i];
        if (row->ns > 0)
            printf("%-28s %9.2f us %8.2fx\n", row->name, row->ns / 1e3,
                   comparison->rows[0].ns / row->ns);
        else
            printf("%-28s %12s %9s %s\n", row->name, "-", "-", row->why);
    }
    printf("all values agree; times are medians, xopd's with one request at a time\n");
}

json_t *bench_compare_json(const struct bench_comparison *comparison) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < comparison->n; i++) {
        const struct bench_row *row = &comparison->rows[i];
        bool known = row->ns > 0;
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:o, s:o}", "name", row->name, "time_us",
                            known ? json_real(row->ns / 1e3) : json_null(), "speedup",
                            known ? json_real(comparison->rows[0].ns / row->ns) : json_null(),
                            "reason", known ? json_null() : json_string(row->why)));
    }
    return list;
}
