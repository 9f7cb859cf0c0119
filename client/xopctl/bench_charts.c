/* The charts of the report. */
#include "bench.h"
#include "bench_plot.h"

#include <math.h>

static struct plot_point *add_point(struct plot_series *series, double x, double y) {
    struct plot_point *point = &series->points[series->n++];
    point->x = x;
    point->y = y;
    return point;
}

/* x is log10(1/(1 - share)), so that each further nine takes as much room as the one before. */
void bench_chart_latency(FILE *out, const struct bench *b) {
    static const struct plot_tick all[] = {{0, "0 %"},     {0.30103, "50 %"}, {1, "90 %"},
                                           {2, "99 %"},    {3, "99.9 %"},     {4, "99.99 %"},
                                           {5, "99.999 %"}};
    static struct plot_series series[2];
    const struct bench_figures *f = &b->figures;
    double floor = bench_floor_of(&b->floor, b->options.path);
    char time[32];
    bool slow = histogram_at(&f->latency, 0.5) >= 1e6;
    double unit = slow ? 1e6 : 1e3;
    double last = fmin(5, fmax(1, log10((double)f->requests)));
    series[0] = (struct plot_series){.name = "latency", .color = 1};
    series[1] = (struct plot_series){.name = "bare device", .no_marks = true};
    for (int i = 0; i <= 24; i++) {
        double x = last * i / 24, share = 1 - pow(10, -x);
        struct plot_point *point =
            add_point(&series[0], x, histogram_at(&f->latency, share) / unit);
        snprintf(point->tip, sizeof point->tip, "%.5g %% within %s", share * 100,
                 plot_time(time, sizeof time, point->y * unit));
    }
    struct plot plot = {.title = "Latency by percentile",
                        .x_label = "share of the requests that took no longer",
                        .y_label = slow ? "latency, ms" : "latency, \xc2\xb5s",
                        .ticks = all,
                        .nticks = (uint32_t)ceil(last) + 2,
                        .is_log = true,
                        .series = series,
                        .nseries = 2};
    if (floor > 0) {
        add_point(&series[1], 0, floor / unit);
        add_point(&series[1], all[plot.nticks - 1].at, floor / unit);
    }
    plot_write(out, &plot);
}

static char *size_label(char *buffer, size_t capacity, int64_t n) {
    static const char *const suffixes[] = {"", " Ki", " Mi", " Gi"};
    int suffix = 0;
    double size = (double)n;
    for (; size >= 1024 && suffix < 3; suffix++)
        size /= 1024;
    snprintf(buffer, capacity, "%.3g%s", size, suffixes[suffix]);
    return buffer;
}

static void add_floor(struct plot_series *series, double x, double bytes, double ns) {
    if (ns > 0) {
        struct plot_point *point = add_point(series, x, bytes / ns);
        snprintf(point->tip, sizeof point->tip, "%.60s: %.3g GB/s", series->name, point->y);
    }
}

void bench_chart_sizes(FILE *out, const struct bench *b) {
    static struct plot_series series[BENCH_PATHS + 1];
    static char labels[BENCH_SIZES][32];
    static struct plot_tick ticks[BENCH_SIZES];
    uint32_t n = b->sweep.nsizes;
    char time[32];
    for (int path = 0; path < BENCH_PATHS; path++)
        series[path] =
            (struct plot_series){.name = bench_path_name((enum bench_path)path), .color = path + 1};
    series[BENCH_PATHS] =
        (struct plot_series){.name = "bare device on host memory", .no_marks = true};
    for (uint32_t i = 0; i < n; i++) {
        double x = log2((double)b->sweep.sizes[i].elements);
        ticks[i] = (struct plot_tick){
            x, size_label(labels[i], sizeof labels[i], b->sweep.sizes[i].elements)};
        for (int path = 0; path < BENCH_PATHS; path++) {
            const struct bench_sample *sample = &b->sweep.sizes[i].paths[path];
            if (sample->requests_per_s <= 0)
                continue;
            struct plot_point *point = add_point(&series[path], x, sample->bytes_per_s / 1e9);
            snprintf(point->tip, sizeof point->tip, "%.20s, %.20s elements: %.3g GB/s, p50 %s",
                     series[path].name, labels[i], point->y,
                     plot_time(time, sizeof time, sample->p50_ns));
        }
        add_floor(&series[BENCH_PATHS], x, (double)b->sweep.sizes[i].bytes,
                  b->sweep.sizes[i].floor.direct_ns);
    }
    struct plot plot = {.title = "Throughput by size",
                        .x_label = "elements of the first input",
                        .y_label = "GB/s of inputs and outputs",
                        .ticks = ticks,
                        .nticks = n,
                        .is_log = true,
                        .series = series,
                        .nseries = BENCH_PATHS + 1};
    plot_write(out, &plot);
}

void bench_chart_crowds(FILE *out, const struct bench *b) {
    static struct plot_series series;
    static const struct plot_tick ticks[BENCH_CROWDS] = {
        {0, "1"}, {1, "2"}, {2, "4"}, {3, "8"}, {4, "16"}};
    char number[32], time[32];
    series = (struct plot_series){.name = bench_path_name(b->options.path), .color = 1};
    for (uint32_t i = 0; i < b->sweep.ncrowds; i++) {
        const struct bench_sample *sample = &b->sweep.crowds[i].sample;
        if (sample->requests_per_s <= 0)
            continue;
        struct plot_point *point = add_point(&series, i, sample->requests_per_s);
        snprintf(point->tip, sizeof point->tip, "%u clients: %s requests/s, p50 %s, %.1f a launch",
                 b->sweep.crowds[i].clients, plot_number(number, sizeof number, point->y),
                 plot_time(time, sizeof time, sample->p50_ns), sample->batch_mean);
    }
    struct plot plot = {.title = "Throughput by number of clients",
                        .x_label = "connections",
                        .y_label = "requests/s",
                        .ticks = ticks,
                        .nticks = BENCH_CROWDS,
                        .series = &series,
                        .nseries = 1};
    plot_write(out, &plot);
}
