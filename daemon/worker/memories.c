#include "memories.h"

#include "batch.h"
#include "daemon/shared/channel.h"
#include "daemon/shared/keeper.h"
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a front may take to make room for an exported descriptor. */
#define EXPORT_MS 5000

struct memory_entry {
    struct seam_memory asked;
    unsigned char *base; /* NULL: not adopted yet */
    uint64_t mapped;     /* bytes that requests may name */
    int fd;              /* given with a client's; -1: none */
    bool busy;           /* the helper has it */
};

/* What the helper does for a task. */
struct errand {
    struct helper_job job;
    struct task *task;
    struct memory_entry *memory;
    struct seam_memory asked; /* a release, of what need not be in the table */
    uint64_t bytes_in, bytes_out;
    struct xop_probe probe;
    struct xop_error error;
};

static void complete(struct worker *worker, const struct errand *errand) {
    /* What ends the worker is no answer: the next one is asked again. */
    if (errand->error.status == XOP_DEVICE_FAULT)
        worker->lost = errand->error;
    else
        batch_complete(worker, errand->task, errand->error.status, errand->error.message, 0, 0);
}

/* An errand for the helper; where there is no memory for it, the task is through. */
static struct errand *errand_new(struct worker *worker, struct task *task,
                                 void (*run)(struct worker *, struct helper_job *),
                                 void (*done)(struct worker *, struct helper_job *)) {
    struct errand *errand = calloc(1, sizeof *errand);
    if (!errand) {
        batch_complete(worker, task, XOP_RESOURCE_EXHAUSTED, "the worker is out of memory", 0, 0);
        return NULL;
    }
    errand->job = (struct helper_job){.run = run, .done = done};
    errand->task = task;
    errand->asked = task->memory;
    return errand;
}

static void entry_free(struct memory_entry *entry) {
    if (entry && entry->fd >= 0)
        close(entry->fd);
    free(entry);
}

/* ---- The keeper ---- */

/* Asks the keeper. *fd goes along where it is not -1, and is the answer's afterwards. */
static enum xop_status ask_keeper(const struct worker *worker, enum keeper_type type,
                                  uint64_t number, uint64_t *bytes, int *fd,
                                  struct xop_error *error) {
    unsigned char packet[CHANNEL_BYTES];
    struct keeper_message message = {.type = type, .number = number, .bytes = *bytes};
    uint32_t nfds;
    size_t received;
    bool would_block;
    if (channel_send(worker->keeper, &message, sizeof message, NULL, 0, fd, *fd >= 0, error) !=
        XOP_OK)
        return error->status;
    *fd = -1;
    if (channel_receive(worker->keeper, packet, &received, fd, 1, &nfds, &would_block, error) !=
        XOP_OK)
        return error->status;
    if (received != sizeof message)
        return xop_fail(error, XOP_UNAVAILABLE, "the keeper of memories does not answer");
    memcpy(&message, packet, sizeof message);
    *bytes = message.bytes;
    return (enum xop_status)message.status;
}

/* ---- Clients' ---- */

static enum xop_status check_file(const struct memory_entry *memory, struct xop_error *error) {
    struct stat info;
    int seals = fcntl(memory->fd, F_GET_SEALS);
    if (fstat(memory->fd, &info) < 0 || seals < 0 || !(seals & F_SEAL_SHRINK) ||
        (uint64_t)info.st_size < memory->asked.bytes)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the memory is no memfd of %llu bytes that is sealed against shrinking",
                        (unsigned long long)memory->asked.bytes);
    if (memory->asked.flags & SEAM_WRITABLE && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the memory is sealed against writing: it can be attached for reading");
    return XOP_OK;
}

