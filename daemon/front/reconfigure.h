/*
 * A new configuration in a front that runs: on the main thread, from the parent's message. TLS
 * files are read first, since they alone can be wrong; then the main thread, every I/O thread and
 * the worker take over what may change. Each has a copy of its own, so that none reads what another
 * writes. The parent is told how it went.
 */
#ifndef FRONT_RECONFIGURE_H
#define FRONT_RECONFIGURE_H

#include "shared.h"

/* fd: a memfd that holds a struct config; the caller's. */
void reconfigure(struct front *front, int fd);

#endif
