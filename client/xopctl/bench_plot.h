/*
 * Line charts in SVG, drawn to a stream: their colours and fonts are classes that the page around
 * them has to define (bench_report.c). Single-threaded.
 */
#ifndef XOPCTL_BENCH_PLOT_H
#define XOPCTL_BENCH_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PLOT_POINTS 32

struct plot_point {
    double x, y;
    char tip[128]; /* shown where the pointer rests on it */
};

struct plot_series {
    const char *name;
    int color;     /* 1 to 3: class s1 to s3; 0: a line to compare with, class s0, dashed */
    bool no_marks; /* no point is more than another */
    struct plot_point points[PLOT_POINTS];
    uint32_t n;
};

struct plot_tick {
    double at;
    const char *label;
};

/* x is linear from the first tick to the last, y starts at 0 or, with is_log, is logarithmic. A
 * series without points is not drawn. */
struct plot {
    const char *title, *x_label, *y_label;
    const struct plot_tick *ticks;
    uint32_t nticks;
    bool is_log;
    const struct plot_series *series;
    uint32_t nseries;
};

void plot_write(FILE *out, const struct plot *plot);

/* 1234567 as "1.23M", with three digits. Returns buffer. */
char *plot_number(char *buffer, size_t capacity, double x);
/* Nanoseconds with a unit that suits them, three digits. Returns buffer. */
char *plot_time(char *buffer, size_t capacity, double ns);

#endif
