/*
 * What the front's threads share. `inbox` and the threads themselves are set before the first
 * thread starts; what changes later is atomic or under `lock`.
 */
#ifndef FRONT_SHARED_H
#define FRONT_SHARED_H

#include "daemon/passed.h"
#include "identity.h"
#include "io.h"

#include <time.h>

#ifndef XOP_VERSION
#define XOP_VERSION "unknown"
#endif

#define SHARED_NO_OP "(others)" /* the name of the last statistics slot */

/* What is known of the worker that serves now. */
struct worker_info {
    char backend[16], device[128], runtime[64], fallback_reason[512];
    uint64_t memory_total;
    uint64_t generation;
    uint64_t restarts;
    bool ready;
    char reason[512]; /* why there is none, where `unavailable` */
};

struct front {
    struct config *config; /* the main thread's; others have copies: see reconfigure.h */
    struct event_base *base;
    int parent;
    uint64_t started_ns;
    time_t started; /* the same by the clock on the wall */
    struct inbox inbox;
    struct identities identities;
    struct io_thread *threads;
    uint32_t nthreads;
    const struct passed *passed; /* until they are listened to */
    struct listeners *listeners;
    struct tls *tls; /* NULL where no listener needs it */
    struct workers *workers;
    struct http *http; /* NULL where none is configured */
    int exit_status;
    _Atomic bool draining;
    struct thread_stats stats; /* the main thread's */
    _Atomic uint64_t beat_ns;  /* when the main loop last had a look at its worker */
    struct drain *drain;
    struct alive *alive;

    pthread_mutex_t lock;
    struct worker_info info;            /* under lock */
    char (*op_names)[XOP_MAX_NAME + 1]; /* under lock: names of statistics slots */
    uint32_t nop_names;                 /* under lock */
    uint64_t reported;                  /* under lock: generation that was reported, */
    char report[512];                   /* and why */
    int report_fd;                      /* eventfd: there is a report */

    _Atomic uint64_t memory_free;
    _Atomic uint64_t sensors[SEAM_SENSORS];          /* as in the seam */
    _Atomic uint64_t resident_bytes, resident_limit; /* of the device: made, and allowed */
    _Atomic uint64_t attached_bytes;                 /* of all clients' memory */
    _Atomic bool unavailable;                        /* requests are answered UNAVAILABLE at once */
    _Atomic uint32_t connection_numbers, nconnections;
    _Atomic uint32_t nwaiting; /* connections that wait for space in the inbox */
};

static inline const struct config *shared_config(const struct io_thread *thread) {
    return &thread->config;
}

static inline uint64_t shared_max_body(const struct io_thread *thread) {
    return inbox_largest(&thread->front->inbox);
}

/* A copy of what is known of the worker. */
void shared_info(struct front *front, struct worker_info *info);

/* Whether requests are taken and there is a worker for them; why not otherwise. */
bool shared_ready(struct front *front, char *reason, size_t capacity);

/* The first I/O thread whose last tick is longer ago than the limit; as many as there are: none. */
uint32_t shared_stalled_thread(const struct front *front, uint64_t now, uint64_t limit_ns);

/* Whether the main thread and every I/O thread still go round; which does not, otherwise. */
bool shared_alive(const struct front *front, char *reason, size_t capacity);

/* The statistics slot of an operator's name; the last slot serves all that do not fit. */
uint32_t shared_op_slot(struct front *front, const char *name);

/* Asks the main thread to replace the generation's worker, for this reason. */
void shared_report(struct io_thread *thread, struct generation *generation, const char *format, ...)
    XOP_PRINTF(3, 4);

#endif
