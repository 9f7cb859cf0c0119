#include "inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLAB_MAX (UINT64_C(64) << 20)

static enum xop_status map(struct inbox *inbox, struct xop_error *error) {
    inbox->fd = memfd_create("xopd-inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (inbox->fd < 0 || ftruncate(inbox->fd, (off_t)inbox->bytes) < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "inbox of %llu bytes: %s",
                        (unsigned long long)inbox->bytes, strerror(errno));
    void *base = mmap(NULL, inbox->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, inbox->fd, 0);
    if (base == MAP_FAILED)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "inbox: mmap: %s", strerror(errno));
    inbox->base = base;
    madvise(base, inbox->bytes, MADV_HUGEPAGE); /* only where the kernel is set up for it */
    /* After our own mapping nobody can map it for writing any more. */
    if (fcntl(inbox->fd, F_ADD_SEALS,
              F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return xop_fail(error, XOP_INTERNAL, "inbox: cannot be sealed: %s", strerror(errno));
    return XOP_OK;
}

enum xop_status inbox_open(struct inbox *inbox, uint64_t bytes, uint32_t threads,
                           struct xop_error *error) {
    memset(inbox, 0, sizeof *inbox);
    inbox->fd = -1;
    inbox->bytes = bytes & ~UINT64_C(0xfffff); /* whole MiB */
    inbox->nslabs = threads;
    inbox->slab_bytes = inbox->bytes / 4 / threads;
    if (inbox->slab_bytes > SLAB_MAX)
        inbox->slab_bytes = SLAB_MAX;
    inbox->slab_bytes &= ~(uint64_t)0xfff;
    pthread_mutex_init(&inbox->lock, NULL);
    if (map(inbox, error) != XOP_OK)
        return error->status;
    inbox->slabs = calloc(threads, sizeof *inbox->slabs);
    inbox->shared = arena_new(inbox->bytes - threads * inbox->slab_bytes);
    bool whole = inbox->slabs && inbox->shared;
    for (uint32_t i = 0; whole && i < threads; i++)
        whole = (inbox->slabs[i] = arena_new(inbox->slab_bytes)) != NULL;
    return whole ? XOP_OK : xop_fail(error, XOP_RESOURCE_EXHAUSTED, "inbox: out of memory");
}

void inbox_close(struct inbox *inbox) {
    if (inbox->base)
        munmap(inbox->base, inbox->bytes);
    if (inbox->fd >= 0)
        close(inbox->fd);
    for (uint32_t i = 0; inbox->slabs && i < inbox->nslabs; i++)
        arena_free(inbox->slabs[i]);
    free(inbox->slabs);
    arena_free(inbox->shared);
    pthread_mutex_destroy(&inbox->lock);
}

uint64_t inbox_largest(const struct inbox *inbox) { return arena_bytes(inbox->shared); }

static bool take_shared(struct inbox *inbox, uint64_t bytes, uint64_t *offset) {
    pthread_mutex_lock(&inbox->lock);
    bool taken = arena_take(inbox->shared, bytes, offset);
    pthread_mutex_unlock(&inbox->lock);
    *offset += inbox->nslabs * inbox->slab_bytes;
    return taken;
}

bool inbox_take(struct inbox *inbox, uint32_t thread, uint64_t bytes, struct inbox_block *block) {
    uint64_t offset;
    block->bytes = 0;
    if (bytes == 0)
        return true;
    if (bytes <= INBOX_SMALL && arena_take(inbox->slabs[thread], bytes, &offset))
        block->offset = thread * inbox->slab_bytes + offset;
    else if (take_shared(inbox, bytes, &offset))
        block->offset = offset;
    else
        return false;
    block->bytes = bytes;
    atomic_fetch_add_explicit(&inbox->used, bytes, memory_order_relaxed);
    return true;
}

bool inbox_give(struct inbox *inbox, struct inbox_block *block) {
    if (block->bytes == 0)
        return false;
    uint64_t slabs = inbox->nslabs * inbox->slab_bytes;
    bool shared = block->offset >= slabs, given;
    if (shared) {
        pthread_mutex_lock(&inbox->lock);
        given = arena_give(inbox->shared, block->offset - slabs);
        pthread_mutex_unlock(&inbox->lock);
    } else {
        given = arena_give(inbox->slabs[block->offset / inbox->slab_bytes],
                           block->offset % inbox->slab_bytes);
    }
    if (!given)
        abort(); /* a block given twice: to go on would hand one client's bytes to another */
    atomic_fetch_sub_explicit(&inbox->used, block->bytes, memory_order_relaxed);
    block->bytes = 0;
    return shared;
}
