#include "populate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define PIECE ((size_t)16 << 20) /* that a thread takes at a time */
#define MOST_THREADS 4

struct populate {
    unsigned char *base;
    size_t bytes;
    bool write;
    atomic_size_t next;
    pthread_t threads[MOST_THREADS];
    uint32_t nthreads;
};

/* An older kernel does not know the advice; a page that is read is there as well. */
static void touch(const unsigned char *at, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bytes; i += page)
        (void)*(const volatile unsigned char *)(at + i);
}

static void *run(void *arg) {
    struct populate *p = arg;
    size_t at;
    while ((at = atomic_fetch_add(&p->next, PIECE)) < p->bytes) {
        size_t bytes = p->bytes - at < PIECE ? p->bytes - at : PIECE;
        if (madvise(p->base + at, bytes, p->write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0)
            touch(p->base + at, bytes);
    }
    return NULL;
}

struct populate *populate_begin(const void *base, size_t bytes, bool write) {
    struct populate *p = calloc(1, sizeof *p);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted = cores >= 2 * MOST_THREADS ? MOST_THREADS : cores >= 4 ? 2 : 1;
    if (!p)
        return NULL;
    p->base = (unsigned char *)(uintptr_t)base;
    p->bytes = bytes;
    p->write = write;
    while (p->nthreads < wanted && pthread_create(&p->threads[p->nthreads], NULL, run, p) == 0)
        p->nthreads++;
    return p;
}

void populate_end(struct populate *p) {
    for (uint32_t i = 0; p && i < p->nthreads; i++)
        pthread_join(p->threads[i], NULL);
    free(p);
}
