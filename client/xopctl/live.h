/*
 * What happens on a server between two readings of its stats: rows of operators and of clients,
 * with rates a second and quantiles of what ran in between. The columns of a table are one list,
 * from which text, JSON and sorting come. Nothing here talks to a server or to a terminal.
 */
#ifndef XOPCTL_LIVE_H
#define XOPCTL_LIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define LIVE_COLUMNS 11

enum live_kind { LIVE_TEXT, LIVE_COUNT, LIVE_TENTHS, LIVE_BYTES };

/* NAN where nothing can be said. */
struct live_cell {
    char text[128];
    double number;
};

/* Two readings of one operator or client; before is NULL where there was none of it. seconds lie
 * between them, NAN where there is only one reading. */
struct live_pair {
    json_t *now, *before;
    double seconds;
};

struct live_column {
    const char *key; /* in JSON, and to sort by */
    const char *title;
    int width; /* at least; titles are no wider */
    enum live_kind kind;
    void (*derive)(const struct live_column *column, const struct live_pair *pair,
                   struct live_cell *cell);
    const char *source; /* the key in the server's document */
    double share;       /* the quantile, where it is one */
};

struct live_row {
    struct live_cell cells[LIVE_COLUMNS];
};

/* A table and how it is called: "operators" or "clients", as in the document. */
struct live_view {
    const char *list;
    const struct live_column *columns;
    size_t ncolumns, sort; /* sort: by which column unless told otherwise */
    bool (*same)(json_t *a, json_t *b);
};

extern const struct live_view live_operators, live_clients;

struct live_table {
    const struct live_view *view;
    size_t n;
    struct live_row *rows;
};

/* The column with that key, or ncolumns. */
size_t live_column(const struct live_view *view, const char *key);

/* Rows from two documents; before may be NULL. false where memory runs out. The caller frees
 * table->rows. */
bool live_read(const struct live_view *view, json_t *now, json_t *before, double seconds,
               struct live_table *table);

/* Numbers fall, texts rise; the other way round where reversed. Ties go by the first column. */
void live_sort(struct live_table *table, size_t column, bool reversed);

/* A number as a table shows it; "-" for NAN. */
void live_format(enum live_kind kind, double number, char *out, size_t size);

/* The heading, where a mark stands before the column sorted by, and rows; lines of at most `width`
 * characters (0: any), at most `height` of them. marked may be ncolumns. */
void live_print(FILE *out, const struct live_table *table, size_t marked, size_t width,
                size_t height, const char *end);

/* [{key: value}] by the columns' keys; null for NAN. NULL where memory runs out. */
json_t *live_json(const struct live_table *table);

#endif
