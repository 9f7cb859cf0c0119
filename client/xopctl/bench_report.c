/* The page: what was measured, as one HTML file that needs nothing else. */
#include "bench.h"
#include "bench_plot.h"
#include "html.h"
#include "lookup.h"

#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- Beginning ---- */

/* The colours of the three series are told apart by people who see red and green alike, and stand
 * out from either background. */
static const char style[] =
    ":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#16191f;--soft:#5a6270;"
    "--grid:#e4e7ec;--axis:#aab1bd;--s1:#2563c9;--s2:#c2560c;--s3:#0b8a6b;--s0:#6b7280}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#14161a;--card:#1d2026;--ink:#eceef2;"
    "--soft:#a2a9b6;--grid:#2d323b;--axis:#5b6371;--s1:#6ea8ff;--s2:#f08c4a;--s3:#3cc79f;"
    "--s0:#9aa2b0}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:880px;margin:0 auto;padding:32px 20px 48px}\n"
    "h1{font-size:26px;line-height:1.25;margin:0 0 4px}h2{font-size:17px;margin:0 0 2px}\n"
    "p{margin:0 0 12px;color:var(--soft)}.warn{color:var(--s2)}\n"
    "section{background:var(--card);border:1px solid var(--grid);border-radius:10px;"
    "padding:20px;margin-top:18px}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px;"
    "margin-top:18px}.tile{background:var(--card);border:1px solid var(--grid);"
    "border-radius:10px;padding:12px 16px}.tile b{display:block;font-size:20px;"
    "font-weight:600;line-height:1.3}.tile span{color:var(--soft);font-size:13px}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;"
    "font-variant-numeric:tabular-nums}th,td{padding:5px 14px 5px 0;text-align:right;"
    "border-bottom:1px solid var(--grid);white-space:nowrap}th{color:var(--soft);"
    "font-weight:500}th:first-child,.plain td{text-align:left}.plain td{white-space:normal;"
    "overflow-wrap:anywhere}tr:last-child>*{border-bottom:0}\n"
    "svg{display:block;width:100%;height:auto;margin-top:6px}svg text{fill:var(--soft);"
    "font-size:12px}svg .legend{fill:var(--ink);font-size:13px}.grid{stroke:var(--grid)}"
    ".axis{stroke:var(--axis)}.line{fill:none;stroke-width:2;stroke-linejoin:round;"
    "stroke-linecap:round}.dot{stroke:var(--card);stroke-width:2}.reach{fill:transparent}"
    ".mark:hover .dot{r:6px}\n"
    ".line.s1{stroke:var(--s1)}.line.s2{stroke:var(--s2)}.line.s3{stroke:var(--s3)}"
    ".line.s0{stroke:var(--s0);stroke-dasharray:6 5}.dot.s1{fill:var(--s1)}"
    ".dot.s2{fill:var(--s2)}.dot.s3{fill:var(--s3)}.dot.s0{fill:var(--s0)}\n";

static void begin(FILE *out, const struct bench *b) {
    const struct bench_options *o = &b->options;
    char shape[200];
    value_shape_text(shape, sizeof shape, o->shapes[0].rank, o->shapes[0].n);
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
          out);
    html_element(out, "title", "xopctl bench: %s", o->op);
    fprintf(out, "<style>\n%s</style>\n</head>\n<body>\n<main>\n", style);
    html_element(out, "h1", "%s, %s", o->op, bench_pass_name(o->pass));
    html_element(out, "p", "%s %s on %s: %s. %u connection%s with %u request%s in flight, path %s.",
                 xop_dtype_name(o->dtype), shape, lookup_text(b->ping, "backend"),
                 lookup_text(b->ping, "device"), o->clients, o->clients == 1 ? "" : "s",
                 o->inflight, o->inflight == 1 ? "" : "s", bench_path_name(o->path));
    if (*lookup_text(b->ping, "fallback_reason"))
        html_element(out, "p class=\"warn\"", "No GPU is used: %s",
                     lookup_text(b->ping, "fallback_reason"));
    if (bench_interrupted)
        html_element(out, "p class=\"warn\"",
                     "It was interrupted: this is what was measured until "
                     "then.");
}

/* ---- In short ---- */

static void tile(FILE *out, const char *value, const char *what) {
    fputs("<div class=\"tile\">", out);
    html_element(out, "b", "%s", value);
    html_element(out, "span", "%s", what);
    fputs("</div>\n", out);
}

