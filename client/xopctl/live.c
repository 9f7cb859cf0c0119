#include "live.h"

#include "lookup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double number(json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* ---- Cells ---- */

static void text(const struct live_column *column, const struct live_pair *pair,
                 struct live_cell *cell) {
    snprintf(cell->text, sizeof cell->text, "%s", lookup_text(pair->now, column->source));
    /* Clients name themselves: nothing of that may reach a terminal as a command. */
    for (char *c = cell->text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static void gauge(const struct live_column *column, const struct live_pair *pair,
                  struct live_cell *cell) {
    cell->number = number(pair->now, column->source);
}

static double grown(const struct live_pair *pair, const char *key) {
    return fmax(number(pair->now, key) - number(pair->before, key), 0);
}

static void rate(const struct live_column *column, const struct live_pair *pair,
                 struct live_cell *cell) {
    cell->number = grown(pair, column->source) / pair->seconds;
}

struct bucket {
    double ns, count;
};

static int by_ns(const void *a, const void *b) {
    double x = ((const struct bucket *)a)->ns, y = ((const struct bucket *)b)->ns;
    return (x > y) - (x < y);
}

static double quantile_us(struct bucket *buckets, size_t n, double total, double share) {
    double seen = 0;
    qsort(buckets, n, sizeof *buckets, by_ns);
    for (size_t i = 0; i < n; i++) {
        seen += buckets[i].count;
        if (seen >= share * total)
            return buckets[i].ns / 1000;
    }
    return NAN;
}

/* Of the values that came between the readings. */
static void quantile(const struct live_column *column, const struct live_pair *pair,
                     struct live_cell *cell) {
    json_t *count, *counts = json_object_get(json_object_get(pair->now, column->source), "counts");
    json_t *old = json_object_get(json_object_get(pair->before, column->source), "counts");
    struct bucket *buckets = calloc(json_object_size(counts) + 1, sizeof *buckets);
    const char *ns;
    size_t n = 0;
    double total = 0;
    if (!buckets)
        return;
    json_object_foreach(counts, ns, count) {
        buckets[n].ns = strtod(ns, NULL);
        buckets[n].count = fmax(json_number_value(count) - number(old, ns), 0);
        total += buckets[n++].count;
    }
    if (total > 0)
        cell->number = quantile_us(buckets, n, total, column->share);
    free(buckets);
}

static double total_of(json_t *operator) {
    json_t *count, *counts = json_object_get(json_object_get(operator, "run_us"), "counts");
    const char *ns;
    double total = 0;
    json_object_foreach(counts, ns, count) total += json_number_value(count);
    return total;
}

/* What ran, by launches; the server rounds the launches, and none of them runs less than one. */
static void batch(const struct live_column *column, const struct live_pair *pair,
                  struct live_cell *cell) {
    double launches = grown(pair, column->source);
    double ran = total_of(pair->now) - total_of(pair->before);
    if (launches > 0 && ran > 0)
        cell->number = fmax(ran / launches, 1);
}

/* ---- Columns ---- */

static const struct live_column operator_columns[LIVE_COLUMNS] = {
    {"name", "operator", 20, LIVE_TEXT, text, "name", 0},
    {"pass", "pass", 8, LIVE_TEXT, text, "pass", 0},
    {"requests_per_s", "req/s", 9, LIVE_TENTHS, rate, "requests", 0},
    {"errors_per_s", "err/s", 7, LIVE_TENTHS, rate, "errors", 0},
    {"bytes_in_per_s", "in/s", 10, LIVE_BYTES, rate, "bytes_in", 0},
    {"bytes_out_per_s", "out/s", 10, LIVE_BYTES, rate, "bytes_out", 0},
    {"batch_mean", "batch", 6, LIVE_TENTHS, batch, "batches", 0},
    {"queue_p50_us", "queue50us", 10, LIVE_TENTHS, quantile, "queue_us", 0.5},
    {"queue_p99_us", "queue99us", 10, LIVE_TENTHS, quantile, "queue_us", 0.99},
    {"run_p50_us", "run50us", 10, LIVE_TENTHS, quantile, "run_us", 0.5},
    {"run_p99_us", "run99us", 10, LIVE_TENTHS, quantile, "run_us", 0.99},
};

static const struct live_column client_columns[LIVE_COLUMNS] = {
    {"id", "client", 7, LIVE_COUNT, gauge, "id", 0},
    {"identity", "identity", 16, LIVE_TEXT, text, "identity", 0},
    {"agent", "agent", 16, LIVE_TEXT, text, "agent", 0},
    {"requests_per_s", "req/s", 9, LIVE_TENTHS, rate, "requests", 0},
    {"errors_per_s", "err/s", 7, LIVE_TENTHS, rate, "errors", 0},
    {"in_flight", "flight", 7, LIVE_COUNT, gauge, "in_flight", 0},
    {"bytes_in_per_s", "in/s", 10, LIVE_BYTES, rate, "bytes_in", 0},
    {"bytes_out_per_s", "out/s", 10, LIVE_BYTES, rate, "bytes_out", 0},
    {"resident_bytes", "resident", 10, LIVE_BYTES, gauge, "resident_bytes", 0},
    {"attached_bytes", "attached", 10, LIVE_BYTES, gauge, "attached_bytes", 0},
    {"peer", "peer", 20, LIVE_TEXT, text, "peer", 0},
};

static bool same_operator(json_t *a, json_t *b) {
    return strcmp(lookup_text(a, "name"), lookup_text(b, "name")) == 0 &&
           strcmp(lookup_text(a, "pass"), lookup_text(b, "pass")) == 0;
}

static bool same_client(json_t *a, json_t *b) { return number(a, "id") == number(b, "id"); }

const struct live_view live_operators = {"operators", operator_columns, LIVE_COLUMNS, 2,
                                         same_operator};
const struct live_view live_clients = {"clients", client_columns, LIVE_COLUMNS, 3, same_client};

size_t live_column(const struct live_view *view, const char *key) {
    size_t i = 0;
    while (i < view->ncolumns && strcmp(view->columns[i].key, key) != 0)
        i++;
    return i;
}

/* ---- Rows ---- */

static json_t *find(const struct live_view *view, json_t *list, size_t likely, json_t *wanted) {
    size_t i;
    json_t *item = json_array_get(list, likely);
    if (item && view->same(item, wanted)) /* lists change little from one reading to the next */
        return item;
    json_array_foreach(list, i, item) if (view->same(item, wanted)) return item;
    return NULL;
}

bool live_read(const struct live_view *view, json_t *now, json_t *before, double seconds,
               struct live_table *table) {
    json_t *list = json_object_get(now, view->list), *old = json_object_get(before, view->list);
    json_t *item;
    size_t i;
    *table = (struct live_table){view, json_array_size(list), NULL};
    table->rows = calloc(table->n + 1, sizeof *table->rows);
    if (!table->rows)
        return false;
    json_array_foreach(list, i, item) {
        struct live_pair pair = {item, find(view, old, i, item), before ? seconds : NAN};
        for (size_t c = 0; c < view->ncolumns; c++) {
            table->rows[i].cells[c].number = NAN;
            view->columns[c].derive(&view->columns[c], &pair, &table->rows[i].cells[c]);
        }
    }
    return true;
}

struct order {
    const struct live_view *view;
    size_t column;
    bool reversed;
};

static int compare_cells(const struct live_column *column, const struct live_cell *a,
                         const struct live_cell *b) {
    if (column->kind == LIVE_TEXT)
        return strcmp(a->text, b->text);
    double x = isnan(a->number) ? -1 : a->number, y = isnan(b->number) ? -1 : b->number;
    return (x < y) - (x > y);
}

static int compare_rows(const void *a, const void *b, void *arg) {
    const struct live_row *x = a, *y = b;
    const struct order *order = arg;
    const struct live_column *columns = order->view->columns;
    int found =
        compare_cells(&columns[order->column], &x->cells[order->column], &y->cells[order->column]);
    if (found)
        return order->reversed ? -found : found;
    found = compare_cells(&columns[0], &x->cells[0], &y->cells[0]);
    return found ? found : compare_cells(&columns[1], &x->cells[1], &y->cells[1]);
}

void live_sort(struct live_table *table, size_t column, bool reversed) {
    struct order order = {table->view, column, reversed};
    qsort_r(table->rows, table->n, sizeof *table->rows, compare_rows, &order);
}
