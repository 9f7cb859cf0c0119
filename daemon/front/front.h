/*
 * The front role: listens, decodes, hands requests to a worker and sends results. It never loads
 * CUDA and never runs operator code. Its main thread owns listeners, workers' lives and the control
 * sockets; I/O threads own connections (see io.h).
 */
#ifndef FRONT_FRONT_H
#define FRONT_FRONT_H

#include "daemon/config.h"

/* Runs until the parent says terminate or is gone; returns the exit status. watchdog_us: see
 * alive.h. */
int front_main(const struct config *config, int parent, uint64_t watchdog_us);

#endif
