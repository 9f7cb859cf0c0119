/*
 * The order among requests of one connection that touch the same bytes of a resident tensor or of
 * client memory, or the same context: each runs as if after those before it, unless both only read.
 *
 * A request says at its arrival which ranges of which objects it will read and write. Where an
 * earlier, unfinished one conflicts, the request is blocked until that one is through; what reads
 * what a failed one was to write is aborted. All on the I/O thread that owns the objects.
 */
#ifndef FRONT_ORDER_H
#define FRONT_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct io_thread;
struct request;

/* A range that a request reads or writes, for as long as the request lasts. */
struct access {
    struct access *newer, *older; /* in the object's list, or among the free ones by `older` */
    struct access *next;          /* among the request's */
    struct request *request;
    struct object *object;
    uint64_t begin, end, sequence;
    bool write;
};

/* `dependent` waits for whoever holds this. */
struct edge {
    struct edge *next;
    struct request *dependent;
    bool needs; /* it reads what that one writes */
};

struct order_list {
    struct access *readers, *writers; /* newest first */
};

/* What has an order. Those with many small ranges in use at once spread them over windows, so that
 * finding a conflict does not mean looking at all of them. */
#define ORDER_WINDOWS 64u

struct object {
    uint32_t references;
    void (*drop)(struct object *); /* the last reference is gone */
    struct order_list wide;        /* ranges that cross windows; every one where there are none */
    struct order_list *windows;    /* ORDER_WINDOWS of them, or NULL */
};

void object_init(struct object *object, void (*drop)(struct object *));
struct object *object_hold(struct object *object);
void object_drop(struct object *object);

/* The request will use [begin, end) of the object, which it holds from now on; it is blocked where
 * that conflicts with what was there before. False where memory runs out. */
bool order_access(struct request *request, struct object *object, uint64_t begin, uint64_t end,
                  bool write);

/* The request is through, and has failed or not: its accesses end and those that it blocked are let
 * go. Nothing may be blocking it. */
void order_release(struct request *request, bool failed);

/* Goes on with requests that are not blocked any more. */
void order_run(struct io_thread *thread);

void order_close(struct io_thread *thread);

#endif