static uint64_t whole_pages(uint64_t bytes) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static enum xop_status map_client(struct worker *worker, struct memory_entry *memory,
                                  struct xop_error *error) {
    bool write = memory->asked.flags & SEAM_WRITABLE;
    uint64_t bytes = whole_pages(memory->asked.bytes);
    if (check_file(memory, error) != XOP_OK)
        return error->status;
    void *base = mmap(NULL, bytes, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED, memory->fd, 0);
    if (base == MAP_FAILED)
        return xop_fail(error, errno == ENOMEM ? XOP_RESOURCE_EXHAUSTED : XOP_INVALID_ARGUMENT,
                        "the memory cannot be mapped for %s: %s", write ? "writing" : "reading",
                        strerror(errno));
    /* No request should wait for its pages, and what there is no memory for shows now. */
    if (madvise(base, bytes, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) < 0 &&
        errno != EINVAL) /* before Linux 5.14 */
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "there is no memory behind these %llu bytes: %s",
                 (unsigned long long)bytes, strerror(errno));
    else if (worker->api->register_host(worker->backend, base, bytes, !write, error) == XOP_OK) {
        memory->base = base;
        memory->mapped = memory->asked.bytes;
        return XOP_OK;
    }
    munmap(base, bytes);
    return error->status;
}

static enum xop_status unmap_client(struct worker *worker, struct memory_entry *memory,
                                    struct xop_error *error) {
    uint64_t bytes = whole_pages(memory->asked.bytes);
    enum xop_status status = worker->api->unregister_host(worker->backend, memory->base, error);
    if (munmap(memory->base, bytes) < 0 && status == XOP_OK)
        status = xop_fail(error, XOP_INTERNAL, "munmap: %s", strerror(errno));
    return status;
}

/* ---- The device's ---- */

/* Makes it and gives it to the keeper; *fd is the caller's. */
static enum xop_status make_device(struct worker *worker, struct memory_entry *memory, int *fd,
                                   struct xop_error *error) {
    struct xop_error ignored;
    uint64_t bytes = memory->asked.bytes;
    void *base;
    if (worker->api->memory_make(worker->backend, &bytes, memory->asked.flags & SEAM_ZEROED, fd,
                                 &base, error) != XOP_OK)
        return error->status;
    int answered = *fd;
    uint64_t kept = bytes;
    enum xop_status status =
        ask_keeper(worker, KEEPER_KEEP, memory->asked.number, &kept, &answered, error);
    if (answered >= 0 && answered != *fd)
        close(answered);
    if (status == XOP_OK) {
        memory->base = base;
        memory->mapped = bytes;
        return XOP_OK;
    }
    if (error->status != status)
        xop_fail(error, status,
                 "the parent cannot keep another memory: it has as many descriptors "
                 "as its limit of open files allows");
    worker->api->memory_drop(worker->backend, base, &ignored);
    close(*fd);
    *fd = -1;
    return status;
}

static enum xop_status import_device(struct worker *worker, struct memory_entry *memory, int fd,
                                     uint64_t bytes, struct xop_error *error) {
    void *base;
    if (fd < 0 || bytes < memory->asked.bytes)
        return xop_fail(error, XOP_INTERNAL, "the keeper gave another memory than was asked for");
    if (worker->api->memory_import(worker->backend, fd, bytes, &base, error) != XOP_OK)
        return error->status;
    memory->base = base;
    memory->mapped = bytes;
    return XOP_OK;
}

static enum xop_status send_exported(const struct worker *worker, const struct memory_entry *memory,
                                     int fd, struct xop_error *error) {
    struct seam_control head = {SEAM_EXPORTED, sizeof(struct seam_memory)};
    struct pollfd ready = {worker->control, POLLOUT, 0};
    if (poll(&ready, 1, EXPORT_MS) < 0 && errno != EINTR)
        return xop_fail(error, XOP_INTERNAL, "poll: %s", strerror(errno));
    return channel_send(worker->control, &head, sizeof head, &memory->asked, sizeof memory->asked,
                        &fd, 1, error);
}

