#include "memory.h"

#include "daemon/shared/channel.h"
#include "dispatch.h"
#include "identity.h"
#include "request.h"
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Tensors of more bytes have a memory each. */
#define SLAB_LARGEST (UINT64_C(8) << 20)
#define SLAB_BYTES (UINT64_C(64) << 20)
/* Clients' memories that one connection attaches. */
#define MAX_ATTACHED 256u

/* ---- Making and freeing ---- */

static void release(struct object *object);

static struct memory *memory_new(struct io_thread *thread, enum seam_memory_kind kind,
                                 uint64_t bytes) {
    struct memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    object_init(&memory->object, release);
    memory->thread = thread;
    memory->kind = kind;
    memory->bytes = bytes;
    memory->number = (uint64_t)thread->index << 48 | ++thread->memory_numbers;
    memory->fd = memory->exported = -1;
    memory->waiters_tail = &memory->waiters;
    memory->next = thread->memories;
    if (memory->next)
        memory->next->previous = memory;
    thread->memories = memory;
    return memory;
}

static void memory_free(struct memory *memory) {
    struct front *front = memory->thread->front;
    if (memory->kind == SEAM_CLIENT)
        atomic_fetch_sub(&front->attached_bytes, memory->bytes);
    else
        atomic_fetch_sub(&front->resident_bytes, memory->bytes);
    if (memory->previous)
        memory->previous->next = memory->next;
    else
        memory->thread->memories = memory->next;
    if (memory->next)
        memory->next->previous = memory->previous;
    if (memory->fd >= 0)
        close(memory->fd);
    if (memory->exported >= 0)
        close(memory->exported);
    identity_give(memory->payer, QUOTA_ATTACHED, memory->bytes);
    free(memory->object.windows);
    arena_free(memory->arena);
    free(memory);
}

/* A request of our own about a memory. NULL where memory runs out. */
static struct request *ask(struct memory *memory, enum seam_kind kind) {
    struct io_thread *thread = memory->thread;
    struct request *request = request_new(thread);
    if (!request)
        return NULL;
    request->kind = kind;
    request->is_internal = true;
    request->memory = memory;
    request->state = REQUEST_QUEUED;
    request->next = NULL;
    *thread->internal_tail = request;
    thread->internal_tail = &request->next;
    return request;
}

/* Nobody uses it any more: the worker and the keeper let go of it, and then it is freed. */
static void release(struct object *object) {
    struct memory *memory = (struct memory *)object; /* its first member */
    bool known = memory->state == MEMORY_USABLE || memory->offered;
    if (known && ask(memory, SEAM_RELEASE))
        return;
    if (known)
        log_error("out of memory: a memory of %llu bytes stays with the worker",
                  (unsigned long long)memory->bytes);
    memory_free(memory);
}

/* ---- Clients' ---- */

/* Takes bytes from what is allowed of a sum. */
static bool charge(_Atomic uint64_t *sum, uint64_t bytes, uint64_t limit) {
    uint64_t now = atomic_load(sum);
    do
        if (bytes > limit || now > limit - bytes)
            return false;
    while (!atomic_compare_exchange_weak(sum, &now, now + bytes));
    return true;
}

static uint64_t attached_limit(const struct config *config) {
    struct sysinfo host;
    if (config->attached_bytes)
        return config->attached_bytes;
    return sysinfo(&host) == 0 ? (uint64_t)host.totalram * host.mem_unit / 2 : UINT64_MAX;
}

static enum xop_status check_descriptor(int fd, uint64_t bytes, struct xop_error *error) {
    struct stat info;
    struct statfs place;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info) < 0 || fstatfs(fd, &place) < 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the descriptor cannot be used: %s",
                        strerror(errno));
    if (!S_ISREG(info.st_mode) || seals < 0 || place.f_type != TMPFS_MAGIC)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the descriptor is no memfd on tmpfs: memfd_create without MFD_HUGETLB "
                        "makes one");
    if (!(seals & F_SEAL_SHRINK))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the memory is not sealed with F_SEAL_SHRINK: it could be cut off under "
                        "the server");
    if (bytes == 0 || (uint64_t)info.st_size < bytes)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "length: the memory has %llu bytes, %llu are to be attached",
                        (unsigned long long)info.st_size, (unsigned long long)bytes);
    return XOP_OK;
}

