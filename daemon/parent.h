/*
 * The parent role: starts the front and, when the front asks, workers; watches and reaps them. It
 * parses nothing that came from outside and opens no device, but keeps the descriptors of its
 * memory (keeper.h). The front asks over a control socket; every message is a row of the table in
 * parent.c.
 *
 * If the front ends, the parent ends every worker and exits: an orphan must not keep a GPU, and a
 * service manager starts the whole afresh.
 */
#ifndef DAEMON_PARENT_H
#define DAEMON_PARENT_H

#include "reload.h"

#define PARENT_MAX_WORKERS 64u

enum parent_message_type {
    PARENT_START = 1, /* front -> parent, with the worker's descriptors in the order of
                         enum seam_descriptor: start a worker for a generation */
    PARENT_KILL,      /* front -> parent: end this generation's worker now */
    PARENT_STATUS,    /* front -> parent: it serves, if only to say why it cannot; for the
                         service manager, what it does in text */
    PARENT_ALIVE,     /* front -> parent: for the service manager's watchdog */
    PARENT_RELOADED,  /* front -> parent: it uses the configuration that it was sent; or, where text
                         says why it cannot, the one before */
    PARENT_STARTED,   /* parent -> front: value is the pid, or -1 with the reason in text */
    PARENT_REAPED,    /* parent -> front: value is the wait status */
    PARENT_TERMINATE, /* parent -> front: drain and exit; value 1: at once */
    PARENT_RELOAD,    /* parent -> front, with a memfd that holds a struct config: use it */
    PARENT_MESSAGE_TYPES
};

struct parent_message {
    uint32_t type;
    int32_t value;
    uint64_t generation;
    char text[256];
};

/* Runs until the daemon ends; returns its exit status. read gives the configuration anew; it is
 * called with user. */
int parent_main(struct config *config, reload_reader *read, const void *user);

#endif