static enum xop_status adopt_device(struct worker *worker, struct memory_entry *memory,
                                    struct xop_error *error) {
    uint64_t bytes = 0;
    int fd = -1;
    error->status = XOP_OK;
    enum xop_status status =
        ask_keeper(worker, KEEPER_RECALL, memory->asked.number, &bytes, &fd, error);
    if (status == XOP_OK)
        status = import_device(worker, memory, fd, bytes, error);
    else if (status != XOP_NOT_FOUND)
        status = error->status != XOP_OK
                     ? error->status
                     : xop_fail(error, XOP_INTERNAL, "the keeper does not give the memory");
    else if (memory->asked.flags & SEAM_MUST_BE)
        status = xop_fail(error, XOP_DATA_LOSS, "the memory was lost with the worker that had it");
    else
        status = make_device(worker, memory, &fd, error);
    if (status == XOP_OK && memory->asked.flags & SEAM_EXPORT &&
        (status = send_exported(worker, memory, fd, error)) != XOP_OK) {
        struct xop_error ignored;
        worker->api->memory_drop(worker->backend, memory->base, &ignored);
        memory->base = NULL;
    }
    if (fd >= 0)
        close(fd);
    return status;
}

static enum xop_status drop_device(struct worker *worker, uint64_t number, void *base,
                                   struct xop_error *error) {
    struct xop_error second = {XOP_OK, ""};
    uint64_t bytes = 0;
    int fd = -1;
    enum xop_status status = XOP_OK;
    if (base)
        status = worker->api->memory_drop(worker->backend, base, error);
    /* Even of what could not be unmapped: the keeper's is one reference less. */
    if (ask_keeper(worker, KEEPER_DROP, number, &bytes, &fd, &second) != XOP_OK && status == XOP_OK)
        status = xop_fail(error, XOP_UNAVAILABLE, "the keeper of memories: %.400s", second.message);
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- Adopting ---- */

static void run_adopt(struct worker *worker, struct helper_job *job) {
    struct errand *errand = (struct errand *)job;
    struct memory_entry *memory = errand->memory;
    errand->error.status = memory->asked.kind == SEAM_CLIENT
                               ? map_client(worker, memory, &errand->error)
                               : adopt_device(worker, memory, &errand->error);
}

static void done_adopt(struct worker *worker, struct helper_job *job) {
    struct errand *errand = (struct errand *)job;
    struct memory_entry *memory = errand->memory;
    const struct task *task = errand->task;
    memory->busy = false;
    worker->lanes[task->lane].results[task->index].bytes = memory->mapped;
    if (memory->fd >= 0)
        close(memory->fd);
    memory->fd = -1;
    if (errand->error.status != XOP_OK)
        entry_free(table_remove(&worker->memories, memory->asked.number));
    complete(worker, errand);
    free(errand);
}

/* The table's entry for what is to be adopted: of a client's memory the one that was given. */
static struct memory_entry *entry_for(struct worker *worker, const struct seam_memory *asked) {
    struct memory_entry *entry =
        asked->number ? table_find(&worker->memories, asked->number) : NULL;
    bool client = asked->kind == SEAM_CLIENT;
    if (asked->number == 0 || asked->bytes == 0 || asked->bytes > INT64_MAX ||
        (!client && asked->kind != SEAM_DEVICE))
        return NULL;
    if (client)
        return entry && !entry->busy && !entry->base && entry->fd >= 0 &&
                       memcmp(&entry->asked, asked, sizeof *asked) == 0
                   ? entry
                   : NULL;
    if (entry || !(entry = calloc(1, sizeof *entry)))
        return NULL;
    entry->asked = *asked;
    entry->fd = -1;
    if (table_add(&worker->memories, asked->number, entry))
        return entry;
    free(entry);
    return NULL;
}

void memories_adopt(struct worker *worker, struct task *task) {
    struct memory_entry *entry = entry_for(worker, &task->memory);
    if (!entry) {
        batch_complete(worker, task, XOP_INTERNAL,
                       "the record of this request is not well-formed: a memory that cannot be "
                       "adopted",
                       0, 0);
        return;
    }
    struct errand *errand = errand_new(worker, task, run_adopt, done_adopt);
    if (!errand) {
        entry_free(table_remove(&worker->memories, task->memory.number));
        return;
    }
    entry->busy = true;
    errand->memory = entry;
    helper_ask(worker, &errand->job, false);
}

void memories_given(struct worker *worker, const struct seam_memory *memory, int fd) {
    struct memory_entry *entry = calloc(1, sizeof *entry);
    if (entry && memory->number && !table_find(&worker->memories, memory->number)) {
        entry->asked = *memory;
        entry->fd = fd;
        if (table_add(&worker->memories, memory->number, entry))
            return;
    }
    /* Its adoption fails, and says so. */
    close(fd);
    free(entry);
}

/* ---- Releasing ---- */

static void run_release(struct worker *worker, struct helper_job *job) {
    struct errand *errand = (struct errand *)job;
    struct memory_entry *memory = errand->memory;
    if (errand->asked.kind == SEAM_DEVICE)
        errand->error.status =
            drop_device(worker, errand->asked.number, memory ? memory->base : NULL, &errand->error);
    else if (memory && memory->base)
        errand->error.status = unmap_client(worker, memory, &errand->error);
}

static void done_release(struct worker *worker, struct helper_job *job) {
    struct errand *errand = (struct errand *)job;
    complete(worker, errand);
    if (errand->memory)
        entry_free(table_remove(&worker->memories, errand->memory->asked.number));
    free(errand);
}

void memories_release(struct worker *worker, struct task *task) {
    struct memory_entry *entry =
        task->memory.number ? table_find(&worker->memories, task->memory.number) : NULL;
    if (task->memory.number == 0 || (entry && entry->busy)) {
        batch_complete(worker, task, XOP_INTERNAL,
                       "the record of this request is not well-formed: a memory that cannot be "
                       "released",
                       0, 0);
        return;
    }
    struct errand *errand = errand_new(worker, task, run_release, done_release);
    if (!errand)
        return;
    /* It stays in the table, where nobody finds it, so that who ends meanwhile frees it. */
    errand->memory = entry;
    if (entry)
        entry->busy = true;
    helper_ask(worker, &errand->job, false);
}

/* ---- Timing the device ---- */

static void run_probe(struct worker *worker, struct helper_job *job) {
    struct errand *errand = (struct errand *)job;
    const struct seam_request *record =
        &worker->lanes[errand->task->lane].requests[errand->task->index];
    if (atomic_load(&record->dropped) != 0) {
        xop_fail(&errand->error, XOP_CANCELLED, "dropped before it was started");
        return;
    }
    errand->error.status = worker->api->probe(worker->backend, errand->bytes_in, errand->bytes_out,
                                              &errand->probe, &errand->error);
}

static void done_probe(struct worker *worker, struct helper_job *job) {
    struct errand *errand = (struct errand *)job;
    struct seam_result *result = &worker->lanes[errand->task->lane].results[errand->task->index];
    result->probe = (struct seam_probe){errand->probe.launch_ns, errand->probe.direct_ns,
                                        errand->probe.copy_ns, errand->probe.device_ns};
    complete(worker, errand);
    free(errand);
}

void memories_probe(struct worker *worker, struct task *task) {
    struct errand *errand = errand_new(worker, task, run_probe, done_probe);
    if (!errand)
        return;
    errand->bytes_in = task->bytes_in;
    errand->bytes_out = task->bytes_out;
    helper_ask(worker, &errand->job, true);
}

/* ---- Using ---- */

void *memories_find(const struct worker *worker, uint64_t number, uint64_t offset, uint64_t bytes,
                    bool write, const char **why) {
    const struct memory_entry *entry = number ? table_find(&worker->memories, number) : NULL;
    *why = NULL;
    if (!entry || entry->busy || !entry->base)
        *why = "a memory that is not adopted";
    else if (offset > entry->mapped || bytes > entry->mapped - offset)
        *why = "a tensor outside its memory";
    else if (write && entry->asked.kind == SEAM_CLIENT && !(entry->asked.flags & SEAM_WRITABLE))
        *why = "an output in memory that is not to be written";
    return *why ? NULL : entry->base + offset;
}

void memories_close(struct worker *worker) {
    struct table_entry *entries = worker->memories.entries;
    for (uint32_t i = 0; i < worker->memories.capacity; i++)
        if (entries[i].key)
            entry_free(entries[i].value);
    table_close(&worker->memories);
}