static enum xop_status charge_attached(struct connection *c, uint64_t bytes,
                                       struct identity **payer, struct xop_error *error) {
    const struct config *config = shared_config(c->thread);
    uint64_t own = config->quota_attached_bytes, all = attached_limit(config);
    uint64_t has = stats_get(c->stats.attached_bytes);
    if (c->holdings.nmemories == MAX_ATTACHED)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%u memories are attached already",
                        MAX_ATTACHED);
    if (own && (bytes > own || has > own - bytes))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                        "a connection may attach %llu bytes (quota.attached), of which %llu are "
                        "used",
                        (unsigned long long)own, (unsigned long long)has);
    if (identity_take(c->identity, QUOTA_ATTACHED, bytes, payer, error) != XOP_OK)
        return error->status;
    if (charge(&c->thread->front->attached_bytes, bytes, all))
        return XOP_OK;
    identity_give(*payer, QUOTA_ATTACHED, bytes);
    return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                    "all clients together may attach %llu bytes (device.attached)",
                    (unsigned long long)all);
}

struct memory *memory_attach(struct connection *c, uint64_t id, int fd, uint64_t bytes, bool write,
                             struct xop_error *error) {
    struct memory *memory = NULL;
    struct identity *payer = NULL;
    if (check_descriptor(fd, bytes, error) != XOP_OK ||
        charge_attached(c, bytes, &payer, error) != XOP_OK)
        goto fail;
    memory = memory_new(c->thread, SEAM_CLIENT, bytes);
    if (memory) {
        memory->payer = payer;
        memory->object.windows = calloc(ORDER_WINDOWS, sizeof *memory->object.windows);
    }
    if (!memory || !memory->object.windows || !table_add(&c->holdings.memories, id, memory)) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
        if (memory) {
            memory_free(memory);
        } else {
            atomic_fetch_sub(&c->thread->front->attached_bytes, bytes);
            identity_give(payer, QUOTA_ATTACHED, bytes);
        }
        goto fail;
    }
    memory->id = id;
    memory->fd = fd;
    memory->flags = write ? SEAM_WRITABLE : 0;
    memory->connection = c;
    c->holdings.nmemories++;
    stats_add(c->stats.attached_bytes, bytes);
    return memory;
fail:
    close(fd);
    return NULL;
}

void memory_detach(struct memory *memory) {
    struct connection *c = memory->connection;
    table_remove(&c->holdings.memories, memory->id);
    c->holdings.nmemories--;
    atomic_fetch_sub_explicit(&c->stats.attached_bytes, memory->bytes, memory_order_relaxed);
    memory->connection = NULL;
    object_drop(&memory->object);
}

void memory_detach_all(struct connection *c) {
    struct memory *memory;
    while ((memory = table_any(&c->holdings.memories)))
        memory_detach(memory);
    table_close(&c->holdings.memories);
}

/* ---- The device's ---- */

static struct memory *device_new(struct io_thread *thread, uint64_t bytes,
                                 struct xop_error *error) {
    struct front *front = thread->front;
    uint64_t limit = atomic_load(&front->resident_limit);
    if (!charge(&front->resident_bytes, bytes, limit)) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                 "resident tensors may have %llu bytes of the device (device.resident), of which "
                 "%llu are used",
                 (unsigned long long)limit,
                 (unsigned long long)atomic_load(&front->resident_bytes));
        return NULL;
    }
    struct memory *memory = memory_new(thread, SEAM_DEVICE, bytes);
    if (memory)
        return memory;
    atomic_fetch_sub(&front->resident_bytes, bytes);
    xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
    return NULL;
}

static void remove_slab(struct memory *memory) {
    struct memory **at = &memory->thread->slabs;
    while (*at && *at != memory)
        at = &(*at)->next_slab;
    if (!*at)
        return;
    *at = memory->next_slab;
    object_drop(&memory->object); /* the list's reference */
}

