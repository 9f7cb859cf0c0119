/* Short runs over sizes and numbers of clients. */
#include "bench.h"

#include <string.h>

#define SMALLEST 256
#define GROWTH 4
#define LONGEST_S 0.4

/* A shape of so many elements, a power of two, that is as long in the last dimensions as the one
 * given, or a little shorter. */
static struct bench_shape resize(const struct bench_shape *given, int64_t elements) {
    struct bench_shape shape = *given;
    if (shape.rank == 0)
        shape.rank = 1;
    for (uint32_t i = shape.rank - 1; i > 0; i--) {
        int64_t taken = 1;
        while (taken * 2 <= given->n[i] && taken * 2 <= elements)
            taken *= 2;
        shape.n[i] = taken;
        elements /= taken;
    }
    shape.n[0] = elements;
    return shape;
}

static void note(struct bench_sweep *sweep, const char *what, const struct xop_error *error) {
    if (!*sweep->why)
        snprintf(sweep->why, sizeof sweep->why, "%s: %.250s", what, error->message);
}

/* Only wrong values are a failure. */
static enum xop_status sample(struct bench *b, const struct bench_load *load,
                              struct bench_sample *sample, struct xop_error *error) {
    static struct bench_figures figures;
    enum xop_status status = bench_measure(load, &figures, error);
    if (status == XOP_DATA_LOSS)
        return status;
    if (status != XOP_OK) {
        note(&b->sweep, load->name, error);
        return XOP_OK;
    }
    *sample = (struct bench_sample){.p50_ns = histogram_at(&figures.latency, 0.5),
                                    .requests_per_s = figures.requests_per_s,
                                    .bytes_per_s = figures.bytes_per_s,
                                    .batch_mean = figures.batch_mean};
    return XOP_OK;
}

static enum xop_status sweep_size(struct bench *b, int64_t elements, double seconds,
                                  struct xop_error *error) {
    static struct bench_work work;
    struct bench_options options = b->options;
    uint32_t at = b->sweep.nsizes;
    enum xop_status status = XOP_OK;
    char name[64];
    options.shapes[0] = resize(&b->options.shapes[0], elements);
    snprintf(name, sizeof name, "%lld elements", (long long)elements);
    if (bench_work_make(b->session, &options, b->op, &b->attrs, &work, error) != XOP_OK) {
        note(&b->sweep, name, error);
        return XOP_OK;
    }
    b->sweep.nsizes++;
    b->sweep.sizes[at].elements = work.elements;
    b->sweep.sizes[at].bytes = work.bytes_in + work.bytes_out;
    bench_floor_probe(b->session, &work, &b->sweep.sizes[at].floor);
    for (int path = 0; path < BENCH_PATHS && status == XOP_OK && !bench_interrupted; path++) {
        struct bench_load load = b->load;
        if (path == BENCH_SHM && !session_shares_memory(load.address))
            continue;
        snprintf(name, sizeof name, "%lld elements, %s", (long long)elements,
                 bench_path_name((enum bench_path)path));
        load.work = &work;
        load.path = (enum bench_path)path;
        load.clients = load.inflight = 1;
        load.seconds = seconds;
        load.name = name;
        status = sample(b, &load, &b->sweep.sizes[at].paths[path], error);
    }
    bench_work_free(&work);
    return status;
}

enum xop_status bench_sweep(struct bench *b, struct xop_error *error) {
    double seconds = b->options.seconds / 8 < LONGEST_S ? b->options.seconds / 8 : LONGEST_S;
    enum xop_status status = XOP_OK;
    int64_t elements = SMALLEST;
    char name[64];
    if (b->options.nshapes > 1)
        snprintf(b->sweep.why, sizeof b->sweep.why, "by size: several shapes were given");
    for (int i = 0; i < BENCH_SIZES && b->options.nshapes == 1; i++, elements *= GROWTH)
        if (status == XOP_OK && !bench_interrupted)
            status = sweep_size(b, elements, seconds, error);
    for (uint32_t i = 0; i < BENCH_CROWDS && status == XOP_OK && !bench_interrupted; i++) {
        struct bench_load load = b->load;
        load.clients = b->sweep.crowds[i].clients = 1u << i;
        load.seconds = seconds;
        snprintf(name, sizeof name, "%u clients", load.clients);
        load.name = name;
        status = sample(b, &load, &b->sweep.crowds[i].sample, error);
        b->sweep.ncrowds = i + 1;
    }
    return status;
}
