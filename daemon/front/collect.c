#include "collect.h"

#include <stdlib.h>
#include <string.h>

static bool had_requests(const struct front *front, uint32_t slot, int pass) {
    for (uint32_t t = 0; t < front->nthreads; t++)
        if (stats_op_requests(&front->threads[t].ops[slot][pass]) > 0)
            return true;
    return false;
}

static bool add_op(struct front *front, struct collected *c, uint32_t slot, int pass) {
    if ((c->nops & (c->nops - 1)) == 0) { /* full at powers of two */
        struct collected_op *more =
            realloc(c->ops, (c->nops ? 2 * (size_t)c->nops : 1) * sizeof *more);
        if (!more)
            return false;
        c->ops = more;
    }
    struct collected_op *op = &c->ops[c->nops++];
    memset(op, 0, sizeof *op);
    memcpy(op->name, front->op_names[slot], sizeof op->name);
    op->pass = (enum xop_pass)pass;
    for (uint32_t t = 0; t < front->nthreads; t++)
        stats_op_merge(&op->stats, &front->threads[t].ops[slot][pass]);
    return true;
}

/* The last slot, with what belongs to no operator, comes last. */
static bool add_ops(struct front *front, struct collected *c) {
    pthread_mutex_lock(&front->lock);
    uint32_t names = front->nop_names;
    pthread_mutex_unlock(&front->lock);
    for (uint32_t i = 0; i <= names; i++)
        for (int pass = 0; pass < XOP_PASS_COUNT; pass++) {
            uint32_t slot = i < names ? i : STATS_SLOTS - 1;
            if (had_requests(front, slot, pass) && !add_op(front, c, slot, pass))
                return false;
        }
    return true;
}

bool collect(struct front *front, struct collected *c) {
    memset(c, 0, sizeof *c);
    shared_info(front, &c->info);
    c->ready = c->info.ready && !atomic_load(&front->draining);
    c->uptime_s = (double)(io_now() - front->started_ns) / 1e9;
    c->started = (uint64_t)front->started;
    c->memory_free = atomic_load(&front->memory_free);
    c->connections = atomic_load(&front->nconnections);
    c->connections_taken = atomic_load(&front->connection_numbers);
    c->inbox_bytes = front->inbox.bytes;
    c->inbox_used = atomic_load(&front->inbox.used);
    c->outbox_bytes = front->config->outbox_bytes;
    c->resident_bytes = atomic_load(&front->resident_bytes);
    c->resident_limit = atomic_load(&front->resident_limit);
    c->attached_bytes = atomic_load(&front->attached_bytes);
    for (int i = 0; i < SEAM_SENSORS; i++)
        c->sensors[i] = atomic_load(&front->sensors[i]);
    stats_thread_merge(&c->threads, &front->stats);
    for (uint32_t t = 0; t < front->nthreads; t++) {
        c->in_flight += atomic_load(&front->threads[t].in_flight);
        stats_thread_merge(&c->threads, &front->threads[t].stats);
    }
    return add_ops(front, c);
}

void collect_free(struct collected *c) {
    free(c->ops);
    c->ops = NULL;
}