bool memory_take(struct io_thread *thread, uint64_t bytes, bool alone, struct memory **memory,
                 uint64_t *offset, struct xop_error *error) {
    *offset = 0;
    if (alone || bytes > SLAB_LARGEST) {
        *memory = device_new(thread, bytes, error);
        if (*memory && alone)
            (*memory)->flags = SEAM_ZEROED | SEAM_EXPORT;
        return *memory != NULL;
    }
    for (*memory = thread->slabs; *memory; *memory = (*memory)->next_slab)
        if (arena_take((*memory)->arena, bytes, offset)) {
            object_hold(&(*memory)->object);
            return true;
        }
    struct memory *slab = device_new(thread, SLAB_BYTES, error);
    if (!slab)
        return false;
    slab->arena = arena_new(SLAB_BYTES);
    if (!slab->arena || !arena_take(slab->arena, bytes, offset)) {
        object_drop(&slab->object);
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory") == XOP_OK;
    }
    slab->next_slab = thread->slabs; /* the first reference is the list's */
    thread->slabs = slab;
    *memory = slab;
    object_hold(&slab->object);
    return true;
}

void memory_give(struct memory *memory, uint64_t offset) {
    if (memory->arena) {
        if (!arena_give(memory->arena, offset))
            abort(); /* a tensor given back twice: its bytes may be another's already */
        /* One that is empty is enough for the next small tensor. */
        if (arena_used(memory->arena) == 0 && memory->thread->slabs &&
            memory->thread->slabs->next_slab)
            remove_slab(memory);
    }
    object_drop(&memory->object);
}

/* ---- Adoption ---- */

void memory_wait(struct memory *memory, struct request *request) {
    request->state = REQUEST_WAITING;
    request->memory = memory;
    request->next = NULL;
    *memory->waiters_tail = request;
    memory->waiters_tail = &request->next;
}

