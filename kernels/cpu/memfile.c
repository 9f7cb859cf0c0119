#include "kernels/cpu/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

void memfile_open(struct memfile *memory) {
    memset(memory, 0, sizeof *memory);
    pthread_mutex_init(&memory->lock, NULL);
}

void memfile_close(struct memfile *memory) {
    for (uint32_t i = 0; i < memory->n; i++)
        munmap(memory->map[i].base, memory->map[i].bytes);
    free(memory->map);
    pthread_mutex_destroy(&memory->lock);
}

static enum xop_status remember(struct memfile *memory, void *base, uint64_t bytes,
                                struct xop_error *error) {
    enum xop_status status = XOP_OK;

    pthread_mutex_lock(&memory->lock);
    if (memory->n == memory->capacity) {
        uint32_t capacity = memory->capacity ? 2 * memory->capacity : 16;
        struct memfile_map *map = realloc(memory->map, capacity * sizeof *map);
        if (map) {
            memory->map = map;
            memory->capacity = capacity;
        } else {
            status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory to note another mapping");
        }
    }
    if (status == XOP_OK)
        memory->map[memory->n++] = (struct memfile_map){base, bytes};
    pthread_mutex_unlock(&memory->lock);
    return status;
}

static enum xop_status map(struct memfile *memory, int descriptor, uint64_t bytes, void **base,
                           struct xop_error *error) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    enum xop_status status;

    if (at == MAP_FAILED)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%llu bytes of memory cannot be mapped: %s",
                        (unsigned long long)bytes, strerror(errno));
    status = remember(memory, at, bytes, error);
    if (status == XOP_OK)
        *base = at;
    else
        munmap(at, bytes);
    return status;
}

enum xop_status memfile_make(struct memfile *memory, uint64_t *bytes, int *descriptor, void **base,
                             struct xop_error *error) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    enum xop_status status = XOP_OK;
    uint64_t size;
    int fd;

    if (*bytes == 0 || *bytes > INT64_MAX - page)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "a memory cannot have %llu bytes",
                        (unsigned long long)*bytes);
    size = (*bytes + page - 1) / page * page;
    fd = memfd_create("xop-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory file can be made: %s",
                        strerror(errno));
    if (ftruncate(fd, (off_t)size) < 0)
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "a memory of %llu bytes cannot be had: %s",
                          (unsigned long long)size, strerror(errno));
    else if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        status =
            xop_fail(error, XOP_INTERNAL, "the memory file cannot be sealed: %s", strerror(errno));
    if (status == XOP_OK)
        status = map(memory, fd, size, base, error);
    if (status != XOP_OK) {
        close(fd);
        return status;
    }
    *bytes = size;
    *descriptor = fd;
    return XOP_OK;
}

enum xop_status memfile_import(struct memfile *memory, int descriptor, uint64_t bytes, void **base,
                               struct xop_error *error) {
    struct stat file;
    int seals;

    if (fstat(descriptor, &file) < 0)
        return xop_fail(error, XOP_INTERNAL, "fstat of a memory's descriptor: %s", strerror(errno));
    seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the descriptor is no memory file that is sealed against resizing");
    if (bytes == 0 || file.st_size < 0 || (uint64_t)file.st_size != bytes)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the memory has %lld bytes, not %llu",
                        (long long)file.st_size, (unsigned long long)bytes);
    return map(memory, descriptor, bytes, base, error);
}

enum xop_status memfile_drop(struct memfile *memory, void *base, struct xop_error *error) {
    uint64_t bytes = 0;

    pthread_mutex_lock(&memory->lock);
    for (uint32_t i = 0; i < memory->n && bytes == 0; i++)
        if (memory->map[i].base == base) {
            bytes = memory->map[i].bytes;
            memory->map[i] = memory->map[--memory->n];
        }
    pthread_mutex_unlock(&memory->lock);
    if (bytes == 0)
        return xop_fail(error, XOP_NOT_FOUND, "no memory was made or imported at %p", base);
    if (munmap(base, bytes) < 0)
        return xop_fail(error, XOP_INTERNAL, "munmap of %llu bytes: %s", (unsigned long long)bytes,
                        strerror(errno));
    return XOP_OK;
}
