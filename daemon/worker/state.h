/*
 * The worker's state. One thread, the loop's, owns all of it; only opening the backend runs on a
 * helper thread, before the loop takes requests. Nothing is allocated for a request in steady
 * state: every record of every lane has its task, made at start.
 */
#ifndef WORKER_STATE_H
#define WORKER_STATE_H

#include "daemon/log.h"
#include "daemon/shared/arena.h"
#include "daemon/shared/seam.h"
#include "daemon/shared/table.h"
#include "kernels/backend.h"

#include <time.h>

#define WORKER_MAX_OPS 512u

/* A launch that moves as much shares neither its launch nor the last free lane. */
#define WORKER_LARGE (UINT64_C(8) << 20)

/* A client has few tasks here while it never has more than these at once. They go apart from
 * others' and before them, one lane is left to them, and while there are any, what others have goes
 * in smaller steps: so that whoever asks for one thing at a time does not wait behind those who ask
 * for hundreds. Who had more has few again after so many tasks. */
#define WORKER_FEW 4u
#define WORKER_FEW_AGAIN 16u
#define WORKER_CLIENTS 256u /* clients are told apart by their number's rest */

struct worker_client {
    uint32_t busy;    /* its tasks here */
    uint32_t crowded; /* tasks until it has few again */
};

struct queue;
struct helper;

/* A request in the worker's hands: the private copy of a record, checked. */
struct task {
    struct task *next;
    uint64_t sequence; /* order of arrival */
    uint32_t lane, index;
    bool busy; /* the worker has it */
    uint8_t client;
    bool few, many; /* how its client stood when it was added; neither before */
    uint64_t tag, deadline_ns, accepted_ns, launched_ns;
    int priority;
    enum seam_kind kind;
    bool check, alone, shapes;
    const struct xop_op *op;
    enum xop_pass pass;
    struct xop_tensor in[XOP_MAX_INPUTS];
    struct xop_tensor out[XOP_MAX_OUTPUTS]; /* as infer gave them */
    bool wanted[XOP_MAX_OUTPUTS];
    bool in_block[XOP_MAX_OUTPUTS]; /* wanted in the outbox, data set when it is launched */
    /* Where copies of operands have to be in the end, in the order that the backend takes. */
    void *keeps[XOP_MAX_INPUTS + XOP_MAX_OUTPUTS];
    bool has_keeps;
    struct seam_memory memory;            /* ADOPT, RELEASE */
    uint64_t bytes_in, bytes_out;         /* PROBE */
    struct xop_attr attrs[XOP_MAX_ATTRS]; /* in the declaration's order */
    uint64_t attrs_hash;
    enum xop_dtype dtype; /* the call's common one */
    struct xop_plan plan;
    uint64_t bytes;                     /* that a launch of it moves */
    uint64_t block_needed;              /* bytes of the outbox that its outputs take */
    uint64_t block_offset, block_bytes; /* of the outbox; bytes 0: none */
    uint32_t passed_by;                 /* tasks that took space since this one found none */
    struct xop_bad_index bad_index;
    uint32_t batch;
    unsigned char *long_arguments; /* grows and is kept */
    size_t long_capacity;
    alignas(8) unsigned char arguments[SEAM_INLINE_ARGUMENTS];
};

/* Tasks that may share a launch. */
struct queue {
    struct queue *next;
    const struct xop_op *op;
    enum xop_pass pass;
    enum xop_dtype dtype;
    uint64_t group;
    int priority;
    bool check;
    bool small; /* results of the outbox's small part */
    bool large; /* tasks that share nothing */
    bool few;   /* of clients with few */
    struct task *first, **last;
    uint32_t count;
    uint64_t blocked; /* the round in which there was no space for its first task */
};

/* A launch on its way through the backend. */
struct flight {
    struct xop_group group;
    struct flight *next;
    struct task **tasks;
    struct xop_call *calls;
    const struct xop_plan **plans;
    void *const **keeps;
    bool busy, large, few;
};

struct outbox {
    unsigned char *base;
    uint64_t bytes, small_bytes; /* the first small_bytes are kept for small results */
    struct arena *small, *large;
};

struct worker {
    struct seam_setup setup;
    int control, doorbell, keeper;
    int lane_fds[SEAM_MAX_LANES];
    struct seam_header *header;
    struct seam_lane lanes[SEAM_MAX_LANES];
    bool lane_rings[SEAM_MAX_LANES];  /* completions were pushed since the bell rang */
    bool lane_broken[SEAM_MAX_LANES]; /* its rings are impossible, and the log says so */
    bool told_internal;               /* the log has had a record that is not well-formed */
    uint32_t first_lane;              /* whose turn it is to be first */
    const unsigned char *inbox;
    struct outbox outbox;

    const struct xop_backend_api *api;
    struct xop_backend *backend;
    struct xop_device_info info;
    char fallback_reason[512];
    const struct xop_op *ops[WORKER_MAX_OPS];
    bool referenced[WORKER_MAX_OPS]; /* a float64 reference came with it */
    uint32_t nops;

    struct helper *helper;
    struct table memories; /* struct memory_entry, by number: see memories.h */

    struct task *tasks; /* lanes * records */
    uint64_t sequence;
    struct worker_client clients[WORKER_CLIENTS];
    uint32_t few, many; /* tasks added and not completed */
    uint64_t few_ns;    /* when the last of a client with few came */
    bool gently;        /* while there are many, and some of clients with few are or were lately */
    struct queue *queues, *spare_queues;
    struct task *alone, **alone_last; /* suspects, in order */
    bool alone_runs;                  /* what is in flight is a suspect */
    struct task *again;               /* of groups that were too large, one by one */
    struct flight *flights;
    uint32_t nflights, in_flight, large_in_flight, few_in_flight, crowd_in_flight;
    uint64_t round; /* of launching */
    bool stop;
    uint64_t now;          /* when this turn of the loop began */
    struct xop_error lost; /* a status other than OK: the device is, as the helper found */
    uint64_t last_info_ns;
    uint64_t last_work_ns, gap_ns; /* for polling: when there was work, the mean time without */
};

static inline uint64_t worker_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline const struct xop_signature *task_signature(const struct task *task) {
    return &task->op->pass[task->pass];
}

#endif
