/* What was measured, as text and as JSON. */
#include "bench.h"
#include "lookup.h"

void bench_print_header(const struct bench *b) {
    printf("bench on %s: %s (%s)\n", lookup_text(b->ping, "backend"),
           lookup_text(b->ping, "device"), lookup_text(b->ping, "runtime"));
    if (*lookup_text(b->ping, "fallback_reason"))
        printf("no GPU is used: %s\n", lookup_text(b->ping, "fallback_reason"));
}

const char *bench_pass_name(enum xop_pass pass) {
    return pass == XOP_FORWARD ? "forward" : "backward";
}

static void print_fairness(const struct bench *b) {
    const struct bench_fairness *f = &b->fairness;
    printf("\n%-28s %12s %12s\n", "beside a client that floods", "p50", "p99");
    printf("%-28s %9.1f us %9.1f us\n", "alone", histogram_at(&f->alone, 0.5) / 1e3,
           histogram_at(&f->alone, 0.99) / 1e3);
    printf("%-28s %9.1f us %9.1f us, which is %.2f of it\n", "beside it",
           histogram_at(&f->beside, 0.5) / 1e3, histogram_at(&f->beside, 0.99) / 1e3,
           bench_fairness_ratio(f));
    printf("the flood: %u in flight, %.0f requests/s\n", b->options.flood, f->flood_per_s);
}

static json_t *fairness_json(const struct bench *b) {
    const struct bench_fairness *f = &b->fairness;
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "inflight",
                     (json_int_t)b->options.flood, "requests_per_s", f->flood_per_s, "alone_p50_us",
                     histogram_at(&f->alone, 0.5) / 1e3, "alone_p99_us",
                     histogram_at(&f->alone, 0.99) / 1e3, "beside_p50_us",
                     histogram_at(&f->beside, 0.5) / 1e3, "beside_p99_us",
                     histogram_at(&f->beside, 0.99) / 1e3, "ratio", bench_fairness_ratio(f));
}

void bench_print(const struct bench *b) {
    const struct bench_options *o = &b->options;
    const struct bench_figures *f = &b->figures;
    char shape[200];
    value_shape_text(shape, sizeof shape, o->shapes[0].rank, o->shapes[0].n);
    printf("%s %s %s %s, %s, %u client%s, %u in flight: %llu requests in %.2f s\n", o->op,
           bench_pass_name(o->pass), xop_dtype_name(o->dtype), shape, bench_path_name(o->path),
           o->clients, o->clients == 1 ? "" : "s", o->inflight, (unsigned long long)f->requests,
           f->seconds);
    printf("latency  p50 %.1f us, p90 %.1f us, p99 %.1f us, p99.9 %.1f us\n",
           histogram_at(&f->latency, 0.5) / 1e3, histogram_at(&f->latency, 0.9) / 1e3,
           histogram_at(&f->latency, 0.99) / 1e3, histogram_at(&f->latency, 0.999) / 1e3);
    printf("rate     %.0f requests/s, %.3f GB/s, %.1f requests a batch\n", f->requests_per_s,
           f->bytes_per_s / 1e9, f->batch_mean);
    printf("server   queue %.1f us, run %.1f us (medians)\n", histogram_at(&f->queue, 0.5) / 1e3,
           histogram_at(&f->run, 0.5) / 1e3);
    double floor = bench_floor_of(&b->floor, o->path);
    if (floor > 0)
        printf("floor    %.1f us by the bare device %s; p50 is %.2f of it\n", floor / 1e3,
               o->path == BENCH_RESIDENT && b->floor.device_ns > 0 ? "in its own memory"
                                                                   : "on host memory",
               histogram_at(&f->latency, 0.5) / floor);
    else
        printf("floor    unknown: %s\n", b->floor.why);
    if (f->errors)
        printf("errors   %llu, the first: %s\n", (unsigned long long)f->errors, f->error.message);
    if (b->comparison.n > 0)
        bench_compare_print(&b->comparison);
    if (b->fairness.beside.total > 0)
        print_fairness(b);
}

json_t *bench_json(const struct bench *b) {
    const struct bench_options *o = &b->options;
    const struct bench_figures *f = &b->figures;
    json_t *shape = json_array();
    for (uint32_t i = 0; i < o->shapes[0].rank; i++)
        json_array_append_new(shape, json_integer(o->shapes[0].n[i]));
    json_t *document = json_pack(
        "{s:s, s:s, s:o, s:s, s:s, s:I, s:I, s:f, s:I, s:I, s:b}", "op", o->op, "pass",
        bench_pass_name(o->pass), "shape", shape, "dtype", xop_dtype_name(o->dtype), "path",
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
    double floor = bench_floor_of(&b->floor, o->path);
    json_object_set_new(document, "floor_us", floor > 0 ? json_real(floor / 1e3) : json_null());
    json_object_set_new(document, "ratio",
                        floor > 0 ? json_real(histogram_at(&f->latency, 0.5) / floor)
                                  : json_null());
    json_decref(figures);
    if (b->comparison.n > 0)
        json_object_set_new(document, "compare", bench_compare_json(&b->comparison));
    if (b->fairness.beside.total > 0)
        json_object_set_new(document, "flood", fairness_json(b));
    return document;
}
