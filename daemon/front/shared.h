/*
 * What the front's threads share. `config`, `inbox` and the threads themselves are set before the
 * first thread starts; what changes later is atomic or under `lock`.
 */
#ifndef FRONT_SHARED_H
#define FRONT_SHARED_H

#include "identity.h"
#include "io.h"

#ifndef XOP_VERSION
#define XOP_VERSION "unknown"
#endif

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
    const struct config *config;
    struct event_base *base;
    int parent;
    uint64_t started_ns;
    struct inbox inbox;
    struct identities identities;
    struct io_thread *threads;
    uint32_t nthreads;
    struct listeners *listeners;
    struct tls *tls; /* NULL where no listener needs it */
    struct workers *workers;
    int exit_status;
    bool draining;
    uint64_t drain_deadline_ns;
    struct event *drain_timer;

    pthread_mutex_t lock;
    struct worker_info info;            /* under lock */
    char (*op_names)[XOP_MAX_NAME + 1]; /* under lock: names of statistics slots */
    uint32_t nop_names;                 /* under lock */
    uint64_t reported;                  /* under lock: generation that was reported, */
    char report[512];                   /* and why */
    int report_fd;                      /* eventfd: there is a report */

    _Atomic uint64_t memory_free;
    _Atomic uint64_t resident_bytes, resident_limit; /* of the device: made, and allowed */
    _Atomic uint64_t attached_bytes;                 /* of all clients' memory */
    _Atomic bool unavailable;                        /* requests are answered UNAVAILABLE at once */
    _Atomic uint32_t connection_numbers, nconnections;
    _Atomic uint32_t nwaiting; /* connections that wait for space in the inbox */
};

static inline const struct config *shared_config(const struct io_thread *thread) {
    return thread->front->config;
}

static inline uint64_t shared_max_body(const struct io_thread *thread) {
    return inbox_largest(&thread->front->inbox);
}

/* A copy of what is known of the worker. */
void shared_info(struct front *front, struct worker_info *info);

/* The statistics slot of an operator's name; the last slot serves all that do not fit. */
uint32_t shared_op_slot(struct front *front, const char *name);

/* Asks the main thread to replace the generation's worker, for this reason. */
void shared_report(struct io_thread *thread, struct generation *generation, const char *format, ...)
    XOP_PRINTF(3, 4);

#endif
