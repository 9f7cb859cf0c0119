/*
 * What all threads of the front counted and what is known of the server now, added up for those who
 * tell it: documents and metrics. Any thread.
 */
#ifndef FRONT_COLLECT_H
#define FRONT_COLLECT_H

#include "shared.h"

/* An operator's pass that had requests. */
struct collected_op {
    char name[XOP_MAX_NAME + 1];
    enum xop_pass pass;
    struct op_stats stats;
};

struct collected {
    struct worker_info info;
    bool ready; /* as /readyz says; info.ready is the worker alone */
    double uptime_s;
    uint64_t started; /* seconds since the epoch */
    uint64_t memory_free, connections, connections_taken, in_flight;
    uint64_t inbox_bytes, inbox_used, outbox_bytes;
    uint64_t resident_bytes, resident_limit, attached_bytes;
    uint64_t sensors[SEAM_SENSORS]; /* as in the seam */
    struct thread_stats threads;
    struct collected_op *ops;
    uint32_t nops;
};

/* False where memory runs out. What is collected is the caller's, to be freed in any case. */
bool collect(struct front *front, struct collected *collected);
void collect_free(struct collected *collected);

#endif
