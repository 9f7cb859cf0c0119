#include "bench_plot.h"

#include "html.h"

#include <math.h>

/* The drawing's size and the plot's place in it, in units of SVG. */
#define WIDTH 760.0
#define HEIGHT 340.0
#define LEFT 68.0
#define RIGHT 36.0
#define TOP 40.0
#define BOTTOM 52.0

struct frame {
    const struct plot *plot;
    FILE *out;
    double x_low, x_high, y_low, y_high; /* y in logarithms where the scale is */
};

char *plot_number(char *buffer, size_t capacity, double x) {
    static const char *const suffixes[] = {"", "k", "M", "G", "T"};
    int suffix = 0;
    double size = fabs(x);
    for (; size >= 999.5 && suffix < 4; suffix++)
        size /= 1000;
    snprintf(buffer, capacity, "%s%.3g%s", x < 0 ? "-" : "", size, suffixes[suffix]);
    return buffer;
}

char *plot_time(char *buffer, size_t capacity, double ns) {
    static const char *const units[] = {"ns", "\xc2\xb5s", "ms", "s"};
    int unit = 0;
    for (; ns >= 999.5 && unit < 3; unit++)
        ns /= 1000;
    snprintf(buffer, capacity, "%.3g %s", ns, units[unit]);
    return buffer;
}

static double to_x(const struct frame *f, double x) {
    double span = f->x_high > f->x_low ? f->x_high - f->x_low : 1;
    return LEFT + (x - f->x_low) / span * (WIDTH - LEFT - RIGHT);
}

static double to_y(const struct frame *f, double y) {
    if (f->plot->is_log)
        y = log10(y);
    return HEIGHT - BOTTOM - (y - f->y_low) / (f->y_high - f->y_low) * (HEIGHT - TOP - BOTTOM);
}

/* A logarithmic scale has no place for what is not positive. */
static bool is_drawn(const struct plot *plot, const struct plot_point *point) {
    return isfinite(point->y) && (plot->is_log ? point->y > 0 : point->y >= 0);
}

static void measure(struct frame *f) {
    const struct plot *plot = f->plot;
    double low = INFINITY, high = 0;
    for (uint32_t i = 0; i < plot->nseries; i++) {
        for (uint32_t k = 0; k < plot->series[i].n; k++) {
            const struct plot_point *point = &plot->series[i].points[k];
            if (is_drawn(plot, point)) {
                low = fmin(low, point->y);
                high = fmax(high, point->y);
            }
        }
    }
    if (high <= 0)
        low = high = 1;
    f->x_low = plot->ticks[0].at;
    f->x_high = plot->ticks[plot->nticks - 1].at;
    f->y_low = plot->is_log ? log10(low / 1.3) : 0;
    f->y_high = plot->is_log ? log10(high * 1.3) : high * 1.08;
}

/* ---- Axes ---- */

static void y_tick(const struct frame *f, double at) {
    char label[32];
    double y = to_y(f, at);
    fprintf(f->out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
            WIDTH - RIGHT, y, y);
    fprintf(f->out, "<text class=\"tick\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
            LEFT - 8, y + 4, plot_number(label, sizeof label, at));
}

/* 1, 2 and 5 times powers of ten, or powers of ten alone where there would be too many. */
static void log_ticks(const struct frame *f) {
    static const double within[] = {1, 2, 5};
    double decades = f->y_high - f->y_low;
    int step = decades > 8 ? 2 : 1, each = decades > 2.5 ? 1 : 3;
    for (int decade = (int)floor(f->y_low); decade <= (int)ceil(f->y_high); decade++)
        for (int i = 0; i < each && decade % step == 0; i++) {
            double at = within[i] * pow(10, decade);
            if (log10(at) >= f->y_low && log10(at) <= f->y_high)
                y_tick(f, at);
        }
}

static void linear_ticks(const struct frame *f) {
    double raw = f->y_high / 5, unit = pow(10, floor(log10(raw))), times = raw / unit;
    double step = unit * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
    for (int i = 0; i * step <= f->y_high; i++)
        y_tick(f, i * step);
}

static void axes(const struct frame *f) {
    const struct plot *plot = f->plot;
    if (plot->is_log)
        log_ticks(f);
    else
        linear_ticks(f);
    fprintf(f->out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
            LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM);
    for (uint32_t i = 0; i < plot->nticks; i++) {
        double x = to_x(f, plot->ticks[i].at);
        fprintf(f->out,
                "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">",
                x, x, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 5, x, HEIGHT - BOTTOM + 20);
        html_text(f->out, plot->ticks[i].label);
        fputs("</text>\n", f->out);
    }
    fprintf(f->out, "<text class=\"label\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
    html_text(f->out, plot->x_label);
    fprintf(f->out,
            "</text>\n<text class=\"label\" text-anchor=\"middle\" "
            "transform=\"translate(16 %.1f) rotate(-90)\">",
            (TOP + HEIGHT - BOTTOM) / 2);
    html_text(f->out, plot->y_label);
    fputs("</text>\n", f->out);
}

/* ---- Series ---- */

static void line(const struct frame *f, const struct plot_series *series) {
    const char *before = "";
    fprintf(f->out, "<polyline class=\"line s%d\" points=\"", series->color);
    for (uint32_t i = 0; i < series->n; i++) {
        if (!is_drawn(f->plot, &series->points[i]))
            continue;
        fprintf(f->out, "%s%.1f,%.1f", before, to_x(f, series->points[i].x),
                to_y(f, series->points[i].y));
        before = " ";
    }
    fputs("\"/>\n", f->out);
}

/* Each mark has a larger, unseen one around it, which is easier to point at. */
static void marks(const struct frame *f, const struct plot_series *series) {
    for (uint32_t i = 0; i < series->n && !series->no_marks; i++) {
        const struct plot_point *point = &series->points[i];
        if (!is_drawn(f->plot, point))
            continue;
        double x = to_x(f, point->x), y = to_y(f, point->y);
        fprintf(f->out,
                "<g class=\"mark\"><circle class=\"reach\" cx=\"%.1f\" cy=\"%.1f\" r=\"12\"/>"
                "<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/><title>",
                x, y, series->color, x, y);
        html_text(f->out, point->tip);
        fputs("</title></g>\n", f->out);
    }
}

static void legend(const struct frame *f) {
    double x = LEFT;
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < f->plot->nseries; i++)
        drawn += f->plot->series[i].n > 0;
    for (uint32_t i = 0; i < f->plot->nseries && drawn > 1; i++) {
        const struct plot_series *series = &f->plot->series[i];
        size_t letters = 0;
        if (series->n == 0)
            continue;
        fprintf(f->out,
                "<line class=\"line s%d\" x1=\"%.1f\" x2=\"%.1f\" y1=\"16\" y2=\"16\"/>"
                "<text class=\"legend\" x=\"%.1f\" y=\"20\">",
                series->color, x, x + 22, x + 29);
        html_text(f->out, series->name);
        fputs("</text>\n", f->out);
        while (series->name[letters])
            letters++;
        x += 29 + 7.2 * (double)letters + 22;
    }
}

void plot_write(FILE *out, const struct plot *plot) {
    struct frame f = {.plot = plot, .out = out};
    measure(&f);
    fprintf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    html_text(out, plot->title);
    fputs("\">\n", out);
    axes(&f);
    for (uint32_t i = 0; i < plot->nseries; i++)
        if (plot->series[i].n > 0)
            line(&f, &plot->series[i]);
    for (uint32_t i = 0; i < plot->nseries; i++)
        marks(&f, &plot->series[i]);
    legend(&f);
    fputs("</svg>\n", out);
}