static void tiles(FILE *out, const struct bench *b) {
    const struct bench_figures *f = &b->figures;
    double floor = bench_floor_of(&b->floor, b->options.path), p50 = histogram_at(&f->latency, 0.5);
    char value[32];
    fputs("<div class=\"tiles\">\n", out);
    tile(out, plot_time(value, sizeof value, p50), "latency, half are below");
    tile(out, plot_time(value, sizeof value, histogram_at(&f->latency, 0.99)),
         "latency, 99 % are below");
    tile(out, plot_number(value, sizeof value, f->requests_per_s), "requests a second");
    snprintf(value, sizeof value, "%.3g GB/s", f->bytes_per_s / 1e9);
    tile(out, value, "of inputs and outputs");
    snprintf(value, sizeof value, "%.2f\xc3\x97", floor > 0 ? p50 / floor : 0);
    if (floor > 0)
        tile(out, value, "the bare device\xe2\x80\x99s time");
    fputs("</div>\n", out);
}

/* ---- Tables ---- */

static void open_section(FILE *out, const char *title, const char *about) {
    fputs("<section>\n", out);
    html_element(out, "h2", "%s", title);
    html_element(out, "p", "%s", about);
}

static void cell(FILE *out, const char *format, double value) {
    if (value > 0)
        html_element(out, "td", format, value);
    else
        fputs("<td>\xe2\x80\x93</td>\n", out);
}

