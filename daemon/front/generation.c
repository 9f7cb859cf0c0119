#include "generation.h"

#include "daemon/shared/arena.h"
#include "daemon/shared/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static enum xop_status share(const char *name, size_t bytes, int protection, int *fd, void **base,
                             struct xop_error *error) {
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0 || ftruncate(*fd, (off_t)bytes) < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%s of %zu bytes: %s", name, bytes,
                        strerror(errno));
    /* A worker that shrank it would end the front with SIGBUS. */
    if (fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return xop_fail(error, XOP_INTERNAL, "%s: cannot be sealed: %s", name, strerror(errno));
    *base = mmap(NULL, bytes, protection, MAP_SHARED, *fd, 0);
    if (*base == MAP_FAILED) {
        *base = NULL;
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%s: mmap: %s", name, strerror(errno));
    }
    return XOP_OK;
}

static enum xop_status open_descriptors(struct generation *g, int *worker_control,
                                        struct xop_error *error) {
    int sockets[2];
    if (channel_pair(sockets, false, error) != XOP_OK)
        return error->status;
    g->control = sockets[0];
    *worker_control = sockets[1];
    bool ok = fcntl(g->control, F_SETFL, O_NONBLOCK) == 0;
    g->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ok = ok && g->doorbell >= 0;
    for (uint32_t i = 0; ok && i < g->lanes; i++)
        ok = (g->lane_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0;
    return ok ? XOP_OK : xop_fail(error, XOP_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno));
}

enum xop_status generation_new(uint64_t number, uint32_t lanes, uint32_t records,
                               uint64_t outbox_bytes, struct generation **out, int *worker_control,
                               struct xop_error *error) {
    void *outbox = NULL;
    struct generation *g = calloc(1, sizeof *g);
    *worker_control = -1;
    if (!g)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    atomic_init(&g->references, 1);
    g->number = number;
    g->lanes = lanes;
    g->records = records;
    g->outbox_bytes = outbox_bytes & ~UINT64_C(0xfffff);
    g->seam_bytes = seam_bytes(lanes, records);
    g->control = g->doorbell = g->seam_fd = g->outbox_fd = -1;
    memset(g->lane_fds, 0xff, sizeof g->lane_fds);
    if (share("xopd-seam", g->seam_bytes, PROT_READ | PROT_WRITE, &g->seam_fd, &g->seam, error) !=
            XOP_OK ||
        share("xopd-outbox", g->outbox_bytes, PROT_READ, &g->outbox_fd, &outbox, error) != XOP_OK)
        goto fail;
    g->outbox = outbox;
    g->claimed = calloc(g->outbox_bytes / ARENA_GRANULE / 64 + 1, sizeof *g->claimed);
    if (!g->claimed) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
        goto fail;
    }
    if (open_descriptors(g, worker_control, error) != XOP_OK)
        goto fail;
    *out = g;
    return XOP_OK;
fail:
    if (*worker_control >= 0)
        close(*worker_control);
    generation_drop(g);
    return error->status;
}

struct generation *generation_hold(struct generation *generation) {
    atomic_fetch_add(&generation->references, 1);
    return generation;
}

static void close_if_open(int fd) {
    if (fd >= 0)
        close(fd);
}

void generation_drop(struct generation *g) {
    if (!g || atomic_fetch_sub(&g->references, 1) != 1)
        return;
    if (g->seam)
        munmap(g->seam, g->seam_bytes);
    if (g->outbox)
        munmap((void *)(uintptr_t)g->outbox, g->outbox_bytes);
    close_if_open(g->control);
    close_if_open(g->doorbell);
    close_if_open(g->seam_fd);
    close_if_open(g->outbox_fd);
    for (uint32_t i = 0; i < SEAM_MAX_LANES; i++)
        close_if_open(g->lane_fds[i]);
    free(g->claimed);
    catalogue_drop(g->catalogue);
    free(g);
}

/* The bits of granules [first, end) that lie in word w. */
static uint64_t bits(uint64_t w, uint64_t first, uint64_t end) {
    uint64_t low = first > w * 64 ? first - w * 64 : 0;
    uint64_t high = end < w * 64 + 64 ? end - w * 64 : 64;
    uint64_t below_high = high == 64 ? ~UINT64_C(0) : (UINT64_C(1) << high) - 1;
    return below_high & ~((UINT64_C(1) << low) - 1);
}

static void clear(struct generation *g, uint64_t first, uint64_t end) {
    if (first < end)
        for (uint64_t w = first / 64; w <= (end - 1) / 64; w++)
            atomic_fetch_and_explicit(&g->claimed[w], ~bits(w, first, end), memory_order_relaxed);
}

bool generation_claim(struct generation *g, uint64_t offset, uint64_t bytes) {
    if (bytes == 0 || offset % ARENA_GRANULE != 0 || offset > g->outbox_bytes ||
        bytes > g->outbox_bytes - offset)
        return false;
    uint64_t first = offset / ARENA_GRANULE;
    uint64_t end = (offset + bytes + ARENA_GRANULE - 1) / ARENA_GRANULE;
    for (uint64_t w = first / 64; w <= (end - 1) / 64; w++) {
        uint64_t mine = bits(w, first, end);
        uint64_t before = atomic_fetch_or_explicit(&g->claimed[w], mine, memory_order_relaxed);
        if (before & mine) {
            /* Take back what was not set before, and the words that went well. */
            atomic_fetch_and_explicit(&g->claimed[w], ~(mine & ~before), memory_order_relaxed);
            clear(g, first, w * 64 > first ? w * 64 : first);
            return false;
        }
    }
    return true;
}

void generation_unclaim(struct generation *g, uint64_t offset, uint64_t bytes) {
    clear(g, offset / ARENA_GRANULE, (offset + bytes + ARENA_GRANULE - 1) / ARENA_GRANULE);
}
