/*
 * Signs of life for the service manager's watchdog, on the main thread: the parent is told that the
 * front is alive as long as every I/O thread's tick is recent and there is a worker that lives, or
 * one on its way. The main thread shows that it lives by saying so. A worker that stands still is
 * replaced without a word to anybody; only when that does not go on is the whole stuck.
 */
#ifndef FRONT_ALIVE_H
#define FRONT_ALIVE_H

#include "shared.h"

/* watchdog_us: the time in which the service manager wants a sign; 0: it wants none. */
enum xop_status alive_open(struct front *front, uint64_t watchdog_us, struct xop_error *error);
void alive_close(struct front *front);

/* What stands still at that time; NULL: nothing. limit_ns: how old a tick may be. */
const char *alive_stuck(const struct front *front, uint64_t now, uint64_t limit_ns);

#endif
