/*
 * Has the kernel give memory its pages, on threads beside whoever opens a device. To pin 2 GiB that
 * were never touched takes long, most of it for clearing pages, and so does opening a device: at
 * the same time, the longer of both is what it takes.
 */
#ifndef WORKER_POPULATE_H
#define WORKER_POPULATE_H

#include <stdbool.h>
#include <stddef.h>

struct populate;

/* Begins with a mapping of whole pages, which has to stay until populate_end; `write`: it may be
 * written. NULL where no thread can be had: then pages come when they are needed, as ever. */
struct populate *populate_begin(const void *base, size_t bytes, bool write);

/* Waits until all are there. NULL is allowed. */
void populate_end(struct populate *populate);

#endif
