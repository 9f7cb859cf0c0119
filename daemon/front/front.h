/*
 * The front role: listens, decodes, hands requests to a worker and sends results. It never loads
 * CUDA and never runs operator code. Its main thread owns listeners, workers' lives and the control
 * sockets; I/O threads own connections (see io.h).
 */
#ifndef FRONT_FRONT_H
#define FRONT_FRONT_H

#include "daemon/passed.h"

struct front_start {
    const struct config *config;
    const struct passed *passed;
    int parent;           /* control socket */
    uint64_t watchdog_us; /* see alive.h */
};

/* Runs until the parent says terminate or is gone; returns the exit status. */
int front_main(const struct front_start *start);

#endif
