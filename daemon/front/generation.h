/*
 * One generation of a worker, as the front sees it: the memory and descriptors made for it, its
 * catalogue, and which blocks of its outbox are in use. Counted references: the main thread and
 * each I/O thread hold one while it is theirs, and every response that still sends from its outbox.
 * What follows the count is freed by whoever drops the last.
 */
#ifndef FRONT_GENERATION_H
#define FRONT_GENERATION_H

#include "catalogue.h"
#include "daemon/shared/seam.h"

struct generation {
    _Atomic uint32_t references;
    uint64_t number;
    uint32_t lanes, records;
    int control;  /* main's end */
    int doorbell; /* wakes the worker */
    int lane_fds[SEAM_MAX_LANES];
    int seam_fd, outbox_fd;
    void *seam;
    size_t seam_bytes;
    const unsigned char *outbox; /* mapped read-only */
    uint64_t outbox_bytes;
    /* A bit a granule of the outbox that a response holds. A worker that gives the same bytes to
     * two requests is caught here, whichever threads they are on. */
    _Atomic uint64_t *claimed;
    struct catalogue *catalogue;
    bool apart;          /* see seam.h; set before it is ready */
    _Atomic bool closed; /* submit nothing more */
    _Atomic bool faulty; /* it broke the rules of the seam: its completions do not count */

    /* Main's, final once every I/O thread was told that the worker is gone. */
    char fault[512]; /* what is known of its end */
    bool blame;      /* whether its end says something about what it ran */
};

/* Makes everything of a generation but the process. */
enum xop_status generation_new(uint64_t number, uint32_t lanes, uint32_t records,
                               uint64_t outbox_bytes, struct generation **generation,
                               int *worker_control, struct xop_error *error);
struct generation *generation_hold(struct generation *generation);
void generation_drop(struct generation *generation); /* NULL is allowed */

static inline struct seam_header *generation_header(const struct generation *generation) {
    return generation->seam;
}

/* Marks a block as held; false where it is out of range, misaligned or already held in part. */
bool generation_claim(struct generation *generation, uint64_t offset, uint64_t bytes);
void generation_unclaim(struct generation *generation, uint64_t offset, uint64_t bytes);

#endif
