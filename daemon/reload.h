/*
 * Reading the configuration again, in the parent: the file is read and judged as at the start; what
 * may change while xopd runs goes to the front, which answers whether it could use it; only then is
 * it in force, here as well. Whatever goes wrong, all stays as it was, and the log says what it
 * was.
 */
#ifndef DAEMON_RELOAD_H
#define DAEMON_RELOAD_H

#include "config.h"

/* Reads defaults, file and command line into config. */
typedef enum xop_status reload_reader(const void *user, struct config *config,
                                      struct xop_error *error);

struct reload {
    struct config *config; /* in force */
    reload_reader *read;
    const void *user;
    struct config fresh; /* as it was read, while the front is asked */
    bool waiting;        /* for the front's answer */
    bool again;          /* asked for meanwhile */
};

/* Each returns whether the front was asked, so that the reload is not over yet. */
bool reload_begin(struct reload *reload, int front);
/* The front's answer: reason is empty where it uses the new configuration. */
bool reload_end(struct reload *reload, int front, const char *reason);

#endif
