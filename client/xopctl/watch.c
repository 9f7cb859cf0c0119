#include "watch.h"

#include "lookup.h"
#include "screen.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

/* Two readings and what is in between. Documents are owned here. */
struct state {
    struct watch *watch;
    bool on_screen;
    json_t *now, *before;
    double seconds; /* between them by the server's clock; NAN with one alone */
    char why[512];  /* why there is no newer reading; "" where there is */
    struct live_table tables[WATCH_VIEWS];
};

void watch_init(struct watch *watch, struct session *session) {
    *watch = (struct watch){.session = session, .seconds = 1};
    watch->tables[0] = (struct watch_table){&live_operators, true, false, live_operators.sort};
    watch->tables[1] = (struct watch_table){&live_clients, true, false, live_clients.sort};
}

bool watch_seconds(const char *text, double *seconds) {
    char *end;
    *seconds = strtod(text, &end);
    return end != text && !*end && *seconds >= 0.1 && *seconds < 1e6;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double number(json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* ---- Reading ---- */

static void take_reading(struct state *s, json_t *document) {
    double up = number(json_object_get(document, "server"), "uptime_s");
    double was = number(json_object_get(s->now, "server"), "uptime_s");
    json_decref(s->before);
    s->before = s->now;
    s->now = document;
    if (s->before && up <= was) { /* another daemon, which counts afresh */
        json_decref(s->before);
        s->before = NULL;
    }
    s->seconds = s->before ? up - was : NAN;
}

/* A server that is gone may come back, and who watches a terminal waits for that. */
static bool wait_for_server(struct state *s, const struct xop_error *error) {
    if (!s->on_screen || error->status != XOP_UNAVAILABLE)
        return false;
    snprintf(s->why, sizeof s->why, "%.500s", error->message);
    for (char *c = s->why; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    xop_client_close(s->watch->session->client);
    s->watch->session->client = NULL;
    return true;
}

/* false where this cannot go on: it has been told then. */
static bool read_stats(struct state *s, int *exit_status) {
    struct session *session = s->watch->session;
    struct xop_client_options options = session_options(session);
    struct xop_result *result = NULL;
    struct xop_error error;
    if (!session->client &&
        xop_client_open(session->address, &options, &session->client, &error) != XOP_OK) {
        if (wait_for_server(s, &error))
            return true;
        screen_leave();
        *exit_status =
            session_fail(session, session_exit(error.status), error.status, "%s", error.message);
        return false;
    }
    if (xop_stats(session->client, &result) != XOP_OK && result &&
        wait_for_server(s, &result->error)) {
        xop_result_free(result);
        return true;
    }
    json_t *document = result && result->text ? json_loads(result->text, 0, NULL) : NULL;
    if (!document) {
        screen_leave(); /* what is told has to be seen */
        json_decref(session_document(session, result, exit_status));
        return false;
    }
    xop_result_free(result);
    s->why[0] = 0;
    take_reading(s, document);
    return true;
}

/* ---- Showing ---- */

static bool make_tables(struct state *s) {
    bool good = true;
    for (int i = 0; i < WATCH_VIEWS; i++) {
        const struct watch_table *wanted = &s->watch->tables[i];
        free(s->tables[i].rows);
        good = live_read(wanted->view, s->now, s->before, s->seconds, &s->tables[i]) && good;
        if (s->tables[i].rows)
            live_sort(&s->tables[i], wanted->sort, wanted->reversed);
    }
    return good;
}

static void bytes(json_t *server, const char *key, char out[static 32]) {
    live_format(LIVE_BYTES, number(server, key), out, 32);
}

/* At most `width` characters a line. */
static void print_head(FILE *out, const struct state *s, size_t width, const char *end) {
    json_t *server = json_object_get(s->now, "server");
    char line[700], free_[32], total[32], used[32], inbox[32], resident[32], attached[32];
    int most = width < sizeof line ? (int)width : (int)sizeof line;
    snprintf(line, sizeof line,
             "xopd %s, up %.0f s, %s on %s; %.0f connections, %.0f requests in flight",
             lookup_text(server, "version"), number(server, "uptime_s"),
             lookup_text(server, "backend"), lookup_text(server, "device"),
             number(server, "connections"), number(server, "in_flight"));
    fprintf(out, "%.*s%s\n", most, line, end);
    bytes(server, "memory_free", free_);
    bytes(server, "memory_total", total);
    bytes(server, "inbox_used", used);
    bytes(server, "inbox_bytes", inbox);
    bytes(server, "resident_bytes", resident);
    bytes(server, "attached_bytes", attached);
    snprintf(line, sizeof line,
             "memory %s of %s free; inbox %s of %s used; resident %s, attached %s", free_, total,
             used, inbox, resident, attached);
    fprintf(out, "%.*s%s\n", most, line, end);
    if (*s->why) {
        snprintf(line, sizeof line, "no newer reading: %s", s->why);
        fprintf(out, "%.*s%s\n", most, line, end);
    }
}

/* As much of the tables as fits: what the first leaves of its half is the second's. */
static void print_tables(FILE *out, const struct state *s, size_t width, size_t height,
                         const char *end) {
    const struct watch_table *wanted = s->watch->tables;
    bool both = wanted[0].shown && wanted[1].shown;
    size_t left = height;
    for (int i = 0; i < WATCH_VIEWS; i++) {
        size_t lines = s->tables[i].n + 1, most = both && i == 0 ? left / 2 : left;
        if (!wanted[i].shown)
            continue;
        if (left == 0)
            return;
        fprintf(out, "%s\n", end);
        left--;
        most = most < left ? most : left;
        lines = lines < most ? lines : most;
        live_print(out, &s->tables[i], wanted[i].sort, width, lines, end);
        left -= lines;
    }
}

static void draw(const struct state *s) {
    char *picture = NULL;
    size_t width, height, size = 0, head = *s->why ? 4 : 3;
    FILE *out = open_memstream(&picture, &size);
    if (!out)
        return;
    screen_size(&width, &height);
    width--; /* erasing the rest of a full line would take its last character */
    if (s->now)
        print_head(out, s, width, SCREEN_END_OF_LINE);
    fprintf(out, "%.*s" SCREEN_END_OF_LINE "\n", (int)width,
            s->watch->choose ? "q quit  o operators  c clients  < > sort by  r reverse"
                             : "q quit  < > sort by  r reverse");
    /* A newline on the last line would scroll. */
    if (s->now && height > head + 1)
        print_tables(out, s, width, height - head - 1, SCREEN_END_OF_LINE);
    if (fclose(out) == 0)
        screen_show(picture, size);
    free(picture);
}

static int print_json_line(const struct state *s) {
    json_t *document = json_copy(s->now), *operators = live_json(&s->tables[0]);
    json_t *clients = live_json(&s->tables[1]);
    json_t *rates = json_pack("{s:f, s:o?, s:o?}", "interval_s", s->seconds, "operators", operators,
                              "clients", clients);
    char *text = NULL;
    if (json_object_set_new(document, "rates", rates) == 0)
        text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(document);
    if (!text)
        return session_fail(s->watch->session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    puts(text);
    free(text);
    return session_finish_output();
}

static int print_plain(const struct state *s) {
    print_head(stdout, s, SIZE_MAX, "");
    print_tables(stdout, s, 0, SIZE_MAX, "");
    printf("\n");
    return session_finish_output();
}

/* ---- Time and keys ---- */

static void move_sort(struct watch_table *table, size_t by) {
    table->sort = (table->sort + by) % table->view->ncolumns;
    table->reversed = false;
}

/* false: quit. */
static bool press(struct watch *watch, int key) {
    if (key == 'q' || key == 'Q')
        return false;
    if (watch->choose && (key == 'o' || key == 'c')) {
        watch->tables[0].shown = key == 'o';
        watch->tables[1].shown = key == 'c';
    }
    for (int i = 0; i < WATCH_VIEWS; i++) {
        struct watch_table *table = &watch->tables[i];
        if (!table->shown)
            continue;
        if (key == '>' || key == SCREEN_RIGHT)
            move_sort(table, 1);
        else if (key == '<' || key == SCREEN_LEFT)
            move_sort(table, table->view->ncolumns - 1);
        else if (key == 'r')
            table->reversed = !table->reversed;
    }
    return true;
}

/* Draws and answers keys until the next reading is due; false: quit. */
static bool stay(struct state *s, uint64_t until) {
    for (;;) {
        for (int i = 0; i < WATCH_VIEWS; i++)
            if (s->now)
                live_sort(&s->tables[i], s->watch->tables[i].sort, s->watch->tables[i].reversed);
        draw(s);
        int key = screen_key(until);
        if (key == SCREEN_LATER)
            return true;
        if (key != SCREEN_REDRAW && !press(s->watch, key))
            return false;
    }
}

static void rest(uint64_t until) {
    struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

static int loop(struct state *s) {
    struct watch *watch = s->watch;
    uint64_t due = now_ns(), interval = (uint64_t)(watch->seconds * 1e9);
    int status = 0;
    for (uint64_t shown = 0; read_stats(s, &status);) {
        if (s->now && !make_tables(s)) {
            screen_leave();
            return session_fail(watch->session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
        }
        /* Elsewhere than on a terminal, what is told is told of an interval. */
        if (!s->on_screen && s->before) {
            status = watch->session->json ? print_json_line(s) : print_plain(s);
            if (status || ++shown == watch->count)
                return status;
        } else if (s->on_screen && s->before && ++shown == watch->count + 1 && watch->count) {
            return 0;
        }
        /* Late readings are left out, not made up for. */
        for (due += interval; due <= now_ns();)
            due += interval;
        if (!s->on_screen)
            rest(due);
        else if (!stay(s, due))
            return 0;
    }
    return status;
}

int watch_run(struct watch *watch) {
    struct state s = {.watch = watch, .seconds = NAN};
    int status = 0;
    if (!session_connect(watch->session, &status))
        return status;
    s.on_screen = !watch->session->json && isatty(STDOUT_FILENO);
    if (s.on_screen)
        screen_enter();
    status = loop(&s);
    screen_leave();
    for (int i = 0; i < WATCH_VIEWS; i++)
        free(s.tables[i].rows);
    json_decref(s.before);
    json_decref(s.now);
    return status;
}
