/*
 * Stats of a server as they change: a table that lives on a terminal, plain tables one after the
 * other elsewhere, or one JSON document a line. Shared by the verbs stats and top.
 */
#ifndef XOPCTL_WATCH_H
#define XOPCTL_WATCH_H

#include "live.h"
#include "session.h"

#define WATCH_VIEWS 2
#define WATCH_USAGE "seconds are expected, 0.1 to 999999"

struct watch_table {
    const struct live_view *view;
    bool shown, reversed;
    size_t sort;
};

struct watch {
    struct session *session;
    double seconds;
    uint64_t count; /* how many times; 0: until it is ended */
    bool choose;    /* keys o and c choose one of the tables */
    struct watch_table tables[WATCH_VIEWS];
};

/* Both tables, each sorted by requests. */
void watch_init(struct watch *watch, struct session *session);
/* Seconds between readings; false where it is no such number. */
bool watch_seconds(const char *text, double *seconds);
/* Connects and shows; returns the exit status. */
int watch_run(struct watch *watch);

#endif