static void row(FILE *out, const char *what, const char *format, ...) XOP_PRINTF(3, 4);
static void row(FILE *out, const char *what, const char *format, ...) {
    char value[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    fputs("<tr>", out);
    html_element(out, "th scope=\"row\"", "%s", what);
    html_element(out, "td", "%s", value);
    fputs("</tr>\n", out);
}

static void results(FILE *out, const struct bench *b) {
    const struct bench_figures *f = &b->figures;
    double floor = bench_floor_of(&b->floor, b->options.path);
    open_section(out, "Results", "Percentiles are within 0.4 % of what was measured.");
    fputs("<div class=\"wide\"><table class=\"plain\">\n", out);
    row(out, "requests", "%llu in %.2f s", (unsigned long long)f->requests, f->seconds);
    if (f->errors > 0)
        row(out, "errors", "%llu, the first: %s", (unsigned long long)f->errors, f->error.message);
    row(out, "latency",
        "p50 %.1f \xc2\xb5s, p90 %.1f \xc2\xb5s, p99 %.1f \xc2\xb5s, p99.9 %.1f "
        "\xc2\xb5s, longest %.1f \xc2\xb5s",
        histogram_at(&f->latency, 0.5) / 1e3, histogram_at(&f->latency, 0.9) / 1e3,
        histogram_at(&f->latency, 0.99) / 1e3, histogram_at(&f->latency, 0.999) / 1e3,
        (double)f->latency.largest / 1e3);
    row(out, "throughput", "%.0f requests/s, %.3f GB/s of inputs and outputs", f->requests_per_s,
        f->bytes_per_s / 1e9);
    row(out, "batches", "%.1f requests in a launch", f->batch_mean);
    row(out, "in the server", "%.1f \xc2\xb5s waiting, %.1f \xc2\xb5s computing (medians)",
        histogram_at(&f->queue, 0.5) / 1e3, histogram_at(&f->run, 0.5) / 1e3);
    if (floor > 0)
        row(out, "floor", "%.1f \xc2\xb5s by the bare device; p50 is %.2f of it", floor / 1e3,
            histogram_at(&f->latency, 0.5) / floor);
    else
        row(out, "floor", "unknown: %s", b->floor.why);
    if (b->fairness.beside.total > 0)
        row(out, "beside a client that floods",
            "p99 %.1f \xc2\xb5s, alone %.1f \xc2\xb5s: %.2f of it; the flood: %u in flight, "
            "%.0f requests/s",
            histogram_at(&b->fairness.beside, 0.99) / 1e3,
            histogram_at(&b->fairness.alone, 0.99) / 1e3, bench_fairness_ratio(&b->fairness),
            b->options.flood, b->fairness.flood_per_s);
    row(out, "bytes a request", "%llu in, %llu out", (unsigned long long)b->work.bytes_in,
        (unsigned long long)b->work.bytes_out);
    fputs("</table></div>\n</section>\n", out);
}

static void comparison(FILE *out, const struct bench_comparison *comparison) {
    open_section(out, "With and without a daemon",
                 "y = x*x + b by loops of this program, and by xopd with one request at a time. "
                 "Times are medians; all values agree.");
    fputs("<div class=\"wide\"><table>\n<tr><th>how</th><th>time, \xc2\xb5s</th><th>speed-up</th>"
          "</tr>\n",
          out);
    for (uint32_t i = 0; i < comparison->n; i++) {
        const struct bench_row *one = &comparison->rows[i];
        fputs("<tr>", out);
        html_element(out, "th scope=\"row\"", "%s%s%s", one->name, *one->why ? ": " : "", one->why);
        cell(out, "%.2f", one->ns / 1e3);
        cell(out, "%.2f\xc3\x97", one->ns > 0 ? comparison->rows[0].ns / one->ns : 0);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n</section>\n", out);
}

static void sizes_table(FILE *out, const struct bench_sweep *sweep) {
    fputs("<div class=\"wide\"><table>\n<tr><th>elements</th>", out);
    for (int path = 0; path < BENCH_PATHS; path++)
        fprintf(out, "<th>%s, GB/s</th><th>p50, \xc2\xb5s</th>",
                bench_path_name((enum bench_path)path));
    fputs("<th>bare device, \xc2\xb5s</th></tr>\n", out);
    for (uint32_t i = 0; i < sweep->nsizes; i++) {
        fputs("<tr>", out);
        html_element(out, "th scope=\"row\"", "%lld", (long long)sweep->sizes[i].elements);
        for (int path = 0; path < BENCH_PATHS; path++) {
            cell(out, "%.3g", sweep->sizes[i].paths[path].bytes_per_s / 1e9);
            cell(out, "%.1f", sweep->sizes[i].paths[path].p50_ns / 1e3);
        }
        cell(out, "%.1f", sweep->sizes[i].floor.direct_ns / 1e3);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void crowds_table(FILE *out, const struct bench_sweep *sweep) {
    fputs("<div class=\"wide\"><table>\n<tr><th>connections</th><th>requests/s</th>"
          "<th>p50, \xc2\xb5s</th><th>requests a launch</th></tr>\n",
          out);
    for (uint32_t i = 0; i < sweep->ncrowds; i++) {
        fputs("<tr>", out);
        html_element(out, "th scope=\"row\"", "%u", sweep->crowds[i].clients);
        cell(out, "%.0f", sweep->crowds[i].sample.requests_per_s);
        cell(out, "%.1f", sweep->crowds[i].sample.p50_ns / 1e3);
        cell(out, "%.1f", sweep->crowds[i].sample.batch_mean);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* ---- Where it was measured ---- */

static void processor(char *buffer, size_t capacity) {
    FILE *in = fopen("/proc/cpuinfo", "re");
    char line[512];
    snprintf(buffer, capacity, "unknown processor");
    while (in && fgets(line, sizeof line, in)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = 0;
            snprintf(buffer, capacity, "%s", colon + 2);
            break;
        }
    }
    if (in)
        fclose(in);
}

static void place(FILE *out, const struct bench *b) {
    char cpu[512], date[64] = "", command[1024];
    struct utsname system = {0};
    time_t now = time(NULL);
    struct tm utc;
    int used = snprintf(command, sizeof command, "xopctl -s %s", b->load.address);
    for (int i = 0; i < b->argc && used >= 0 && (size_t)used < sizeof command; i++)
        used += snprintf(command + used, sizeof command - (size_t)used, " %s", b->argv[i]);
    processor(cpu, sizeof cpu);
    uname(&system);
    if (gmtime_r(&now, &utc))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    open_section(out, "Where", "What these numbers hold for.");
    fputs("<div class=\"wide\"><table class=\"plain\">\n", out);
    row(out, "machine", "%s, %ld processors, %s %s %s", cpu, sysconf(_SC_NPROCESSORS_ONLN),
        system.sysname, system.release, system.machine);
    row(out, "backend", "%s, %s", lookup_text(b->ping, "backend"), lookup_text(b->ping, "runtime"));
    row(out, "device", "%s", lookup_text(b->ping, "device"));
    row(out, "version", "xopd %s, xopctl %s", lookup_text(b->ping, "version"), XOP_VERSION);
    row(out, "date", "%s", date);
    row(out, "command", "%s", command);
    fputs("</table></div>\n</section>\n", out);
}

/* ---- All of it ---- */

static void sweeps(FILE *out, const struct bench *b) {
    const struct bench_sweep *sweep = &b->sweep;
    if (sweep->nsizes > 0) {
        open_section(out, "Throughput by size",
                     "One request at a time, with the tensors in the frames (inline), in memory "
                     "shared with the daemon (shm), or left in it (resident).");
        bench_chart_sizes(out, b);
        sizes_table(out, sweep);
        fputs("</section>\n", out);
    }
    if (sweep->ncrowds > 0) {
        open_section(out, "Throughput by number of connections",
                     "The request measured above, from several connections at once.");
        bench_chart_crowds(out, b);
        crowds_table(out, sweep);
        fputs("</section>\n", out);
    }
    if (*sweep->why)
        html_element(out, "p class=\"warn\"", "Not all could be measured. %s", sweep->why);
}

enum xop_status bench_report_write(struct outfile *file, const struct bench *b,
                                   struct xop_error *error) {
    FILE *out = file->stream;
    begin(out, b);
    tiles(out, b);
    open_section(out, "Latency",
                 "From sending a request to having its result. The curve at 99 % is the time under "
                 "which 99 of 100 requests stayed.");
    bench_chart_latency(out, b);
    fputs("</section>\n", out);
    results(out, b);
    if (b->comparison.n > 0)
        comparison(out, &b->comparison);
    sweeps(out, b);
    place(out, b);
    fputs("</main>\n</body>\n</html>\n", out);
    return outfile_finish(file, error);
}
