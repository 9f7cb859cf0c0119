/* Tables of what happens on a server, as text and as JSON. */
#include "live.h"

#include <math.h>
#include <string.h>

void live_format(enum live_kind kind, double number, char *out, size_t size) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    if (isnan(number)) {
        snprintf(out, size, "-");
    } else if (kind == LIVE_BYTES) {
        for (; number >= 1024 && unit < 4; unit++)
            number /= 1024;
        snprintf(out, size, unit ? "%.1f %s" : "%.0f %s", number, units[unit]);
    } else {
        /* Tenths of what is large are noise, and too wide. */
        snprintf(out, size, kind == LIVE_TENTHS && number < 1e6 ? "%.1f" : "%.0f", number);
    }
}

/* Cuts the line to the width; what comes from a server is ASCII here. */
static void put_line(FILE *out, const char *line, size_t width, const char *end) {
    size_t length = strlen(line);
    while (length > 0 && line[length - 1] == ' ')
        length--;
    if (width > 0 && length > width)
        length = width;
    fprintf(out, "%.*s%s\n", (int)length, line, end);
}

/* Only the last text has the room that it wants. */
static void append(char *line, size_t size, const struct live_column *column, bool last,
                   const char *cell) {
    size_t at = strlen(line);
    if (column->kind == LIVE_TEXT)
        snprintf(line + at, size - at, "%-*.*s ", column->width, last ? 200 : column->width, cell);
    else
        snprintf(line + at, size - at, "%*s ", column->width, cell);
}

void live_print(FILE *out, const struct live_table *table, size_t marked, size_t width,
                size_t height, const char *end) {
    const struct live_view *view = table->view;
    char line[512] = "", cell[64];
    for (size_t c = 0; c < view->ncolumns; c++) {
        snprintf(cell, sizeof cell, "%s%s", c == marked ? ">" : "", view->columns[c].title);
        append(line, sizeof line, &view->columns[c], c + 1 == view->ncolumns, cell);
    }
    if (height > 0)
        put_line(out, line, width, end);
    for (size_t i = 0; i < table->n && i + 1 < height; i++) {
        line[0] = 0;
        for (size_t c = 0; c < view->ncolumns; c++) {
            const struct live_column *column = &view->columns[c];
            const struct live_cell *from = &table->rows[i].cells[c];
            if (column->kind != LIVE_TEXT)
                live_format(column->kind, from->number, cell, sizeof cell);
            append(line, sizeof line, column, c + 1 == view->ncolumns,
                   column->kind == LIVE_TEXT ? from->text : cell);
        }
        put_line(out, line, width, end);
    }
}

json_t *live_json(const struct live_table *table) {
    const struct live_view *view = table->view;
    json_t *list = json_array();
    for (size_t i = 0; i < table->n; i++) {
        json_t *row = json_object();
        for (size_t c = 0; c < view->ncolumns; c++) {
            const struct live_cell *cell = &table->rows[i].cells[c];
            json_t *value = view->columns[c].kind == LIVE_TEXT ? json_string(cell->text)
                            : isnan(cell->number)              ? json_null()
                                                               : json_real(cell->number);
            json_object_set_new(row, view->columns[c].key, value);
        }
        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