bool memory_ready(struct memory *memory, struct request *request) {
    if (memory->state == MEMORY_USABLE)
        return true;
    if (memory->state == MEMORY_BROKEN) {
        request_fail(request, memory->error.status, "%s", memory->error.message);
        return false;
    }
    if (memory->state == MEMORY_UNKNOWN) {
        if (!ask(memory, SEAM_ADOPT)) {
            request_fail(request, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
            return false;
        }
        object_hold(&memory->object);
        memory->state = MEMORY_ASKED;
    }
    memory_wait(memory, request);
    return false;
}

void memory_forget(struct request *request) {
    struct memory *memory = request->memory;
    struct request **at = &memory->waiters;
    while (*at && *at != request)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = request->next;
    if (!*at)
        memory->waiters_tail = at;
    request->state = REQUEST_DONE;
}

static struct request *pop_waiter(struct memory *memory) {
    struct request *request = memory->waiters;
    memory->waiters = request->next;
    if (!memory->waiters)
        memory->waiters_tail = &memory->waiters;
    request->state = REQUEST_DONE;
    return request;
}

static void wake_waiters(struct memory *memory) {
    while (memory->waiters)
        dispatch_again(pop_waiter(memory));
}

static void fail_waiters(struct memory *memory, enum xop_status status, const char *text) {
    while (memory->waiters)
        request_fail(pop_waiter(memory), status, "%s", text);
}

bool memory_fill(struct request *request, struct seam_request *record) {
    struct memory *memory = request->memory;
    struct generation *generation = memory->thread->generation;
    struct seam_control head = {SEAM_GIVE, sizeof(struct seam_memory)};
    struct xop_error error;
    record->memory = (struct seam_memory){memory->number, memory->bytes, memory->kind,
                                          memory->flags | (memory->made ? SEAM_MUST_BE : 0)};
    memory->offered |= memory->kind == SEAM_DEVICE;
    if (request->kind != SEAM_ADOPT || memory->kind != SEAM_CLIENT)
        return true;
    enum xop_status status = channel_send(generation->control, &head, sizeof head, &record->memory,
                                          sizeof record->memory, &memory->fd, 1, &error);
    if (status != XOP_OK)
        log_debug("a client's memory cannot be handed over now: %s", error.message);
    return status == XOP_OK;
}

static void adopted(struct memory *memory, const struct seam_result *result) {
    if (result->status == XOP_OK) {
        memory->state = MEMORY_USABLE;
        memory->whole = result->bytes;
        memory->made |= memory->kind == SEAM_DEVICE;
        /* An export's descriptor may still be on its way. */
        if (!(memory->flags & SEAM_EXPORT) || memory->exported >= 0)
            wake_waiters(memory);
        return;
    }
    /* Room there may be again: the next request asks once more. */
    memory->state = result->status == XOP_RESOURCE_EXHAUSTED ? MEMORY_UNKNOWN : MEMORY_BROKEN;
    xop_fail(&memory->error, (enum xop_status)result->status, "%s", result->message);
    fail_waiters(memory, memory->error.status, memory->error.message);
    if (memory->arena)
        remove_slab(memory);
}

void memory_completed(struct request *request, const struct seam_result *result) {
    struct memory *memory = request->memory;
    enum seam_kind kind = request->kind;
    request->memory = NULL;
    request_free(request);
    if (kind == SEAM_ADOPT) {
        adopted(memory, result);
        object_drop(&memory->object);
        return;
    }
    if (result->status != XOP_OK)
        log_error("a memory of %llu bytes stays with the worker: %s",
                  (unsigned long long)memory->bytes, result->message);
    memory_free(memory);
}

void memory_orphaned(struct request *request) {
    struct memory *memory = request->memory;
    enum seam_kind kind = request->kind;
    request->memory = NULL;
    request_free(request);
    if (kind == SEAM_ADOPT) {
        /* One that a worker may have made is the keeper's now, or it was not made at all. */
        object_drop(&memory->object);
    } else if (memory->kind == SEAM_CLIENT || !ask(memory, SEAM_RELEASE)) {
        memory_free(memory);
    }
}

void memory_released(struct memory *memory) { memory->state = MEMORY_UNKNOWN; }

/* Whether its adoption has not been submitted yet: the next worker gets it. */
static bool is_still_asked(const struct memory *memory) {
    const struct request *request = memory->thread->internal;
    while (request && (request->memory != memory || request->kind != SEAM_ADOPT))
        request = request->next;
    return request != NULL;
}

void memory_gone(struct io_thread *thread) {
    for (struct memory *memory = thread->memories; memory; memory = memory->next) {
        if (memory->object.references == 0)
            continue; /* being released */
        if (memory->state == MEMORY_ASKED && is_still_asked(memory))
            continue; /* asked twice it would be refused, and broken for it */
        if (memory->exported >= 0 && memory->state == MEMORY_ASKED) {
            close(memory->exported);
            memory->exported = -1;
        }
        memory->state = MEMORY_UNKNOWN;
        wake_waiters(memory);
    }
}

/* The first from here on that somebody uses: the others are being released. */
static struct memory *in_use(struct memory *memory) {
    while (memory && memory->object.references == 0)
        memory = memory->next;
    return memory;
}

void memory_refuse_all(struct io_thread *thread, const char *reason) {
    struct memory *memory = in_use(thread->memories);
    if (memory)
        object_hold(&memory->object);
    while (memory) {
        fail_waiters(memory, XOP_UNAVAILABLE, reason);
        /* What fails may have been the last user of this one or of its neighbours. */
        struct memory *next = in_use(memory->next);
        if (next)
            object_hold(&next->object);
        object_drop(&memory->object);
        memory = next;
    }
}

void memory_exported(struct io_thread *thread, uint64_t number, int fd) {
    struct memory *memory = thread->memories;
    while (memory && memory->number != number)
        memory = memory->next;
    if (!memory || memory->exported >= 0 || !(memory->flags & SEAM_EXPORT)) {
        close(fd);
        return;
    }
    memory->exported = fd;
    if (memory->state == MEMORY_USABLE)
        wake_waiters(memory);
}

void memory_close(struct io_thread *thread) {
    for (struct memory *memory = thread->memories, *next; memory; memory = next) {
        next = memory->next;
        memory_free(memory);
    }
    thread->slabs = NULL;
}
