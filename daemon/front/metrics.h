/*
 * What is known of the server in Prometheus' text format 0.0.4. The table of families in metrics.c
 * is the one list of them. Any thread.
 */
#ifndef FRONT_METRICS_H
#define FRONT_METRICS_H

#include "shared.h"

#include <event2/buffer.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Appends all families; false where memory runs out. */
bool metrics_write(struct front *front, struct evbuffer *out);

#endif
